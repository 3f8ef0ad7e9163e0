"""Many passes make one step of the optimiser: its bits, its state, and a program that does not grow."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from assay.protocol.errors import Stop
from assay.training import models
from assay.training.optimisers import COUNTER, SUM, AdamW, MicroSteps, Optimiser, Sgd
from tests.unit.training.steps import built, compare, images

CONFIG = models.MlpConfig(hidden=8, layers=1)


@pytest.mark.parametrize("rule", [AdamW(), Sgd(lr=0.1)])
def test_a_step_is_the_rules_on_the_mean_gradient_and_nothing_changes_before(rule: Optimiser) -> None:
    torch.manual_seed(1)
    params = {"w": torch.randn(3, 4), "b": torch.randn(4)}
    micro = MicroSteps(rule, 3)
    state = micro.genesis(params)
    alone, now = rule.genesis(params), dict(params)
    for _ in range(2):
        grads = [{n: torch.randn_like(p) for n, p in params.items()} for _ in range(3)]
        for at, g in enumerate(grads):
            before, held = dict(now), {n: x for n, x in state.items() if n in alone}
            now, state = micro.update(now, g, state)
            if at < 2:
                assert all(torch.equal(now[n], before[n]) for n in params), "between steps they stay"
                assert all(torch.equal(state[n], x) for n, x in held.items())
        mean = {n: (grads[0][n] + grads[1][n] + grads[2][n]) / 3 for n in params}
        wanted, alone = rule.update(before, mean, alone)
        assert all(torch.equal(now[n], wanted[n]) for n in params)
        assert all(torch.equal(state[n], x) for n, x in alone.items())
        assert state[COUNTER] == 0


def test_a_sum_begins_anew_whatever_was_in_it() -> None:
    params = {"w": torch.zeros(2)}
    micro = MicroSteps(Sgd(lr=1.0), 2)
    state = {**micro.genesis(params), SUM + "w": torch.full((2,), float("nan"))}
    one = {"w": torch.ones(2)}
    now, state = micro.update(params, one, state)
    now, _ = micro.update(now, one, state)
    assert torch.equal(now["w"], -torch.ones(2))


def test_the_traced_step_does_what_the_rule_does() -> None:
    made = compare(models.build(CONFIG, 3), MicroSteps(AdamW(), 3), images(), steps=7, relative=2e-3, batch=4)
    assert COUNTER in made.slot_names


@pytest.mark.long
def test_a_program_does_not_grow_with_the_passes_of_a_step() -> None:
    def nodes(count: int) -> int:
        return len(built(models.build(CONFIG, 3), MicroSteps(Sgd(), count), images(), batch=4).inner.nodes)

    def unrolled(count: int) -> int:
        made = built(models.build(CONFIG, 3), Sgd(), images(), batch=4, accumulate=count)
        return len(made.inner.nodes)

    assert nodes(37) == nodes(1000), "but for constants that are there already"
    assert unrolled(8) > 3 * unrolled(2)


def test_no_pass_is_no_step() -> None:
    with pytest.raises(Stop, match="1 micro-step"):
        MicroSteps(Sgd(), 0)


def _shown(tensors: dict[str, Tensor]) -> list[str]:
    return sorted(tensors)


def test_the_state_is_the_rules_and_a_sum_for_each_parameter() -> None:
    params = {"w": torch.zeros(2), "b": torch.zeros(1)}
    rule = AdamW()
    assert _shown(MicroSteps(rule, 4).genesis(params)) == sorted(
        [*rule.genesis(params), "grad_sum.w", "grad_sum.b", "micro_step"]
    )
