"""What the members of a crew have said and signed of a task: the evidence of an accusation.

Contract: one record (``disk.record``) in the folder of what was received in the task, and deleted with it. It
is written before the task is committed. Of a damaged one nobody can be accused; before the commit it is set
aside, and the task is trained and signed again.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from assay.disk import record
from assay.protocol import trees
from assay.protocol.crew import Said
from assay.protocol.types import ClaimId, Kind
from assay.solver import drafting
from assay.solver.crew_orders import Trained
from assay.solver.sources import Sources
from assay.solver.worker_reports import Place

_KIND = "assay/crew-task/1"
_FILE = "evidence.json"
_HINT = "bring it back from a copy: no member can be accused without it"


def transcript_root(steps: Sequence[bytes]) -> bytes:
    """Root of one member's steps (docs/protocol.md, 8.5)."""
    return trees.root([trees.leaf(step) for step in steps])


def said_at(steps: Sequence[bytes], at: int) -> Said:
    """One of these steps, with its proof."""
    proof = trees.build([trees.leaf(step) for step in steps]).proof(at)
    return Said(at, steps[at][:32], steps[at][32:], tuple(proof))


def received_name(round_: int, shard: int, attempt: int) -> str:
    """Beginning of the name of each folder of what a member has received for a claim of this attempt."""
    return f"{round_}-{shard}-{attempt}"


def received_folder(received: Path, place: Place, attempt: int, input_root: bytes) -> Path:
    """Folder of what a member has received in a task (``solver.crew_dispute``)."""
    _, round_, shard = place
    return received / f"{received_name(round_, shard, attempt)}-{input_root.hex()[:16]}"


def save(received: Path, place: Place, attempt: int, sources: Sources, trained: Trained) -> None:
    """Saves a leader's task durably."""
    assert trained.draft is not None, "a leader has a claim"
    rewinds, claims, present = sources
    body = {
        "sources": [rewinds, [claim.hex() for claim in claims], list(present)],
        "input": trained.input_root.hex(),
        "roots": [root.hex() for root in trained.roots],
        "manifest": trained.draft.claim.manifest.hex(),
        "said": [[[step.hex() for step in steps] for steps in said] for said in trained.said],
        "signatures": [[each.hex() for each in member] for member in trained.signatures],
    }
    record.write(received_folder(received, place, attempt, trained.input_root) / _FILE, _KIND, body)


def load(received: Path, place: Place, attempt: int, input_root: bytes) -> Trained | None:
    """The task with this input; None if it was not signed. Raises DamagedRecord."""
    path = received_folder(received, place, attempt, input_root) / _FILE
    body = record.read(path, _KIND, hint=_HINT)
    return None if body is None else _decoded(body, place)[1]


def signed(received: Path, place: Place, attempt: int, sources: Sources) -> Trained | None:
    """The task with these sources; None if it was not signed."""
    _, round_, shard = place
    for path in received.glob(f"{received_name(round_, shard, attempt)}-*/{_FILE}"):
        body = record.read_or_quarantine(path, _KIND, instead="the task is trained and signed again")
        if body is not None:
            found, trained = _decoded(body, place)
            if found == sources:
                return trained
    return None


def _decoded(body: Any, place: Place) -> tuple[Sources, Trained]:
    job_id, round_, shard = place
    rewinds, claims, present = body["sources"]
    sources = rewinds, tuple(ClaimId(bytes.fromhex(claim)) for claim in claims), tuple(present)
    input_root, roots = bytes.fromhex(body["input"]), tuple(bytes.fromhex(root) for root in body["roots"])
    every = (input_root, *roots)
    at = drafting.Place(job_id, Kind.TASK, round_, shard)
    draft = drafting.Draft(drafting.claim_of(at, every, bytes.fromhex(body["manifest"])), every)
    said = [[[bytes.fromhex(step) for step in steps] for steps in each] for each in body["said"]]
    signatures = tuple(tuple(bytes.fromhex(each) for each in member) for member in body["signatures"])
    return sources, Trained(input_root, roots, said, signatures, draft)
