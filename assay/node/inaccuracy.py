"""Measures whether a running job's products are still as accurate as bfloat16's.

Contract: an external check. It executes the step after a published state once more with a meter
(``program.accuracy``). It affects no state, claim or payment, and no node has to do it. Values drift while a
network learns, so the precision that the first steps needed ("auto", ``training.precision``) may be too low
later. Not guaranteed: that steps in between are like this one.
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
"""Error limit, as a multiple of bfloat16's."""


@dataclass(frozen=True)
class Inaccuracy:
    """The least accurate product of a step. `step`: steps that the shard had done before, over all rounds."""

    round: int
    shard: int
    step: int
    node: int
    error: Error
    products: int
    """Number of the step's products that exceed the limit."""

    def __str__(self) -> str:
        where = f"after step {self.step} (round {self.round}, shard {self.shard})"
        worst = f"the worst (node {self.node}) loses {self.error.whole:.2g} times as much"
        return (
            f"inaccurate {where}: {self.products} matrix products are less precise than bfloat16, {worst};"
            ' if the loss suffers, write [precision] products = "split" in the next job'
        )


def inaccuracy_of(work: Work, round_: int, shard: int, end: Sequence[Tensor]) -> Inaccuracy | None:
    """Measures the step after a task's last state; None if every product is within the limit."""
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
