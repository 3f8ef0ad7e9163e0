"""Reads and writes receipts of finished jobs (docs/formats.md section 7, assay/receipt/1).

Contract: a receipt holds the preimages of its job's and claims' ids, as ABI words, so that anybody can
recompute the ids; a changed struct does not change the format. `read_receipt` returns what was written, or
says what is wrong. Whether it is true is checked by ``client.verifying``, ``client.chain_check`` and
``client.replaying``. It is not signed: anybody can write one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from eth_utils.address import to_checksum_address
from eth_utils.crypto import keccak

from assay.protocol.canonical_json import canonical_json, parse_canonical
from assay.protocol.demands import DemandView
from assay.protocol.encoding import decode, encode, words
from assay.protocol.errors import Stop
from assay.protocol.game_state import GameView
from assay.protocol.params import MAX_LOOPS
from assay.protocol.types import Address, Chain, Claim, ClaimId, ClaimStatus, ClaimView, JobId, Terms, Vote

SCHEMA = "assay/receipt/1"
RECEIPT, MODEL, INNER, OUTER = "receipt.json", "model.safetensors", "inner.program", "outer.program"
MANIFEST = "manifest.json"
FILES = (MODEL, INNER, OUTER, MANIFEST)
_LATER_PROGRAMS = frozenset(f"{word}-{n}.program" for word in ("inner", "outer") for n in range(1, MAX_LOOPS))
"""Program files of the loops after the first."""
MAX_RECEIPT_BYTES = 64 << 20
_FIELDS = {"schema", "seal", "files", "chain", "block", "rounds", "job", "terms", "claims", "disputes"}
_FIELDS |= {"demands", "proof", "diverged"}
_CLAIM_FIELDS = {"id", "claim", "status", "roots", "votes", "stale", "leftOut"}


class BadReceipt(Stop):
    """A folder does not match its receipt, or the receipt does not match the chain or a replay."""

    code = "bad-receipt"


class NoReceipt(Stop):
    """The folder holds no file of a fetched job."""

    code = "not-fetched"


def bad(why: str) -> BadReceipt:
    """Builds the error for an invalid receipt."""
    return BadReceipt(f"the model does not verify: {why}", hint="do not use it; `assay job fetch` it again")


def derived_job_id(chain: Chain, terms: Terms) -> JobId:
    """Id of the job with these terms (rule 3.1)."""
    return JobId(keccak(encode(chain.chain_id, chain.contracts["Jobs"], terms)))


def claim_id_of(claim: Claim) -> ClaimId:
    """Hash of the whole claim (rule 4.3)."""
    return ClaimId(keccak(words(claim)))


@dataclass(frozen=True)
class Receipt:
    """Contents of a receipt, parsed but not verified."""

    chain: Chain
    block: int
    """Block of the chain at which it was made."""
    rounds: int
    """Number of rounds settled by then."""
    job_id: JobId
    terms: Terms
    claims: tuple[ClaimView, ...]
    """All claims of the job in commit order."""
    disputes: tuple[dict[str, Any], ...]
    demands: tuple[dict[str, Any], ...]
    proof: tuple[bytes, ...]
    """Range proof from the parameters' roots to the output root of the last settled outer claim."""
    diverged: str
    """Where the training diverged, as the fetching client found."""
    manifest: dict[str, Any]
    files: Mapping[str, bytes]
    """The other files' contents by name."""


# -- writing


def claim_json(view: ClaimView) -> dict[str, Any]:
    """JSON of a claim with its status and votes; structs as ABI words."""
    return {
        "id": view.claim_id.hex(),
        "claim": words(view.claim).hex(),
        "status": words(view.status).hex(),
        "roots": [root.hex() for root in view.roots],
        "votes": [_vote_json(view, vote) for vote in view.votes],
        "stale": view.stale,
        "leftOut": view.left_out,
    }


def _vote_json(view: ClaimView, vote: Vote) -> dict[str, Any]:
    """JSON of a vote, with the leaves of its traces tree once it was cast."""
    traces = view.traces.get(vote.verifier, ()) if vote.shown else ()
    return {"vote": words(vote).hex(), "traces": [trace.hex() for trace in traces]}


def dispute_json(view: GameView) -> dict[str, Any]:
    """JSON of a dispute: parties, subject, outcome."""
    game = view.game
    return {
        "game": view.game_id,
        "claim": game.claim_id.hex(),
        "ballot": game.ballot,
        "segment": game.segment,
        "step": game.step,
        "challenger": game.challenger,
        "defender": game.defender,
        "challengerWon": view.challenger_won,
        "decided": view.decided,
        "reason": view.reason,
        "moves": view.moves,
    }


def demand_json(view: DemandView) -> dict[str, Any]:
    """JSON of a demand for leaves of a state, with its outcome."""
    return {
        "demand": view.demand_id,
        "claim": view.claim_id.hex(),
        "segmentEnd": view.segment_end,
        "outcome": view.outcome,
    }


def program_files(word: str, count: int) -> list[str]:
    """File names of the programs of a kind of claim's loops, in order; `word`: inner or outer."""
    return [f"{word}.program", *(f"{word}-{n}.program" for n in range(1, count))]


def body_of(
    chain: Chain,
    block: int,
    rounds: int,
    terms: Terms,
    claims: Sequence[ClaimView],
    disputes: Sequence[GameView],
    demands: Sequence[DemandView],
) -> dict[str, Any]:
    """Builds a receipt from the chain's state."""
    return {
        "chain": {"id": chain.chain_id, "contracts": dict(chain.contracts)},
        "block": block,
        "rounds": rounds,
        "job": derived_job_id(chain, terms).hex(),
        "terms": words(terms).hex(),
        "claims": [claim_json(view) for view in claims],
        "disputes": [dispute_json(game) for game in disputes],
        "demands": [demand_json(demand) for demand in demands],
    }


def write_receipt(folder: Path, body: Mapping[str, Any], files: Mapping[str, bytes]) -> None:
    """Writes all files of a fetched job; the receipt last, with the digests of the others."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    digests = {name: sha256(data).hexdigest() for name, data in files.items()}
    sealed = {**body, "schema": SCHEMA, "files": digests}
    sealed["seal"] = sha256(canonical_json(sealed)).hexdigest()
    (folder / RECEIPT).write_bytes(canonical_json(sealed))


# -- reading


def _read(folder: Path, name: str) -> bytes:
    try:
        return (folder / name).read_bytes()
    except OSError as error:
        raise bad(f"{name} cannot be read ({error.strerror})") from error


def _open(folder: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Parses the receipt and checks its checksum, which detects accidents; returns it with the other
    files."""
    if not any((folder / name).exists() for name in (RECEIPT, *FILES)):
        raise NoReceipt(
            f"{folder} holds no fetched job: neither {RECEIPT} nor any other file of one is in it",
            hint="name a folder that `assay job fetch JOB --out FOLDER` wrote",
        )
    try:
        body = parse_canonical(_read(folder, RECEIPT), MAX_RECEIPT_BYTES)
    except ValueError as error:
        raise bad(f"{RECEIPT}: {error}") from error
    if (said := str(body.get("schema"))[:64]) != SCHEMA:
        raise bad(f"{RECEIPT} has schema {said!r}, and this version reads {SCHEMA} only")
    unsealed = {key: value for key, value in body.items() if key != "seal"}
    if body.get("seal") != sha256(canonical_json(unsealed)).hexdigest():
        raise bad(f"{RECEIPT} was changed after it was written")
    if set(body) != _FIELDS:
        raise bad(f"the fields of {RECEIPT} are not those of {SCHEMA}")
    named = body["files"]
    if not isinstance(named, dict) or not set(FILES) <= set(named) <= {*FILES, *_LATER_PROGRAMS}:
        raise bad(f"{RECEIPT} does not name the files {sorted(FILES)}")
    files = {name: _read(folder, name) for name in sorted(named)}
    for name, data in files.items():
        if sha256(data).hexdigest() != body["files"][name]:
            raise bad(f"{name} was changed after it was fetched")
    return body, files


def _address(raw: bytes) -> str:
    return str(to_checksum_address(raw))


def _view(entry: dict[str, Any]) -> ClaimView:
    if set(entry) != _CLAIM_FIELDS:
        raise ValueError(f"a claim has the fields {sorted(_CLAIM_FIELDS)}")
    votes = [decode(Vote, bytes.fromhex(cast["vote"]), _address) for cast in entry["votes"]]
    shown = [tuple(map(bytes.fromhex, cast["traces"])) for cast in entry["votes"]]
    return ClaimView(
        claim_id=ClaimId(bytes.fromhex(entry["id"])),
        claim=decode(Claim, bytes.fromhex(entry["claim"]), _address),
        status=decode(ClaimStatus, bytes.fromhex(entry["status"]), _address),
        votes=tuple(votes),
        stale=bool(entry["stale"]),
        left_out=bool(entry["leftOut"]),
        roots=tuple(bytes.fromhex(root) for root in entry["roots"]),
        traces={vote.verifier: traces for vote, traces in zip(votes, shown, strict=True) if vote.shown},
    )


def read_receipt(folder: Path) -> Receipt:
    """Reads the receipt and files in a folder.

    Raises BadReceipt if it is damaged, malformed or of another format, NoReceipt if there is none.
    """
    body, files = _open(folder)
    try:
        contracts = {name: Address(str(address)) for name, address in body["chain"]["contracts"].items()}
        return Receipt(
            chain=Chain(int(body["chain"]["id"]), contracts),
            block=int(body["block"]),
            rounds=int(body["rounds"]),
            job_id=JobId(bytes.fromhex(body["job"])),
            terms=decode(Terms, bytes.fromhex(body["terms"]), _address),
            claims=tuple(_view(entry) for entry in body["claims"]),
            disputes=tuple(dict(entry) for entry in body["disputes"]),
            demands=tuple(dict(entry) for entry in body["demands"]),
            proof=tuple(bytes.fromhex(digest) for digest in body["proof"]),
            diverged=str(body["diverged"]),
            manifest=parse_canonical(files[MANIFEST], MAX_RECEIPT_BYTES),
            files=files,
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise bad(f"{RECEIPT} lacks a field, or has a malformed one: {error}") from error
