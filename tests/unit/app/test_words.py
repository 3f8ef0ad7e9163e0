"""Ids, moments, refusals and progress as people type and read them."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from assay.app.contract_errors import in_words as refusal_in_words
from assay.app.ids import claim_id_of, job_id_of
from assay.app.job_progress import in_words
from assay.app.times import show_moment, show_span
from assay.protocol.errors import Reverted, Stop
from assay.protocol.types import ClaimId, ClaimView, JobId, Kind, Phase, Progress, Seconds, Terms
from assay.protocol.words import attested, show_state, show_votes

ONE, OTHER = JobId(bytes.fromhex("ab12cd34" + "00" * 28)), JobId(bytes.fromhex("ab12cd34" + "01" * 28))
THIRD = JobId(bytes([9]) * 32)


class Known:
    def job_ids(self) -> list[JobId]:
        return [ONE, OTHER, THIRD]

    def claim_ids(self) -> list[ClaimId]:
        return [ClaimId(ONE)]


@pytest.mark.parametrize("text", ["09090909", "0x0909090909", "09" * 32, "0x" + "09" * 32, " 09090909 "])
def test_an_id_is_given_by_its_first_digits(text: str) -> None:
    assert job_id_of(Known(), text) == THIRD


def test_a_whole_id_need_not_be_known_and_case_does_not_count() -> None:
    assert job_id_of(Known(), "CC" * 32) == bytes([0xCC]) * 32
    assert claim_id_of(Known(), "AB12CD34") == ClaimId(ONE)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("0909090", "bad-id"),
        ("0x", "bad-id"),
        ("", "bad-id"),
        ("zz" * 32, "bad-id"),
        ("09" * 33, "bad-id"),
        ("ab12cd34", "ambiguous-id"),
        ("ffffffff", "no-such-job"),
    ],
)
def test_what_names_no_single_job_is_refused(text: str, code: str) -> None:
    with pytest.raises(Stop) as caught:
        job_id_of(Known(), text)
    assert caught.value.code == code and caught.value.hint


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (59, "59 s"),
        (60, "1 min"),
        (303, "5 min 3 s"),
        (7800, "2 h 10 min"),
        (601_259, "6 d 23 h"),
    ],
)
def test_a_span_has_two_units_at_most(seconds: int, text: str) -> None:
    assert show_span(seconds) == text


def test_a_moment_has_a_date_where_it_is_far() -> None:
    assert show_moment(1_000_057, 1_000_000, wall_s=1_700_000_000.0).endswith(", in 57 s")
    assert show_moment(999_940, 1_000_000, wall_s=1_700_000_000.0).endswith(", 1 min ago")
    far = show_moment(1_000_000 + 7 * 86_400, 1_000_000, wall_s=1_700_000_000.0)
    assert far.startswith("2023-11-21 ") and far.endswith(", in 7 d")


def test_a_refusal_is_told_in_tokens_and_dates() -> None:
    error = Reverted("Stakes.finishUnbond: refused by the contract: NotDue(due=1795962637)", error="NotDue")
    error.arguments = {"due": 1795962637}
    told = refusal_in_words(error)
    assert "2026-11-29" in told.message and "1795962637" not in told.message and told.error == "NotDue"
    short = Reverted("Vault.deposit: refused by the contract: x", error="ERC20InsufficientBalance")
    short.arguments = {"sender": "0xab", "balance": 5 * 10**18, "needed": 7 * 10**18}
    assert "5 tok" in refusal_in_words(short).message and "7 tok" in refusal_in_words(short).message
    strange = Reverted("x: refused by the contract: Odd()", error="Odd")
    assert refusal_in_words(strange) is strange
    nameless = Reverted("x: refused by the contract: NotDue()", error="NotDue")
    assert refusal_in_words(nameless) is nameless


def test_progress_is_a_sentence() -> None:
    progress = Progress(1, 0, 2, False, False, Seconds(0), Seconds(0), 3)
    assert in_words(progress, 3) == "round 1 (of 0 to 2), 0 settled, rewound 2 times"
    assert in_words(replace(progress, round=3, rewinds=0), 3) == "all rounds done, 0 settled"
    assert "halted" in in_words(replace(progress, halted=True), 3)
    assert in_words(replace(progress, closed=True, settled_rounds=3), 3) == "closed after 3 settled rounds"


def claim_of(kind: Kind, phase: Phase, valid: int) -> tuple[ClaimView, Terms]:
    named, status = SimpleNamespace(kind=kind), SimpleNamespace(phase=phase, valid=valid)
    view: Any = SimpleNamespace(claim=named, status=status)
    terms: Any = SimpleNamespace(verifiers=2)
    return view, terms


@pytest.mark.parametrize(
    ("kind", "phase", "valid", "state", "votes"),
    [
        (Kind.TASK, Phase.COMMITTED, 0, "unchecked", ""),
        (Kind.TASK, Phase.SEEDED, 1, "unchecked", ""),
        (Kind.TASK, Phase.ACCEPTED, 0, "unchecked", "0 of 2 votes"),
        (Kind.TASK, Phase.ACCEPTED, 1, "unchecked", "1 of 2 votes"),
        (Kind.TASK, Phase.ACCEPTED, 2, "attested", ""),
        (Kind.TASK, Phase.SETTLED, 2, "settled", ""),
        (Kind.TASK, Phase.SETTLED, 0, "settled", "0 of 2 votes"),
        (Kind.TASK, Phase.CONVICTED, 2, "convicted", ""),
        (Kind.OUTER, Phase.ACCEPTED, 0, "unchecked", ""),
        (Kind.OUTER, Phase.SETTLED, 0, "settled", ""),
    ],
)
def test_a_claim_is_called_checked_only_if_every_seat_vouches_for_it(
    kind: Kind, phase: Phase, valid: int, state: str, votes: str
) -> None:
    view, terms = claim_of(kind, phase, valid)
    assert (show_state(phase, attested(view, terms)), show_votes(view, terms)) == (state, votes)
