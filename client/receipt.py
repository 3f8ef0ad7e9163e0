"""What a client keeps of a finished job, and how anybody checks it offline.

Contract: `verify` reads a folder and nothing else. It recomputes the roots of the model's tensors and of both
programs, and leads the parameters to the last outer claim's output root by proof; it checks that the settled
claims hang together and cover every round. One flipped bit in any file is found. Claim ids are Keccak-256
hashes that the chain gave and are kept as given; whether they stand on the chain is for a node to say, not
for a file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from hashlib import sha256
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from torch import Tensor

from assay.node.artifacts import canonical_json, parse_canonical, program_ref
from assay.node.divergence import not_finite
from assay.numerics.encoding import EncodingError, to_bytes
from assay.program.isa import MalformedProgram, decode
from assay.protocol import trees
from assay.protocol.errors import Stop
from assay.protocol.types import Claim, ClaimView, GameView, JobView, Kind, ProgramRef, Terms

SCHEMA = "assay/receipt/1"
RECEIPT, MODEL, INNER, OUTER = "receipt.json", "model.safetensors", "inner.program", "outer.program"
MAX_RECEIPT_BYTES = 64 << 20


class BadReceipt(Stop):
    """A folder is not what its receipt says."""

    code = "bad-receipt"


def _bad(why: str) -> BadReceipt:
    return BadReceipt(f"the model does not verify: {why}", hint="fetch the job again from the chain")


def plain(value: Any) -> Any:
    """A protocol value as JSON: bytes as hex, amounts as decimal strings' integers, enums as numbers."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, bool | str) or value is None:
        return value
    return int(value)


def terms_json(terms: Terms) -> dict[str, Any]:
    return plain(asdict(terms))


def claim_json(view: ClaimView) -> dict[str, Any]:
    """A claim with all its fields, its id, how it ended, and its votes."""
    votes = [
        {"verifier": v.verifier, "revealed": v.revealed, "valid": v.valid, "tracesRoot": v.traces_root.hex()}
        for v in view.votes
    ]
    return {
        "id": view.claim_id.hex(),
        "claim": plain(asdict(view.claim)),
        "phase": view.status.phase.name,
        "seed": view.status.seed.hex(),
        "votes": votes,
    }


def game_json(view: GameView) -> dict[str, Any]:
    """A dispute: who against whom, about what, and how it ended."""
    game = view.game
    return {
        "game": view.game_id,
        "claim": game.claim_id.hex(),
        "challenger": game.challenger,
        "defender": game.defender,
        "challengerWon": view.challenger_won,
        "decided": view.decided,
        "reason": view.reason,
        "moves": view.moves,
    }


def write_receipt(folder: Path, body: dict[str, Any], files: Mapping[str, bytes]) -> None:
    """Write all files of a fetched job; the receipt last, with the digests of the others."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    digests = {name: sha256(data).hexdigest() for name, data in files.items()}
    sealed = {"schema": SCHEMA, "files": digests, **body}
    sealed["seal"] = sha256(canonical_json(sealed)).hexdigest()
    (folder / RECEIPT).write_bytes(canonical_json(sealed))


@dataclass(frozen=True)
class Verified:
    """What `verify` found to be so."""

    job_id: str
    rounds: int
    tasks: int
    params_root: str
    """Output root of the last outer claim, which the parameters are proven to be part of."""
    replayed_segments: int
    segments: int
    convictions: int
    disputes: int
    block: int
    missing: tuple[tuple[int, int], ...] = ()
    """(round, shard) for each task that a round was closed without."""
    not_finite: str = ""
    """What in the model is Inf or NaN; empty if nothing is."""
    diverged: str = ""
    """Where the training's numbers ceased to be finite, as the fetching client found."""


def _read(folder: Path, name: str) -> bytes:
    try:
        return (folder / name).read_bytes()
    except OSError as error:
        raise _bad(f"{name} cannot be read ({error.strerror})") from error


def _open(folder: Path) -> dict[str, Any]:
    try:
        body = parse_canonical(_read(folder, RECEIPT), MAX_RECEIPT_BYTES)
    except ValueError as error:
        raise _bad(f"{RECEIPT}: {error}") from error
    seal = body.pop("seal", None)
    if body.get("schema") != SCHEMA or seal != sha256(canonical_json(body)).hexdigest():
        raise _bad(f"{RECEIPT} was changed after it was written")
    wanted = {MODEL, INNER, OUTER}
    if not isinstance(body.get("files"), dict) or set(body["files"]) != wanted:
        raise _bad(f"{RECEIPT} does not name the files {sorted(wanted)}")
    for name in sorted(wanted):
        if sha256(_read(folder, name)).hexdigest() != body["files"][name]:
            raise _bad(f"{name} was changed after it was fetched")
    return body


def _terms(entry: dict[str, Any]) -> Terms:
    def value(name: str, kind: str) -> Any:
        given = entry[name]
        if kind == "ProgramRef":
            return ProgramRef(bytes.fromhex(given["root"]), given["nodes"], given["slots"], given["params"])
        return bytes.fromhex(given) if kind == "bytes" else given

    return Terms(**{f.name: value(f.name, str(f.type)) for f in fields(Terms)})


def _claim(entry: dict[str, Any]) -> Claim:
    byte_fields = ("job_id", "input_root", "output_root", "segments_root", "manifest")
    values = {f.name: entry[f.name] for f in fields(Claim)}
    values.update({name: bytes.fromhex(entry[name]) for name in byte_fields})
    values["kind"] = Kind(entry["kind"])
    return Claim(**values)


def _check_program(folder: Path, name: str, ref: ProgramRef) -> None:
    try:
        program = decode(_read(folder, name))
    except MalformedProgram as error:
        raise _bad(f"{name}: {error}") from error
    if program_ref(program) != ref:
        raise _bad(f"{name} is not the program of the terms")


def _check_claims(body: dict[str, Any], terms: Terms) -> tuple[list[Claim], tuple[tuple[int, int], ...]]:
    """One settled claim for each place; outer claims in the order of rounds, and which (round, shard) is
    missing."""
    settled = [_claim(entry["claim"]) for entry in body["claims"] if entry["phase"] == "SETTLED"]
    places = [(c.round, c.kind, c.shard) for c in settled]
    rounds = body["rounds"]
    every = [(r, k) for r in range(rounds) for k in range(terms.shards)]
    possible = {*((r, Kind.TASK, k) for r, k in every), *((r, Kind.OUTER, 0) for r in range(rounds))}
    if rounds < 1 or len(set(places)) != len(places) or not set(places) <= possible:
        raise _bad("its settled claims are not at most one task for each shard of each round")
    present = [sum((r, kind) == (round_, Kind.TASK) for r, kind, _ in places) for round_ in range(rounds)]
    if sum(kind == Kind.OUTER for _, kind, _ in places) != rounds or min(present) < terms.min_shards:
        raise _bad(f"a round has no outer claim, or fewer than {terms.min_shards} settled tasks")
    missing = tuple((r, k) for r, k in every if (r, Kind.TASK, k) not in places)
    if any(c.job_id.hex() != body["job"] for c in settled):
        raise _bad("a claim belongs to another job")
    first = [c for c in settled if c.round == 0 and c.kind == Kind.TASK]
    if any(c.input_root != terms.genesis_root for c in first):
        raise _bad("a task of the first round does not start from the genesis state")
    outer = [c for c in settled if c.kind == Kind.OUTER]
    for claim in outer:
        if trees.root([claim.input_root, claim.output_root]) != claim.segments_root:
            raise _bad(f"the outer claim of round {claim.round} contradicts its own segments root")
    return sorted(outer, key=lambda c: c.round), missing


def _check_model(folder: Path, body: dict[str, Any], terms: Terms, root: bytes) -> dict[str, Tensor]:
    """The parameters, whose tensor roots are the first leaves of the last outer state."""
    try:
        tensors: dict[str, Tensor] = load_tensors(_read(folder, MODEL))
    except (SafetensorError, ValueError) as error:
        raise _bad(f"{MODEL}: {error}") from error
    names = body["parameters"]
    if len(names) != terms.inner.params or set(tensors) != set(names):
        raise _bad(f"{MODEL} does not hold the {terms.inner.params} parameters of the job")
    try:
        roots = [trees.tensor_root(to_bytes(tensors[name])) for name in names]
    except EncodingError as error:
        raise _bad(f"{MODEL}: {error}") from error
    proof = [bytes.fromhex(digest) for digest in body["proof"]]
    if not trees.verify_range(root, terms.outer.slots, 0, roots, proof):
        raise _bad("the parameters do not lead to the last outer claim's output root")
    return {name: tensors[name] for name in names}


def verify(folder: Path) -> Verified:
    """Check a fetched job offline. Raises BadReceipt, which says what is wrong."""
    body = _open(folder)
    try:
        terms = _terms(body["terms"])
        outer, missing = _check_claims(body, terms)
        _check_program(folder, INNER, terms.inner)
        _check_program(folder, OUTER, terms.outer)
        params = _check_model(folder, body, terms, outer[-1].output_root)
        coverage = body["coverage"]
        return Verified(
            job_id=body["job"],
            rounds=body["rounds"],
            tasks=body["rounds"] * terms.shards - len(missing),
            missing=missing,
            params_root=outer[-1].output_root.hex(),
            replayed_segments=coverage["replayed"],
            segments=coverage["segments"],
            convictions=sum(entry["phase"] == "CONVICTED" for entry in body["claims"]),
            disputes=len(body["disputes"]),
            block=body["block"],
            not_finite=not_finite(list(params), len(params), list(params.values())),
            diverged=body["diverged"],
        )
    except (KeyError, TypeError, ValueError, IndexError, json.JSONDecodeError) as error:
        raise _bad(f"{RECEIPT} lacks or garbles {error}") from error


def header(job: JobView) -> dict[str, Any]:
    """What a receipt says of its job first."""
    return {"job": job.job_id.hex(), "terms": terms_json(job.terms), "rounds": job.progress.settled_rounds}
