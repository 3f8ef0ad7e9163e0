"""Represents complex numbers as pairs of real tensors while a step is traced: Fourier transforms, rotations.

Contract: functions that create complex tensors (``torch.fft``, ``view_as_complex``, ``polar``, ``complex``)
create a `Pair` with their arithmetic, shapes and transforms. Functions back to real (``view_as_real``,
``.real``, ``abs``, ``irfft``) give ordinary tensors. A transform of length n is a product with a matrix of
cosines and sines: n² operations, with a product's error. A complex parameter or buffer that the step reads is
refused, as a state cannot hold it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from assay.program.lowering.rewrites import rewrites

_SHAPES = frozenset(
    {
        *("reshape", "view", "unsqueeze", "squeeze", "flatten", "unflatten", "transpose", "permute"),
        *("expand", "contiguous", "repeat", "sum", "mean", "narrow", "movedim", "swapaxes", "flip"),
        *("roll", "clone", "detach", "select"),
    }
)
"""Methods that act on both parts alike."""


class Pair:
    """A complex tensor: real and imaginary part, f32 of one shape."""

    def __init__(self, real: Tensor, imag: Tensor) -> None:
        self.real, self.imag = real, imag

    @property
    def shape(self) -> torch.Size:
        return self.real.shape

    @property
    def ndim(self) -> int:
        return self.real.dim()

    def dim(self) -> int:
        return self.real.dim()

    def size(self, *dim: int) -> Any:
        return self.real.size(*dim)

    def __getattr__(self, name: str) -> Any:
        if name not in _SHAPES:
            raise AttributeError(f"complex tensors have no {name!r} here; take .real and .imag")

        def both(*args: Any, **given: Any) -> Pair:
            return Pair(getattr(self.real, name)(*args, **given), getattr(self.imag, name)(*args, **given))

        return both

    def __getitem__(self, index: Any) -> Pair:
        return Pair(self.real[index], self.imag[index])

    def __add__(self, other: Any) -> Pair:
        real, imag = parts(other)
        return Pair(self.real + real, self.imag if imag is None else self.imag + imag)

    def __sub__(self, other: Any) -> Pair:
        real, imag = parts(other)
        return Pair(self.real - real, self.imag if imag is None else self.imag - imag)

    def __mul__(self, other: Any) -> Pair:
        real, imag = parts(other)
        if imag is None:
            return Pair(self.real * real, self.imag * real)
        return Pair(self.real * real - self.imag * imag, self.real * imag + self.imag * real)

    def __truediv__(self, other: Any) -> Pair:
        real, imag = parts(other)
        if imag is None:
            return Pair(self.real / real, self.imag / real)
        return (self * Pair(real, -imag)) / (real * real + imag * imag)

    def __matmul__(self, other: Any) -> Pair:
        real, imag = parts(other)
        if imag is None:
            return Pair(self.real @ real, self.imag @ real)
        return Pair(self.real @ real - self.imag @ imag, self.real @ imag + self.imag @ real)

    def __neg__(self) -> Pair:
        return Pair(-self.real, -self.imag)

    def __rsub__(self, other: Any) -> Pair:
        return -self + other

    __radd__, __rmul__ = __add__, __mul__

    def conj(self) -> Pair:
        return Pair(self.real, -self.imag)

    def abs(self) -> Tensor:
        """Absolute value; its gradient at 0 is 0, as PyTorch's."""
        squares = self.real * self.real + self.imag * self.imag
        some = squares > 0
        return torch.where(some, torch.sqrt(torch.where(some, squares, 1.0)), 0.0)

    __abs__ = abs

    def angle(self) -> Tensor:
        return torch.atan2(self.imag, self.real)

    def to(self, *_: Any, **__: Any) -> Pair:
        return self

    type_as = to

    def is_complex(self) -> bool:
        return True

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name = getattr(func, "__name__", str(func))
        given = kwargs or {}
        if func in _FUNCTIONS:
            return _FUNCTIONS[func](*args, **given)
        if name in _OPERATORS:
            first, second = args[:2]
            if isinstance(first, Pair):
                return getattr(first, _OPERATORS[name])(second)
            return getattr(Pair(first, torch.zeros_like(first)), _OPERATORS[name])(second)
        if isinstance(args[0], Pair) and (name in _SHAPES or hasattr(Pair, name)):
            return getattr(args[0], name)(*args[1:], **given)
        raise TypeError(f"complex tensors have no torch.{name} here; take their real and imaginary part")


def parts(value: Any) -> tuple[Any, Any]:
    """(real, imaginary or None) of a pair, a tensor or a number."""
    if isinstance(value, Pair):
        return value.real, value.imag
    return (value.real, value.imag) if isinstance(value, complex) else (value, None)


_OPERATORS = {
    "add": "__add__", "sub": "__sub__", "mul": "__mul__", "multiply": "__mul__", "div": "__truediv__",
    "matmul": "__matmul__", "__rmul__": "__mul__", "__radd__": "__add__", "true_divide": "__truediv__",
}  # fmt: skip


@rewrites(torch.view_as_complex)
def view_as_complex(input: Tensor) -> Pair:
    return Pair(input[..., 0], input[..., 1])


@rewrites(torch.polar)
def polar(abs: Tensor, angle: Tensor) -> Pair:
    return Pair(abs * torch.cos(angle), abs * torch.sin(angle))


@rewrites(torch.complex)
def complex_(real: Tensor, imag: Tensor) -> Pair:
    return Pair(real, imag)


def view_as_real(input: Pair) -> Tensor:
    return torch.stack([input.real, input.imag], -1)


# Fourier transforms


def _waves(n: int, bins: int) -> tuple[Tensor, Tensor]:
    """cos and sin of 2π·jk/n, [n, bins]; jk is reduced modulo n first, so that angles are small and
    accurate."""
    turns = (torch.arange(n).unsqueeze(1) * torch.arange(bins).unsqueeze(0)) % n
    angle = turns.float() * (2 * math.pi / n)
    return torch.cos(angle), torch.sin(angle)


def _fitted(x: Tensor, n: int) -> Tensor:
    """The last dimension cropped or zero-padded to n."""
    return x[..., :n] if x.shape[-1] >= n else torch.nn.functional.pad(x, [0, n - x.shape[-1]])


def _share(n: int, norm: str | None, inverse: bool) -> float:
    if norm == "ortho":
        return 1 / math.sqrt(n)
    return 1 / n if inverse != (norm == "forward") else 1.0


def _transformed(x: Any, n: int | None, dim: int, norm: str | None, inverse: bool, bins: int | None) -> Pair:
    real, imag = parts(x)
    real = real.movedim(dim, -1)
    size = n or real.shape[-1]
    cos, sin = _waves(size, bins or size)
    sin = sin if inverse else -sin
    real = _fitted(real, size)
    made = Pair(real @ cos, real @ sin)
    if imag is not None:
        imag = _fitted(imag.movedim(dim, -1), size)
        made = made + Pair(-(imag @ sin), imag @ cos)
    share = _share(size, norm, inverse)
    made = made if share == 1.0 else made * share
    return Pair(made.real.movedim(-1, dim), made.imag.movedim(-1, dim))


@rewrites(torch.fft.fft)
def fft(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Pair:
    return _transformed(input, n, dim, norm, False, None)


@rewrites(torch.fft.ifft)
def ifft(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Pair:
    return _transformed(input, n, dim, norm, True, None)


@rewrites(torch.fft.rfft)
def rfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Pair:
    size = n or input.shape[dim]
    return _transformed(input, n, dim, norm, False, size // 2 + 1)


@rewrites(torch.fft.irfft)
def irfft(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """Inverse real transform: bins between the first and the middle one count twice, for their mirror."""
    real, imag = parts(input)
    size = n or 2 * (real.shape[dim] - 1)
    bins = size // 2 + 1
    cos, sin = _waves(size, bins)
    place = torch.arange(bins)
    once = (place == 0) | (place * 2 == size)
    weight = torch.where(once, 1.0, 2.0) * _share(size, norm, True)
    real = _fitted(real.movedim(dim, -1), bins) * weight
    made = real @ cos.T
    if imag is not None:
        made = made - (_fitted(imag.movedim(dim, -1), bins) * weight) @ sin.T
    return made.movedim(-1, dim)


def _several(one: Callable[..., Any], last: Callable[..., Any], real_last: bool) -> Callable[..., Any]:
    def transform(
        input: Any, s: Sequence[int] | None = None, dim: Sequence[int] | None = None, norm: str | None = None
    ) -> Any:
        rank = len(input.shape)
        dims = list(dim) if dim is not None else list(range(rank - (len(s) if s else rank), rank))
        sizes = list(s) if s is not None else [None] * len(dims)
        order = list(zip(dims, sizes, strict=True))
        if real_last:  # what is real comes first going there, last coming back
            if last is rfft:
                input = rfft(input, order[-1][1], order[-1][0], norm)
            for d, n in order[:-1]:
                input = one(input, n, d, norm)
            return input if last is rfft else irfft(input, order[-1][1], order[-1][0], norm)
        for d, n in order:
            input = one(input, n, d, norm)
        return input

    return transform


def _planar(transform: Callable[..., Any]) -> Callable[..., Any]:
    def two(input: Any, s: Any = None, dim: Sequence[int] = (-2, -1), norm: str | None = None) -> Any:
        return transform(input, s, dim, norm)

    return two


_fftn, _ifftn = _several(fft, fft, False), _several(ifft, ifft, False)
_rfftn, _irfftn = _several(fft, rfft, True), _several(ifft, irfft, True)
_TRANSFORMS: dict[Any, Callable[..., Any]] = {
    torch.fft.fftn: _fftn,
    torch.fft.ifftn: _ifftn,
    torch.fft.rfftn: _rfftn,
    torch.fft.irfftn: _irfftn,
    torch.fft.fft2: _planar(_fftn),
    torch.fft.ifft2: _planar(_ifftn),
    torch.fft.rfft2: _planar(_rfftn),
    torch.fft.irfft2: _planar(_irfftn),
}
for _function, _form in _TRANSFORMS.items():
    rewrites(_function)(_form)


@rewrites(torch.stft, Tensor.stft)
def stft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    **_options: Any,
) -> Any:
    """Transforms of overlapping windows: [.., bins, windows]."""
    width = win_length or n_fft
    shape = torch.ones(width) if window is None else window
    left = (n_fft - width) // 2
    shape = torch.nn.functional.pad(shape, [left, n_fft - width - left])
    x = input if input.dim() == 2 else input.unsqueeze(0)
    if center:
        x = torch.nn.functional.pad(x.unsqueeze(1), [n_fft // 2] * 2, mode=pad_mode).squeeze(1)
    seen = x.unfold(-1, n_fft, hop_length or n_fft // 4) * shape
    made = fft(seen) if onesided is False else rfft(seen)
    made = made.transpose(-1, -2)
    made = made * (1 / math.sqrt(n_fft)) if normalized else made
    made = made if input.dim() == 2 else made.squeeze(0)
    return made if return_complex else view_as_real(made)


def _joined(function: Callable[..., Tensor]) -> Callable[..., Pair]:
    def join(several: Sequence[Pair], dim: int = 0) -> Pair:
        return Pair(function([x.real for x in several], dim), function([x.imag for x in several], dim))

    return join


def _einsum(equation: str, *operands: Any) -> Pair:
    """A sum of products of pairs and tensors, two at a time."""
    operands = tuple(operands[0]) if len(operands) == 1 else operands
    if len(operands) != 2:
        raise TypeError("torch.einsum of complex tensors takes two of them here")
    (a, b), (c, d) = (parts(x) for x in operands)
    real = torch.einsum(equation, a, c)
    imag = torch.zeros_like(real)
    if b is not None and d is not None:
        real = real - torch.einsum(equation, b, d)
    if b is not None:
        imag = imag + torch.einsum(equation, b, c)
    if d is not None:
        imag = imag + torch.einsum(equation, a, d)
    return Pair(real, imag)


_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    torch.view_as_real: view_as_real,
    torch.real: lambda x: x.real,
    torch.imag: lambda x: x.imag,
    torch.abs: Pair.abs,
    torch.angle: Pair.angle,
    torch.conj: Pair.conj,
    torch.is_complex: lambda x: True,
    torch.cat: _joined(torch.cat),
    torch.stack: _joined(torch.stack),
    torch.einsum: _einsum,
    torch.fft.fft: fft,
    torch.fft.ifft: ifft,
    torch.fft.irfft: irfft,
    **_TRANSFORMS,
}
