"""What the first steps of a job show before anybody is paid for them.

Contract: `warnings_of` executes the first steps of shard 0 with the job's own seed, and names the first
number that is Inf or NaN, a first loss that is not PyTorch's, and every product that is further from the
exact one than bfloat16's.
`own_warnings` plays the first rounds by an outer algorithm of the client's own, of as many steps, in which
every shard changes what shard 0 does: it names numbers that are not finite, and says where the rounds move
no parameter, or against what training changed, or where one shard's absence changes where they go. Nothing
is refused: a job that diverges is as exact as any other. Not guaranteed: anything about later steps and
rounds.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from assay.node.divergence import not_finite
from assay.node.work import put_together
from assay.program.accuracy import Meter
from assay.program.execute import Executor, StepContext
from assay.program.kernels import FAST
from assay.protocol.loops import Place, Stands
from assay.protocol.types import Kind, Loop, Terms
from assay.training.job import JobArtifacts
from assay.training.losses import LOSS_SLOT
from assay.training.precision import REHEARSED_STEPS

REHEARSED_ROUNDS = 3
"""Of an outer algorithm of one's own: of two nothing would be seen where changes come a round late."""


def warnings_of(files: JobArtifacts, seed: int, steps: int = REHEARSED_STEPS) -> list[str]:
    """A line for each thing that a client wants to know before it posts; empty if all is well."""
    executor, state, meter = Executor(files.inner, kernels=FAST), list(files.genesis), Meter(files.inner)
    lines = []
    if what := not_finite(files.slot_names, files.inner.params, state):
        lines.append(f"at genesis {what}")
    for step in range(steps):
        context = StepContext(files.records, seed.to_bytes(32, "big"), 0, step)
        state = executor.step(state, context, meter.observe)
        if not lines and (what := not_finite(files.slot_names, files.inner.params, state)):
            lines.append(f"after step {step + 1} of {steps} rehearsed {what}")
        if step == 0 and not lines:
            lines += _unlike_native(files, seed, state)
    return lines + _inaccurate(files, meter)


_APART = 0.02
"""Of a loss: further from PyTorch's than the precision of products explains."""


def _unlike_native(files: JobArtifacts, seed: int, state: Sequence[Tensor]) -> list[str]:
    """A line where the first step's loss is not what PyTorch computes on the same records."""
    if files.native_loss is None or LOSS_SLOT not in files.slot_names:
        return []
    ours = float(state[files.slot_names.index(LOSS_SLOT)])
    theirs = files.native_loss(seed.to_bytes(32, "big"))
    if not abs(ours - theirs) > _APART * max(abs(theirs), 0.1):
        return []
    return [
        f"the loss of the first step is {ours:.6g}, and {theirs:.6g} as PyTorch computes it: somewhere whole"
        " numbers exceed 31 bits, or numbers lie too far apart for the products' precision"
        " (docs/lowering.md, Numbers)"
    ]


def _inaccurate(files: JobArtifacts, meter: Meter) -> list[str]:
    sources = {node: site.source for site, _, nodes in files.sites for node in nodes}
    return [
        f"{sources[reading.product.node]}: the product ({reading.product.precision.value}) loses"
        f" {reading.error.whole:.2g} times what bfloat16 does; see [precision] in the job file"
        for reading in meter.readings
        if reading.error.whole > 1
    ]


class _Rounds:
    """A job's first rounds, in which every shard does what shard 0 does; its outer step is in one piece, as
    by any algorithm of one's own."""

    def __init__(self, files: JobArtifacts, terms: Terms, seed: int, steps: int) -> None:
        self._files, self._terms, self._seed, self._steps = files, terms, seed.to_bytes(32, "big"), steps
        self._tasks = [Executor(program, kernels=FAST) for program in files.tasks]
        self._outers = [Executor(program, kernels=FAST) for program in files.outers]
        self._ends: dict[tuple[Kind, int], list[Tensor]] = {}
        self.shards = terms.shards

    def _begun(self, kind: Kind, round_: int, stands: Stands = lambda *_: True) -> list[Tensor]:
        def output(place: Place, slot: int) -> Tensor:
            of, at, _ = place
            return self._ends[of, at][slot]

        genesis = self._files.genesis if kind == Kind.TASK else self._files.outer_genesis
        return put_together(self._terms, (kind, round_, 0), stands, output, genesis)

    def _run(self, round_: int, loop: Loop, run: Executor, state: list[Tensor], steps: int) -> list[Tensor]:
        """The state after the first steps of a loop."""
        for step in range(steps):
            context = StepContext(self._files.records, self._seed, 0, round_ * loop.steps + step)
            state = list(run.step(state, context))
        return state

    def task(self, round_: int) -> tuple[list[Tensor], list[Tensor]]:
        """Parameters of shard 0 before and after a round's training."""
        state, count = self._begun(Kind.TASK, round_), self._files.inner.params
        begun = trained = state[:count]
        for number, (run, loop) in enumerate(zip(self._tasks, self._terms.loops, strict=True)):
            main, own = number == self._files.main, loop.of(0)
            state = self._run(round_, own, run, state, min(self._steps, own.steps) if main else own.steps)
            if main:
                trained = state[:count]
        self._ends[Kind.TASK, round_] = state
        return begun, trained

    def outer(self, round_: int) -> tuple[list[Tensor], list[Tensor]]:
        """The job's parameters before and after a round's outer step."""
        before, state = self._outer(round_, self._begun(Kind.OUTER, round_))
        self._ends[Kind.OUTER, round_] = state
        return before, state[: len(before)]

    def outer_without(self, round_: int, shard: int) -> list[Tensor]:
        """The parameters after a round's outer step that one shard's tasks of all rounds do not reach; no
        later round begins from them."""
        begun = self._begun(Kind.OUTER, round_, lambda _, at: at != shard)
        before, state = self._outer(round_, begun)
        return state[: len(before)]

    def _outer(self, round_: int, state: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        before = state[: self._files.inner.params]
        for run, loop in zip(self._outers, self._terms.outer_loops, strict=True):
            state = self._run(round_, loop, run, state, loop.steps)
        return before, state


def _along(moved: Sequence[tuple[Tensor, Tensor]], trained: Sequence[tuple[Tensor, Tensor]]) -> float:
    """The inner product of two changes, each of pairs of before and after."""
    return sum(
        float(((b.double() - a.double()) * (d.double() - c.double())).sum())
        for (a, b), (c, d) in zip(moved, trained, strict=True)
    )


_AS_FAR = 1e-3
"""Of a round's change: what another count of the same terms may make of it."""
_ABSENT = 4
"""Shards that are absent in turn: a mean may read some of many alone."""


def _apart(one: Sequence[Tensor], other: Sequence[Tensor]) -> float:
    """The squared distance of two lists of tensors."""
    return sum(float((a.double() - b.double()).square().sum()) for a, b in zip(one, other, strict=True))


def _counted_absent(played: _Rounds, outers: Sequence[tuple[list[Tensor], list[Tensor]]]) -> bool:
    """Whether the outer step that moved furthest, of those played, goes elsewhere when a shard is absent: one
    of the first `_ABSENT`, or the last."""
    gone, round_ = max((_apart(*outer), number) for number, outer in enumerate(outers))
    shards = {*range(min(_ABSENT, played.shards)), played.shards - 1}
    ends = (played.outer_without(round_, shard) for shard in sorted(shards))
    return not all(_apart(outers[round_][1], end) <= _AS_FAR**2 * gone for end in ends)


def own_warnings(
    files: JobArtifacts, terms: Terms, seed: int, steps: int = REHEARSED_STEPS, rounds: int = REHEARSED_ROUNDS
) -> list[str]:
    """A line for what the first rounds show of an outer algorithm of the client's own; empty if all is
    well."""
    played = _Rounds(files, terms, seed, steps)
    names, count = files.slot_names[: files.inner.params], files.inner.params
    along, moved, trained, rounds = 0.0, False, False, min(rounds, terms.rounds)
    outers = []
    for round_ in range(rounds):
        task, outer = played.task(round_), played.outer(round_)
        outers.append(outer)
        for what, state in (("training", task[1]), ("outer step", outer[1])):
            if bad := not_finite(names, count, state):
                return [f"after the {what} of round {round_ + 1} of {rounds} rehearsed {bad}"]
        along += _along(list(zip(*outer, strict=True)), list(zip(*task, strict=True)))
        moved = moved or any(not torch.equal(a, b) for a, b in zip(*outer, strict=True))
        trained = trained or any(not torch.equal(a, b) for a, b in zip(*task, strict=True))
    where = "docs/concepts.md, an algorithm of your own"
    if trained and not moved:
        return [f"the outer step of your own moves no parameter in {rounds} rounds rehearsed ({where})"]
    lines = []
    if along < 0:
        lines.append(
            f"the outer step of your own moves parameters against what training changed, in {rounds} rounds"
            " rehearsed: delta is theta before training less theta after it, so theta goes against delta"
            f" ({where})"
        )
    if terms.min_shards < terms.shards and _counted_absent(played, outers):
        lines.append(
            "with one shard absent the outer step of your own goes elsewhere, though all shards rehearsed did"
            f" the same: what is absent, or how many are, counts in it. A mean is of those present ({where})"
        )
    return lines
