"""Reimplements hyperbolic, arc and area functions from operations that can be lowered, with their known
derivatives.

Contract: that of ``program.lowering.rewrites``, whose table includes them. Derivatives are not those of the
implementation, which has gaps where it has cases (at 0, for example).

Source: Moshier's Cephes, atanf.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from assay.program.lowering.rewrites import rewrites


class _Sloped(torch.autograd.Function):
    """A function with its known derivatives instead of those of its implementation."""

    generate_vmap_rule = True

    @staticmethod
    def forward(value: Callable[..., Tensor], slopes: Sequence[Callable[..., Tensor]], *at: Tensor) -> Tensor:
        return value(*at)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, ctx.slopes, *at = inputs
        ctx.save_for_backward(*at)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return None, None, *(grad * slope(*ctx.saved_tensors) for slope in ctx.slopes)


def _sloped(value: Callable[..., Tensor], *slopes: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def form(*given: Tensor, **named: Tensor) -> Tensor:
        at = torch.broadcast_tensors(*given, *named.values())
        made: Tensor = _Sloped.apply(value, slopes, *at)
        return made

    return form


_FAR = 1e8
"""From here on x² + 1 equals x²."""


def _asinh(x: Tensor) -> Tensor:
    size = x.abs()
    safe = size.clamp(max=_FAR)
    near = torch.log1p(safe + safe * safe / (1 + torch.sqrt(safe * safe + 1)))
    return torch.sign(x) * torch.where(size > _FAR, torch.log(size) + math.log(2), near)


def _acosh(x: Tensor) -> Tensor:
    above = (x - 1).clamp(max=_FAR)
    near = torch.log1p(above + torch.sqrt(above * (above + 2)))
    return torch.where(x > _FAR, torch.log(x) + math.log(2), torch.where(x < 1, math.nan, near))


def _cosh(x: Tensor) -> Tensor:
    grown = torch.exp(x.abs())
    return (grown + 1 / grown) / 2


def _sinh(x: Tensor) -> Tensor:
    return torch.tanh(x) * _cosh(x)


def _atan(x: Tensor) -> Tensor:
    """Cephes' atanf: two reductions and a polynomial."""
    size = x.abs()
    large, middle = size > 2.414213562373095, size > 0.4142135623730950
    safe = torch.where(large, size, 1.0)
    t = torch.where(large, -1 / safe, torch.where(middle, (size - 1) / (size + 1), size))
    z = t * t
    tail = ((8.05374449538e-2 * z - 1.38776856032e-1) * z + 1.99777106478e-1) * z - 3.33329491539e-1
    base = torch.where(large, math.pi / 2, torch.where(middle, math.pi / 4, 0.0))
    return torch.sign(x) * (base + (tail * z * t + t))


def _atan2(y: Tensor, x: Tensor) -> Tensor:
    endless = (y.abs() == math.inf) & (x.abs() == math.inf)
    y, x = torch.where(endless, torch.sign(y), y), torch.where(endless, torch.sign(x), x)
    zero = x == 0
    angle = _atan(y / torch.where(zero, 1.0, x))
    turned = angle + torch.where(x < 0, torch.where(y < 0, -math.pi, math.pi), 0.0)
    upright = torch.where(torch.isnan(y), y, torch.sign(y) * (math.pi / 2))
    return torch.where(zero, upright, turned)


def _leg(x: Tensor) -> Tensor:
    return torch.sqrt((1 - x) * (1 + x))


def _square(y: Tensor, x: Tensor) -> Tensor:
    """Squared distance from 0; 1 if it is 0, with slope 0."""
    distance = y * y + x * x
    return torch.where(distance == 0, 1.0, distance)


for _name, _form in (("sinh", _sloped(_sinh, _cosh)), ("cosh", _sloped(_cosh, _sinh))):
    rewrites(getattr(torch, _name), getattr(Tensor, _name))(_form)
_FORMS: dict[str, Callable[..., Tensor]] = {
    "asinh": _sloped(_asinh, lambda x: torch.rsqrt(x * x + 1)),
    "acosh": _sloped(_acosh, lambda x: torch.rsqrt(x * x - 1)),
    "atanh": _sloped(lambda x: (torch.log1p(x) - torch.log1p(-x)) / 2, lambda x: 1 / (1 - x * x)),
    "atan": _sloped(_atan, lambda x: 1 / (x * x + 1)),
    "asin": _sloped(lambda x: _atan2(x, _leg(x)), lambda x: 1 / _leg(x)),
    "acos": _sloped(lambda x: _atan2(_leg(x), x), lambda x: -1 / _leg(x)),
    "atan2": _sloped(_atan2, lambda y, x: x / _square(y, x), lambda y, x: -y / _square(y, x)),
}
for _name, _form in _FORMS.items():
    for _alias in (_name, f"arc{_name[1:]}"):
        rewrites(getattr(torch, _alias), getattr(Tensor, _alias))(_form)
