"""Fetches a finished job's parameters, verified against the chain, with a receipt.

Contract: the parameters are those of the last settled outer claim; every byte is verified against its output
root before it is written. The receipt records the chain's state at one block. If the parameters are withheld,
they are recomputed from the claims before.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from safetensors.torch import save as save_tensors
from torch import Tensor

from assay.client.following import follow
from assay.client.losses import Losses
from assay.client.receipt import MANIFEST, MODEL, body_of, program_files, read_receipt, write_receipt
from assay.node.artifacts import LoadedJob, load_job
from assay.node.divergence import not_finite
from assay.node.limits import ResourceLimits
from assay.node.manifests import raw_cid
from assay.node.rounds import standing
from assay.node.states import StateProvider
from assay.node.work import Work
from assay.program import isa
from assay.protocol import trees
from assay.protocol.errors import Ask, Retry, Stop
from assay.protocol.loops import model_names, model_part
from assay.protocol.ports import Blocks, MarketView
from assay.protocol.types import Chain, JobId, Kind, Phase


class NotSettled(Retry):
    """No round of the job is settled yet."""

    code = "not-settled"


def keep_others(folder: Path, job_id: JobId) -> None:
    """Raises Ask if a folder holds another job's result, which may be the only copy."""
    try:
        held = read_receipt(folder).job_id
    except Stop:
        return  # nothing, or nothing that would verify
    if held != job_id:
        raise Ask(
            f"{folder} holds the fetched files of job {held.hex()[:16]}; nothing was written",
            hint="choose another folder with --out, or remove this one",
            code="file-exists",
        )


def parameters(files: LoadedJob, names: Sequence[str], state: list[Tensor]) -> dict[str, Tensor]:
    """The model's parameters by name, from the leading slots of all slices' outer states in order, or of a
    task's state."""
    if files.blocks is not None:
        return {name: t.cpu() for name, t in files.blocks.parted(state[: files.inner.params]).items()}
    return {name: state[i].cpu() for i, name in enumerate(names)}


def apart(params: dict[str, Tensor]) -> dict[str, Tensor]:
    """Copies each tensor: equal slots are fetched as one tensor, and safetensors refuses shared memory."""
    return {name: tensor.clone() for name, tensor in params.items()}


def _divergence(
    market: MarketView, blocks: Blocks, job_id: JobId, work: Work, params: dict[str, Tensor]
) -> str:
    """Describes where a model with Inf or NaN diverged; empty for any other model."""
    if not not_finite(list(params), len(params), list(params.values())):
        return ""
    found = follow(market, job_id, Losses(blocks, work)).divergence
    return str(found) if found else "diverged at a step that its published states do not tell"


def _programs(files: LoadedJob) -> dict[str, bytes]:
    """Every loop's program, by file name."""
    every = (("inner", files.tasks), ("outer", files.outers))
    named = [(program_files(word, len(programs)), programs) for word, programs in every]
    return {name: isa.encode(p) for names, programs in named for name, p in zip(names, programs, strict=True)}


def fetch(
    market: MarketView,
    blocks: Blocks,
    job_id: JobId,
    folder: Path,
    resource_limits: ResourceLimits,
    chain: Chain,
    block: int,
) -> dict[str, Tensor]:
    """Writes model, programs, manifest and receipt into `folder`; returns the parameters. `block`: the
    chain's block.

    Raises NotSettled, SourceMissing, and what ``load_job`` raises.
    """
    with market.snapshot():
        job, claims = market.job(job_id), list(market.claims(job_id))
        told = market.games(job_id), market.demands(job_id)
    rounds = job.progress.settled_rounds
    if rounds == 0:
        raise NotSettled(
            "no round is settled, so there is no model yet",
            hint="`assay job watch` follows the job until one is",
        )
    files = load_job(blocks, job.terms, resource_limits)
    each = [standing(claims, Kind.OUTER, rounds - 1, number) for number in range(job.terms.slices)]
    last = [view for view in each if view is not None and view.status.phase == Phase.SETTLED]
    if len(last) < len(each):
        raise NotSettled(
            "the last round's outer claim is not settled, so its model is not final",
            hint="repeat the command",
        )
    state_provider = StateProvider(market, blocks, job_id, Work(job.terms, files))
    found = state_provider.parameters(rounds - 1)
    if not isinstance(found, list):
        raise Stop(
            f"the settled outer claim is false: {found}; the model is not the one that the job's program"
            " gives",
            hint="do not use this model; report the job",
            code="false-claim",
        )
    params = parameters(files, model_names(job.terms, files.slot_names), found)
    proof: list[bytes] = []
    for view in last:
        slots = state_provider.slots(view, job.terms.outer_segments)
        assert slots is not None  # of a state that was read or computed
        tree = trees.build([slot.root for slot in slots])
        proof += tree.range_proof(0, model_part(job.terms))
    body: dict[str, Any] = {
        **body_of(chain, block, rounds, job.terms, claims, *told),
        "proof": [digest.hex() for digest in proof],
        "diverged": _divergence(market, blocks, job_id, state_provider.work, params),
    }
    written = {
        MODEL: save_tensors({name: tensor.contiguous() for name, tensor in apart(params).items()}),
        **_programs(files),
        MANIFEST: blocks.get(raw_cid(job.terms.manifest)),
    }
    write_receipt(folder, body, written)
    return params
