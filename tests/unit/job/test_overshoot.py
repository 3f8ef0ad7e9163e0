"""A rate too high for changes that come late is named before a job is posted."""

from __future__ import annotations

import pytest

from assay.job.job_warnings import overshoot_warnings, steady_rate, stepless, unsent
from assay.job.read import JobFile, parse_job_file
from assay.job.templates import LOCAL, stated, template

TEXT = stated(template("gpt", source="stdlib", rounds=2, times=LOCAL), "training.shards", "4")


def job(algorithm: str, rate: str = "0.7", momentum: str = "0.9") -> JobFile:
    text = stated(TEXT, "outer.algorithm", f'"{algorithm}"')
    text = stated(stated(text, "outer.learning_rate", rate), "outer.momentum", momentum)
    return parse_job_file(text, "a test")


def grows(rate: float, momentum: float, late: int) -> bool:
    """By the equations: m = µm + Δ, θ −= lr·(Δ + µm)."""
    thetas, m = [1.0] * (late + 1), 0.0
    for _ in range(3_000):
        m = momentum * m + thetas[-1 - late]
        thetas.append(thetas[-1] - rate * (thetas[-1 - late] + momentum * m))
    return max(map(abs, thetas[-100:])) > 2


@pytest.mark.parametrize("late", [0, 1])
@pytest.mark.parametrize("momentum", [0.0, 0.3, 0.6, 0.9])
def test_the_steady_rate_is_the_largest_that_holds(momentum: float, late: int) -> None:
    rate = steady_rate(momentum, late)
    assert not any(grows(rate * c / 10 - 1e-3, momentum, late) for c in range(1, 11))
    assert grows(rate + 0.02, momentum, late)


@pytest.mark.parametrize(
    ("algorithm", "rate", "covers", "steady"),
    [("diloco-late", "0.7", "36%", "0.25"), ("diloco", "1.5", "90%", "1.35")],
)
def test_the_line_says_how_far_and_which_rate_is_steady(
    algorithm: str, rate: str, covers: str, steady: str
) -> None:
    (line,) = overshoot_warnings(job(algorithm, rate))
    assert f"{algorithm} covers more than {covers}" in line and f"learning_rate = {steady} never" in line
    assert overshoot_warnings(job(algorithm, steady)) == []


@pytest.mark.parametrize("name", ["fedopt", "demo", "streaming"])
def test_nothing_is_said_where_the_equations_are_others(name: str) -> None:
    assert overshoot_warnings(job(name, "9.0", "0.9" if name == "streaming" else "0.0")) == []


def streamed(rounds: int, **numbers: float) -> JobFile:
    text = stated(stated(TEXT, "outer.algorithm", '"streaming"'), "training.rounds", str(rounds))
    more = "".join(f"{name} = {number}\n" for name, number in numbers.items())
    return parse_job_file(text.replace("[verification]", f"{more}\n[verification]"), "a test")


def test_fewer_rounds_than_fragments_leave_some_as_they_began() -> None:
    assert unsent(streamed(4), 9) == unsent(streamed(3), 3) == unsent(streamed(2, fragments=2), 9) == []
    (line,) = unsent(streamed(3), 9)
    assert "one of 4 fragments, and with rounds = 3 1 of them" in line and "rounds = 4" in line
    (line,) = unsent(streamed(1, fragments=6), 9)
    assert "with rounds = 1 5 of them" in line
    assert unsent(job("diloco"), 9) == []


def test_momentum_that_never_moves_is_told() -> None:
    def delayed(every: int) -> JobFile:
        text = stated(TEXT, "outer.algorithm", '"delayed-nesterov"')
        more = f"momentum_every = {every}\n"
        return parse_job_file(text.replace("[verification]", f"{more}\n[verification]"), "a test")

    assert unsent(delayed(1), 9) == unsent(delayed(2), 9) == []
    (line,) = unsent(delayed(3), 9)
    assert "momentum_every = 3" in line and "with rounds = 2 it never does" in line


def test_rounds_without_a_step_of_the_optimiser_are_told() -> None:
    def micro(count: int) -> JobFile:
        return parse_job_file(stated(TEXT, "training.micro_steps", str(count)), "a test")

    assert stepless(micro(1)) == stepless(micro(64)) == []
    (line,) = stepless(micro(65))
    assert "of 65 micro-steps" in line and "a round has 64" in line and "steps_per_round = 65" in line
