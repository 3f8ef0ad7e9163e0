"""Order-free arithmetic on PyTorch tensors: one function per instruction, bit-exact on every device.

Contract: docs/arithmetic.md defines each result; `REFERENCE` maps an instruction's name to its function,
which takes tensors of the right dtypes (attributes as keywords: convert and bits `dtype`, scatter_sum `V`)
and broadcasts where the instruction does. Not guaranteed: that unchecked dtypes or shapes are refused; the
program's validation does that.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from assay.numerics import contraction, elementwise, fast, indexing, transcendental

REFERENCE: dict[str, Callable[..., Tensor]] = {
    "neg": elementwise.neg,
    "abs": elementwise.absolute,
    "sqrt": elementwise.sqrt,
    "exp": transcendental.exp,
    "log": transcendental.log,
    "tanh": transcendental.tanh,
    "erf": transcendental.erf,
    "sin": transcendental.sin,
    "cos": transcendental.cos,
    "floor": elementwise.floor,
    "add": elementwise.add,
    "sub": elementwise.sub,
    "mul": elementwise.mul,
    "div": elementwise.div,
    "max": elementwise.maximum,
    "min": elementwise.minimum,
    "pow": transcendental.pow,
    "eq": elementwise.eq,
    "lt": elementwise.lt,
    "le": elementwise.le,
    "and": elementwise.logical_and,
    "or": elementwise.logical_or,
    "not": elementwise.logical_not,
    "select": elementwise.select,
    "iadd": elementwise.iadd,
    "isub": elementwise.isub,
    "imul": elementwise.imul,
    "convert": elementwise.convert,
    "bits": elementwise.bits,
    "sum": contraction.sum,
    "amax": contraction.amax,
    "exponent": contraction.exponent,
    "quantise": contraction.quantise,
    "product": contraction.product,
    "scatter_sum": contraction.scatter_sum,
    "argmax": contraction.argmax,
    "take": indexing.take,
    "pick": indexing.pick,
}

FAST: dict[str, Callable[..., Tensor]] = {**REFERENCE, "product": fast.product}
"""The same bits for validated programs, whose product operands come from quantise (A32)."""

__all__ = ["FAST", "REFERENCE"]
