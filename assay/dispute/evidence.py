"""Collects the evidence about one element of a disputed step.

Contract: `openings` returns exactly the leaves that the arbiter needs. ``spec.evidence`` says how the Court
checks them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from assay.dispute.trace import StepTrace
from assay.numerics.encoding import to_bytes
from assay.program.execute import Records
from assay.program.isa import Node, Op, Program
from assay.program.spans import Read, clamped
from assay.protocol import trees
from assay.protocol.game_state import Opening

TracePath = Callable[[int], Sequence[bytes]]
"""Siblings from the output root of a node up to the disputed trace root."""


def node_proof(program: Program, node: int) -> tuple[bytes, ...]:
    """Siblings of a node's encoding in the program tree."""
    return tuple(program.tree.proof(1 + node))


def output_proof(program: Program, slot: int) -> tuple[bytes, ...]:
    """Siblings of an output's encoding in the program tree."""
    return tuple(program.tree.proof(1 + len(program.nodes) + slot))


def record_of(node: Node, element: int) -> tuple[int, int]:
    """(row, byte offset in the record) of an element of a data or record node; a data node's row is the drawn
    one."""
    row, column = divmod(element, node.shape[1])
    return (node.attrs[1] if node.op is Op.DATA else 0) + row, node.attrs[0] + column


def openings(trace: StepTrace, index: int, element: int, path: TracePath) -> tuple[Opening, ...]:
    """Evidence that convicts (or clears) `element` of node `index`: whole leaves of its inputs with their
    proofs.

    `path`: path from a node's output root to the disputed trace root, which may differ from this trace's root
    beyond the first difference. Raises IndexError if there is no such node or element.
    """
    node = trace.program.nodes[index]
    if not 0 <= element < node.elements:
        raise IndexError(f"no element {element} in an output of {node.elements}")

    def read(ordinal: int, at: int) -> int:
        return int(trace.tensor(node.inputs[ordinal].ref).reshape(-1)[at])

    if _reads_nothing(node, element, trace.context.dataset):
        return ()
    if node.op is Op.DATA:
        return (_open_record(trace, node, element, read),)

    opened: list[Opening] = []
    before: int | None = None
    for span in node.op.row.spans(node, element, read):
        if node.op is Op.STATE:
            slot = node.attrs[0]
            data, tree = to_bytes(trace.state[slot]), trace.slot_tree(slot)
            way, size = trace.input_tree().proof(slot), node.dtype.size
        else:
            source = node.inputs[span.input]
            data, tree = trace.output(source.ref), trace.tensor_tree(source.ref)
            way, size = list(path(source.ref)), source.dtype.size
            if before is not None:
                way = list(trees.siblings_below_join(before, source.ref, way))
            before = source.ref
        first = span.first * size // trees.LEAF_BYTES
        stop = -(-(span.first + span.count) * size // trees.LEAF_BYTES)
        leaves = bytes(data[first * trees.LEAF_BYTES : stop * trees.LEAF_BYTES])
        siblings = tuple(tree.range_proof(first, stop))
        opened.append(Opening(span.input, first, leaves, siblings, tuple(way)))
    if node.op is Op.RECORD:
        opened.append(_open_record(trace, node, element, read))
    return tuple(opened)


def _reads_nothing(node: Node, element: int, records: Records | None) -> bool:
    """True if a data or record node's element lies outside any record: then it is 0 (rule 2.6)."""
    if node.op not in (Op.DATA, Op.RECORD):
        return False
    return records is None or record_of(node, element)[1] >= records.record_size


def _open_record(trace: StepTrace, node: Node, element: int, read: Read) -> Opening:
    """The record that a data or record node reads for `element`, as an additional input."""
    context = trace.context
    assert context.dataset is not None  # `openings` has looked
    row, _ = record_of(node, element)
    if node.op is Op.DATA:
        index = context.dataset.index(context.seed, context.shard, context.step, row)
    else:
        index = clamped(read(0, row), len(context.dataset))
    proof = tuple(context.dataset.tree.proof(index))
    return Opening(len(node.inputs), index, bytes(context.dataset.record(index)), proof, ())
