"""The second client, written from the documents, agrees with ours on every root, trace and verdict, and
notices what is wrong."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from assay.client import receipt
from assay.client.receipt import claim_json, read_receipt
from assay.program.fault import NodeFault
from assay.program.isa import Op
from assay.protocol import trees
from assay.protocol.types import ClaimView, JobId, Kind, Phase
from drills.orders import Plan, omit_last_shard
from drills.solvers import FaultySolver, WrongInputSolver
from drills.verifiers import LazyVerifier
from tests.conformance.blocks.rigs import gateway
from tests.fakes.conspiracy import conspiracy
from tests.fakes.jobs import account, inner_program, recipe_files
from tests.fakes.staged import MAY_BE_ABSENT, staffed
from tests.unit.client.conftest import honest
from tests.unit.client.test_forged_receipts import Forgery, with_claim
from tests.unit.examples.second import CLIENT, StoredDay, found, imported, run
from tests.unit.vectors.test_arithmetic_vectors import OPS, Case, groups

ALLOWED = {"base64", "collections", "dataclasses", "hashlib", "json", "math", "pathlib", "struct", "sys"}
ALLOWED |= {"urllib.request", "numpy", "Crypto.Hash"}


def test_it_is_short_and_imports_nothing_of_the_project() -> None:
    sources = {path.stem: path.read_text() for path in CLIENT.glob("*.py")}
    assert sum(text.count("\n") for text in sources.values()) <= 1000
    assert set.union(*map(imported, sources.values())) <= ALLOWED | set(sources)


# -- its arithmetic, on the vectors that everybody shares


@pytest.fixture(scope="module")
def instructions() -> Iterator[ModuleType]:
    """Its module of instructions."""
    sys.path.insert(0, str(CLIENT))
    try:
        import instructions as module  # type: ignore[import-not-found]

        yield module
    finally:
        sys.path.remove(str(CLIENT))
        for name in ("instructions", "arithmetic", "files"):
            sys.modules.pop(name, None)


def computed(module: ModuleType, node: Any, raw: list[bytes]) -> bytes:
    """A node's output by the second client, from its inputs' bytes."""
    types = [module.DTYPES[ref.dtype] for ref in node.inputs]
    x = [np.frombuffer(b, t).reshape(r.shape) for b, t, r in zip(raw, types, node.inputs, strict=True)]
    own = module.Node(int(node.op), int(node.dtype), tuple(node.shape), (), tuple(node.attrs))
    with np.errstate(all="ignore"):
        out = module.compute(own, x, None)
    assert (out.dtype, out.shape) == (module.DTYPES[node.dtype], tuple(node.shape))
    return module.to_bytes(out)


def values(module: ModuleType, node: Any, cases: list[Case]) -> list[int]:
    """Every case's bits; cases on one-element tensors are run as one tensor."""
    if node.op.elementwise and len(cases) > 1:
        n = len(cases)
        wide = replace(node, shape=(n,), inputs=tuple(replace(r, shape=(n,)) for r in node.inputs))
        raw = [b"".join(case.spans[i][2] for case in cases) for i in range(len(node.inputs))]
        out, elements = computed(module, wide, raw), range(n)
        return [element(out, i, node.dtype.size) for i in elements]
    seen = []
    for case in cases:
        whole = [bytearray(r.dtype.size * int(np.prod(r.shape))) for r in node.inputs]
        for source, offset, data in case.spans:
            whole[source][offset : offset + len(data)] = data
        seen.append(element(computed(module, node, list(map(bytes, whole))), case.element, node.dtype.size))
    return seen


def element(data: bytes, index: int, size: int) -> int:
    return int.from_bytes(data[index * size : (index + 1) * size], "little")


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.word)
def test_its_arithmetic_is_the_vectors(instructions: ModuleType, op: Op) -> None:
    for node, cases in groups(op):
        nan = node.dtype.name == "F32"
        wanted = [0x7FC00000 if nan and c.expected & 0x7FFFFFFF > 0x7F800000 else c.expected for c in cases]
        assert values(instructions, node, cases) == wanted


# -- whole jobs


@pytest.fixture(scope="module")
def settled(tmp_path_factory: pytest.TempPathFactory) -> tuple[StoredDay, JobId, Path]:
    day = StoredDay(tmp_path_factory.mktemp("day"))
    job_id = honest(day)
    folder = tmp_path_factory.mktemp("model")
    day.fetch(job_id, folder)
    return day, job_id, folder


def test_an_honest_job_replays(settled: tuple[StoredDay, JobId, Path]) -> None:
    day, job_id, folder = settled
    seen = found(folder, day.store)
    assert seen["job"] == job_id.hex() and seen["wrong"] == seen["notes"] == []
    nodes = sum(len(program.nodes) for program in (inner_program(), day_outer(day, job_id)))
    assert seen["compared"] == {
        "ids": 6,
        "nodes": nodes,
        "inputs": 6,
        "steps": 2 * 2 * 8 + 2,
        "roots": 2 * 2 * 4 + 2,
        "traces": 8,
        "votes": 8,
        "verdicts": 6,
        "parameters": 1,
    }


def day_outer(day: StoredDay, job_id: JobId) -> Any:
    from assay.node.artifacts import load_job
    from tests.fakes.jobs import RESOURCE_LIMITS

    return load_job(day.blocks(), day.markets["client"].job(job_id).terms, RESOURCE_LIMITS).outer


@pytest.mark.parametrize(
    ("name", "loops"),
    [
        ("diloco-4bit", 2),
        pytest.param("streaming", 3, marks=pytest.mark.slow),
    ],
)
def test_a_job_of_several_loops_and_links_replays(tmp_path: Path, name: str, loops: int) -> None:
    """A second client computes 4-bit codes, residuals and presence from the documents alone."""
    day = StoredDay(tmp_path / "day")
    job_id = day.post(recipe_files(name), rounds=2)
    staffed(day)
    assert day.run(day.closed(job_id)), day.events[-3:]
    seen = day.replayed(job_id, tmp_path / "model")
    assert seen["wrong"] == seen["notes"] == []
    assert seen["compared"]["steps"] == 2 * 2 * (8 + loops - 1) + 2
    assert seen["compared"]["traces"] == 2 * 2 * loops * 2, (
        "of all loops of each task, by both who were drawn"
    )


@pytest.mark.slow
def test_a_job_of_two_speeds_replays(tmp_path: Path) -> None:
    """It finds steps, counters and records of each shard from the documents alone."""
    day = StoredDay(tmp_path / "day")
    job_id = day.post(recipe_files("delayed-nesterov"), rounds=2, slow=(1, 2))
    staffed(day)
    assert day.run(day.closed(job_id)), day.events[-3:]
    seen = day.replayed(job_id, tmp_path / "model")
    assert seen["wrong"] == seen["notes"] == []
    assert seen["compared"]["steps"] == 2 * (12 + 2 + 1)
    assert seen["compared"]["parameters"] == 1


def test_it_reads_a_gateway(settled: tuple[StoredDay, JobId, Path]) -> None:
    day, _, folder = settled
    with gateway(day.blocks()) as url:
        assert found(folder, url)["compared"]["roots"] == 18


def test_without_the_blocks_it_says_which_is_missing(
    settled: tuple[StoredDay, JobId, Path], tmp_path: Path
) -> None:
    ended = run(settled[2], tmp_path)
    assert ended.returncode == 1 and "Missing" in ended.stderr


def test_a_convicted_claim_is_found_false_where_its_cheat_lied(tmp_path: Path) -> None:
    day = StoredDay(tmp_path / "day")
    job_id = day.post(rounds=1)
    fault = NodeFault(step=3, node=len(inner_program().nodes) - 1, element=0)
    conspiracy(day, Plan(0, 0, fault), "ann")
    assert day.run(lambda: account("ann") in holders(day, job_id))
    ann = day.services["ann"]
    assert isinstance(ann, FaultySolver)
    ann.cheat["plan"] = Plan(0, holders(day, job_id).index(account("ann")), fault)
    day.solver("bob")
    day.whistleblower("wendy")
    assert day.run(lambda: Phase.CONVICTED in day.phases(job_id)), day.events[-5:]
    del day.services["ann"]
    day.solver("carol")
    assert day.run(day.closed(job_id), turns=600)
    assert day.named("fault-planted")
    seen = day.replayed(job_id, tmp_path / "model")
    assert seen["compared"]["games"] >= 1 and seen["wrong"] == []
    assert [note for note in seen["notes"] if "is convicted; false in it: segment 1" in note]


def holders(day: StoredDay, job_id: JobId) -> list[Any]:
    return [holder.solver for holder in day.market_state.jobs[job_id].holders]


def test_a_wrong_input_is_found(tmp_path: Path) -> None:
    day = StoredDay(tmp_path / "day")
    job_id = day.post(rounds=1)
    for name in ("ann", "bob"):
        day.solver(name, partial(WrongInputSolver, patch=omit_last_shard))
    day.verifiers()
    day.whistleblower("wendy")
    assert day.run(lambda: Phase.CONVICTED in day.phases(job_id, Kind.OUTER)), day.events[-5:]
    for name in ("ann", "bob"):
        reformed = day.services[name]
        assert isinstance(reformed, WrongInputSolver)
        reformed.cheat["patch"] = lambda kind, round_, shard, honest: honest(kind, round_, shard)
    assert day.run(day.closed(job_id), turns=600), day.events[-5:]
    assert day.named("fault-planted")
    seen = day.replayed(job_id, tmp_path / "model")
    assert seen["wrong"] == [] and [n for n in seen["notes"] if "false in it: its input" in n]


def test_a_lazy_verifiers_traces_are_found_false(tmp_path: Path) -> None:
    day = StoredDay(tmp_path / "day")
    job_id = day.post(rounds=1, shards=1)
    day.solver("ann")
    day.verifier("lazy", LazyVerifier)
    day.verifier("vera")
    day.whistleblower("wendy")
    assert day.run(day.closed(job_id), turns=600)
    assert [p.view for p in day.market_state.games.values() if p.view.challenger_won]
    seen = day.replayed(job_id, tmp_path / "model")
    assert seen["wrong"] == []
    lie = f"{account('lazy').lower()} vouched for segments"
    assert [note for note in seen["notes"] if note.startswith(lie)]


@pytest.mark.long
def test_a_round_without_a_shard_replays(tmp_path: Path) -> None:
    """Its outer step counts the missing shard with the round's base; the shard continues from its last
    task."""
    day = StoredDay(tmp_path / "day")
    job_id = day.post(rounds=3, **MAY_BE_ABSENT)
    day.verifiers()
    day.solvers()
    assert day.run(lambda: len(day.named("committed")) == 2), "of round 0; for the next both train already"
    del day.services["bob"]
    assert day.run(lambda: day.market_state.jobs[job_id].view.progress.round >= 2)
    day.solver("carol")
    assert day.run(day.closed(job_id))
    seen = day.replayed(job_id, tmp_path / "model")
    assert seen["wrong"] == [] and seen["compared"]["verdicts"] == 8, "five tasks and three outer steps"


# -- what must not pass


@pytest.fixture
def forged(settled: tuple[StoredDay, JobId, Path], tmp_path: Path) -> Iterator[Forgery]:
    for path in settled[2].iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    yield Forgery(tmp_path)


def wrong(forgery: Forgery, day: StoredDay) -> str:
    ended = run(forgery.folder, day.store)
    assert ended.returncode == 1, ended.stdout
    return json.loads(ended.stdout)["wrong"][0] if ended.stdout else ended.stderr.splitlines()[-1]


def test_a_settled_claim_that_is_false_is_noticed(
    settled: tuple[StoredDay, JobId, Path], forged: Forgery
) -> None:
    def change(view: ClaimView) -> ClaimView:
        claim = view.claim
        if (claim.kind, claim.round, claim.shard) != (Kind.TASK, 1, 1):
            return view
        roots = (*view.roots[:2], b"\x77" * 32, *view.roots[3:])
        return replace(with_claim(view, True, segments_root=trees.root(roots)), roots=roots)

    forged.claims(change)
    assert "task 1/1" in wrong(forged, settled[0])


def test_a_conviction_of_a_true_claim_is_noticed(
    settled: tuple[StoredDay, JobId, Path], forged: Forgery
) -> None:
    views = list(read_receipt(forged.folder).claims)
    at = next(i for i, v in enumerate(views) if v.claim.kind == Kind.TASK and v.claim.round == 1)
    felled = with_claim(views[at], True, attempt=7)
    felled = replace(felled, status=replace(felled.status, phase=Phase.CONVICTED))
    forged.seal(claims=[claim_json(view) for view in [*views[:at], felled, *views[at:]]])
    assert "is convicted; false in it: nothing" in wrong(forged, settled[0])


def test_a_vote_with_another_trace_is_noticed(
    settled: tuple[StoredDay, JobId, Path], forged: Forgery
) -> None:
    def change(view: ClaimView) -> ClaimView:
        lies = {who: (b"\x55" * 32,) * len(shown) for who, shown in view.traces.items()}
        votes = tuple(replace(v, traces_root=trees.root(lies[v.verifier])) for v in view.votes)
        return replace(view, traces=lies, votes=votes)

    forged.claims(change)
    assert "with a false trace" in wrong(forged, settled[0])


@pytest.mark.parametrize("name", receipt.FILES)
def test_another_file_under_the_receipt_is_noticed(
    settled: tuple[StoredDay, JobId, Path], forged: Forgery, name: str
) -> None:
    data = bytearray((forged.folder / name).read_bytes())
    data[-3] ^= 1
    (forged.folder / name).write_bytes(bytes(data))
    forged.seal()
    assert "Wrong" in wrong(forged, settled[0])
