"""Rehearses the first steps of a job and warns about problems before anybody is paid.

Contract: `warnings_of` runs the first steps of shard 0 with the job's seed. It reports the first Inf or NaN,
a first loss that differs from PyTorch's, and every product that is less accurate than bfloat16's.
`own_warnings` plays the first rounds of a client's own outer algorithm; every shard changes what shard 0
does. It reports non-finite numbers, rounds that move no parameter or move against the training, and an effect
of one shard's absence. Nothing is refused: a job that diverges is as exact as any other. Not guaranteed:
anything about later steps and rounds.
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
"""Rounds for an own outer algorithm: two would show nothing if changes come a round late."""


def warnings_of(files: JobArtifacts, seed: int, steps: int = REHEARSED_STEPS) -> list[str]:
    """Warnings for the client before it posts, one line each."""
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
"""Relative difference of a loss from PyTorch's that the precision of products does not explain."""


def _unlike_native(files: JobArtifacts, seed: int, state: Sequence[Tensor]) -> list[str]:
    """A warning if the first step's loss differs from PyTorch's on the same records."""
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
    """The first rounds of a job in which every shard does what shard 0 does; its outer step is in one
    piece."""

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
        """State after the first steps of a loop."""
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
        """Parameters after a round's outer step without one shard's tasks of all rounds; no later round
        starts from them."""
        begun = self._begun(Kind.OUTER, round_, lambda _, at: at != shard)
        before, state = self._outer(round_, begun)
        return state[: len(before)]

    def _outer(self, round_: int, state: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        before = state[: self._files.inner.params]
        for run, loop in zip(self._outers, self._terms.outer_loops, strict=True):
            state = self._run(round_, loop, run, state, loop.steps)
        return before, state


def _along(moved: Sequence[tuple[Tensor, Tensor]], trained: Sequence[tuple[Tensor, Tensor]]) -> float:
    """Inner product of two changes, each given as pairs of before and after."""
    return sum(
        float(((b.double() - a.double()) * (d.double() - c.double())).sum())
        for (a, b), (c, d) in zip(moved, trained, strict=True)
    )


_AS_FAR = 1e-3
"""Relative change of a round that another count of the same terms may cause."""
_ABSENT = 4
"""Number of shards left out in turn: a mean may read only some of many."""


def _apart(one: Sequence[Tensor], other: Sequence[Tensor]) -> float:
    """Squared distance between two lists of tensors."""
    return sum(float((a.double() - b.double()).square().sum()) for a, b in zip(one, other, strict=True))


def _counted_absent(played: _Rounds, outers: Sequence[tuple[list[Tensor], list[Tensor]]]) -> bool:
    """True if the outer step that moved furthest changes when a shard (one of the first `_ABSENT`, or the
    last) is absent."""
    gone, round_ = max((_apart(*outer), number) for number, outer in enumerate(outers))
    shards = {*range(min(_ABSENT, played.shards)), played.shards - 1}
    ends = (played.outer_without(round_, shard) for shard in sorted(shards))
    return not all(_apart(outers[round_][1], end) <= _AS_FAR**2 * gone for end in ends)


def own_warnings(
    files: JobArtifacts, terms: Terms, seed: int, steps: int = REHEARSED_STEPS, rounds: int = REHEARSED_ROUNDS
) -> list[str]:
    """Warnings about a client's own outer algorithm from its first rounds, one line each."""
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
