"""Posting, following, fetching and offline verification, on a job that the fake market has settled."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load, save

from assay.app.job_progress import unread
from assay.blocks.blockstore import BlockNotFound
from assay.client import posting, receipt
from assay.client.fetched import sample_text
from assay.client.fetching import NotSettled, apart, keep_others
from assay.client.following import follow
from assay.client.losses import MOST_LOOKS, losses_of
from assay.client.verifying import verify
from assay.node.artifacts import load_job, publish_job
from assay.protocol.errors import Ask, Stop
from assay.protocol.params import worst_case
from assay.protocol.types import JobId, Phase, Wei
from tests.fakes.classes import WIDE, conditions_of
from tests.fakes.jobs import RESOURCE_LIMITS, tiny_files, tiny_terms
from tests.fakes.market_day import FUNDS, MarketDay


def test_a_fetched_model_verifies_offline(copy: Path) -> None:
    found = verify(copy)
    assert (found.rounds, found.tasks, found.segments) == (2, 4, 16)
    assert 4 <= found.replayed_segments <= 8
    assert found.convictions == found.disputes == 0


@pytest.mark.parametrize("name", [*receipt.FILES, receipt.RECEIPT])
def test_one_flipped_bit_in_any_file_is_found(copy: Path, name: str) -> None:
    data = (copy / name).read_bytes()
    for at in range(0, len(data), max(len(data) // 12, 1)):
        for bit in (0, 7):
            changed = bytearray(data)
            changed[at] ^= 1 << bit
            (copy / name).write_bytes(bytes(changed))
            with pytest.raises(receipt.BadReceipt):
                verify(copy)
    (copy / name).unlink()
    with pytest.raises(receipt.BadReceipt):
        verify(copy)


def test_a_folder_of_another_job_is_kept(fetched: tuple[MarketDay, JobId, Path], copy: Path) -> None:
    job_id = fetched[1]
    keep_others(copy, job_id)
    with pytest.raises(Ask) as refused:
        keep_others(copy, JobId(b"\1" * 32))
    assert refused.value.code == "file-exists" and job_id.hex()[:16] in refused.value.message
    (copy / receipt.RECEIPT).write_text("{}")
    keep_others(copy, JobId(b"\1" * 32))  # a damaged one is fetched again


def test_following_shows_phases_losses_and_payments(fetched: tuple[MarketDay, JobId, Path]) -> None:
    day, job_id, _ = fetched
    market = day.markets["client"]
    files = load_job(day.blocks(), market.job(job_id).terms, RESOURCE_LIMITS)
    seen = follow(market, job_id, losses_of(market, day.blocks(), job_id, files))
    assert seen.done and seen.outer == (Phase.SETTLED, Phase.SETTLED)
    assert all(line.phase == Phase.SETTLED and line.loss is not None for line in seen.tasks)
    assert all(loss is not None for loss in seen.loss_by_round())
    client = market.me
    assert day.market_state.free[client] == FUNDS - seen.paid


def test_losses_that_are_gone_are_told_of(fetched: tuple[MarketDay, JobId, Path]) -> None:
    day, job_id, _ = fetched
    market = day.markets["client"]
    files = load_job(day.blocks(), market.job(job_id).terms, RESOURCE_LIMITS)
    whole = follow(market, job_id, losses_of(market, day.blocks(), job_id, files))
    assert unread(whole) == ""
    gone = follow(market, job_id, losses_of(market, Refusing(day.blocks()), job_id, files))
    assert unread(gone).startswith("the losses of 4 tasks went with their states, which nodes delete once")
    assert "`assay job watch JOB --metrics FOLDER`" in unread(gone)
    open_ = replace(gone, tasks=tuple(replace(line, phase=Phase.COMMITTED) for line in gone.tasks))
    assert unread(open_).startswith("the states of 4 tasks, which hold the losses, cannot be fetched now;")
    none = replace(gone, tasks=tuple(replace(line, claim_id=None) for line in gone.tasks))
    assert unread(none) == "", "of what is not claimed nobody expects one"


@pytest.mark.parametrize(
    ("model", "says", "hint"),
    [
        (
            {"kind": "own", "name": "my_model.py:build"},
            "a model of its client's own, 'my_model.py:build'",
            "assay job eval",
        ),
        ({"kind": "own", "name": "inference"}, "what a job of kind 'inference' gave", "written.jsonl"),
        ({"kind": "own", "name": "evaluation"}, "what a job of kind 'evaluation' gave", "assay job fetch"),
        ({"kind": "own", "name": "grpo"}, "what a job of kind 'grpo' gave", "--template grpo --weights"),
        ({"kind": "cnn", "width": 16}, "a model of the template 'cnn'", "assay job eval"),
    ],
)
def test_what_writes_no_text_is_told_what_does(
    tmp_path: Path, model: dict[str, Any], says: str, hint: str
) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps({"model": model}))
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(Stop) as caught:
        sample_text(tmp_path, "def ", 5, 1)
    assert says in caught.value.message and "a GPT of the template 'gpt'" in caught.value.message
    assert caught.value.code == "not-a-gpt" and hint in caught.value.hint


class Refusing:
    """Blocks whose files are unavailable while they are `away`; counts the requests."""

    def __init__(self, blocks: Any) -> None:
        self._blocks = blocks
        self.away, self.asked = True, 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._blocks, name)
        if name not in ("get", "read_file", "read_files"):
            return found

        def read(*arguments: Any) -> Any:
            self.asked += 1
            if self.away:
                raise BlockNotFound("nobody has it", hint="wait")
            return found(*arguments)

        return read


def test_states_that_nobody_has_are_not_asked_for_at_each_look(
    fetched: tuple[MarketDay, JobId, Path],
) -> None:
    """States that retention deleted stay missing, and a following client polls every second."""
    day, job_id, _ = fetched
    market, blocks = day.markets["client"], Refusing(day.blocks())
    files = load_job(day.blocks(), market.job(job_id).terms, RESOURCE_LIMITS)
    losses = losses_of(market, blocks, job_id, files, measure=True)
    for _ in range(200):
        seen = follow(market, job_id, losses)
    assert {line.loss for line in seen.tasks} == {None}
    assert 0 < blocks.asked < 40 * len(seen.tasks), "of 200 looks"
    blocks.away = False
    for _ in range(MOST_LOOKS):
        seen = follow(market, job_id, losses)
    assert None not in {line.loss for line in seen.tasks}, "what comes back is read"
    before = blocks.asked
    follow(market, job_id, losses)
    assert blocks.asked == before


def test_tensors_of_equal_bytes_are_written_apart() -> None:
    """Slots of equal bytes are fetched as one tensor, and safetensors refuses one that is there twice."""
    one = torch.ones(4)
    with pytest.raises(RuntimeError, match="share memory"):
        save({"a": one, "b": one})
    assert set(load(save(apart({"a": one, "b": one})))) == {"a", "b"}


def test_a_model_that_is_not_settled_is_not_fetched(day: MarketDay, tmp_path: Path) -> None:
    job_id = day.post()
    with pytest.raises(NotSettled):
        day.fetch(job_id, tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_withheld_model_is_recomputed(fetched: tuple[MarketDay, JobId, Path], tmp_path: Path) -> None:
    day, job_id, folder = fetched
    job_files = {cid for cid in day.network.blocks if cid in _public(day)}
    day.network.withheld = set(day.network.blocks) - job_files
    try:
        day.fetch(job_id, tmp_path)
    finally:
        day.network.withheld = set()
    assert (tmp_path / receipt.MODEL).read_bytes() == (folder / receipt.MODEL).read_bytes()


def _public(day: MarketDay) -> set[str]:
    blocks = day.blocks()
    publish_job(blocks, tiny_files())
    return blocks.own


def test_a_job_over_budget_or_unfunded_is_not_posted(day: MarketDay) -> None:
    market = day.join("client")
    terms = posting.publish(day.blocks(), tiny_files(), lambda found: tiny_terms(found, market.me))
    worst = posting.estimate(terms, conditions_of(terms), WIDE)
    assert worst == worst_case(terms)
    with pytest.raises(Stop, match="over budget"):
        posting.post(market, terms, conditions_of(terms), Wei(worst - 1))
    dear = replace(terms, price_cap=Wei(10 * FUNDS), solver_stake=Wei(60 * FUNDS))
    with pytest.raises(Ask, match="unfunded"):
        posting.post(market, dear, conditions_of(dear), worst_case(dear))
    assert not day.market_state.jobs


def test_posting_deposits_what_is_missing_and_posts_once(day: MarketDay) -> None:
    market = day.join("client")
    market.withdraw("back", Wei(FUNDS))
    terms = posting.publish(day.blocks(), tiny_files(), lambda found: tiny_terms(found, market.me))
    worst = posting.estimate(terms, conditions_of(terms), WIDE)
    job_id = posting.post(market, terms, conditions_of(terms), worst)
    assert market.wallet(market.me) == FUNDS - worst and len(day.market_state.jobs) == 1
    day.market_state.wallet[market.me] = Wei(0)
    assert (
        posting.post(market, terms, conditions_of(terms), worst) == job_id and len(day.market_state.jobs) == 1
    )


def test_following_reads_everything_of_one_block(fetched: tuple[MarketDay, JobId, Path]) -> None:
    """Else a claim that settles between two readings counts on one side and not on the other."""
    day, job_id, _ = fetched
    market = day.markets["client"]

    class Watched:
        depth, read = 0, 0

        @contextmanager
        def snapshot(self, since_s: float | None = None) -> Iterator[None]:
            Watched.depth += 1
            with market.snapshot():
                yield
            Watched.depth -= 1

        def __getattr__(self, name: str) -> Any:
            assert Watched.depth == 1, f"{name} is read outside the snapshot"
            Watched.read += 1
            return getattr(market, name)

    assert follow(Watched(), job_id).done
    assert Watched.read >= 4


def test_a_jobs_progress_is_told_in_words(fetched: tuple[MarketDay, JobId, Path]) -> None:
    from assay.app.job_progress import in_words

    day, job_id, _ = fetched
    progress = day.markets["client"].job(job_id).progress
    assert in_words(progress, 2) == "closed after 2 settled rounds"
    running = replace(progress, round=1, closed=False, settled_rounds=0)
    assert in_words(running, 2) == "round 1 (of 0 to 1), 0 settled"
