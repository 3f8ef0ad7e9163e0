"""Whether a running job's products are still as near to exact ones as bfloat16's would be.

Contract: a look from outside. The step after a published state is executed once more with a meter
(``program.accuracy``). Nothing of it enters a state, a claim or a payment, and no node has to do it. Numbers
drift while a network learns, and what the first steps needed ("auto", ``training.precision``) may be too
little later. Not guaranteed: that steps in between look like this one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from assay.node.work import Work
from assay.program.accuracy import Error, Meter
from assay.program.execute import Executor, StepContext
from assay.program.kernels import FAST

ADMITTED = 1.0
"""Of the whole product; 1 is bfloat16's own."""


@dataclass(frozen=True)
class Inaccuracy:
    """The worst product of a step. `step`: steps that the shard had done before, counted over all rounds."""

    round: int
    shard: int
    step: int
    node: int
    error: Error
    products: int
    """How many of the step's products leave the limit."""

    def __str__(self) -> str:
        where = f"after step {self.step} (round {self.round}, shard {self.shard})"
        worst = f"the worst (node {self.node}) loses {self.error.whole:.2g} times as much"
        return (
            f"inaccurate {where}: {self.products} matrix products are less precise than bfloat16, {worst};"
            ' if the loss suffers, write [precision] products = "split" in the next job'
        )


def inaccuracy_of(work: Work, round_: int, shard: int, end: Sequence[Tensor]) -> Inaccuracy | None:
    """What the step after a task's last state shows; None if every product is within the limit."""
    program, terms = work.files.inner, work.terms
    step = (round_ + 1) * terms.main.of(shard).steps
    meter = Meter(program)
    if not meter.readings:
        return None
    context = StepContext(work.files.records, terms.seed, shard, step)
    Executor(program, kernels=FAST).step(end, context, meter.observe)
    outside = [reading for reading in meter.readings if reading.error.whole > ADMITTED]
    if not outside:
        return None
    worst = max(outside, key=lambda reading: reading.error.whole)
    return Inaccuracy(round_, shard, step, worst.product.node, worst.error, len(outside))
