"""Evaluates a job's model on held-out text after each round."""

from __future__ import annotations

from collections.abc import Iterator

from assay.client.fetching import parameters
from assay.job.parts import recipe_of
from assay.job.read import JobFile
from assay.node.artifacts import State
from assay.node.states import StateProvider
from assay.protocol.errors import Stop
from assay.protocol.types import JobId, Kind
from assay.training.evaluate import evaluated, with_parameters


def held_out_losses(
    state_provider: StateProvider, job_id: JobId, body: JobFile, count: int = 256
) -> list[float]:
    """Held-out loss (nats a byte) of the global model at genesis and after each round."""
    made, files = recipe_of(body), state_provider.work.files
    names = files.slot_names[: files.inner.params]
    rows = made.dataset.held_out_batch(count)
    models = (
        with_parameters(made.model, parameters(files, names, state))
        for state in _globals(state_provider, job_id)
    )
    return [evaluated(model, made.loss, made.dataset.layout, rows).loss for model in models]


def _globals(state_provider: StateProvider, job_id: JobId) -> Iterator[State]:
    """Global parameters at genesis and after each round."""
    yield state_provider.genesis(Kind.TASK)
    for round_ in range(state_provider.market.job(job_id).progress.settled_rounds):
        found = state_provider.parameters(round_)
        if not isinstance(found, list):
            raise Stop(
                f"the state after round {round_} cannot be had",
                hint="see the nodes' logs",
                code="state-missing",
            )
        yield found
