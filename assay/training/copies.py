"""Deep-copies models including closures over their parts, and runs models in evaluation mode temporarily.

Contract: `copied` is ``copy.deepcopy``, after which functions that the model or its parts hold (a lambda over
its layers, a hook) are recreated over the copy's parts: ``copy.deepcopy`` leaves them on the original's. Not
guaranteed: functions behind a module-level name.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import CellType, FunctionType, MethodType
from typing import Any, TypeVar

from torch import Tensor, nn

Module = TypeVar("Module", bound=nn.Module)


def copied(model: Module) -> Module:
    """A copy that shares no tensor with the model."""
    memo: dict[int, Any] = {}
    made = copy.deepcopy(model, memo)
    renewal = _Renewal(memo)
    for module in made.modules():
        renewal.within(vars(module))
    return made


class _Renewal:
    """Recreates functions of a copy over its parts; `memo` is that of ``copy.deepcopy``."""

    def __init__(self, memo: dict[int, Any]) -> None:
        self._memo = memo
        self._open = {id(made) for made in memo.values()}
        """Objects of the copy not yet visited: nothing else is changed."""

    def within(self, held: dict[Any, Any] | list[Any]) -> None:
        """Recreates functions in a container of the copy."""
        for key, value in list(held.items() if isinstance(held, dict) else enumerate(held)):
            if (renewed := self._renewed(value)) is not value:
                held[key] = renewed

    def _renewed(self, value: Any) -> Any:
        if isinstance(value, FunctionType):
            return self._over(value) if value.__closure__ else value
        if isinstance(value, partial):
            named = {name: self._renewed(x) for name, x in value.keywords.items()}
            return partial(self._renewed(value.func), *map(self._renewed, value.args), **named)
        if id(value) in self._open and not isinstance(value, nn.Module | Tensor):
            self._open.remove(id(value))
            inside = value if isinstance(value, dict | list) else getattr(value, "__dict__", {})
            self.within(inside)
        return value

    def _over(self, function: FunctionType) -> FunctionType:
        """The function with its closure taken from the copy."""
        if id(function) in self._memo:
            known: FunctionType = self._memo[id(function)]
            return known
        cells = tuple(CellType() for _ in function.__closure__ or ())
        made = FunctionType(
            function.__code__, function.__globals__, function.__name__, function.__defaults__, cells
        )
        made.__kwdefaults__, made.__dict__ = function.__kwdefaults__, dict(vars(function))
        self._memo[id(function)] = made
        for cell, held in zip(cells, function.__closure__ or (), strict=True):
            try:
                inside = held.cell_contents
            except ValueError:  # a name that is not bound yet
                continue
            parts = isinstance(inside, nn.Module | Tensor | MethodType | list | dict | tuple)
            cell.cell_contents = copy.deepcopy(inside, self._memo) if parts else self._renewed(inside)
        return made


@contextmanager
def evaluating(model: nn.Module) -> Iterator[nn.Module]:
    """Yields the model in evaluation mode, and restores each part's mode."""
    modes = [(module, module.training) for module in model.modules()]
    try:
        yield model.eval()
    finally:
        for module, training in modes:
            module.training = training
