"""Fetching a finished job: the model's parameters, proven against the chain, with a receipt.

Contract: the parameters written are those of the last settled outer claim; every byte was led to its output
root before it was written. If its publisher withholds them, they are recomputed from the claims before it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safetensors.torch import save as save_tensors
from torch import Tensor

from assay.client.following import Losses, follow
from assay.client.receipt import INNER, MODEL, OUTER, claim_json, game_json, header, write_receipt
from assay.node.artifacts import LoadedJob, ResourceLimits, load_job
from assay.node.divergence import not_finite
from assay.node.rounds import standing
from assay.node.states import Known, StateProvider
from assay.node.work import Work
from assay.program import isa
from assay.program.state import state_tree
from assay.protocol import sampling
from assay.protocol.errors import Retry, Stop
from assay.protocol.ports import Blocks, MarketView
from assay.protocol.types import ClaimView, JobId, Kind, Phase, Terms


class NotSettled(Retry):
    """No round of the job is settled yet."""

    code = "not-settled"


def parameters(files: LoadedJob, state: list[Tensor]) -> dict[str, Tensor]:
    """The model's parameters by name, out of an inner or outer state."""
    return {name: state[i].cpu() for i, name in enumerate(files.slot_names[: files.inner.params])}


def replayed_segments(terms: Terms, claims: list[ClaimView]) -> dict[str, int]:
    """How many of the settled tasks' segments a revealed valid vote stands for."""
    segments = replayed = 0
    for view in claims:
        if view.claim.kind == Kind.TASK and view.status.phase == Phase.SETTLED:
            segments += terms.segments
            seen: set[int] = set()
            for vote in view.votes:
                if vote.revealed and vote.valid:
                    drawn = sampling.sample_segments(
                        view.status.seed, vote.verifier, terms.samples, terms.segments
                    )
                    seen.update(drawn)
            replayed += len(seen)
    return {"segments": segments, "replayed": replayed}


def _divergence(
    market: MarketView, blocks: Blocks, job_id: JobId, work: Work, params: dict[str, Tensor]
) -> str:
    """Where the numbers of a model with Inf or NaN ceased to be finite; empty for any other model."""
    if not not_finite(list(params), len(params), list(params.values())):
        return ""
    found = follow(market, job_id, Losses(blocks, work)).divergence
    return str(found) if found else "diverged at a step that its published states do not tell"


def fetch(
    market: MarketView,
    blocks: Blocks,
    job_id: JobId,
    folder: Path,
    resource_limits: ResourceLimits,
    block: int,
) -> dict[str, Tensor]:
    """Write model, programs and receipt into `folder`; the parameters. `block` is where the chain stands.

    Raises NotSettled, SourceMissing, and what ``load_job`` raises.
    """
    job = market.job(job_id)
    rounds = job.progress.settled_rounds
    if rounds == 0:
        raise NotSettled(
            "no round is settled, so there is no model yet", hint="`assay job watch` until one is"
        )
    files = load_job(blocks, job.terms, resource_limits)
    claims = list(market.claims(job_id))
    last = standing(claims, Kind.OUTER, rounds - 1, 0)
    if last is None or last.status.phase != Phase.SETTLED:
        raise NotSettled("the last round's outer claim is not settled", hint="read the chain again")
    state_provider = StateProvider(market, blocks, job_id, Work(job.terms, files))
    found = state_provider.leaf(last, 1)
    if not isinstance(found, Known):
        raise Stop(
            f"the settled outer claim is false: {found}",
            hint="do not use this model; report the job",
            code="false-claim",
        )
    params = parameters(files, found.state)
    tree = state_tree(found.state)
    body: dict[str, Any] = {
        **header(job),
        "parameters": list(params),
        "proof": [digest.hex() for digest in tree.range_proof(0, len(params))],
        "model": files.model,
        "claims": [claim_json(view) for view in claims],
        "disputes": [game_json(game) for game in market.games(job_id)],
        "coverage": replayed_segments(job.terms, claims),
        "diverged": _divergence(market, blocks, job_id, state_provider.work, params),
        "block": block,
    }
    named = {name: tensor.contiguous() for name, tensor in params.items()}
    write_receipt(
        folder,
        body,
        {MODEL: save_tensors(named), INNER: isa.encode(files.inner), OUTER: isa.encode(files.outer)},
    )
    return params
