"""Implementations of the operations for a fusing compiler, with the bits of `numerics.REFERENCE`.

Contract: functional (nothing written in place) and only vectorisable dtypes (quantised values and exponents
are i32 or integer-valued f32, never i16). What a product or quantisation needs of an operand is computed once
per operand, not per use. Not guaranteed: speed without a compiler; values of a poisoned row where
`quantise_own` is told that only products read them; results for |q| > 8192, which `Quantised` never holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain

import torch
import torch._inductor.inductor_prims  # registers the marker that `kept` uses
from torch import Tensor
from torch._prims_common import make_contiguous_strides_for
from torch.nn.functional import pad

from assay.numerics import attention_triton, contraction, fast, operand_triton, product_kernel, transcendental
from assay.numerics import constants as c
from assay.numerics.backends import INT32_PRODUCT_LENGTH, integer_product_f64, prefers_int8
from assay.numerics.operand_triton import Cuts, Loss
from assay.numerics.product_triton import padded

_NAN = float("nan")


def on_processor(x: Tensor) -> bool:
    """True if the tensor is on a CPU; otherwise the implementation for GPUs is used."""
    return x.device.type == "cpu"


def kept(x: Tensor) -> Tensor:
    """x, materialised by the compiler instead of recomputed in every use.

    Truth values are kept as i32 on processors: Inductor widens loaded bytes one by one.
    """
    if x.numel() == 1:
        return x
    if x.dtype is torch.bool and on_processor(x):
        return kept(x.to(torch.int32)) != 0
    return torch.ops.prims.inductor_force_stride_order.default(x, x.stride())


def kept_in_rows(x: Tensor) -> Tensor:
    """`kept`, contiguous."""
    if x.numel() == 1:
        return x
    made: Tensor = torch.ops.prims.inductor_force_stride_order.default(
        x, make_contiguous_strides_for(x.shape)
    )
    return made


def rounded(x: Tensor) -> Tensor:
    """x, f32 just rounded from f64, hidden from the compiler's optimiser.

    GCC 12 removes a vector's conversion from f64 to f32 and back, and so the rounding (docs/decisions/0005).
    A maximum prevents that.
    """
    return torch.maximum(x, torch.full_like(x, -math.inf)) if on_processor(x) else x


def power_of_two(n: Tensor) -> Tensor:
    """2^n as f64 for an i32 tensor n, -1022 <= n <= 1023."""
    return ((n.to(torch.int64) + 1023) << 52).view(torch.float64)


def _power_of_two_f32(n: Tensor) -> Tensor:
    return ((n + 127) << 23).view(torch.float32)


def _field(magnitude: Tensor) -> Tensor:
    """Exponent field of a row's largest magnitude as i32, 1 to 255; 255 where the row holds Inf or NaN."""
    return ((magnitude.view(torch.int32) >> 23) & 255).clamp(min=1)


class Exponents:
    """Row exponents as i32, with derived scales, each computed once, when it is asked for.

    `own`: they come from A30, so they are in [-125, 129]; others are clamped as in A31 and A32.
    """

    def __init__(self, e: Tensor | Callable[[], Tensor], own: bool) -> None:
        self._e = e
        self.own = own
        self._made: dict[str, tuple[Tensor, ...]] = {}

    @cached_property
    def i32(self) -> Tensor:
        return self._e if isinstance(self._e, Tensor) else self._e()

    def moved(self, move: Callable[[Tensor], Tensor]) -> Exponents:
        """The same exponents at other positions."""
        return Exponents(lambda: move(self.i32), self.own)

    @property
    def clamped(self) -> Tensor:
        return self.i32 if self.own else self.i32.clamp(c.EXPONENT_MIN, c.EXPONENT_POISONED)

    def scales(self) -> tuple[Tensor, ...]:
        """Two f32 factors whose product is 2^(13-e)."""
        if "scales" not in self._made:
            shift = c.QUANTISED_BITS - self.clamped
            first = shift >> 1
            self._made["scales"] = tuple(
                kept(_power_of_two_f32(n)).unsqueeze(-1) for n in (first, shift - first)
            )
        return self._made["scales"]

    def inverse_scales(self) -> tuple[Tensor, ...]:
        """Two f32 factors whose product is 2^(e-13), one of them NaN where poisoned."""
        if "inverse" not in self._made:
            e = self.clamped
            shift = e - c.QUANTISED_BITS
            first = shift >> 1
            last = torch.where(e == c.EXPONENT_POISONED, _NAN, _power_of_two_f32(shift - first))
            self._made["inverse"] = tuple(
                kept(power).unsqueeze(-1) for power in (_power_of_two_f32(first), last)
            )
        return self._made["inverse"]

    def factor(self) -> Tensor:
        """2^(e-13) as f64, NaN where poisoned."""
        if "factor" not in self._made:
            e = self.clamped
            power = power_of_two(e - c.QUANTISED_BITS)
            self._made["factor"] = (kept(torch.where(e == c.EXPONENT_POISONED, _NAN, power)),)
        return self._made["factor"][0]


def exponent(x: Tensor) -> Exponents:
    """Shared exponent of each row, f32[..., K] -> i32[...] (A30), computed if anything asks for it."""
    return Exponents(lambda: exponent_of_largest(x.abs().amax(-1)).i32, own=True)


def exponent_of_largest(magnitude: Tensor) -> Exponents:
    """The same from each row's largest magnitude: 255 - 126 is the poisoned 129."""
    return Exponents(_field(magnitude) - 126, own=True)


@dataclass(frozen=True)
class Quantised:
    """An output of quantise as integer-valued f32; other forms are made on first use.

    `integers` f32[..., K] with |q| <= 8192.
    """

    integers: Tensor
    _made: dict[str, tuple[Tensor, ...]] = field(default_factory=dict)

    def moved(self, move: Callable[[Tensor], Tensor]) -> Quantised:
        """The same elements at other positions."""
        return Quantised(move(self.integers))

    def split(self) -> tuple[Tensor, ...]:
        """(hi, lo, hi + lo) as int8 (A51); on accelerators (hi, lo), in rows padded as `padded` says."""
        if "split" not in self._made:
            integers, on_cpu = self.integers, on_processor(self.integers)
            if not on_cpu and (zeros := padded(integers.shape[-1]) - integers.shape[-1]):
                integers = pad(integers, (0, zeros))
            hi = torch.floor((integers + 64.0) * 0.0078125)
            lo = integers - hi * 128.0
            parts = [part.to(torch.int8) for part in ((hi, lo, hi + lo) if on_cpu else (hi, lo))]
            # On a processor stored as the operand lies, transposed or not: its int8 product reads both alike,
            # and a transposing store takes five times as long.
            store = (lambda x: kept(x) if x.dim() == 2 else x) if on_cpu else kept_in_rows
            self._made["split"] = tuple(store(part) for part in parts)
        return self._made["split"]

    def narrowed(self) -> Tensor:
        """The integers as i16, which compilers do not vectorise."""
        if "narrowed" not in self._made:
            self._made["narrowed"] = (torch.ops.assay.narrowed(self.integers),)
        return self._made["narrowed"][0]


def quantise_own(x: Tensor, e: Exponents, *, product_only: bool) -> Quantised:
    """`quantise` where e is the exponent of x itself, so that the clamp of A31 never acts.

    `product_only`: only products with e read the result, which are NaN wherever a poisoned row takes part.
    """
    first, second = e.scales()
    scaled = torch.round(x * first * second)
    if product_only:
        return Quantised(scaled)
    return Quantised(torch.where((e.i32 == c.EXPONENT_POISONED).unsqueeze(-1), 0.0, scaled))


def quantised_of_parts(high: Tensor, low: Tensor, length: int) -> Quantised:
    """The integers of both parts of A51, int8[..., K padded], whose rows have this length."""
    integers = high.to(torch.float32) * 128.0 + low.to(torch.float32)
    return Quantised(integers.narrow(-1, 0, length), {"split": (high, low)})


def operands(x: Tensor, across: Cuts, down: Cuts, loss: Loss) -> list[list[Tensor]]:
    """See `operand_triton.definition`; on accelerators only."""
    made: list[Tensor] = torch.ops.assay.operands(x, across, down, list(loss))
    return [made[i : i + 3] for i in range(0, len(made), 3)]


def causal_softmax(x: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Softmax of f32 [b.., T, T] up to the diagonal, and its rows as an operand; on accelerators only."""
    made, *operand = torch.ops.assay.causal_softmax(x)
    return made, operand


def causal_softmax_gradient(p: Tensor, g: Tensor, read_all: Tensor) -> list[list[Tensor]]:
    """See `attention_triton.gradient_definition`; on accelerators only."""
    made: list[Tensor] = torch.ops.assay.causal_softmax_gradient(p, g, read_all)
    return [made[i : i + 3] for i in range(0, len(made), 3)]


def maybe_infinite(ea: Tensor, eb: Tensor, length: int) -> Tensor:
    """Rows of a product of this length, i32 [.., M], 0 where exponents i32 [.., M] and [.., N] say that each
    of its numbers is finite: |S| is at most length * 2^26 (A32)."""
    ea, eb = (e.clamp(c.EXPONENT_MIN, c.EXPONENT_POISONED) for e in (ea, eb))
    most = eb.amax(-1, keepdim=True)
    large = ea + most + (length - 1).bit_length() > 127
    poisoned = (ea == c.EXPONENT_POISONED) | (most == c.EXPONENT_POISONED)
    return (large | poisoned).to(torch.int32)


def quantise(x: Tensor, e: Exponents) -> Quantised:
    """RNE(x * 2^(13-e)) in [-8192, 8192] for any e (A31)."""
    first, second = e.scales()
    bound = float(c.QUANTISED_MAX)
    clamped = torch.round(x * first * second).clamp(-bound, bound)
    unusable = (x != x) | (e.clamped == c.EXPONENT_POISONED).unsqueeze(-1)
    return Quantised(torch.where(unusable, 0.0, clamped))


def dequantised(integers: Tensor, e: Exponents) -> Tensor:
    """q * 2^(e-13), exact, never -0; NaN where poisoned: f32[..., K] (the product by 1, A32)."""
    first, second = e.inverse_scales()
    return torch.where(integers == 0.0, 0.0, integers) * first * second


@dataclass(frozen=True)
class Unquantised:
    """Values to be quantised (A31) that only products with these exponents read: f32[..., K].

    `own`: the exponents are those of x.
    """

    x: Tensor
    e: Exponents
    own: bool = False
    _made: list[Quantised] = field(default_factory=list)

    def quantised(self) -> Quantised:
        """Quantises once, for a product that cannot."""
        if not self._made:
            self._made.append(quantise(self.x, self.e))
        return self._made[0]


def product_of_unquantised(a: Unquantised, b: Unquantised) -> Tensor:
    """`product` of both quantised without storing them: f32[b..., M, N], on CPUs only."""
    ea, eb = (None if each.own else each.e.i32 for each in (a, b))
    made: Tensor = torch.ops.assay.quantised_product(a.x, ea, b.x, eb)
    return made


def product(qa: Quantised, ea: Exponents, qb: Quantised, eb: Exponents) -> Tensor:
    """f32[b..., M, N] from operands [b..., M, K] and [b..., N, K] (A32)."""
    if on_processor(qa.integers) and product_kernel.load() is not None:
        made: Tensor = torch.ops.assay.quantised_product(qa.narrowed(), ea.i32, qb.narrowed(), eb.i32)
        return made
    if not on_processor(qa.integers):
        length = qa.integers.shape[-1]
        return torch.ops.assay.product_of_parts(qa.split(), ea.i32, qb.split(), eb.i32, length)
    total = _total_int8(qa, qb) if prefers_int8(qa.integers) else _total_f64(qa, qb)
    return scaled(total, ea, eb)


def scaled(total: Tensor, ea: Exponents, eb: Exponents) -> Tensor:
    """The one rounding of A32, of exact sums f64[b..., M, N]."""
    return (total * ea.factor().unsqueeze(-1) * eb.factor().unsqueeze(-2)).to(torch.float32)


def _total_f64(qa: Quantised, qb: Quantised) -> Tensor:
    """S as f64, exact, never -0: one binary64 product, also of a whole batch."""
    total = integer_product_f64(qa.integers, qb.integers)
    return torch.where(total == 0.0, 0.0, total)


def _total_int8(qa: Quantised, qb: Quantised) -> Tensor:
    """S as f64, exact, and never -0 since every term of it is made from an integer."""
    return combined(_products(qa, qb), qa.integers.shape[-1])


def combined(parts: Sequence[Tensor], length: int) -> Tensor:
    """S of A51 as f64 from (HH, LL, T), i32, of rows of this length."""
    high, low, both = parts
    cross = both - high - low
    if length <= INT32_PRODUCT_LENGTH:
        upper = (high * 128 + cross).to(torch.float64)
    else:
        upper = high.to(torch.float64) * 128.0 + cross.to(torch.float64)
    return upper * 128.0 + low.to(torch.float64)


def _products(qa: Quantised, qb: Quantised) -> tuple[Tensor, ...]:
    """(HH, LL, T) of A51 as int32."""
    return tuple(torch._int_mm(a, b.t()) for a, b in zip(qa.split(), qb.split(), strict=True))


_LIBRARY = torch.library.Library("assay", "DEF")
_LIBRARY.define("quantised_product(Tensor a, Tensor? ea, Tensor b, Tensor? eb) -> Tensor")
_LIBRARY.impl("quantised_product", fast.product, "CPU")
torch.library.register_fake(
    "assay::quantised_product",
    lambda a, ea, b, eb: a.new_empty((*a.shape[:-1], b.shape[-2]), dtype=torch.float32),
    lib=_LIBRARY,
)
_LIBRARY.define("product_of_parts(Tensor[] a, Tensor ea, Tensor[] b, Tensor eb, int length) -> Tensor")
_LIBRARY.impl("product_of_parts", fast.product_of_parts, "CompositeExplicitAutograd")
torch.library.register_fake(
    "assay::product_of_parts",
    lambda a, ea, b, eb, length: ea.new_empty((*ea.shape, b[0].shape[-2]), dtype=torch.float32),
    lib=_LIBRARY,
)
_LIBRARY.define("operands(Tensor x, int[] across, int[] down, Tensor[] loss) -> Tensor[]")
_LIBRARY.impl("operands", lambda *given: list(chain(*fast.operands(*given))), "CompositeExplicitAutograd")
torch.library.register_fake(
    "assay::operands", lambda *given: list(chain(*operand_triton.empty(*given))), lib=_LIBRARY
)
_LIBRARY.define("causal_softmax(Tensor x) -> Tensor[]")
_LIBRARY.impl("causal_softmax", fast.causal_softmax, "CompositeExplicitAutograd")
torch.library.register_fake("assay::causal_softmax", attention_triton.softmax_empty, lib=_LIBRARY)
_LIBRARY.define("causal_softmax_gradient(Tensor p, Tensor g, Tensor read_all) -> Tensor[]")
_LIBRARY.impl("causal_softmax_gradient", fast.causal_softmax_gradient, "CompositeExplicitAutograd")
torch.library.register_fake("assay::causal_softmax_gradient", attention_triton.gradient_empty, lib=_LIBRARY)
_LIBRARY.define("narrowed(Tensor x) -> Tensor")
_LIBRARY.impl("narrowed", lambda x: x.contiguous().to(torch.int16), "CPU")
torch.library.register_fake(
    "assay::narrowed", lambda x: x.new_empty(x.shape, dtype=torch.int16), lib=_LIBRARY
)


def largest_exponential(maximum: Tensor, shift: Tensor, total: Tensor | None) -> Tensor:
    """Largest number of each row of exp(x - shift), over `total` if given, from the row's maximum, at most
    `shift` (``program.compiled.largest``)."""
    apart = maximum - shift
    largest = apart + 1.0 if maximum is shift else transcendental.exp(apart)
    return largest if total is None else div(largest, total)


def sum(x: Tensor, largest: Tensor | None = None) -> Tensor:  # the instruction's name, kept
    """Order-free sum of each row, f32[..., n] -> f32[...] (A33).

    `largest`: each row's largest number, if known, where none is below 0 and none is Inf. In a row with Inf
    or NaN the scaled terms keep it, so the binary64 sum is what A33 says; no other row overflows.
    """
    shift = c.SUM_BITS - (x.shape[-1] - 1).bit_length()
    if not on_processor(x):
        return sum_of_integers(x, shift, largest)
    scale = kept(power_of_two(shift + 126 - _field(x.abs().amax(-1) if largest is None else largest)))
    total = torch.round(x.to(torch.float64) * scale.unsqueeze(-1)).sum(-1)
    return (torch.where(total == 0.0, 0.0, total) / scale).to(torch.float32)


def sum_of_integers(x: Tensor, shift: int, largest: Tensor | None = None) -> Tensor:
    """`sum` in numbers of 32 bits, of which a GPU adds many at a time; `shift` is k of A33.

    A term q of at most 2^k is f32, and so are its parts q = 2^20 * high + low, 0 <= low < 2^20: n <= 2^(50-k)
    of them sum to at most 2^30, and to less than 2^32.
    """
    if largest is None:
        most, least = x.amax(-1), x.amin(-1)
        largest, poison = torch.maximum(most.abs(), least.abs()), most + least
    else:
        poison = largest
    e = _field(largest) - 126
    up = shift - e
    first = up >> 1
    scales = [kept(_power_of_two_f32(n)).unsqueeze(-1) for n in (first, up - first)]
    q = torch.round(x * scales[0] * scales[1])
    high = torch.floor(q * 2.0**-20)
    low = q - high * 2.0**20
    sums = [part.to(torch.int32).sum(-1, dtype=torch.int32).to(torch.int64) for part in (high, low)]
    total = (sums[0] << 20) + (sums[1] & 0xFFFFFFFF)
    made = (total.to(torch.float64) * power_of_two(-up)).to(torch.float32)
    return torch.where(e == c.EXPONENT_POISONED, poison, made)


def one_hot_sum(index: Tensor, share: Tensor, start: int, stop: int) -> Tensor:
    """`sum` over columns [start, stop) of rows with `share` at `index` and +0 elsewhere: f32[...], i32[...].

    A term is a whole number of units of A33, whatever its row, so nothing is rounded; a sum is never -0.
    """
    return torch.where((index >= start) & (index < stop), contraction.positive_zero(share), 0.0)


_LIBRARY.define("added_at(Tensor slot, Tensor x, int width) -> Tensor")
_LIBRARY.impl("added_at", contraction.added_at, "CompositeExplicitAutograd")
torch.library.register_fake(
    "assay::added_at", lambda slot, x, width: x.new_empty(x.shape[0], width), lib=_LIBRARY
)


_LIBRARY.define("first_places(Tensor slot, int width) -> Tensor")
_LIBRARY.impl("first_places", contraction.first_places, "CompositeExplicitAutograd")
torch.library.register_fake("assay::first_places", lambda slot, width: slot.new_empty(width), lib=_LIBRARY)
_LIBRARY.define("rows_added_at(Tensor slot, Tensor x, int width) -> Tensor")
_LIBRARY.impl("rows_added_at", contraction.rows_added_at, "CompositeExplicitAutograd")
torch.library.register_fake(
    "assay::rows_added_at", lambda slot, x, width: x.new_empty(width, x.shape[1]), lib=_LIBRARY
)


def scatter_sum(x: Tensor, idx: Tensor, *, V: int) -> Tensor:
    """Order-free sums by index (A34), with additions that no compiler fuses.

    Inductor (2.13, more than one thread) counts a tile's row twice in the address of a scattered addition,
    and so writes beyond the buffer. Where there are more sums than addends, a GPU only stores those that have
    an addend; on CPUs Inductor would not vectorise what reads such a table.
    """
    sparse = not on_processor(x) and idx.dim() == 1 and len(idx) < V
    return contraction.scatter_sum(x, idx, V=V, add=_added_sparsely if sparse else torch.ops.assay.added_at)


def _added_sparsely(slot: Tensor, x: Tensor, width: int) -> Tensor:
    """`contraction.added_at` by a table of one row an addend: that of the first one of its sum, and zeros."""
    addends = len(slot)
    first = torch.ops.assay.first_places(slot, width)
    table = torch.ops.assay.rows_added_at(first.index_select(0, slot), x.t(), addends + 1)
    return table.index_select(0, first).t()


def sqrt(x: Tensor) -> Tensor:
    """Correctly rounded square root (A11): a compiler for CPUs emits the machine's own instruction."""
    return torch.sqrt(x) if on_processor(x) else torch.sqrt(x.to(torch.float64)).to(torch.float32)


def div(a: Tensor, b: Tensor) -> Tensor:
    """a / b rounded once (A13).

    On accelerators the compiler turns division by a known constant into multiplication by a rounded
    reciprocal, whatever its settings; an operation on the divisor's bits hides the constant.
    """
    if on_processor(b):
        return a / b
    return a / (b.view(torch.int32) ^ 0).view(torch.float32)
