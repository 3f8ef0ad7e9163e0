"""Rules for random numbers: counter-based, from the element's index, the step counter and the place in the
program.

Contract: element i of the s-th random tensor of a program at step t is a function of (seed, s, t, i) alone.
It uses wrapping i32 products and sums and the defined conversions between i32 and f32, so that anyone can
compute one element by itself. Independent of `torch.manual_seed`. Not guaranteed: cryptographic strength;
that two shards draw differently (their data differ).

Source: the quadratic permutation x·(2x + c) of RC6 (Rivest and others 1998) in place of MurmurHash3's xors.
The instruction set has no shift, so the fold "x + (x >> 16)" is x + trunc(f32(x)·2⁻¹⁶), with the conversions'
roundings.
"""

from __future__ import annotations

import math
from math import prod
from typing import Any

import torch
from torch.fx import Node as Traced

from assay.program.isa import DType, Op, Shape
from assay.program.lowering.context import Lowering, Number, Refused
from assay.program.lowering.elementwise import result_dtype
from assay.program.lowering.registry import lowers
from assay.program.lowering.views import View, expand, whole

_GOLDEN = 0x9E3779B9
_ROUNDS = (0x85EBCA6B, 0xC2B2AE35, 0x27D4EB2F, 0x165667B1)
_FOLD = 2.0**-16
_HALF = 2.0**-32
_BELOW_ONE = 1.0 - 2.0**-24


def _signed(word: int) -> int:
    return (word & 0xFFFFFFFF) - ((word & 0x80000000) << 1)


def _times(context: Lowering, x: View, factor: int) -> View:
    return context.apply(Op.IMUL, DType.I32, *context.pair(x, _signed(factor), DType.I32))


def _plus(context: Lowering, x: View, y: View) -> View:
    return context.apply(Op.IADD, DType.I32, x, y)


def _mixed(context: Lowering, x: View) -> View:
    """Mixes every bit of i32 x over the word.

    Rounds of x·(2x + c), which carries low bits up and is a permutation for odd c, and of a fold, which
    carries high bits down.
    """
    for odd in _ROUNDS:
        doubled = _plus(context, x, x)
        odd_one = _plus(context, doubled, context.const(_signed(odd), DType.I32))
        x = _folded(context, context.apply(Op.IMUL, DType.I32, x, odd_one))
    return x


def _folded(context: Lowering, x: View) -> View:
    high = context.mul(context.convert(x, DType.F32), _FOLD)
    return _plus(context, x, context.convert(high, DType.I32))


def bits(context: Lowering, shape: Shape) -> View:
    """i32 of this shape: 32 random bits per element, new at every call and step."""
    site = context.next_site()
    step = _times(context, whole(context.builder.step()), _GOLDEN)
    place = context.const(_signed(context.seed * _ROUNDS[0] + site * _ROUNDS[1]), DType.I32)
    key = _mixed(context, _plus(context, step, place))
    counter = _times(context, context.iota(prod(shape)), _GOLDEN)
    return context.reshape(_mixed(context, _plus(context, counter, key)), shape)


def chosen(context: Lowering, shape: Shape, share: float) -> View:
    """bool of this shape, each true with probability `share` (to 2⁻³²)."""
    edge = round(share * 2**32) - 2**31
    if not -(2**31) < edge < 2**31:
        return context.const(edge > 0, DType.BOOL, shape)
    return context.compare(Op.LT, bits(context, shape), edge)


def uniform(context: Lowering, shape: Shape) -> View:
    """f32 of this shape in [0, 1)."""
    centred = context.mul(context.convert(bits(context, shape), DType.F32), _HALF)
    return context.binary(Op.MIN, context.add(centred, 0.5), _BELOW_ONE)


def normal(context: Lowering, shape: Shape) -> View:
    """f32 of this shape, standard normal (Box and Muller 1958): √(−2 log(1 − u))·cos(2πv)."""
    radius = context.unary(Op.LOG, context.sub(1.0, uniform(context, shape)))
    radius = context.unary(Op.SQRT, context.mul(radius, -2.0))
    return context.mul(radius, context.unary(Op.COS, context.mul(uniform(context, shape), 2 * math.pi)))


def _shape(traced: Traced) -> Shape:
    if traced.meta["val"].dtype is not torch.float32:
        raise Refused("random numbers are float32")
    return tuple(traced.meta["val"].shape)


@lowers("bernoulli_.float", "bernoulli.p")
def bernoulli(context: Lowering, traced: Traced, x: View, p: Number = 0.5, **_options: Any) -> View:
    return context.convert(chosen(context, x.shape, float(p)), result_dtype(traced))


@lowers("rand.default", "rand_like.default")
def rand(context: Lowering, traced: Traced, *_like: Any, **_options: Any) -> View:
    return uniform(context, _shape(traced))


@lowers("uniform_.default")
def uniform_(
    context: Lowering, traced: Traced, x: View, low: Number = 0.0, high: Number = 1.0, **_options: Any
) -> View:
    return context.add(context.mul(uniform(context, _shape(traced)), float(high - low)), float(low))


@lowers("randn.default", "randn_like.default")
def randn(context: Lowering, traced: Traced, *_like: Any, **_options: Any) -> View:
    return normal(context, _shape(traced))


@lowers("normal_.default")
def normal_(
    context: Lowering, traced: Traced, x: View, mean: Number = 0.0, std: Number = 1.0, **_options: Any
) -> View:
    return context.add(context.mul(normal(context, _shape(traced)), float(std)), float(mean))


@lowers("exponential_.default", "exponential.default")
def exponential(context: Lowering, traced: Traced, x: View, rate: Number = 1.0, **_options: Any) -> View:
    """−log(1 − u)/rate, never 0, as PyTorch's (whose logarithm is a Gumbel number's)."""
    left = context.sub(1.0, uniform(context, _shape(traced)))
    drawn = context.unary(Op.LOG, context.binary(Op.MIN, left, _BELOW_ONE))
    return context.mul(drawn, -1.0 / float(rate))


@lowers("native_dropout.default")
def dropout(context: Lowering, traced: Traced, x: View, p: float, train: Any) -> tuple[View, View]:
    """x / (1 − p) where kept, else 0; and the mask."""
    if not p or not train:
        return x, expand(context.const(True, DType.BOOL), x.shape)
    kept = chosen(context, x.shape, 1.0 - p)
    scaled = context.mul(x, 1.0 / (1.0 - p)) if p < 1 else x
    return context.where(kept, scaled, 0.0, DType.F32), kept
