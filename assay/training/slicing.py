"""Packs parameters into equal blocks, so that a round's outer step can be cut into slices of one program.

Contract: `Blocks` concatenates a program's parameters, flattened in order, and cuts them into blocks of equal
length; the last is padded with zeros. `Blocks.program` is the same step on blocks: it unpacks, runs and
repacks, so every parameter and other slot keeps its bits. Not guaranteed: the same speed; each parameter is
copied twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import torch
from torch import Tensor

from assay.program.isa import MAX_CONCAT, DType, Input, Node, Op, Program, Shape
from assay.program.rules import MAX_ELEMENTS, contiguous
from assay.protocol.errors import Stop

PARAMETERS = "parameters"
"""Field of a manifest's model entry with the blocks' contents: [[name, shape], ...]."""


@dataclass(frozen=True)
class Blocks:
    """Parameters of these names and shapes in `count` blocks."""

    names: tuple[str, ...]
    shapes: tuple[Shape, ...]
    count: int

    @property
    def size(self) -> int:
        """Numbers in a block."""
        return -(-sum(map(prod, self.shapes)) // self.count)

    @property
    def block_names(self) -> list[str]:
        """Names of the blocks' slots."""
        return [f"{PARAMETERS}.{number}" for number in range(self.count)]

    @property
    def described(self) -> list[list[Any]]:
        """The manifest's description of the blocks."""
        return [[name, list(shape)] for name, shape in zip(self.names, self.shapes, strict=True)]

    def joined(self, params: Sequence[Tensor]) -> list[Tensor]:
        """Packs parameters (f32) into blocks."""
        flat = torch.zeros(self.size * self.count)
        torch.cat([param.detach().reshape(-1) for param in params], out=flat[: sum(map(prod, self.shapes))])
        return [block.clone() for block in flat.split(self.size)]

    def parted(self, blocks: Sequence[Tensor]) -> dict[str, Tensor]:
        """Unpacks the parameters by name."""
        sizes = [prod(shape) for shape in self.shapes]
        parts = torch.cat(list(blocks))[: sum(sizes)].split(sizes)
        each = zip(self.names, self.shapes, parts, strict=True)
        return {name: part.reshape(shape) for name, shape, part in each}

    def program(self, train: Program) -> tuple[Program, int]:
        """Converts a step on parameters to one on blocks; also the offset by which its node indices, other
        than slots, have grown."""
        return _Rewriting(self, train).finish()


def blocks_of(names: Sequence[str], shapes: Sequence[Shape], count: int) -> Blocks:
    """Blocks for these parameters. Raises Stop if there are fewer numbers than blocks, or a block would be
    too large a tensor."""
    total = sum(map(prod, shapes))
    if count > total:
        raise Stop(
            f"{total} parameters cannot be cut into {count} slices without an empty one",
            hint="write fewer slices in [outer]",
        )
    if total > count * MAX_ELEMENTS:
        raise Stop(
            f"{total} parameters in {count} slices are too many: a tensor has at most {MAX_ELEMENTS}"
            " elements",
            hint=f"write slices = {-(-total // MAX_ELEMENTS)} or more in [outer]",
        )
    return Blocks(tuple(names), tuple(tuple(shape) for shape in shapes), count)


def least_slices(shapes: Sequence[Shape], shards: int, state_bytes: int = 8 << 30) -> int:
    """Minimum number of slices with which DiLoCo's outer state has at most `state_bytes` bytes.

    It holds parameters, momenta and every shard's parameters in f32; no tensor may be too large.
    """
    total = sum(map(prod, shapes))
    return max(-(-4 * total * (2 + shards) // state_bytes), -(-total // MAX_ELEMENTS))


def blocks_in(model: dict[str, Any], params: Sequence[Shape]) -> Blocks | None:
    """Blocks described by a manifest's model entry, for slots of these shapes; None if parameters are not in
    blocks.

    Raises ValueError for a description that does not fit.
    """
    said = model.get(PARAMETERS)
    if said is None:
        return None
    good = isinstance(said, list) and all(isinstance(entry, list) and len(entry) == 2 for entry in said)
    if not good or not said:
        raise ValueError("its parameters are no list of names and shapes")
    names = [name for name, _ in said]
    if not all(isinstance(name, str) for name in names) or len(set(names)) != len(names):
        raise ValueError("its parameters have not one name each")
    for name, shape in said:
        if not isinstance(shape, list) or not all(type(n) is int and 0 < n < 2**31 for n in shape):
            raise ValueError(f"its parameter {name[:64]} has no shape")
    found = Blocks(tuple(names), tuple(tuple(shape) for _, shape in said), len(params))
    if any(tuple(shape) != (found.size,) for shape in params):
        raise ValueError(f"its parameters do not fill blocks of {found.size} numbers")
    return found


class _Rewriting:
    """A program's nodes, with unpacking before and repacking after them."""

    def __init__(self, blocks: Blocks, train: Program) -> None:
        self._blocks, self._train = blocks, train
        rest = train.state[train.params :]
        size = (blocks.size,)
        slots = [(DType.F32, size)] * blocks.count + [(node.dtype, node.shape) for node in rest]
        self._nodes = [Node(Op.STATE, dtype, shape, (), (i,)) for i, (dtype, shape) in enumerate(slots)]
        self._slots = len(slots)

    def _add(self, op: Op, shape: Shape, inputs: Sequence[Input], attrs: Sequence[int]) -> Input:
        self._nodes.append(Node(op, DType.F32, shape, tuple(inputs), tuple(attrs)))
        return Input(len(self._nodes) - 1, DType.F32, shape)

    def _piece(self, x: Input, start: int, shape: Shape) -> Input:
        """The elements of x from `start`, in this shape; x itself if that is all of it."""
        if x.shape == shape:
            return x
        return self._add(Op.STRIDED, shape, [x], [start, *contiguous(shape)])

    def _concat(self, pieces: Sequence[Input]) -> Input:
        """Vectors one after the other."""
        while len(pieces) > 1:
            pieces = [self._joined(pieces[i : i + MAX_CONCAT]) for i in range(0, len(pieces), MAX_CONCAT)]
        return pieces[0]

    def _joined(self, pieces: Sequence[Input]) -> Input:
        if len(pieces) == 1:
            return pieces[0]
        return self._add(Op.CONCAT, (sum(x.shape[0] for x in pieces),), pieces, [0])

    def _taken_apart(self) -> list[Input]:
        """Each parameter out of the blocks."""
        size, start = self._blocks.size, 0
        found: list[Input] = []
        for shape in self._blocks.shapes:
            end = start + prod(shape)
            held = [
                (Input(block, DType.F32, (size,)), max(start - block * size, 0), stop - first)
                for block, first, stop in _spans(start, end, size)
            ]
            if len(held) == 1:
                found.append(self._piece(held[0][0], held[0][1], shape))
            else:
                whole = self._concat([self._piece(x, at, (n,)) for x, at, n in held])
                reshaped = self._add(Op.RESHAPE, shape, [whole], []) if shape != whole.shape else whole
                found.append(reshaped)
            start = end
        return found

    def _put_together(self, params: Sequence[Input]) -> list[Input]:
        """The blocks out of each parameter."""
        size = self._blocks.size
        pieces: list[list[Input]] = [[] for _ in range(self._blocks.count)]
        start = 0
        for param, shape in zip(params, self._blocks.shapes, strict=True):
            end = start + prod(shape)
            for block, first, stop in _spans(start, end, size):
                pieces[block].append(self._piece(param, first - start, (stop - first,)))
            start = end
        found = []
        for held in pieces:
            if lacking := size - sum(x.shape[0] for x in held):
                held.append(self._add(Op.CONST, (lacking,), [], [0]))
            found.append(self._concat(held))
        return found

    def finish(self) -> tuple[Program, int]:
        train = self._train
        params = self._taken_apart()
        shift = len(self._nodes) - train.slots

        def moved(ref: int) -> int:
            if ref >= train.slots:
                return ref + shift
            return params[ref].ref if ref < train.params else ref - train.params + self._blocks.count

        for node in train.nodes[train.slots :]:
            inputs = tuple(Input(moved(x.ref), x.dtype, x.shape) for x in node.inputs)
            self._nodes.append(replace(node, inputs=inputs))
        after = [
            Input(moved(ref), DType.F32, shape)
            for ref, shape in zip(train.outputs, self._blocks.shapes, strict=False)
        ]
        outputs = [x.ref for x in self._put_together(after)]
        outputs += [moved(ref) for ref in train.outputs[train.params :]]
        made = Program(tuple(self._nodes), tuple(outputs), self._blocks.count, train.record_size)
        return made, shift


def _spans(start: int, end: int, size: int) -> Iterator[tuple[int, int, int]]:
    """Blocks that overlap [start, end): the index and the overlap."""
    for block in range(start // size, (end - 1) // size + 1):
        yield block, max(start, block * size), min(end, (block + 1) * size)
