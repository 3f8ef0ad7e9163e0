"""A form that is recorded at its second call: here with a recorder that a CPU can run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from assay.numerics import slow_paths
from assay.program.compiled.cache import Form
from assay.program.compiled.replay import Recording, Replayed

Recorder = Callable[[Form, Sequence[Tensor]], Recording]


def form(inputs: Sequence[Tensor]) -> list[Tensor]:
    """A step of a state of two tensors, one of which it returns as it is, and a number."""
    x, same, number = inputs
    return [x * 3 + number, same]


def on_cpu(form: Form, inputs: Sequence[Tensor]) -> Recording:
    """As a CUDA graph does: results lie where they lay when it was recorded."""
    held = [x.clone() for x in inputs]
    outputs = [x.clone() for x in form(held)]

    def replay() -> None:
        for place, x in zip(outputs, form(held), strict=True):
            place.copy_(x)

    return Recording(held, outputs, replay)


def wrong(form: Form, inputs: Sequence[Tensor]) -> Recording:
    return on_cpu(lambda held: [-x for x in form(held)], inputs)


def refused(form: Form, inputs: Sequence[Tensor]) -> Recording:
    raise RuntimeError("operation not permitted when stream is capturing\nmore")


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> dict[str, None]:
    kept: dict[str, None] = {}
    monkeypatch.setattr(slow_paths, "_kept", kept)
    return kept


def steps(made: Form, count: int = 5) -> list[list[Tensor]]:
    """The states after each step; none may change afterwards."""
    state = [torch.tensor([1.0, float("nan"), -0.0]), torch.arange(4)]
    found = []
    for number in range(count):
        state = made([*state, torch.tensor(float(number))])
        found.append(state)
    return found


def same(one: list[list[Tensor]], other: list[list[Tensor]]) -> bool:
    pairs = [(a, b) for x, y in zip(one, other, strict=True) for a, b in zip(x, y, strict=True)]
    return all(torch.equal(a.view(torch.int32), b.view(torch.int32)) for a, b in pairs)


def test_replayed_steps_have_the_bits_of_the_form(noted: dict[str, None]) -> None:
    calls: list[int] = []

    def counted(inputs: Sequence[Tensor]) -> list[Tensor]:
        calls.append(1)
        return form(inputs)

    made = Replayed(counted, 1, recorded=lambda _, inputs: on_cpu(form, inputs), free=lambda device: 2)
    assert not made.replays
    assert same(steps(made), steps(form)) and made.replays and not noted
    assert len(calls) == 2


@pytest.mark.parametrize(
    ("recorder", "free", "said"),
    [
        (wrong, 2 << 20, "gave other bits"),
        (refused, 2 << 20, "failed (operation not permitted when stream is capturing)"),
        (on_cpu, (2 << 20) - 1, "wants 2 MiB of free GPU memory"),
    ],
)
def test_a_recording_that_is_not_to_be_had_is_noted_and_steps_go_on(
    recorder: Recorder, free: int, said: str, noted: dict[str, None]
) -> None:
    made = Replayed(form, 1 << 20, recorded=recorder, free=lambda device: free)
    assert same(steps(made), steps(form)) and not made.replays
    assert len(noted) == 1 and said in next(iter(noted))
