"""Encodes states as bytes and trees (docs/protocol.md, 1.4, 1.5 and 3.3).

Contract: equal states have equal bytes and equal roots; decoding is strict, so each state has exactly one
encoding. A state file is the concatenation of all slots' canonical bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import BinaryIO

from torch import Tensor

from assay.numerics.encoding import EncodingError, from_bytes, to_bytes
from assay.program import hashing_threads
from assay.program.isa import Program
from assay.program.kernels import TORCH_DTYPES
from assay.program.streamed import Place
from assay.protocol import trees
from assay.protocol.errors import Stop

BACKGROUND_BYTES = 16 << 20
"""Minimum size of states that are hashed by background threads (``program.hashing_threads``)."""


class InvalidState(Stop):
    """The bytes are not a state of the program."""

    code = "invalid-state"


def state_bytes(state: Sequence[Tensor]) -> bytes:
    """Encodes a state file."""
    return b"".join(to_bytes(x) for x in state)


def load_state(program: Program, file: BinaryIO, place: Place | None = None) -> list[Tensor]:
    """Decodes a state on the CPU, slot by slot. `place`: where its tensors belong; None: in memory.

    Raises InvalidState for a wrong length or non-canonical bytes.
    """
    state = []
    for slot, node in enumerate(program.state):
        try:
            tensor = from_bytes(file.read(node.bytes), TORCH_DTYPES[node.dtype], node.shape)
        except EncodingError as error:
            raise InvalidState(
                f"slot {slot} is not canonical: {error}", hint="fetch the state again"
            ) from error
        state.append(tensor if place is None else place(tensor))
    if file.read(1):
        raise InvalidState(
            f"there is more than the {program.state_bytes} bytes of a state of this program",
            hint="fetch the state again",
        )
    return state


def slot_tree(state: Sequence[Tensor], slot: int) -> trees.Tree:
    """Tensor tree of one slot (never keyed)."""
    return trees.tensor_tree(to_bytes(state[slot]))


def state_tree(state: Sequence[Tensor]) -> trees.Tree:
    """Tree over the tensor roots of all slots."""
    return begin_tree(state)()


def begin_tree(state: Sequence[Tensor]) -> Callable[[], trees.Tree]:
    """As `state_tree`, in the background like `begin_roots`."""
    roots = begin_roots(state)
    return lambda: trees.build(roots())


def begin_roots(tensors: Sequence[Tensor]) -> Callable[[], list[bytes]]:
    """Starts computing the slots' tensor roots; the returned function waits for them.

    The tensors must not be changed meanwhile. Small ones are hashed at once.
    """
    if sum(x.numel() * x.element_size() for x in tensors) < BACKGROUND_BYTES:
        at_once = [trees.tensor_root(to_bytes(x)) for x in tensors]
        return lambda: at_once
    roots = hashing_threads.shared().roots(tensors)
    return lambda: [root.result() for root in roots]


def state_root(state: Sequence[Tensor]) -> bytes:
    """State root."""
    return state_tree(state).root
