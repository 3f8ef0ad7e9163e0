"""Faults of a client's outer algorithm are reported by the client's file and line."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.program.build import ProgramBuilder
from assay.program.execute import Executor, StepContext
from assay.program.isa import DType
from assay.program.lowering.tracing import StepFailed, UnsupportedOperation
from assay.protocol.errors import Stop
from assay.training.algorithms import Algorithm
from assay.training.custom_outer import SIGNATURES, wrapped
from assay.training.rounds import coded_round, programs

SHAPES = [(4, 6), (5,)]
MINE = """
import torch

from assay.training.algorithms import Average
from assay.training.rounds import split


class Ball:
    slots = 1

    def start(self, theta):
        return [torch.zeros_like(theta)]

    def step(self, theta, delta, state):
        moment = state[0] * 0.5 + delta
        return theta - moment, [moment]


class Halves:
    def encode(self, x):
        return (x / 2,)

    def decode(self, wire, shape):
        return wire[0] * 2

    def sent(self, wire, shape):
        return None


def mean(deltas, present, sent):
    return Average()(deltas, present, sent)
"""


def made(folder: Path, text: str) -> ModuleType:
    """The client's file as a module."""
    file = folder / "mine.py"
    file.write_text(text)
    spec = importlib.util.spec_from_file_location("mine", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def traced(folder: Path, old: str, new: str) -> None:
    """Programs of the file's algorithm, with one piece of it in the place of another."""
    assert old in MINE
    mine = made(folder, MINE.replace(old, new))
    algorithm = Algorithm(mine.Ball(), mine.Halves(), feedback=1.0, mean=mine.mean)
    programs(wrapped(algorithm), SHAPES, 2)


def test_what_is_told_is_what_the_algorithm_computes(tmp_path: Path) -> None:
    mine = made(tmp_path, MINE)
    algorithm = Algorithm(mine.Ball(), mine.Halves(), feedback=1.0, mean=mine.mean)
    ours, theirs = programs(wrapped(algorithm), SHAPES, 2), programs(algorithm, SHAPES, 2)
    assert (ours.compress.root, ours.outer.root) == (theirs.compress.root, theirs.outer.root)


@pytest.mark.parametrize(
    ("old", "new", "at", "says"),
    [
        ("* 0.5 + delta", "* 0.5 + delta @ delta", "delta @ delta", "Ball.step .* raised RuntimeError"),
        ("* 0.5 + delta", "* self.keep + delta", "self.keep", "Ball.step .* raised AttributeError"),
        (
            "[torch.zeros_like(theta)]",
            "[theta.reshape(7)]",
            "reshape(7)",
            "Ball.start .* raised RuntimeError",
        ),
        ("(x / 2,)", "(x / y,)", "x / y", "Halves.encode .* raised NameError"),
        ("wire[0] * 2", "wire[1] * 2", "wire[1]", "Halves.decode .* raised IndexError"),
        ("return None", "return 1 / 0", "1 / 0", "Halves.sent .* raised ZeroDivisionError"),
        ("(deltas, present, sent)\n", "(deltas[:1], present, sent)\n", "[:1]", "mean .* raised ValueError"),
        ("def start(self, theta)", "def start(self)", "def start(self)", "Ball.start .* raised TypeError"),
    ],
)
def test_what_it_raises_is_told_by_its_line(tmp_path: Path, old: str, new: str, at: str, says: str) -> None:
    with pytest.raises(StepFailed, match=says) as refused:
        traced(tmp_path, old, new)
    line = next(i for i, text in enumerate(MINE.replace(old, new).splitlines(), 1) if at in text)
    assert f"{tmp_path / 'mine.py'}:{line}: " in refused.value.message
    assert at in refused.value.message.splitlines()[1] and "takes" in refused.value.hint


@pytest.mark.parametrize(
    ("old", "new", "operation"),
    [
        ("* 0.5 + delta", "* 0.5 + torch.special.i0e(delta)", "special_i0e"),
        ("* 0.5 + delta", "* (0.5 if delta.sum() > 0 else 0.25) + delta", "_local_scalar_dense"),
        ("* 0.5 + delta", "* 0.5 + split([delta], [delta.sum().int()])[0][0]", "_local_scalar_dense"),
    ],
)
def test_an_operation_that_no_program_has_is_told_by_its_line(
    tmp_path: Path, old: str, new: str, operation: str
) -> None:
    with pytest.raises(UnsupportedOperation, match=operation) as refused:
        traced(tmp_path, old, new)
    line = next(i for i, text in enumerate(MINE.splitlines(), 1) if old in text)
    assert refused.value.source == f"{tmp_path / 'mine.py'}:{line}" and refused.value.hint


@pytest.mark.parametrize(
    ("old", "new", "method", "says"),
    [
        (
            "theta - moment, [",
            "(theta - moment).sum(), [",
            "step",
            r"Ball\.step .* float32 \[\], .* \[4, 6\]",
        ),
        ("return theta - moment, [moment]", "return theta - moment", "step", r"float32 \[4, 6\], .* two: "),
        ("[moment]", "[moment, moment]", "step", r"state of .*, and must return what start made"),
        ("[moment]", "[moment > 0]", "step", r"state of \['bool \[4, 6\]'\], .*\['float32 \[4, 6\]'\]"),
        ("[torch.zeros_like(theta)]", "torch.zeros_like(theta)", "start", "as many tensors as its slots, 1"),
        ("[torch.zeros_like(theta)]", "[]", "start", "returned 0 tensors"),
        ("[torch.zeros_like(theta)]", "[theta.double()]", "start", "float64 .* number 0 .* each of float32"),
        ("(x / 2,)", "x / 2", "encode", "a tuple of tensors"),
        ("(x / 2,)", "(x / 2, 64)", "encode", "a int as number 1 of them"),
        ("wire[0] * 2", "wire[0].flatten()", "decode", r"float32 \[24\], .* float32 \[4, 6\], the change"),
        ("return None", "return wire[0] > 0", "sent", r"bool \[4, 6\], .* or None"),
        (
            "present, sent)\n",
            "present, sent).sum()\n",
            "__call__",
            r"^mean .* float32 \[\], .* the mean change",
        ),
    ],
)
def test_what_it_returns_is_told_by_where_it_is_written(
    tmp_path: Path, old: str, new: str, method: str, says: str
) -> None:
    with pytest.raises(StepFailed, match=says) as refused:
        traced(tmp_path, old, new)
    name = "mean" if method == "__call__" else method
    line = next(i for i, text in enumerate(MINE.splitlines(), 1) if f"def {name}(" in text)
    assert f"({tmp_path / 'mine.py'}:{line})" in refused.value.message
    assert SIGNATURES[method] in refused.value.hint


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("    slots = 1\n", "    pass\n", r"rule is a Ball \(.*mine\.py:8\), whose slots are missing"),
        ("    slots = 1\n", "    slots = 1.5\n", r"Ball .*, whose slots are 1\.5"),
        ("def step(", "def stepped(", r"rule is a Ball \(.*mine\.py:8\), which has no step"),
        ("def sent(", "def went(", r"coding is a Halves \(.*mine\.py:\d+\), which has no sent"),
    ],
)
def test_a_part_that_lacks_something_is_told_by_its_class(
    tmp_path: Path, old: str, new: str, says: str
) -> None:
    with pytest.raises(StepFailed, match=says) as refused:
        traced(tmp_path, old, new)
    assert "an algorithm of your own" in refused.value.hint


def test_a_class_in_the_place_of_a_value_is_told_so(tmp_path: Path) -> None:
    ball = made(tmp_path, MINE).Ball
    with pytest.raises(
        StepFailed, match=r"rule is the class Ball, not an object of it \(.*mine\.py:8\)"
    ) as refused:
        wrapped(Algorithm(ball))
    assert "Ball()" in refused.value.hint
    nothing: Any = None
    with pytest.raises(Stop, match="rule is a NoneType, which has no start"):
        wrapped(Algorithm(nothing))


@dataclass(frozen=True)
class Kept:
    """A rule that keeps where it began, and how often it was called."""

    slots: int = 2
    first: int = 7
    """An int64 of PyTorch's, as a number of no dtype is."""

    def start(self, theta: Tensor) -> list[Tensor]:
        return [theta, torch.tensor(self.first)]

    def step(self, theta: Tensor, delta: Tensor, state: Any) -> tuple[Tensor, list[Tensor]]:
        return theta - delta * 0.5 + (state[0] - theta) * 0.25, [state[0], state[1] + 1]


def test_a_rules_state_begins_as_its_start_makes_it_of_the_parameters() -> None:
    """Zeros would have been the genesis of any rule."""
    genesis = [torch.full((3, 2), 5.0), torch.arange(4.0)]
    b = ProgramBuilder()
    slots = [b.state(DType.F32, tuple(x.shape)) for x in genesis]
    names = ["weight", "bias"]
    job = coded_round(wrapped(Algorithm(Kept())), b.finish(slots, params=2), genesis, names, shards=2)
    began = [*genesis, genesis[0], torch.tensor(7), genesis[1], torch.tensor(7)]
    for x, y in zip(job.outer_genesis, began, strict=False):
        assert torch.equal(x, y.to(x.dtype)) and x.dtype in (torch.float32, torch.int32)
    assert not any(x.any() for x in job.outer_genesis[len(began) :])
    after = Executor(job.outer).step(job.outer_genesis, StepContext(None, bytes(32), 0, 0))
    assert torch.equal(after[0], genesis[0]) and torch.equal(after[1], genesis[1]), "nobody is present"
    assert [int(after[i]) for i in (3, 5)] == [8, 8]


@dataclass(frozen=True)
class InPlace(Kept):
    """Its start writes to the parameter that it is given, and keeps that."""

    def start(self, theta: Tensor) -> list[Tensor]:
        return [theta.mul_(0), torch.tensor(0)]


def test_a_start_that_writes_in_place_changes_no_genesis() -> None:
    genesis = [torch.full((3, 2), 5.0)]
    b = ProgramBuilder()
    train = b.finish([b.state(DType.F32, (3, 2))], params=1)
    job = coded_round(wrapped(Algorithm(InPlace())), train, genesis, ["weight"], shards=2)
    assert torch.equal(job.genesis[0], torch.full((3, 2), 5.0))
    assert torch.equal(job.outer_genesis[0], torch.full((3, 2), 5.0)) and not job.outer_genesis[1].any()
    assert torch.equal(job.genesis[job.slot_names.index("base.weight")], torch.full((3, 2), 5.0))


def test_a_start_of_numbers_that_no_slot_holds_is_refused() -> None:
    b = ProgramBuilder()
    train = b.finish([b.state(DType.F32, (3, 2))], params=1)
    with pytest.raises(
        Stop, match=r"a rule's start returns torch\.int64 numbers that do not fit torch\.int32"
    ):
        coded_round(wrapped(Algorithm(Kept(first=1 << 40))), train, [torch.ones(3, 2)], ["weight"], shards=2)
