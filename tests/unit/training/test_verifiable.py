"""Draws and rewards of tasks in a program, against plain Python; and the effect of the warm-up."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from torch import Tensor

from assay.program.execute import Executor, StepContext
from assay.program.lowering.dataless import lowered
from assay.training.grpo import Shape, answers_known
from assay.training.optimisers import AdamW
from assay.training.policy import Policy
from assay.training.verifiable import Addition, Brackets, Sorting, Verifiable

TASKS = [Addition(1), Addition(2), Sorting(2), Sorting(5), Brackets(3, 2), Brackets(6, 3)]
ROWS, COUNTERS = 24, 40


def answer_of(task: Verifiable, problem: list[int]) -> list[int]:
    """The right answer of a problem, which is checked to be one."""
    if isinstance(task, Addition):
        n = task.digits
        assert problem[n] == 10 and problem[-1] == 11
        a, b = (int("".join(map(str, digits))) for digits in (problem[:n], problem[n + 1 : -1]))
        return [int(digit) for digit in reversed(f"{a + b:0{n + 1}}")]
    *given, sign = problem
    if isinstance(task, Sorting):
        assert sign == 10 and set(given) <= set(range(10))
        return sorted(given)
    assert isinstance(task, Brackets) and sign == 2 * task.kinds and set(given) <= set(range(task.kinds))
    answer = []
    while given:
        answer.append(given.pop() + task.kinds)
    return answer


@cache
def drawn(task: Verifiable) -> list[Tensor]:
    """Problems as a program draws them, a batch of each counter; with the rewards of right answers, and of
    answers of which every second row has one token changed, which the same program computes."""

    def step(state: list[Tensor], batch: Tensor) -> list[Tensor]:
        rows = task.drawn(ROWS)
        return [rows, task.rewards(rows), task.rewards(torch.where(state[3] == 1, state[0], rows)), state[3]]

    places = torch.arange(task.length).repeat(ROWS, 1)
    changed = (torch.arange(ROWS) % 2).unsqueeze(1) * (places == task.prompt + places[0, -1] % task.answer)
    start = [torch.full((ROWS, task.length), -1.0), torch.zeros(ROWS), torch.zeros(ROWS), changed.float()]
    run, batches = Executor(lowered(step, start, 0)), []
    for counter in range(COUNTERS):
        rows, right, wrong, _ = run.step(start, StepContext(None, bytes(32), 0, counter))
        assert right.eq(1).all()
        assert wrong.tolist() == [1.0, 0.0] * (ROWS // 2)
        batches.append(rows)
    return batches


@pytest.mark.parametrize("task", TASKS, ids=str)
def test_problems_and_answers_are_those_of_plain_python(task: Verifiable) -> None:
    seen = set()
    for rows in drawn(task):
        assert rows.shape == (ROWS, task.length) and rows.dtype == torch.float32
        for row in rows.int().tolist():
            assert row[task.prompt :] == answer_of(task, row[: task.prompt])
            assert max(row) < task.vocabulary
            seen.update(row)
    assert seen == set(range(task.vocabulary)), "every token is somewhere"


@pytest.mark.parametrize("task", TASKS, ids=str)
def test_every_counter_draws_problems_of_its_own(task: Verifiable) -> None:
    batches = drawn(task)
    assert len({rows.numpy().tobytes() for rows in batches}) == COUNTERS
    problems = [tuple(row) for rows in batches for row in rows[:, : task.prompt].int().tolist()]
    kinds = {Addition: 10, Sorting: 10, Brackets: getattr(task, "kinds", 0)}[type(task)]
    shares = [sum(p[0] == k for p in problems) / len(problems) for k in range(kinds)]
    assert all(0.6 / kinds < share < 1.5 / kinds for share in shares), shares


@pytest.mark.parametrize("task", TASKS, ids=str)
def test_only_an_exactly_right_answer_is_rewarded(task: Verifiable) -> None:
    """Whatever tokens stand in it, those of a problem's too."""
    problems = drawn(task)[0][:, : task.prompt]
    generator = torch.Generator().manual_seed(3)
    tokens = torch.cat([problems, torch.zeros(ROWS, task.answer)], 1)
    for _ in range(50):
        tokens[:, task.prompt :] = torch.randint(task.vocabulary, (ROWS, task.answer), generator=generator)
        tokens[::3] = drawn(task)[0][::3]
        rows = tokens.int().tolist()
        wanted = [float(r[task.prompt :] == answer_of(task, r[: task.prompt])) for r in rows]
        assert task.rewards(tokens).tolist() == wanted


@pytest.mark.long
@pytest.mark.parametrize("task", [Addition(1), Sorting(3), Brackets(3, 3)], ids=str)
def test_the_warm_up_teaches_what_an_answer_looks_like(task: Verifiable) -> None:
    """Nearly all of the probability lies on tokens that answers have, and right answers are likelier."""
    policy = Policy(task, Shape(1, 1, 16, task.length), seed=1)
    warm = AdamW(lr=0.02, weight_decay=0.0, clip_norm=1.0)
    allowed = {Addition: range(10), Sorting: range(10), Brackets: range(3, 6)}[type(task)]
    rows = torch.cat(drawn(task)[:4])

    def known(theta: list[Tensor]) -> tuple[float, float]:
        params = policy.named(theta)
        with torch.no_grad():
            logits = policy.called(params, lambda net, x: net(x), rows[:, :-1])[:, task.prompt - 1 :]
            mass = torch.softmax(logits, -1)[..., list(allowed)].sum(-1).min()
            return mass.item(), policy.called(params, answers_known, task, rows).mean().item()

    untrained, before = known(list(policy.params.values()))
    learnt, after = known(policy.warmed(warm, 32, 40))
    assert learnt > 0.95 > untrained and after > before + 0.3


def test_what_teaches_nothing_or_is_not_exact_is_refused() -> None:
    for task in TASKS:
        assert task.refused == ("", "")
    for wrong, why in ((Addition(4), "three digits"), (Sorting(1), "in order"), (Brackets(3, 1), "one kind")):
        what, hint = wrong.refused
        assert why in what and hint
