"""Codings of a parameter change for sending: integers, few bits, or few entries.

Contract: a coding maps f32 x of any shape to the tensors of its wire and back. `decode(encode(x), x.shape)`
is what every receiver sees, and the sender too, so that its residual x − decode(...) is exact by
construction. Everything is PyTorch that can be lowered, so a program's wire has the same bits everywhere.
`bits` is the packed size in bits; codes are i32 in a program and packed in a state's files
(``numerics.packed``).

Sources: E3M0 with a scale per block, Streaming DiLoCo, Douillard and others 2025; u8 and 2 bits with a table
of bin means, PRIME (Jaghouar and others 2024) and SparseLoCo (Sarfi and others 2025); chunked DCT with the
largest coefficients, DeMo, Peng and others 2024.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeAlias

from assay.program.rules import MAX_FAN_IN
from assay.protocol.errors import Stop
from assay.training.bounds import whole
from assay.training.lazy_torch import torch

if TYPE_CHECKING:
    from torch import Tensor

Wire: TypeAlias = "tuple[Tensor, ...]"


class Coding(Protocol):
    """A coding of a tensor."""

    def encode(self, x: Tensor) -> Wire:
        """Encodes f32 x to its wire."""
        ...

    def decode(self, wire: Sequence[Tensor], shape: Sequence[int]) -> Tensor:
        """Decodes a wire to f32 of this shape."""
        ...

    def sent(self, wire: Sequence[Tensor], shape: Sequence[int]) -> Tensor | None:
        """f32: 1 for elements that were sent, 0 elsewhere; None if all were."""
        ...

    def bits(self, shape: Sequence[int]) -> int:
        """Size on the wire in bits for x of this shape."""
        ...


@dataclass(frozen=True)
class Whole:
    """f32 unchanged."""

    def encode(self, x: Tensor) -> Wire:
        return (x,)

    def decode(self, wire: Sequence[Tensor], shape: Sequence[int]) -> Tensor:
        return wire[0]

    def sent(self, wire: Sequence[Tensor], shape: Sequence[int]) -> Tensor | None:
        return None

    def bits(self, shape: Sequence[int]) -> int:
        return 32 * math.prod(shape)


def blocks(x: Tensor, size: int) -> Tensor:
    """[blocks, size]: x flattened and padded with zeros."""
    flat = x.reshape(-1)
    missing = -flat.shape[0] % size
    return (torch.nn.functional.pad(flat, [0, missing]) if missing else flat).reshape(-1, size)


def unblocked(x: Tensor, shape: Sequence[int]) -> Tensor:
    """The elements that `blocks` took from a tensor of this shape."""
    return x.reshape(-1)[: math.prod(shape)].reshape(tuple(shape))


@dataclass(frozen=True)
class E3M0:
    """4 bits: a sign and an exponent, s·2⁰ … s·2⁻⁶ and zero, s the largest magnitude of a block."""

    block: int = 64

    def check(self) -> None:
        """Raises Stop if these numbers can send no change."""
        whole("E3M0.block", self.block, 1, MAX_FAN_IN)

    def encode(self, x: Tensor) -> Wire:
        rows = blocks(x, min(self.block, x.numel()))
        scale = rows.abs().amax(1, keepdim=True)
        size = rows.abs() / torch.where(scale > 0, scale, 1.0)
        code = (size > 2.0**-7).int()
        for k in range(6):
            code = code + (size > 0.75 * 2.0**-k).int()
        return torch.where(rows < 0, -code, code), scale

    def decode(self, wire: Sequence[Tensor], shape: Sequence[int]) -> Tensor:
        code, scale = wire
        size = torch.zeros(code.shape)
        for level in range(1, 8):
            size = torch.where(code.abs() == level, 2.0 ** (level - 7), size)
        return unblocked(torch.where(code < 0, -size, size) * scale, shape)

    def sent(self, wire: Sequence[Tensor], shape: Sequence[int]) -> Tensor | None:
        return None

    def bits(self, shape: Sequence[int]) -> int:
        n = math.prod(shape)
        return 4 * n + 32 * -(-n // self.block)


@dataclass(frozen=True)
class Integers:
    """Whole multiples, of equal steps, of the largest magnitude of a block: −(2^(width−1) − 1) and up."""

    width: int = 4
    block: int = 64

    def check(self) -> None:
        """Raises Stop if these numbers can send no change."""
        whole("Integers.width", self.width, 2, 16)
        whole("Integers.block", self.block, 1, MAX_FAN_IN)

    @property
    def most(self) -> int:
        """The largest code."""
        return (1 << (self.width - 1)) - 1

    def encode(self, x: Tensor) -> Wire:
        rows = blocks(x, min(self.block, x.numel()))
        scale = rows.abs().amax(1, keepdim=True)
        share = rows / torch.where(scale > 0, scale, 1.0)
        return (share * self.most + 0.5).floor().clamp(-self.most, self.most).int(), scale

    def decode(self, wire: Sequence[Tensor], shape: Sequence[int]) -> Tensor:
        code, scale = wire
        return unblocked(code.float() * (scale / self.most), shape)

    def sent(self, wire: Sequence[Tensor], shape: Sequence[int]) -> Tensor | None:
        return None

    def bits(self, shape: Sequence[int]) -> int:
        n = math.prod(shape)
        return self.width * n + 32 * -(-n // self.block)


@dataclass(frozen=True)
class Bins:
    """2^width bins of equal width over µ ± 3σ of a block, each sent as the mean of what fell into it."""

    width: int = 8
    block: int = 4096

    def check(self) -> None:
        """Raises Stop if these numbers can send no change."""
        whole("Bins.width", self.width, 1, 8)
        whole("Bins.block", self.block, 1, MAX_FAN_IN)

    def encode(self, x: Tensor) -> Wire:
        count = 1 << self.width
        rows = blocks(x, min(self.block, x.numel()))
        mean = rows.mean(1, keepdim=True)
        spread = torch.sqrt(((rows - mean) ** 2).mean(1, keepdim=True))
        step = torch.where(spread > 0, 6 * spread / count, 1.0)
        code = (((rows - mean) / step).floor() + count / 2).clamp(0, count - 1).int()
        zero = torch.zeros(rows.shape[0], count)
        total = zero.scatter_add(1, code.long(), rows)
        held = zero.scatter_add(1, code.long(), torch.ones(rows.shape))
        return code, total / held.clamp(min=1.0)

    def decode(self, wire: Sequence[Tensor], shape: Sequence[int]) -> Tensor:
        code, table = wire
        return unblocked(table.gather(1, code.long()), shape)

    def sent(self, wire: Sequence[Tensor], shape: Sequence[int]) -> Tensor | None:
        return None

    def bits(self, shape: Sequence[int]) -> int:
        n = math.prod(shape)
        return self.width * n + 32 * (1 << self.width) * -(-n // self.block)


def cosines(size: int) -> Tensor:
    """The orthonormal DCT-II, [frequencies, places]."""
    k, n = torch.arange(size).float().unsqueeze(1), torch.arange(size).float()
    waves = torch.cos((2 * n + 1) * k * (math.pi / (2 * size))) * math.sqrt(2 / size)
    return torch.where(k == 0, math.sqrt(1 / size), waves)


@dataclass(frozen=True)
class Largest:
    """The k largest entries of every chunk of side², with their positions, of a cosine transform or of x
    itself."""

    k: int = 32
    side: int = 64
    cosine: bool = True
    values: Whole | Bins = Whole()

    mixes: ClassVar[str] = "its wire is the largest numbers of chunks of a whole parameter"
    """Why a slice of a parameter cannot be sent by itself."""

    def check(self) -> None:
        """Raises Stop if these numbers can send no change."""
        whole("Largest.k", self.k, 1)
        whole("Largest.side", self.side, 1, MAX_FAN_IN)
        if self.k > self.side**2:
            raise Stop(
                f"the coding sends the {self.k} largest numbers of each chunk, and a chunk of {self.side} ×"
                f" {self.side} has {self.side**2}",
                hint="write a smaller top_k or a larger chunk_side in [outer], or another Largest(k, side)",
            )
        if type(self.values) is Bins:
            self.values.check()

    def chunk(self, shape: Sequence[int]) -> int:
        """Elements of a chunk of a tensor of this shape."""
        return min(self.side**2, math.prod(shape)) if not self.cosine else self.side**2

    def kept(self, shape: Sequence[int]) -> int:
        """Entries sent per chunk."""
        return min(self.k, self.chunk(shape))

    def encode(self, x: Tensor) -> Wire:
        rows = blocks(x, self.chunk(x.shape))
        if self.cosine:
            turn, planes = cosines(self.side), rows.reshape(-1, self.side, self.side)
            rows = (turn @ planes @ turn.T).reshape(rows.shape)
        places = rows.abs().topk(self.kept(x.shape), 1)[1]
        return places.int(), *self.values.encode(rows.gather(1, places))

    def _spread(self, places: Tensor, values: Tensor, chunk: int) -> Tensor:
        return torch.zeros(places.shape[0], chunk).scatter_add(1, places.long(), values)

    def decode(self, wire: Sequence[Tensor], shape: Sequence[int]) -> Tensor:
        places = wire[0]
        rows = self._spread(places, self.values.decode(wire[1:], places.shape), self.chunk(shape))
        if self.cosine:
            turn, planes = cosines(self.side), rows.reshape(-1, self.side, self.side)
            rows = (turn.T @ planes @ turn).reshape(rows.shape)
        return unblocked(rows, shape)

    def sent(self, wire: Sequence[Tensor], shape: Sequence[int]) -> Tensor | None:
        if self.cosine:
            return None
        places = wire[0]
        return unblocked(self._spread(places, torch.ones(places.shape), self.chunk(shape)), shape)

    def bits(self, shape: Sequence[int]) -> int:
        chunks = -(-math.prod(shape) // self.chunk(shape))
        places = (self.chunk(shape) - 1).bit_length() * chunks * self.kept(shape)
        return places + self.values.bits((chunks * self.kept(shape),))
