"""Reads results of jobs that are not models: losses, rewards, generated text.

Contract: `numbers` and `written` read what ``client.fetching`` has verified against the settled root.
`by_round` reads published states of settled outer claims, verified against each claim's root, and skips
unavailable ones.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from assay.client.losses import CACHE_BYTES
from assay.node.artifacts import LoadedJob
from assay.node.published_states import Published
from assay.node.rounds import Claims, standing
from assay.node.slots import SlotReader, TensorCache
from assay.numerics.encoding import to_bytes
from assay.numerics.packed import packed, width
from assay.protocol.ports import Blocks, MarketView
from assay.protocol.types import ClaimView, JobId, Kind, Phase
from assay.training.inference import LENGTH_BYTES
from assay.training.results import RESULTS, SCALARS, TOKENS

WRITTEN = "written.jsonl"


def numbers(params: Mapping[str, Tensor]) -> dict[str, float]:
    """Scalar results among a job's parameters, by name."""
    return {name: float(params[name]) for name in SCALARS if name in params}


def named(params: Mapping[str, Tensor]) -> list[str]:
    """Names of the results among a job's parameters."""
    return [name for name in RESULTS if name in params]


def rows(params: Mapping[str, Tensor]) -> list[bytes | None]:
    """Bytes of each prompt and its continuation; None if the round was closed without its shard.

    Numbers that are no bytes are dropped (a stranger's program may write any).
    """
    if TOKENS not in params:
        return []
    found = [bytes(x for x in row if 0 <= x < 256) for row in params[TOKENS].tolist()]
    return [row or None for row in found]


def prompts_of(model: Mapping[str, Any], params: Mapping[str, Tensor]) -> int:
    """Number of prompts in the manifest's model entry; all rows if it gives no valid number."""
    count, most = model.get("prompts"), len(params[TOKENS])
    return count if type(count) is int and 0 <= count <= most else most


def write_rows(folder: Path, params: Mapping[str, Tensor], prompts: int, record_size: int) -> int:
    """Writes one JSON line per prompt beside the receipt; returns the number answered.

    Each line is an object of `prompt`, `answer`, and both as `text`, one character per byte; null if not
    answered. `record_size`: of the job's terms, whose records are prompts (``training.inference``).
    """
    found = rows(params)[:prompts]
    (folder / WRITTEN).write_text(
        "".join(json.dumps(line) + "\n" for line in parted(params, found, record_size))
    )
    return sum(row is not None for row in found)


def parted(
    params: Mapping[str, Tensor], found: Sequence[bytes | None], record_size: int
) -> list[dict[str, str] | None]:
    """Splits rows into prompt and answer; the answer's length is the row length minus the maximum prompt
    length."""
    longest = record_size - LENGTH_BYTES
    answer = params[TOKENS].shape[1] - longest
    return [None if row is None else _parts(row, len(row) - min(max(answer, 0), len(row))) for row in found]


def _parts(row: bytes, cut: int) -> dict[str, str]:
    text = row.decode("latin-1")
    return {"prompt": text[:cut], "answer": text[cut:], "text": text}


def going_on(market: MarketView, job_id: JobId) -> str:
    """Note that only some rounds are settled so far; empty once the job is closed."""
    job = market.job(job_id)
    done, asked_for = job.progress.settled_rounds, job.terms.rounds
    return "" if job.progress.closed else f"of {done} of {asked_for} rounds: the job goes on"


def tasks_counted(market: MarketView, job_id: JobId) -> tuple[int, int]:
    """Number of settled tasks, and of all shards in all settled rounds; a mean or sum covers the settled
    ones."""
    with market.snapshot():
        job = market.job(job_id)
        claims = [view.claim for view in market.claims(job_id) if _in_result(view)]
    rounds = job.progress.settled_rounds
    there = sum(claim.kind == Kind.TASK and claim.round < rounds for claim in claims)
    return there, rounds * job.terms.shards


def _in_result(view: ClaimView) -> bool:
    return view.status.phase == Phase.SETTLED and not view.left_out


def file_of(blocks: Blocks, tensor: Tensor) -> str:
    """CID of the stored file of a slot (F3.5)."""
    bits = width(tensor)
    return blocks.add_file(packed(tensor, bits) if bits else bytes(to_bytes(tensor)))


@dataclass(frozen=True)
class Number:
    """A scalar result after a settled round."""

    name: str
    round: int
    value: float


def by_round(market: MarketView, blocks: Blocks, job_id: JobId, files: LoadedJob) -> list[Number]:
    """Scalar results of every settled round whose published state is available."""
    slots = {i: name for i, name in enumerate(files.slot_names[: files.inner.params]) if name in SCALARS}
    part = files.outer.params
    if not slots:
        return []
    with market.snapshot():
        job, claims = market.job(job_id), Claims(market.claims(job_id))
    published = Published(blocks, SlotReader(blocks, TensorCache(CACHE_BYTES)))
    found = []
    for round_ in range(job.progress.settled_rounds):
        for slot, name in slots.items():
            view = standing(claims, Kind.OUTER, round_, slot // part)
            if view is None or view.status.phase != Phase.SETTLED:
                continue
            (tensor,) = published.some(view, job.terms.outer_segments, files.outer, [slot % part]) or (None,)
            if tensor is not None:
                found.append(Number(name, round_, float(tensor)))
    return found
