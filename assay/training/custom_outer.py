"""Wraps a client's own outer algorithm, so that errors name the client's file and line.

Contract: `wrapped(algorithm)` computes the same as the algorithm, on the client's machine only. A part that
lacks a method, raises an error, or returns a wrong shape or dtype is refused with StepFailed: its file and
line, and what is required. Not guaranteed: that an algorithm suits a model.
"""

from __future__ import annotations

import ast
import inspect
import linecache
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from assay.program.lowering.graph import DTYPES
from assay.program.lowering.tracing import (
    UNKNOWN_SOURCE,
    StepFailed,
    UnsupportedOperation,
    failure_line,
    in_project,
)
from assay.protocol.errors import Stop
from assay.training.algorithms import Algorithm, Tensors
from assay.training.codings import Wire

SIGNATURES = {
    "start": "start(theta) takes a parameter, f32 of any shape, and returns a list of `slots` tensors",
    "step": "step(theta, delta, state) takes a parameter and its mean change, f32 of one shape, and a list of"
    " `slots` tensors, and returns the next parameter and the next list, of the same shapes and dtypes",
    "encode": "encode(x) takes a change, f32 of any shape, and returns a tuple of tensors, its wire",
    "decode": "decode(wire, shape) takes a wire and its change's shape, and returns f32 of that shape",
    "sent": "sent(wire, shape) takes a wire and its change's shape, and returns None, or f32 of that shape, 1"
    " where a number was sent and 0 elsewhere",
    "__call__": "a mean takes K changes, f32 of one shape, K bools of no dimension (who is present), and K of"
    " what the coding's `sent` returned, and returns f32 of that shape",
}
"""Arguments and result of each method."""
PLACE = "docs/concepts.md, an algorithm of your own"


def defined(part: Any, method: str) -> str:
    """``file:line`` of a part's method, or of a function; empty for Python's own."""
    found: Any = inspect.unwrap(getattr(type(part), method, part))
    code = getattr(found, "__code__", None) or getattr(part, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else ""


def class_place(kind: type) -> str:
    """``file:line`` of a class; empty if unknown."""
    codes = (
        getattr(inspect.unwrap(held), "__code__", None) for held in vars(kind).values() if callable(held)
    )
    file = next((code.co_filename for code in codes if code and Path(code.co_filename).is_file()), "")
    if not file:
        return ""
    nodes = ast.walk(ast.parse(Path(file).read_text()))
    lines = [node.lineno for node in nodes if isinstance(node, ast.ClassDef) and node.name == kind.__name__]
    return f"{file}:{lines[0]}" if lines else file


def _at(place: str) -> str:
    return f" ({place})" if place else ""


def _kind(found: object) -> str:
    """Describes a result: f32 [3, 4]."""
    if not isinstance(found, Tensor):
        return f"a {type(found).__name__}"
    return f"{str(found.dtype).removeprefix('torch.')} {list(found.shape)}"


class _Part:
    """A client's rule, coding or mean. Raises StepFailed if it lacks a method."""

    role: str
    methods: tuple[str, ...]
    numbers: tuple[str, ...] = ()

    def __init__(self, part: Any) -> None:
        self._part = part
        if isinstance(part, type):
            place = _at(class_place(part))
            raise StepFailed(
                f"the outer algorithm's {self.role} is the class {part.__name__}, not an object of it{place}",
                hint=f"make one: {part.__name__}()",
            )
        name, place = type(part).__name__, _at(class_place(type(part)))
        for method in self.methods:
            if not callable(getattr(part, method, None)):
                raise StepFailed(
                    f"the outer algorithm's {self.role} is a {name}{place}, which has no {method}",
                    hint=f"{SIGNATURES[method]} ({PLACE})",
                )
        for number in self.numbers:
            held = getattr(part, number, None)
            if type(held) is not int or held < 0:
                raise StepFailed(
                    f"the outer algorithm's {self.role} is a {name}{place}, whose {number}"
                    f" {'are missing' if held is None else f'are {held!r}'}",
                    hint=f"write {number} = the number of state tensors a parameter has, such as 1, or 0"
                    f" ({PLACE})",
                )

    def _said(self, method: str) -> str:
        named = getattr(self._part, "__name__", type(self._part).__name__)
        return named if method == "__call__" else f"{named}.{method}"

    def _call(self, method: str, *arguments: object) -> Any:
        """Calls the client's method. Raises StepFailed with the client's line if it raises."""
        called: Callable[..., Any] = getattr(self._part, method)
        try:
            return called(*arguments)
        except UnsupportedOperation as error:
            line = failure_line(error)
            if in_project(line) or not in_project(error.source):
                raise
            raise UnsupportedOperation(error.operation, line, hint=error.hint) from error
        except Stop:
            raise
        except Exception as error:  # whatever a client's own code raises: told by its line, with its cause
            raise self._raised(method, error) from error

    def _raised(self, method: str, error: Exception) -> StepFailed:
        line = failure_line(error)
        if line == UNKNOWN_SOURCE or in_project(line):
            line = defined(self._part, method) or line
        file, _, number = line.rpartition(":")
        text = linecache.getline(file, int(number)).strip() if number.isdigit() else ""
        first = (str(error).strip().splitlines() or ["no message"])[0]
        return StepFailed(
            f"{self._said(method)} of the outer algorithm raised {type(error).__name__} at {line}: {first}"
            + (f"\n    {text}" if text else ""),
            hint=f"mend that line, or what leads to it; {SIGNATURES[method]} ({PLACE})",
        )

    def _wrong(self, method: str, found: str, wanted: str) -> StepFailed:
        return StepFailed(
            f"{self._said(method)} of the outer algorithm{_at(defined(self._part, method))} returned {found},"
            f" and must return {wanted}",
            hint=f"{SIGNATURES[method]} ({PLACE})",
        )

    def _of_shape(self, method: str, found: object, shape: Sequence[int], what: str) -> Tensor:
        wanted = f"float32 {list(shape)}"
        if not isinstance(found, Tensor) or _kind(found) != wanted:
            raise self._wrong(method, _kind(found), f"{wanted}, {what}")
        return found

    def _tensors(self, method: str, found: object, what: str) -> list[Tensor]:
        """Checks for a list or tuple of tensors with supported dtypes."""
        if not isinstance(found, list | tuple):
            raise self._wrong(method, _kind(found), what)
        for at, held in enumerate(found):
            if not isinstance(held, Tensor) or held.dtype not in DTYPES:
                has = ", ".join(str(dtype).removeprefix("torch.") for dtype in DTYPES)
                raise self._wrong(method, f"{_kind(held)} as number {at} of them", f"{what}, each of {has}")
        return list(found)


class _Rule(_Part):
    role, methods, numbers = "rule", ("start", "step"), ("slots",)

    @property
    def slots(self) -> int:
        return int(self._part.slots)

    def start(self, theta: Tensor) -> list[Tensor]:
        wanted = f"a list of as many tensors as its slots, {self.slots}"
        made = self._tensors("start", self._call("start", theta), wanted)
        if len(made) != self.slots:
            raise self._wrong("start", f"{len(made)} tensors", wanted)
        return made

    def step(self, theta: Tensor, delta: Tensor, state: Tensors) -> tuple[Tensor, list[Tensor]]:
        made = self._call("step", theta, delta, state)
        if not isinstance(made, tuple | list) or len(made) != 2:
            count = f"{len(made)} values" if isinstance(made, tuple | list) else _kind(made)
            raise self._wrong("step", count, "two: the next parameter, and the list of its state")
        after = self._of_shape("step", made[0], theta.shape, "the next parameter")
        kept = self._tensors("step", made[1], "a list of tensors as its second value, the next state")
        here, there = [_kind(x) for x in kept], [_kind(x) for x in state]
        if here != there:
            raise self._wrong("step", f"state of {here}", f"what start made: {there}")
        return after, kept


class _Coding(_Part):
    role, methods = "coding", ("encode", "decode", "sent")

    def encode(self, x: Tensor) -> Wire:
        made = self._call("encode", x)
        return tuple(self._tensors("encode", made, "a tuple of tensors"))

    def decode(self, wire: Sequence[Tensor], shape: Sequence[int]) -> Tensor:
        return self._of_shape("decode", self._call("decode", wire, shape), shape, "the change")

    def sent(self, wire: Sequence[Tensor], shape: Sequence[int]) -> Tensor | None:
        made = self._call("sent", wire, shape)
        return None if made is None else self._of_shape("sent", made, shape, "or None")

    def bits(self, shape: Sequence[int]) -> int:
        return int(self._part.bits(shape))


class _Mean(_Part):
    role, methods = "mean", ("__call__",)

    def __call__(self, deltas: Tensors, present: Tensors, sent: Sequence[Tensor | None]) -> Tensor:
        made = self._call("__call__", deltas, present, sent)
        return self._of_shape("__call__", made, deltas[0].shape, "the mean change")


def wrapped(algorithm: Algorithm) -> Algorithm:
    """Wraps an algorithm. Raises StepFailed if a part lacks a required method."""
    rule, coding, mean = _Rule(algorithm.rule), _Coding(algorithm.coding), _Mean(algorithm.mean)
    return replace(algorithm, rule=rule, coding=coding, mean=mean)
