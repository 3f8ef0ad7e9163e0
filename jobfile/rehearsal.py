"""What the first steps of a job show before anybody is paid for them.

Contract: `warnings_of` executes the first steps of shard 0 with the job's own seed, and names the first
number that is Inf or NaN, and every product that is further from the exact one than bfloat16's. Nothing is
refused: a job that diverges is as exact as any other. Not guaranteed: anything about later steps.
"""

from __future__ import annotations

from assay.node.divergence import not_finite
from assay.numerics import FAST
from assay.program.accuracy import Meter
from assay.program.execute import Executor, StepContext
from assay.training.job import JobArtifacts
from assay.training.precision import REHEARSED_STEPS


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
    return lines + _inaccurate(files, meter)


def _inaccurate(files: JobArtifacts, meter: Meter) -> list[str]:
    sources = {node: site.source for site, _, nodes in files.sites for node in nodes}
    return [
        f"{sources[reading.product.node]}: the product ({reading.product.precision.value}) loses"
        f" {reading.error.whole:.2g} times what bfloat16 does; see [precision] in the job file"
        for reading in meter.readings
        if reading.error.whole > 1
    ]
