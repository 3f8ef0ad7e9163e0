"""Traces commit to every node's output, keyed or not, however little memory there is."""

from __future__ import annotations

import pytest
import torch

from numerics.encoding import to_bytes
from program.build import ProgramBuilder
from program.execute import Executor, StepContext
from program.isa import DType, Op
from program.state import state_root
from program.trace import StepTrace, trace_step
from protocol import trees
from tests.fakes.programs import Sample, random_sample

KEY = b"k" * 32


def trace(sample: Sample, key: bytes = b"", **options: int) -> StepTrace:
    context = StepContext(sample.dataset, b"s" * 32, 1, 6)
    return trace_step(sample.program, sample.state, context, key, **options)


@pytest.mark.parametrize("key", [b"", KEY])
def test_tree_is_over_the_output_roots(key: bytes) -> None:
    sample = random_sample(4)
    traced = trace(sample, key)
    outputs: list[bytes] = []
    context = StepContext(sample.dataset, b"s" * 32, 1, 6)
    after = Executor(sample.program).step(
        sample.state, context, lambda i, x: outputs.append(bytes(to_bytes(x)))
    )
    assert traced.tree.levels[0] == tuple(trees.tensor_root(out, key) for out in outputs)
    assert [bytes(traced.output(i)) for i in range(len(outputs))] == outputs
    assert state_root(traced.next_state) == state_root(after)
    for i in (0, len(outputs) - 1):
        assert traced.tensor_tree(i).root == traced.tree.digest(0, i)


def test_memory_bound_and_threads_change_nothing() -> None:
    sample = random_sample(5)
    whole, lean = trace(sample), trace(sample, keep_bytes=0)
    assert whole.root == lean.root
    for i in range(0, len(sample.program.nodes), 7):
        assert bytes(lean.output(i)) == bytes(whole.output(i))
        assert lean.tensor_tree(i) == whole.tensor_tree(i)
    with pytest.raises(IndexError):
        lean.tensor(len(sample.program.nodes))


def test_key_changes_every_output_root() -> None:
    sample = random_sample(6)
    plain, keyed, other = (trace(sample, key).tree.levels[0] for key in (b"", KEY, b"j" * 32))
    assert not set(plain) & set(keyed)
    assert not set(keyed) & set(other)


@pytest.mark.parametrize("elements", [1, 1023, 1024, 1025, 3000])
def test_const_trees_are_those_of_their_bytes(elements: int) -> None:
    b = ProgramBuilder()
    b.state(DType.F32, (elements,))
    program = b.finish([b.const(1.5, DType.F32, (elements,))], 1)
    state = [torch.zeros(elements)]
    traced = trace_step(program, state, StepContext(None, b"", 0, 0), KEY)
    assert program.nodes[1].op is Op.CONST
    assert traced.tree.digest(0, 1) == trees.tensor_root(bytes(traced.output(1)), KEY)
    assert traced.tensor_tree(1).count == program.nodes[1].leaves
