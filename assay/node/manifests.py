"""Reads and validates a job's manifest by its digest.

Contract: `read_manifest` returns an object with exactly the fields of docs/protocol.md, rule 3.3, each of its
type. ``node.artifacts`` checks them against the terms. Not guaranteed: anything about the files that it
names.
"""

from __future__ import annotations

from typing import Any, Protocol

from assay.protocol.canonical_json import parse_canonical
from assay.protocol.cid import RAW, Cid
from assay.protocol.errors import Stop
from assay.protocol.params import MAX_LOOPS

JOB_SCHEMA = "assay/job/1"
MAX_MANIFEST_BYTES = 1 << 20


class BadManifest(Stop):
    """A manifest, or a file that it names, is not what the terms or the claim say."""

    code = "bad-manifest"


def bad(why: str) -> BadManifest:
    """Builds the error that refuses a job's files."""
    return BadManifest(
        f"the job's files are refused: {why}", hint="do not work on this job; its client must post it again"
    )


class Reader(Protocol):
    """A source of blocks."""

    def get(self, cid: str) -> bytes: ...


def raw_cid(digest: bytes) -> str:
    """CIDv1 text of the raw block with this SHA-256 digest."""
    return str(Cid(RAW, digest))


def read_manifest(blocks: Reader, digest: bytes) -> dict[str, Any]:
    """Reads the job manifest with this digest. Raises BadManifest if malformed, and as `get`."""
    body = blocks.get(raw_cid(digest))
    try:
        manifest = parse_canonical(body, MAX_MANIFEST_BYTES)
    except ValueError as error:
        raise bad(f"manifest: {error}") from error
    if (said := str(manifest.get("schema", JOB_SCHEMA))[:64]) != JOB_SCHEMA:
        raise bad(f"the manifest has schema {said!r}, and this version reads {JOB_SCHEMA} only")
    wanted = {"schema", "inner", "outer", "dataset", "genesis", "outerGenesis", "slots", "model"}
    if set(manifest) != wanted:
        raise bad(f"the manifest's fields must be {sorted(wanted)}, not {sorted(manifest)[:16]}")
    for name in ("inner", "outer"):
        if not isinstance(manifest[name], list) or not 1 <= len(manifest[name]) <= MAX_LOOPS:
            raise bad(f"the manifest's {name} is not a list of 1 to {MAX_LOOPS} programs")
        for entry in manifest[name]:
            _check_entry(entry, name, {"cid": str, "root": str})
    for name in ("genesis", "outerGenesis"):
        _check_entry(manifest[name], name, {"cid": str, "root": str})
    _check_entry(manifest["dataset"], "dataset", {"cid": str, "root": str, "records": int, "recordSize": int})
    if not isinstance(manifest["model"], dict):
        raise bad("the manifest's model is not an object")
    return manifest


def _check_entry(entry: Any, name: str, fields: dict[str, type]) -> None:
    if not isinstance(entry, dict) or set(entry) != set(fields):
        raise bad(f"the manifest's {name} must have the fields {sorted(fields)}")
    for key, kind in fields.items():
        if type(entry[key]) is not kind:
            raise bad(f"the manifest's {name}.{key} is not of type {kind.__name__}")
