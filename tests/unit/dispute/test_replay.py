"""A replay gives the same states, roots and traces in whatever order it is asked."""

from __future__ import annotations

import pytest
import torch

from assay.dispute.replay import Replay
from assay.program.execute import Executor, StepContext
from assay.program.fault import NodeFault, StateFault, flip_lowest_bit
from assay.program.state import state_root
from tests.fakes.arena import FIRST_STEP, SEED, SHARD
from tests.fakes.programs import training_sample

SAMPLE = training_sample()


def replay(**options: object) -> Replay:
    return Replay(SAMPLE.program, SAMPLE.state, SAMPLE.dataset, SEED, SHARD, FIRST_STEP, **options)  # type: ignore[arg-type]


def direct_roots(steps: int) -> list[bytes]:
    executor, state = Executor(SAMPLE.program), SAMPLE.state
    roots = [state_root(state)]
    for i in range(steps):
        state = executor.step(state, StepContext(SAMPLE.dataset, SEED, SHARD, FIRST_STEP + i))
        roots.append(state_root(state))
    return roots


def test_roots_are_those_of_direct_execution_in_any_order() -> None:
    expected = direct_roots(9)
    assert len(set(expected)) == 10
    for options in ({}, {"snapshot_every": 2, "max_snapshots": 2}, {"snapshot_every": 1, "max_snapshots": 1}):
        again = replay(**options)
        for i in (9, 0, 4, 5, 3, 8, 1, 2, 7, 6):
            assert again.root(i) == expected[i]


def test_trace_of_a_step_leads_to_the_next_state() -> None:
    again = replay()
    for i in (2, 0, 1):
        traced = again.trace(i)
        assert traced.context.step == FIRST_STEP + i
        assert state_root(traced.next_state) == again.root(i + 1)
        assert again.trace(i) is traced
    assert again.trace(1, b"k" * 32).root != again.trace(1).root


def test_snapshots_are_bounded() -> None:
    again = replay(snapshot_every=1, max_snapshots=4)
    again.state(40)
    assert len(again._snapshots) <= 4
    assert again.root(3) == direct_roots(3)[3]


def test_negative_states_do_not_exist() -> None:
    with pytest.raises(IndexError):
        replay().state(-1)


def test_node_fault_begins_at_its_step_and_shows_in_the_trace() -> None:
    node = SAMPLE.program.outputs[0]
    honest, cheat = replay(), replay(fault=NodeFault(FIRST_STEP + 2, node, 5))
    assert [honest.root(i) == cheat.root(i) for i in range(5)] == [True, True, True, False, False]
    pairs = zip(honest.trace(2).tree.levels[0], cheat.trace(2).tree.levels[0], strict=True)
    assert [i for i, (a, b) in enumerate(pairs) if a != b] == [node]


def test_state_fault_leaves_the_trace_honest() -> None:
    honest, cheat = replay(), replay(fault=StateFault(FIRST_STEP + 1, 1, 0))
    assert cheat.root(1) == honest.root(1)
    assert cheat.root(2) != honest.root(2)
    assert cheat.trace(1).root == honest.trace(1).root


def test_flipped_bit_is_one_element_and_never_lost() -> None:
    x = torch.tensor([1.0, float("nan"), float("inf"), -0.0])
    for element in range(4):
        changed = flip_lowest_bit(x, element)
        assert state_root([changed]) != state_root([x])
        kept = [i for i in range(4) if i != element]
        assert state_root([changed[kept]]) == state_root([x[kept]])
