"""Traces commit to every node's output, keyed or not, however little memory there is."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest
import torch

import assay.dispute.trace as trace_module
from assay.dispute.trace import StepTrace, trace_step
from assay.numerics.encoding import to_bytes
from assay.program import hashing_threads
from assay.program.build import ProgramBuilder
from assay.program.execute import Executor, StepContext
from assay.program.hashing_threads import Hasher
from assay.program.isa import DType, Op
from assay.program.state import state_root
from assay.protocol import trees
from tests.fakes.programs import Sample, random_sample

KEY = b"k" * 32


def trace(sample: Sample, key: bytes = b"", **options: Any) -> StepTrace:
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


def test_outputs_are_kept_all_together_or_not_at_all() -> None:
    sample = random_sample(5)
    nodes = sample.program.nodes
    size = sum(node.bytes for node in nodes)
    free = {i for i, node in enumerate(nodes) if node.op in (Op.STATE, Op.CONST)}
    assert set(trace(sample, keep_bytes=size)._kept) == set(range(len(nodes))) > free
    assert set(trace(sample, keep_bytes=size - 1)._kept) == free


@pytest.mark.parametrize("key", [b"", KEY])
def test_roots_from_hashing_threads_are_the_same(monkeypatch: pytest.MonkeyPatch, key: bytes) -> None:
    sample, made = random_sample(5), Hasher(2)
    plain = trace(sample, key)
    monkeypatch.setattr(hashing_threads, "PLAIN_BYTES", 0)
    monkeypatch.setattr(trace_module, "PLAIN_BYTES", 0)
    beside = trace(sample, key, hasher=made)
    assert made._threads._threads
    assert beside.tree == plain.tree
    made.close()


class Outstanding:
    """A hasher that answers when it is asked for a result, and counts the bytes that wait."""

    def __init__(self, fails_at: int = -1) -> None:
        self.waiting = self.most = self.largest = self.asked = 0
        self._fails_at = fails_at

    def tensor_root(self, x: torch.Tensor, key: bytes) -> Future[bytes]:
        size, outer, number = x.numel() * x.element_size(), self, self.asked
        self.asked, self.waiting = self.asked + 1, self.waiting + size
        self.most, self.largest = max(self.most, self.waiting), max(self.largest, size)

        class Late(Future[bytes]):
            settled = False

            def result(self, timeout: float | None = None) -> bytes:
                if number == outer._fails_at:
                    raise MemoryError("no room for a contiguous copy")
                outer.waiting -= 0 if self.settled else size
                self.settled = True
                return trees.tensor_root(to_bytes(x), key)

        return Late()


def test_what_waits_to_be_hashed_is_bounded_and_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    sample, slow = random_sample(5), Outstanding()
    plain = trace(sample)
    monkeypatch.setattr(trace_module, "PLAIN_BYTES", 0)
    monkeypatch.setattr(trace_module, "_BACKLOG_BYTES", 64)
    assert trace(sample, hasher=slow).tree == plain.tree
    assert slow.asked > 10 and slow.waiting == 0
    assert 64 < slow.most <= 64 + slow.largest


@pytest.mark.parametrize("number", [0, 5])
def test_a_root_that_fails_ends_the_trace(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setattr(trace_module, "PLAIN_BYTES", 0)
    with pytest.raises(MemoryError):
        trace(random_sample(5), hasher=Outstanding(fails_at=number))


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
