"""Every instruction on hard inputs: one result, whatever kernels, backend, threads, split or compiled form.

The quick tests take small exercises; the slow ones take all, more than a million values an operation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from assay.fitness.check import model_differences
from assay.fitness.exercise import CONTEXT, Exercise, all_exercises, contractions, elementwise
from assay.numerics import backends, contraction
from assay.numerics.bits import differences
from assay.program.compiled.executor import CompiledExecutor
from assay.program.execute import Executor
from assay.program.isa import Node, Op
from assay.program.kernels import FAST, REFERENCE, Kernels, on_inputs
from tests.marked import long

EXERCISES = all_exercises()
NAMES = [exercise.name for exercise in EXERCISES]
SMALL = [
    elementwise(1 << 13, 1),
    *(contractions(*shape, 1) for shape in ((512, 2), (96, 17), (48, 256), (24, 1000), (12, 4096))),
]
Outputs = dict[int, Tensor]
BACKENDS = (
    backends.integer_product_int64,
    backends.integer_product_f64,
    backends.integer_product_int8,
    backends.integer_product_fast,
)


@pytest.fixture(autouse=True)
def _threads_as_before() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def outputs(exercise: Exercise, chunk: int, kernels: Kernels = REFERENCE, threads: int = 1) -> Outputs:
    """Every node's output."""
    torch.set_num_threads(threads)
    seen: Outputs = {}
    executor = Executor(exercise.program, kernels=kernels)
    executor.step(exercise.state(chunk), CONTEXT, lambda i, x: seen.update({i: x}))
    return seen


def assert_same(exercise: Exercise, got: Mapping[int, Tensor], want: Outputs, how: str) -> None:
    for index, x in got.items():
        count, first = differences(x, want[index])
        node = exercise.program.nodes[index]
        assert not count, (
            f"{how}: {exercise.name}, node {index} {node.op.name} {node.shape}: {count}, {first}"
        )


CUT = {Op.SUM: 1, Op.AMAX: 1, Op.ARGMAX: 1, Op.EXPONENT: 1, Op.QUANTISE: 2, Op.PRODUCT: 2, Op.SCATTER_SUM: 1}
"""How many of the first operands are cut along the first dimension; element-wise, those as long."""


def in_pieces(node: Node, inputs: list[Tensor], sizes: list[int], kernels: Kernels) -> Tensor | None:
    """The node's output from pieces along the first dimension; None for what only moves elements."""
    if node.op.elementwise:
        cut = [x.shape[:1] == node.shape[:1] and x.dim() == len(node.shape) for x in inputs]
    elif node.op in CUT:
        batched = node.op is Op.PRODUCT and len(node.shape) > 2
        cut = [batched or i < CUT[node.op] for i in range(len(inputs))]
        if node.op is Op.SCATTER_SUM:
            cut = [True, inputs[1].dim() == 2]
    elif node.op in (Op.PICK, Op.TAKE):
        cut = [node.op is Op.PICK, True]
    else:
        return None
    kernel, made, start = on_inputs(node, kernels[node.op.word]), [], 0
    for size in sizes:
        piece = [x[start : start + size] if c else x for c, x in zip(cut, inputs, strict=True)]
        made.append(kernel(*piece))
        start += size
    return torch.cat(made)


def sizes_of(length: int, seed: int) -> list[int]:
    """Random sizes that add up to `length`."""
    generator = torch.Generator().manual_seed(seed)
    marks = torch.randint(1, max(length, 2), (3,), generator=generator).tolist()
    edges = sorted({0, length, *(m for m in marks if m < length)})
    return [b - a for a, b in pairwise(edges)]


def split(exercise: Exercise, chunk: int, whole: Outputs, kernels: Kernels) -> Outputs:
    """Every computed node again, from pieces of its inputs."""
    again: Outputs = {}
    for index, node in enumerate(exercise.program.nodes):
        if node.inputs and node.shape:
            inputs = [whole[ref.ref] for ref in node.inputs]
            made = in_pieces(node, inputs, sizes_of(node.shape[0], 31 * chunk + index), kernels)
            if made is not None:
                again[index] = made
    return again


def products(exercise: Exercise, whole: Outputs, backend: backends.IntegerProduct) -> Outputs:
    """Every product again, on one backend."""
    found = {}
    for index, node in enumerate(exercise.program.nodes):
        if node.op is Op.PRODUCT:
            inputs = [whole[ref.ref] for ref in node.inputs]
            found[index] = contraction.product(*inputs, integer_product=backend)
    return found


def eager_forms_agree(exercise: Exercise, chunk: int) -> None:
    want = outputs(exercise, chunk)
    assert_same(exercise, outputs(exercise, chunk, REFERENCE, 2), want, "reference, 2 threads")
    assert_same(exercise, outputs(exercise, chunk, FAST), want, "fast")
    assert_same(exercise, outputs(exercise, chunk, FAST, 2), want, "fast, 2 threads")
    for kernels in (REFERENCE, FAST):
        assert_same(exercise, split(exercise, chunk, want, kernels), want, "in pieces")
    made = [products(exercise, want, backend) for backend in BACKENDS]
    assert all(found.keys() == made[0].keys() for found in made)
    for backend, found in zip(BACKENDS, made, strict=True):
        assert_same(exercise, found, want, backend.__name__)


def test_every_instruction_gets_a_million_values() -> None:
    values: Counter[Op] = Counter()
    for exercise in EXERCISES:
        for node in exercise.program.nodes:
            values[node.op] += node.elements * exercise.chunks
    sources = {Op.STATE, Op.DATA, Op.CONST, Op.STEP, Op.SHARD, Op.RECORD}
    assert {op for op in Op if values[op] < 1_000_000} - sources == set()


@pytest.mark.long
@pytest.mark.parametrize("exercise", SMALL, ids=NAMES)
def test_a_chunk_is_the_same_in_every_eager_form(exercise: Exercise) -> None:
    eager_forms_agree(exercise, 1)


@pytest.mark.parametrize("reads", [50, long(200)])
@pytest.mark.parametrize("exercise", SMALL, ids=NAMES)
def test_a_chunk_is_what_the_integer_model_says(exercise: Exercise, reads: int) -> None:
    model_agrees(exercise, 1, reads)


def model_agrees(exercise: Exercise, chunk: int, reads: int) -> None:
    seen = outputs(exercise, chunk)
    for index, node in enumerate(exercise.program.nodes):
        if node.inputs:
            assert model_differences(node, index, seen, reads) == [], (
                f"{exercise.name}, node {index} {node.op.name}"
            )


def test_pieces_that_differ_in_one_bit_are_noticed() -> None:
    """The comparison fails where it should: one node of a form has one bit wrong."""
    exercise = contractions(64, 33, 1)
    want = outputs(exercise, 0)
    again = split(exercise, 0, want, REFERENCE)
    index = next(i for i, node in enumerate(exercise.program.nodes) if node.op is Op.PRODUCT)
    again[index].view(torch.int32)[7, 5] ^= 1 << 13
    with pytest.raises(
        AssertionError, match=rf"node {index} PRODUCT .*1, \[Difference\(index={7 * want[index].shape[1] + 5}"
    ):
        assert_same(exercise, again, want, "in pieces")


@pytest.mark.slow
@pytest.mark.parametrize("exercise", EXERCISES, ids=NAMES)
def test_all_values_are_the_same_in_every_eager_form(exercise: Exercise) -> None:
    for chunk in range(exercise.chunks):
        eager_forms_agree(exercise, chunk)


@pytest.mark.slow
@pytest.mark.parametrize("exercise", EXERCISES, ids=NAMES)
def test_a_sample_of_all_values_is_what_the_integer_model_says(exercise: Exercise) -> None:
    for chunk in range(0, exercise.chunks, 4):
        model_agrees(exercise, chunk, reads=2000)


UNEVEN = [elementwise(4099, 3), contractions(37, 129, 12)]
"""Sizes that no vector register divides."""


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("exercise", [*EXERCISES, *UNEVEN], ids=[*NAMES, "uneven elements", "uneven rows"])
def test_all_values_are_the_same_compiled(exercise: Exercise, threads: int) -> None:
    torch.set_num_threads(threads)
    compiled = CompiledExecutor(exercise.program, self_check=False)
    reference = Executor(exercise.program)
    for chunk in range(exercise.chunks):
        state = exercise.state(chunk)
        want = dict(enumerate(reference.step(state, CONTEXT)))
        for slot, x in enumerate(compiled.step(state, CONTEXT)):
            count, first = differences(x, want[slot])
            label = exercise.labels[slot - exercise.given] if slot >= exercise.given else f"operand {slot}"
            assert not count, f"{exercise.name}, chunk {chunk}, {label}: {count} differ, {first}"
