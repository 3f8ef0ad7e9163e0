"""A job's result where that is no model: a loss, a reward, what was written after prompts.

Contract: `numbers` and `written` read what ``client.fetching`` has led to the settled root. `by_round` reads
the published states of settled outer claims, each led to its claim's root, and leaves out what cannot be
fetched.
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
from assay.node.published import Published
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
    """The scalars among a job's parameters that are a result, by name."""
    return {name: float(params[name]) for name in SCALARS if name in params}


def named(params: Mapping[str, Tensor]) -> list[str]:
    """Names of the results among a job's parameters."""
    return [name for name in RESULTS if name in params]


def rows(params: Mapping[str, Tensor]) -> list[bytes | None]:
    """Each prompt with the bytes after it, without what is none (a stranger's program may write any number);
    None where a round was closed without its shard."""
    if TOKENS not in params:
        return []
    found = [bytes(x for x in row if 0 <= x < 256) for row in params[TOKENS].tolist()]
    return [row or None for row in found]


def prompts_of(model: Mapping[str, Any], params: Mapping[str, Tensor]) -> int:
    """How many prompts the manifest's model names; every row where it says no number that there can be."""
    count, most = model.get("prompts"), len(params[TOKENS])
    return count if type(count) is int and 0 <= count <= most else most


def write_rows(folder: Path, params: Mapping[str, Tensor], prompts: int, record_size: int) -> int:
    """Write a line of JSON for each prompt beside the receipt: an object of `prompt`, `answer`, and both as
    `text`, each of one character a byte; null for one that was not answered. How many were answered.
    `record_size`: of the job's terms, whose records are prompts (``training.inference``)."""
    found = rows(params)[:prompts]
    (folder / WRITTEN).write_text(
        "".join(json.dumps(line) + "\n" for line in parted(params, found, record_size))
    )
    return sum(row is not None for row in found)


def parted(
    params: Mapping[str, Tensor], found: Sequence[bytes | None], record_size: int
) -> list[dict[str, str] | None]:
    """Rows as prompt and answer: what is written after each prompt is as long as the rows are longer than the
    longest prompt may be."""
    longest = record_size - LENGTH_BYTES
    answer = params[TOKENS].shape[1] - longest
    return [None if row is None else _parts(row, len(row) - min(max(answer, 0), len(row))) for row in found]


def _parts(row: bytes, cut: int) -> dict[str, str]:
    text = row.decode("latin-1")
    return {"prompt": text[:cut], "answer": text[cut:], "text": text}


def going_on(market: MarketView, job_id: JobId) -> str:
    """That only some rounds of a job are settled so far; empty once it is closed."""
    job = market.job(job_id)
    done, asked_for = job.progress.settled_rounds, job.terms.rounds
    return "" if job.progress.closed else f"of {done} of {asked_for} rounds: the job goes on"


def tasks_counted(market: MarketView, job_id: JobId) -> tuple[int, int]:
    """Settled tasks of a job, and how many there would be with every shard in every settled round: a mean or
    a sum is over the first."""
    with market.snapshot():
        job = market.job(job_id)
        claims = [view.claim for view in market.claims(job_id) if _in_result(view)]
    rounds = job.progress.settled_rounds
    there = sum(claim.kind == Kind.TASK and claim.round < rounds for claim in claims)
    return there, rounds * job.terms.shards


def _in_result(view: ClaimView) -> bool:
    return view.status.phase == Phase.SETTLED and not view.left_out


def file_of(blocks: Blocks, tensor: Tensor) -> str:
    """CID of a slot's file (F3.5), which is stored."""
    bits = width(tensor)
    return blocks.add_file(packed(tensor, bits) if bits else bytes(to_bytes(tensor)))


@dataclass(frozen=True)
class Number:
    """A scalar result after a settled round."""

    name: str
    round: int
    value: float


def by_round(market: MarketView, blocks: Blocks, job_id: JobId, files: LoadedJob) -> list[Number]:
    """The scalar results of every settled round whose published state can be fetched."""
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
