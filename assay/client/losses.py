"""Reads losses, movements of parameters, divergence and accuracy from a job's published states.

Contract: a loss is the one in the claim's own state; None if the state is unavailable, and retried.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from torch import Tensor

from assay.client.warnings import Movement, movement, warnings_of
from assay.node.artifacts import LoadedJob, State
from assay.node.divergence import Divergence, divergence_of, earlier, not_finite
from assay.node.engine import REFERENCE_ENGINE, Engine
from assay.node.inaccuracy import Inaccuracy, inaccuracy_of
from assay.node.published_states import Published
from assay.node.slots import SlotReader, TensorCache
from assay.node.work import Work
from assay.protocol.errors import AssayError
from assay.protocol.ports import Blocks, MarketView
from assay.protocol.types import ClaimId, ClaimView, JobId, Kind
from assay.training.evaluate import training_loss
from assay.training.losses import HELD_OUT_LOSS, LOSS_SLOT

if TYPE_CHECKING:
    from assay.client.following import Following

CACHE_BYTES = 1 << 28
"""Byte budget of tensors in memory while a job is followed."""
MOST_LOOKS = 64
"""Maximum number of polls between retries of an unavailable state."""


class Losses:
    """Cached values of the tasks' published states.

    An unavailable state is retried after 1, 2, 4, ... polls. `measure`: also measures the accuracy of the
    step after a round's first published state, which takes a step's time per round.
    """

    def __init__(self, blocks: Blocks, work: Work, *, measure: bool = False) -> None:
        self._work, self._measure = work, measure
        self._published = Published(blocks, SlotReader(blocks, TensorCache(CACHE_BYTES)))
        self._inaccuracies: dict[int, Inaccuracy | None] = {}
        self._ends: dict[ClaimId, tuple[float | None, str, float | None]] = {}
        self._divergences: dict[ClaimId, Divergence | None] = {}
        self._movements: dict[ClaimId, Movement] = {}
        self._looks = 0
        self._refused: dict[tuple[ClaimId, str], tuple[int, int]] = {}
        """For each unavailable state: the poll at which it is retried, and the present wait in polls."""

    def look(self) -> None:
        """Begins a new poll."""
        self._looks += 1

    def of(self, view: ClaimView) -> float | None:
        """Loss in a task's output state; None if unavailable or the job has no loss slot."""
        return self._end(view)[0]

    def held_out(self, view: ClaimView) -> float | None:
        """Held-out loss of the parameters that the task started from; None as `of`, or if not computed
        (``training.held_out``)."""
        return self._end(view)[2]

    def at(self, view: ClaimView, leaf: int) -> float | None:
        """Loss in a task's state at a leaf of its segments tree, not cached; None as `of`."""
        return self._scalar(view, leaf, LOSS_SLOT)

    def tested(self, view: ClaimView) -> float | None:
        """As `held_out`, but not cached, and reads nothing else of the state."""
        return self._scalar(view, self._work.segments(Kind.TASK), HELD_OUT_LOSS)

    def _scalar(self, view: ClaimView, leaf: int, name: str) -> float | None:
        names = self._work.files.slot_names
        found = self._some(view, leaf, [names.index(name)]) if name in names else None
        return None if found is None else float(found[0])

    def divergence(self, view: ClaimView) -> Divergence | None:
        """First non-finite step of a task; None if its output is finite or unavailable."""
        if view.claim_id not in self._divergences:
            if not self._end(view)[1]:
                return None
            claim = view.claim
            leaf = partial(self._leaf, view)
            self._divergences[view.claim_id] = divergence_of(self._work, claim.round, claim.shard, leaf)
        return self._divergences[view.claim_id]

    def earlier(self, first: Divergence | None, view: ClaimView) -> Divergence | None:
        """The earlier of a divergence and this task's."""
        return earlier(first, self.divergence(view))

    def warnings(self, following: Following) -> tuple[str, ...]:
        """Of the tasks whose states were read, and of the losses."""
        claims = [task.claim_id for task in following.tasks]
        moves = [self._movements[claim] for claim in claims if claim in self._movements]
        return warnings_of(moves, following.loss_by_round())

    def inaccuracy(self, view: ClaimView) -> Inaccuracy | None:
        """Inaccuracy of a task's round, measured at this task's last state if no other's was; None if
        unavailable or not measured."""
        claim = view.claim
        if self._measure and claim.round not in self._inaccuracies:
            slots = range(self._work.files.inner.slots)
            state = self._if_due(view, "whole", slots)
            if state is None:
                return None
            self._inaccuracies[claim.round] = inaccuracy_of(self._work, claim.round, claim.shard, state)
        return self._inaccuracies.get(claim.round)

    def _end(self, view: ClaimView) -> tuple[float | None, str, float | None]:
        """Loss of a task's output state, its non-finite slot, and the held-out loss."""
        files = self._work.files
        if view.claim_id not in self._ends:
            names, params = list(files.slot_names), files.inner.params
            losses = [names.index(name) for name in (LOSS_SLOT, HELD_OUT_LOSS) if name in names]
            wanted = [*range(params), *losses]
            found = self._if_due(view, "end", wanted)
            if found is None:
                return None, "", None
            held = [names[i] for i in wanted]
            loss = training_loss(held, found) if LOSS_SLOT in held else None
            tested = float(found[-1]) if HELD_OUT_LOSS in held else None
            self._ends[view.claim_id] = loss, not_finite(held, params, found), tested
            self._see_movement(view, found)
        return self._ends[view.claim_id]

    def _see_movement(self, view: ClaimView, end: Sequence[Tensor]) -> None:
        """Compare what steps change of the parameters with the task's first state, if that is there."""
        inner, claim = self._work.files.inner, view.claim
        moving = [slot for slot in range(inner.params) if inner.outputs[slot] != slot]
        start = self._some(view, 0, moving) if moving else None
        if start is not None:
            names = [self._work.files.slot_names[slot] for slot in moving]
            ends = (end[slot] for slot in moving)
            self._movements[view.claim_id] = movement(
                (claim.round, claim.shard),
                self._work.terms.main.of(claim.shard).steps,
                dict(zip(names, start, strict=True)),
                dict(zip(names, ends, strict=True)),
            )

    def _if_due(self, view: ClaimView, what: str, wanted: Sequence[int]) -> list[Tensor] | None:
        """These slots of a task's last state, unless a recent attempt failed."""
        key = view.claim_id, what
        due, pause = self._refused.get(key, (0, 0))
        if self._looks < due:
            return None
        found = self._some(view, self._work.segments(Kind.TASK), wanted)
        if found is None:
            pause = min(2 * pause or 1, MOST_LOOKS)
            self._refused[key] = self._looks + pause, pause
            self._published.retry_manifest(view.claim_id)
        return found

    def _leaf(self, view: ClaimView, leaf: int) -> State | None:
        return self._some(view, leaf, range(self._work.files.inner.slots))

    def _some(self, view: ClaimView, leaf: int, wanted: Sequence[int]) -> list[Tensor] | None:
        """These slots of a task's state; None if any is unavailable."""
        try:
            found = self._published.some(view, leaf, self._work.files.inner, wanted)
        except AssayError:
            return None
        tensors = [tensor for tensor in found or () if tensor is not None]
        return tensors if len(tensors) == len(wanted) else None


def losses_of(
    market: MarketView,
    blocks: Blocks,
    job_id: JobId,
    files: LoadedJob,
    engine: Engine = REFERENCE_ENGINE,
    *,
    measure: bool = False,
) -> Losses:
    """Creates the loss reader for `follow`; keep it while following a job."""
    return Losses(blocks, Work(market.job(job_id).terms, files, engine=engine), measure=measure)
