"""The Court's check of evidence about one element of a disputed step (docs/protocol.md, 6.5).

Contract: `element_bits` accepts and computes exactly what the Court does, with ``numerics.scalar`` as the
arbiter. `ARITHMETIC` makes ``spec.game`` the Court's complete twin. No byte is used that no proof leads to an
agreed root.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from assay.dispute import element as rules
from assay.dispute.evidence import record_of
from assay.program.isa import MalformedProgram, Node, Op, decode_node
from assay.program.rules import RuleBroken, check_node, check_shape
from assay.program.spans import Read, clamped
from assay.protocol import trees
from assay.protocol.game_state import Game, Opening
from assay.protocol.sampling import record_index
from assay.protocol.types import ZERO_DIGEST, Kind
from spec.game import Arithmetic, IllegalMove, NodeFacts, is_canonical

ANY_RECORD = 1 << 63
"""Record size that allows every read: bytes past a record's end are 0, and reading them is not a fault."""


def _require(holds: bool, error: str, why: str = "") -> None:
    if not holds:
        raise IllegalMove(error, why)


@dataclass(frozen=True)
class _Proven:
    """Proven bytes of an input, from byte `offset` on."""

    input: int
    offset: int
    data: bytes


def _prove_tensor(game: Game, node: Node, opening: Opening, way: trees.MultiProof) -> _Proven:
    """Checks one opening of an ordinary or state node; `way`: its proof to the agreed root."""
    if node.op is Op.STATE:
        size, key, place = node.bytes, ZERO_DIGEST, node.attrs[0]
    else:
        _require(opening.input < len(node.inputs), "IndexOutOfRange")
        source = node.inputs[opening.input]
        _require(source.ref < game.node, "MalformedNode", "an input is not an earlier node")
        size, key, place = source.bytes, game.key, source.ref
    offset = opening.first_leaf * trees.LEAF_BYTES
    parts = [opening.data[i : i + trees.LEAF_BYTES] for i in range(0, len(opening.data), trees.LEAF_BYTES)]
    end = min(offset + len(parts) * trees.LEAF_BYTES, size)
    _require(bool(parts) and offset + len(opening.data) == end, "BadProof", "not whole leaves")
    digests = [trees.leaf(p) if key == ZERO_DIGEST else trees.keyed_leaf(key, p) for p in parts]
    leaves = -(-size // trees.LEAF_BYTES)
    tensor_root = trees.fold_range(leaves, opening.first_leaf, digests, opening.siblings)
    if tensor_root is None or not way.proves(place, tensor_root, opening.path):
        raise IllegalMove("BadProof", f"input {opening.input}")
    return _Proven(opening.input, offset, opening.data)


def _only(opened: Sequence[Opening]) -> Opening:
    _require(bool(opened), "MissingInput", "nothing is opened")
    _require(len(opened) == 1, "WrongCount", "one opening is enough")
    _require(opened[0].input == 0, "IndexOutOfRange")
    return opened[0]


def _record_byte(game: Game, node: Node, element: int, opened: Sequence[Opening], read: Read) -> int:
    row, column = record_of(node, element)
    if node.op is Op.DATA:
        record = _only(opened)
        index = record_index(game.seed, game.shard, game.step, row, game.records)
    else:
        record = opened[-1]
        index = clamped(read(0, row), game.records)
    _require(record.first_leaf == index, "MissingInput", f"record {index}")
    sound = len(record.data) == game.record_size and not record.path
    digest = trees.leaf(record.data)
    _require(
        sound and trees.verify(game.dataset_root, game.records, index, digest, record.siblings), "BadProof"
    )
    return record.data[column]


def decode(encoded: bytes, record_size: int) -> Node:
    """Decodes a node of a program. Raises IllegalMove(MalformedNode)."""
    try:
        node = decode_node(encoded)
        check_node(node, record_size)
    except (MalformedProgram, RuleBroken) as error:
        raise IllegalMove("MalformedNode", str(error)) from error
    return node


def element_bits(game: Game, encoded: bytes, element: int, opened: Sequence[Opening]) -> int:
    """Bits of one element of a node's output, from openings that it checks first.

    Raises IllegalMove (BadProof, MissingInput, MalformedNode, IndexOutOfRange) where the Court reverts.
    """
    node = decode(encoded, ANY_RECORD)
    _require(0 <= element < node.elements, "IndexOutOfRange")
    _require((node.op is Op.STATE) == (game.node < game.program.slots), "MalformedNode")
    if node.op is Op.STATE:
        _require(node.attrs[0] == game.node, "MalformedNode")
        _only(opened)
    if node.op in (Op.DATA, Op.RECORD):
        none = game.records == 0 or game.accused.kind == Kind.OUTER
        if none or record_of(node, element)[1] >= game.record_size:
            _require(not opened, "WrongCount", "no record is read")
            return 0
    proven: list[_Proven] = []
    program = game.program
    way = trees.MultiProof(game.trace_root, program.nodes)
    if node.op is Op.STATE:
        way = trees.MultiProof(game.in_root, program.slots)
    if node.op is Op.RECORD:
        _require(len(opened) == 2, "WrongCount", "an index and a record are opened")
        _require([one.input for one in opened] == [0, 1], "IndexOutOfRange")
    if node.op is not Op.DATA:
        tensors = opened[:1] if node.op is Op.RECORD else opened
        proven = [_prove_tensor(game, node, opening, way) for opening in tensors]

    def read(ordinal: int, at: int) -> int:
        dtype = node.dtype if node.op is Op.STATE else node.inputs[ordinal].dtype
        for span in proven:
            start = at * dtype.size - span.offset
            if span.input == ordinal and start >= 0 and start + dtype.size <= len(span.data):
                return rules.values(span.data[start : start + dtype.size], dtype)[0]
        raise IllegalMove("MissingInput", f"element {at} of input {ordinal}")

    found = rules.value(
        node, element, read, game.step, game.shard, lambda: _record_byte(game, node, element, opened, read)
    )
    return rules.bits(found, node.dtype)


def facts(encoded: bytes) -> NodeFacts:
    """What a node's encoding says about its output. Raises IllegalMove(MalformedNode)."""
    try:
        node = decode_node(encoded)
        check_shape(node.shape)
    except (MalformedProgram, RuleBroken) as error:
        raise IllegalMove("MalformedNode", str(error)) from error
    return NodeFacts(node.bytes, node.dtype.size, node.dtype.name == "F32", node.dtype.name == "BOOL")


ARITHMETIC = Arithmetic(facts, element_bits)
"""Arithmetic with which ``spec.game.play`` is the Court's twin."""


def convicts(game: Game, data: bytes, encoded: bytes, element: int, opened: Sequence[Opening]) -> bool:
    """True if the Court would convict on `element` of the revealed leaf `data`, in a game in phase PROVE.

    `encoded`: the game's node. Raises IllegalMove where the Court reverts, except where nothing differs.
    """
    about = facts(encoded)
    at = element * about.element_bytes - game.index * trees.LEAF_BYTES
    _require(0 <= at < len(data), "IndexOutOfRange")
    claimed = int.from_bytes(data[at : at + about.element_bytes], "little")
    return not is_canonical(claimed, about) or element_bits(game, encoded, element, opened) != claimed
