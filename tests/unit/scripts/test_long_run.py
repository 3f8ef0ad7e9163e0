"""The long run: its numbers are subnormal, its powers are pow's, and every form has the stored roots."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor

from assay.numerics.bits import patterns
from assay.program.compiled.executor import CompiledExecutor
from assay.program.execute import PLAIN, Executor, Look, StepContext
from assay.program.isa import Op, Program
from assay.program.kernels import FAST
from assay.protocol.errors import Stop
from scripts import long_run

RUN = long_run.stored()
PARAMS = RUN.sample.program.params
EMBEDDING, MEAN, SQUARE, POWER = 0, PARAMS, 2 * PARAMS, 3 * PARAMS


def silent(text: str) -> None:
    """Say nothing."""


def roots(steps: int) -> dict[int, str]:
    """The stored roots up to so many steps."""
    return {step: root for step, root in RUN.roots.items() if step <= steps}


class Flushing(Executor):
    """An executor whose subnormal results are zeros, as a GPU's with flushing on."""

    def interpreted(self, state: Sequence[Tensor], context: StepContext, look: Look = PLAIN) -> list[Tensor]:
        def flushed(index: int, x: Tensor) -> Tensor:
            least = torch.finfo(torch.float32).smallest_normal
            return torch.where(x.abs() < least, 0.0 * x, x) if x.dtype == torch.float32 else x

        return super().interpreted(state, context, look._replace(patch=flushed))


def test_the_file_has_a_root_of_every_stored_step() -> None:
    assert tuple(RUN.roots) == long_run.STEPS and len(set(RUN.roots.values())) == len(long_run.STEPS)


def test_each_power_of_a_beta_is_the_pow_instructions() -> None:
    nodes = RUN.sample.program.nodes
    for slot, beta in ((POWER, 0.9), (POWER + 1, 0.95)):
        product = nodes[RUN.sample.program.outputs[slot]]
        inputs = [nodes[ref.ref] for ref in product.inputs]
        assert product.op is Op.MUL and Op.POW in {node.op for node in inputs}, beta


def test_a_hundred_steps_are_the_stored_ones_and_end_in_subnormal_weights_and_moments() -> None:
    done = long_run.run(RUN.sample, Executor(RUN.sample.program, kernels=FAST), silent, 100)
    assert done.roots == roots(100)
    found = long_run.subnormals(done.state)
    rows = 256 - 200
    assert [found[slot] for slot in (EMBEDDING, MEAN, SQUARE)] == [rows * 16] * 3
    assert done.subnormals == 3 * rows * 16
    for slot in (EMBEDDING, MEAN, SQUARE):
        assert (patterns(done.state[slot][200:]) & 0x7FFFFFFF).all(), "none has vanished"


def test_a_form_that_flushes_subnormal_numbers_has_other_roots() -> None:
    done = long_run.run(RUN.sample, Flushing(RUN.sample.program), silent, 10)
    assert done.roots.keys() == {1, 10} and set(done.roots.values()).isdisjoint(RUN.roots.values())


def test_a_form_that_is_out_of_time_has_the_roots_that_it_came_to() -> None:
    done = long_run.run(RUN.sample, Executor(RUN.sample.program, kernels=FAST), silent, limit_s=1e-9)
    assert (done.steps, done.roots) == (1, roots(1))


@pytest.mark.parametrize("damage", ["missing", "format", "program"])
def test_a_damaged_file_is_refused(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "long_run.json"
    text = long_run.FILE.read_text()
    if damage != "missing":
        old = '"format": 1' if damage == "format" else '"program": "'
        assert old in text
        path.write_text(text.replace(old, old.replace("1", "9") if damage == "format" else old + "!"))
    with pytest.raises(Stop, match="cannot be used"):
        long_run.stored(path)


def compiled(program: Program) -> Executor:
    return CompiledExecutor(program, self_check=False)


@pytest.mark.slow
@pytest.mark.parametrize("make", [compiled, partial(Executor, kernels=FAST)], ids=["compiled", "fast"])
def test_ten_thousand_steps_are_the_stored_ones(make: partial[Executor]) -> None:
    done = long_run.run(RUN.sample, make(RUN.sample.program), silent)
    assert done.roots == RUN.roots
    assert min(long_run.subnormals(done.state)[slot] for slot in (EMBEDDING, MEAN, SQUARE)) > 0


@pytest.mark.slow
def test_the_power_of_beta1_is_subnormal_after_900_steps() -> None:
    done = long_run.run(RUN.sample, Executor(RUN.sample.program, kernels=FAST), silent, 900)
    assert done.roots == roots(900) and long_run.subnormals(done.state)[POWER] == 1
