"""Attack R13: receipts forged without a key. Each forging is shown to be planted: it changes something.

Offline, a forger that keeps any id of the true job is found out, and one that makes up all of them is
consistent with itself and is said to be no more. The chain and a replay find that one.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from safetensors.torch import load, save

from assay.client import receipt
from assay.client.chain_check import compare
from assay.client.receipt import BadReceipt, claim_id_of, derived_job_id, read_receipt
from assay.client.replaying import replay
from assay.client.results import going_on
from assay.client.verifying import verify
from assay.numerics.encoding import to_bytes
from assay.protocol import trees
from assay.protocol.canonical_json import canonical_json
from assay.protocol.encoding import words
from assay.protocol.errors import Unknown
from assay.protocol.types import Address, Chain, Claim, ClaimView, Kind, Phase, Terms
from drills.verifiers import LazyVerifier
from tests.fakes.jobs import RESOURCE_LIMITS, account
from tests.fakes.market_day import MarketDay
from tests.unit.client.conftest import Fetched

SCRIPT = Path(__file__).parents[3] / "examples" / "verify_receipt.py"
Views = list[ClaimView]


@dataclass
class Forgery:
    """A fetched folder and what its receipt is rewritten with; the seal needs no key."""

    folder: Path

    def body(self) -> dict[str, Any]:
        return json.loads((self.folder / receipt.RECEIPT).read_bytes())

    def seal(self, **changes: Any) -> None:
        files = {name: (self.folder / name).read_bytes() for name in receipt.FILES}
        body = {key: value for key, value in self.body().items() if key not in ("seal", "schema", "files")}
        receipt.write_receipt(self.folder, {**body, **changes}, files)

    def claims(self, change: Callable[[ClaimView], ClaimView]) -> None:
        views = [change(view) for view in read_receipt(self.folder).claims]
        self.seal(claims=[receipt.claim_json(view) for view in views])


def with_claim(view: ClaimView, new_id: bool, **changes: Any) -> ClaimView:
    claim: Claim = replace(view.claim, **changes)
    return replace(view, claim=claim, claim_id=claim_id_of(claim) if new_id else view.claim_id)


def inflated(forgery: Forgery, new_id: bool) -> None:
    """The model's weights times -7, with a last outer claim to match, resealed."""
    true = read_receipt(forgery.folder)
    tensors = load((forgery.folder / receipt.MODEL).read_bytes())
    weights = tensors["w"] * -7
    assert not torch.equal(weights, tensors["w"])
    (forgery.folder / receipt.MODEL).write_bytes(save({"w": weights}))
    forgery.seal()
    slots = true.terms.outer_slots
    tree = trees.build([trees.tensor_root(to_bytes(weights)), *[bytes(32)] * (slots - 1)])

    def change(view: ClaimView) -> ClaimView:
        claim = view.claim
        if claim.kind != Kind.OUTER or claim.round != true.rounds - 1:
            return view
        roots = (claim.input_root, tree.root)
        changed = with_claim(view, new_id, output_root=tree.root, segments_root=trees.root(roots))
        return replace(changed, roots=roots)

    forgery.claims(change)
    forgery.seal(proof=[digest.hex() for digest in tree.range_proof(0, 1)])


def test_attack_r13_weights_times_minus_seven_under_the_true_ids(copy: Path) -> None:
    inflated(Forgery(copy), new_id=False)
    with pytest.raises(BadReceipt, match="does not hash to its id"):
        verify(copy)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("dataset_root", b"\x11" * 32),
        ("seed", b"\x22" * 32),
        ("client", account("mallory")),
        ("genesis_root", b"\x33" * 32),
        ("samples", 2),
    ],
)
def test_attack_r13_other_terms_under_the_same_job_id(copy: Path, field: str, value: Any) -> None:
    forgery = Forgery(copy)
    terms: Terms = replace(read_receipt(copy).terms, **{field: value})
    assert terms != read_receipt(copy).terms
    forgery.seal(terms=words(terms).hex())
    with pytest.raises(BadReceipt, match="terms, chain and contract give job id"):
        verify(copy)


@pytest.mark.parametrize(
    "chain",
    [
        {"id": 2, "contracts": {"Jobs": "0x" + "0" * 40}},
        {"id": 1, "contracts": {"Jobs": "0x" + "1" * 40}},
        {"id": 1, "contracts": {}},
        {"id": 1, "contracts": {"Jobs": "nowhere"}},
    ],
)
def test_attack_r13_the_same_job_id_on_another_chain_or_contract(copy: Path, chain: dict) -> None:
    Forgery(copy).seal(chain=chain)
    with pytest.raises(BadReceipt):
        verify(copy)


@pytest.mark.parametrize("field", ["claimant", "price", "committed_at", "manifest", "input_root"])
def test_attack_r13_another_claim_under_its_id(copy: Path, field: str) -> None:
    values: dict[str, Any] = {"claimant": Address("0x" + "ab" * 20), "price": 1, "committed_at": 5}
    value = values.get(field, b"\x44" * 32)
    Forgery(copy).claims(lambda view: with_claim(view, False, **{field: value}))
    with pytest.raises(BadReceipt, match="does not hash to its id"):
        verify(copy)


def test_attack_r13_a_votes_traces_that_it_did_not_commit_to(copy: Path) -> None:
    def change(view: ClaimView) -> ClaimView:
        return replace(view, traces=dict.fromkeys(view.traces, (b"U" * 32,)))

    Forgery(copy).claims(change)
    with pytest.raises(BadReceipt, match="do not hash to its vote"):
        verify(copy)


def test_a_receipt_that_lacks_a_claim_does_not_verify(copy: Path) -> None:
    forgery = Forgery(copy)
    forgery.seal(claims=forgery.body()["claims"][1:])
    with pytest.raises(BadReceipt, match="settled tasks"):
        verify(copy)


def test_a_receipt_sealed_anew_around_another_model_does_not_verify(copy: Path) -> None:
    tensors = load((copy / receipt.MODEL).read_bytes())
    tensors["w"][3] += 1
    (copy / receipt.MODEL).write_bytes(save(tensors))
    Forgery(copy).seal()
    with pytest.raises(BadReceipt, match="do not hash to"):
        verify(copy)


def test_another_manifest_does_not_verify(copy: Path) -> None:
    manifest = json.loads((copy / receipt.MANIFEST).read_bytes())
    manifest["model"]["template"] = "another"
    (copy / receipt.MANIFEST).write_bytes(canonical_json(manifest))
    Forgery(copy).seal()
    with pytest.raises(BadReceipt, match="not the manifest that the terms name"):
        verify(copy)


@pytest.mark.parametrize("rounds", [0, 1, 3, 1 << 40])
def test_another_number_of_rounds_does_not_verify(copy: Path, rounds: int) -> None:
    Forgery(copy).seal(rounds=rounds)
    with pytest.raises(BadReceipt):
        verify(copy)


@pytest.mark.long
def test_a_job_fetched_while_its_next_round_is_being_settled_verifies(tmp_path: Path) -> None:
    """Tasks settle before their round's outer step: the receipt has them, and the model has not."""
    day = MarketDay(tmp_path / "nodes")
    job_id = day.post(rounds=3)
    day.solvers()

    def between() -> bool:
        rounds = day.market_state.jobs[job_id].view.progress.settled_rounds
        claims = day.markets["client"].claims(job_id)
        done = {
            v.claim.round for v in claims if v.status.phase == Phase.SETTLED and v.claim.kind == Kind.TASK
        }
        return rounds == 1 and max(done) == 1

    assert day.run(between), "a task of the second round is settled, its outer step is not"
    folder = tmp_path / "model"
    day.fetch(job_id, folder)
    assert len([v for v in read_receipt(folder).claims if v.claim.round == 1]) > 0
    assert verify(folder).rounds == 1 and not verify(folder).missing
    assert going_on(day.markets["client"], job_id) == "of 1 of 3 rounds: the job goes on"
    assert compared(day, folder).settled_rounds == 1 and replayed(day, folder, None)
    checked = subprocess.run([sys.executable, str(SCRIPT), str(folder)], capture_output=True)
    assert checked.returncode == 0, checked.stderr
    assert day.run(day.closed(job_id)) and compared(day, folder).moved
    assert not going_on(day.markets["client"], job_id)


# -- a forger that makes all ids up


def compared(day: MarketDay, folder: Path, chain: Chain | None = None) -> Any:
    market = day.markets["client"]
    return compare(read_receipt(folder), market, chain or day.chain, day.market_state.block)


def replayed(day: MarketDay, folder: Path, count: int | None) -> Any:
    return replay(read_receipt(folder), day.blocks(), RESOURCE_LIMITS, count, Random(1))


def test_the_true_receipt_stands_on_the_chain_and_replays(fetched: Fetched) -> None:
    day, _, folder = fetched
    seen = compared(day, folder)
    assert (seen.claims, seen.settled, seen.settled_rounds, seen.closed) == (6, 6, 2, True)
    whole = replayed(day, folder, None)
    assert (whole.segments, whole.of, whole.inputs) == (18, 18, 6)
    part = replayed(day, folder, 3)
    assert 3 <= part.segments <= 4 and part.of == 18


def test_attack_r13_invented_claims_are_consistent_and_nothing_more(fetched: Fetched, copy: Path) -> None:
    day = fetched[0]
    inflated(Forgery(copy), new_id=True)
    found = verify(copy)
    assert not [line for line in found.checked if "chain has" in line or "replay" in line]
    with pytest.raises(BadReceipt, match="is not on the chain"):
        compared(day, copy)
    with pytest.raises(BadReceipt, match=r"segment 0 of the outer claim of round 1.* gives another state"):
        replayed(day, copy, None)
    with pytest.raises(BadReceipt, match="gives another state"):
        replayed(day, copy, 1)


def test_attack_r13_an_invented_job_is_unknown_to_the_chain(fetched: Fetched, copy: Path) -> None:
    true = read_receipt(copy)
    terms = replace(true.terms, client=account("mallory"))
    job_id = derived_job_id(true.chain, terms)
    forgery = Forgery(copy)
    forgery.seal(terms=words(terms).hex(), job=job_id.hex())
    Forgery(copy).claims(lambda view: with_claim(view, True, job_id=job_id))
    assert verify(copy).job_id == job_id.hex() != true.job_id.hex()
    with pytest.raises(Unknown, match="no such job"):
        compared(fetched[0], copy)


def test_attack_r13_a_receipt_of_contracts_of_its_own_is_not_asked_there(fetched: Fetched) -> None:
    day, _, folder = fetched
    with pytest.raises(BadReceipt, match="Jobs contract is not the deployment"):
        compared(day, folder, Chain(1, {"Jobs": Address("0x" + "9" * 40)}))
    with pytest.raises(BadReceipt, match="is of chain 1"):
        compared(day, folder, Chain(5, day.chain.contracts))


@pytest.mark.parametrize("field", ["phase", "seed"])
def test_attack_r13_another_status_is_found_on_the_chain(fetched: Fetched, copy: Path, field: str) -> None:
    """The status is no part of a claim's id."""
    from assay.protocol.types import Phase

    def change(view: ClaimView) -> ClaimView:
        if view.claim.round or view.claim.kind != Kind.OUTER:
            return view
        value: dict[str, Any] = {"phase": Phase.CONVICTED} if field == "phase" else {"seed": b"\x66" * 32}
        return replace(view, status=replace(view.status, **value))

    Forgery(copy).claims(change)
    with pytest.raises(BadReceipt, match="differs from the chain's in status"):
        compared(fetched[0], copy)


def test_a_settled_claim_left_out_is_found_on_the_chain(fetched: Fetched, copy: Path) -> None:
    forgery = Forgery(copy)
    forgery.seal(claims=forgery.body()["claims"][:-1])
    with pytest.raises(BadReceipt, match=r"lacks claim .* of a settled round"):
        compared(fetched[0], copy)


@pytest.fixture(scope="module")
def disputed(tmp_path_factory: pytest.TempPathFactory) -> Fetched:
    """A job in which a vote was disputed and fell."""
    day = MarketDay(tmp_path_factory.mktemp("nodes"))
    job_id = day.post(rounds=1, shards=1)
    day.solver("ann")
    day.verifier("lazy", LazyVerifier)
    day.verifier("vera")
    day.whistleblower("wendy")
    assert day.run(day.closed(job_id), turns=600)
    folder = tmp_path_factory.mktemp("model")
    day.fetch(job_id, folder)
    return day, job_id, folder


@pytest.fixture
def tampered(disputed: Fetched, tmp_path: Path) -> Forgery:
    for path in disputed[2].iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return Forgery(tmp_path)


def test_a_dispute_is_in_the_receipt_and_on_the_chain(disputed: Fetched) -> None:
    day, _, folder = disputed
    assert verify(folder).disputes == 1 and compared(day, folder).moved == 0
    (entry,) = read_receipt(folder).disputes
    assert entry["challengerWon"] and entry["ballot"] and entry["defender"] == account("lazy")


def test_attack_r13_a_dispute_left_out_is_found_on_the_chain(disputed: Fetched, tampered: Forgery) -> None:
    tampered.seal(disputes=[])
    assert verify(tampered.folder).disputes == 0
    with pytest.raises(BadReceipt, match="lacks game 1 of a settled round"):
        compared(disputed[0], tampered.folder)


def test_attack_r13_a_dispute_with_another_end_is_found_on_the_chain(
    disputed: Fetched, tampered: Forgery
) -> None:
    (entry,) = tampered.body()["disputes"]
    tampered.seal(disputes=[{**entry, "challengerWon": False}])
    with pytest.raises(BadReceipt, match="game 1 of the receipt differs"):
        compared(disputed[0], tampered.folder)


def test_a_dispute_that_was_open_when_it_was_fetched_has_moved_on(
    disputed: Fetched, tampered: Forgery
) -> None:
    (entry,) = tampered.body()["disputes"]
    tampered.seal(disputes=[{**entry, "decided": False, "challengerWon": False, "reason": "", "moves": 1}])
    assert compared(disputed[0], tampered.folder).moved == 1


def test_attack_r13_a_false_segment_in_the_middle_does_not_replay(fetched: Fetched, copy: Path) -> None:
    """One inner root of one task is wrong; only a replay can find that."""

    def change(view: ClaimView) -> ClaimView:
        claim = view.claim
        if (claim.kind, claim.round, claim.shard) != (Kind.TASK, 1, 1):
            return view
        roots = (*view.roots[:2], b"\x77" * 32, *view.roots[3:])
        return replace(with_claim(view, True, segments_root=trees.root(roots)), roots=roots)

    Forgery(copy).claims(change)
    verify(copy)
    with pytest.raises(BadReceipt, match="segment 1 of the task claim of round 1, shard 1"):
        replayed(fetched[0], copy, None)


@pytest.mark.parametrize(
    "part",
    [{"div": 0, "mod": 2, "stride": 1}, {"mod": 0}, {"mod": 2**16, "stride": 1}, {"mod": 2, "stride": 0}],
    ids=str,
)
def test_attack_T28_a_forged_folders_parts_are_none(copy: Path, part: dict[str, Any]) -> None:
    """Which tensors a model has is read by its receipt's links, which have to be a possible job's."""
    true = read_receipt(copy)
    forged = replace(true.terms, links=(replace(true.terms.links[0], **part), *true.terms.links[1:]))
    job_id = derived_job_id(true.chain, forged)
    Forgery(copy).seal(terms=words(forged).hex(), job=job_id.hex())
    Forgery(copy).claims(lambda view: with_claim(view, True, job_id=job_id))
    assert read_receipt(copy).terms == forged != true.terms
    with pytest.raises(BadReceipt, match="links"):
        verify(copy)
