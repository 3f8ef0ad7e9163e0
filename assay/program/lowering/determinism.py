"""Detects steps whose behaviour changes from call to call: Python state is not part of a program.

Contract: while a step runs twice, one `Record` gets every operation. `Record.differs` gives the line, and the
kind of difference, of the second run's first deviation in what depends on the step's inputs: another
operation or number (a counter, a random choice in Python), or a tensor that the first run computed. A
constant that the first run made and kept is the same constant. `Kept` restores modules' attributes, and names
changing numbers among them; `line_that_changes` finds the line responsible. Not guaranteed: a random choice,
of a generator that is no attribute, with equal outcomes in both runs.
"""

from __future__ import annotations

import random
import sys
import sysconfig
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import zip_longest
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves

VARYING = "varying"
_LARGE = 1 << 16
"""Number of elements from which a constant is identified by its object, not its values."""


class Record:
    """Operations of a step's two runs that depend on its inputs, in order, with their lines."""

    def __init__(self) -> None:
        self._run = 0
        self._runs: list[list[tuple[tuple[Hashable, ...], str]]] = []
        self._born: dict[int, int] = {}
        """Memory of input-dependent tensors -> the run that wrote them."""
        self._keys: dict[int, Hashable] = {}
        """Key of each constant tensor."""
        self._writes: dict[int, Hashable] = {}
        """Memory of a constant -> its creation, and what was written into it since."""
        self._alive: list[object] = []
        self._carried = ""

    def begin(self, inputs: Sequence[Tensor]) -> None:
        """Starts a run with these inputs."""
        self._run += 1
        self._runs.append([])
        for x in inputs:
            self._keep(x)
            self._born[_memory(x)] = self._run

    def add(self, func: Any, args: Any, kwargs: Any, result: Any, source: str) -> None:
        """Adds one operation after it ran."""
        given = tree_leaves((args, kwargs or {}))
        written = list(_written(func, args))
        over = {id(x) for x in written} if func.__name__.partition(".")[0] in _OVERWRITING else set()
        known = [self._known(x, source) for x in given if id(x) not in over]
        varies = VARYING in known or torch.Tag.nondeterministic_seeded in getattr(func, "tags", ())
        key = (str(func), *known)
        if varies:
            self._runs[-1].append((key, source))
        for x in (*tree_leaves(result), *written):
            if not isinstance(x, Tensor):
                continue
            self._keep(x)
            memory = _memory(x)
            if varies:
                self._born[memory] = self._run
            elif written:
                self._writes[memory] = hash((self._writes.get(memory), key))
            elif memory not in self._born:
                self._keys[id(x)] = hash(key)
                self._writes.setdefault(memory, hash(key))

    def _keep(self, x: Tensor) -> None:
        self._alive += [x, x.untyped_storage()]

    def _known(self, x: Any, source: str) -> Hashable:
        if not isinstance(x, Tensor):
            return "generator" if isinstance(x, torch.Generator) else repr(x)
        memory = _memory(x)
        if born := self._born.get(memory):
            if born < self._run:
                self._carried = self._carried or source
            return VARYING
        if id(x) not in self._keys:
            self._keep(x)
            known = self._writes.get(memory) if isinstance(x, FakeTensor) else None
            self._keys[id(x)] = known or _value(x)
        return self._keys[id(x)], self._writes.get(memory)

    def differs(self) -> tuple[str, str]:
        """(line, kind) of the second run's first difference; ("", "") if there is none."""
        if self._carried:
            return self._carried, "reads what the step before has computed"
        for before, now in zip_longest(*self._runs):
            if before is None or now is None:
                return (before or now)[1], "does this at one time, and not at the next"
            if before[0] == now[0]:
                continue
            if before[0][0] == now[0][0]:
                return now[1], f"after it gives {now[0][0]} other numbers"
            return now[1], f"after it has {now[0][0]} where this one has {before[0][0]} at {before[1]}"
        return "", ""


_OVERWRITING = frozenset({"copy_", "fill_", "zero_"})


def _memory(x: Tensor) -> int:
    return int(x.untyped_storage()._cdata)


def _written(func: Any, args: Any) -> Iterator[Tensor]:
    """Tensors that an operation changes in place."""
    if func._schema.is_mutable:
        for declared, x in zip(func._schema.arguments, args, strict=False):
            if declared.alias_info is not None and declared.alias_info.is_write and isinstance(x, Tensor):
                yield x


def _value(x: Tensor) -> Hashable:
    if isinstance(x, FakeTensor) or x.numel() > _LARGE:
        return id(x)
    with _disable_current_modes():
        return str(x.dtype), tuple(x.shape), x.detach().cpu().contiguous().numpy().tobytes()


# What Python keeps


def _plain(value: Any) -> Any:
    """A comparable value that may affect a step; None for any other."""
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, random.Random):
        return value.getstate()
    if isinstance(value, np.random.Generator):
        return repr(value.bit_generator.state)
    if isinstance(value, list | tuple):
        return [_plain(x) for x in value[:16]]
    return None


_CONTAINERS = (dict, list, OrderedDict, defaultdict)
_OF_MODULES = frozenset(vars(nn.Module()))


class Kept:
    """Attributes of some modules and all their submodules."""

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        self._parts = [(name, part) for root in modules for name, part in root.named_modules()]
        self._held = [(part, dict(vars(part))) for _, part in self._parts]
        inside = [x for _, held in self._held for x in held.values() if type(x) in _CONTAINERS]
        self._inside = [(x, x.copy()) for x in inside]

    def put_back(self) -> None:
        """Restores all attributes, also the contents of lists and dictionaries."""
        for part, held in self._held:
            for name in vars(part).keys() - held.keys():
                del vars(part)[name]
            vars(part).update(held)
        for container, contents in self._inside:
            container.clear()
            container.extend(contents) if isinstance(container, list) else container.update(contents)

    def numbers(self) -> dict[str, Any]:
        """Possible counters and generators by name, including Python's generators."""
        found = {
            f"{place or 'the'} {type(part).__name__}'s {name}": _plain(value)
            for place, part in self._parts
            for name, value in vars(part).items()
            if name not in _OF_MODULES
        }
        return {**found, **_generators()}

    def number(self, name: str) -> Any:
        """One of `numbers`."""
        return self.numbers().get(name)


def _generators() -> dict[str, Any]:
    state = np.random.get_state(legacy=False)
    return {"Python's random": random.getstate(), "NumPy's random": repr(state)}


def changed(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Names of changed values."""
    return [name for name in after if name in before and before[name] != after[name]]


def line_that_changes(
    run: Callable[[], object], probe: Callable[[], object], skipped: tuple[str, ...]
) -> str:
    """``file:line`` of the user's code that changes `probe` while `run` runs; empty if none does.

    Files that begin with `skipped`, and Python's own, are ignored.
    """
    start, last, found = probe(), "", ""
    own = sysconfig.get_paths()["stdlib"]

    def follow(frame: FrameType, _event: str, _arg: object) -> Any:
        nonlocal last, found
        name = frame.f_code.co_filename
        library = name.startswith(own) and "site-packages" not in name
        if found or library or name.startswith(skipped):
            return None
        if probe() != start:
            found = last
        last = f"{name}:{frame.f_lineno}"
        return follow

    before = sys.gettrace()
    sys.settrace(follow)
    try:
        run()
    finally:
        sys.settrace(before)
    return found or (last if probe() != start else "")
