"""Validates programs against docs/protocol.md, section 2, and the reader's own limits.

Contract: `validate` returns only if the program can be executed, disputed and arbitrated. It allocates
nothing that grows with the program's sizes, so a hostile program is refused before it costs anything. The
limits are the reader's policy (no consensus parameter), so they have no defaults here. Not guaranteed: that
the program trains anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from assay.program.isa import MAX_NODES, MAX_SLOTS, Node, Op, Program
from assay.program.rules import RuleBroken, check_node
from assay.protocol.errors import Stop

SCRATCH_BYTES = 8
"""Bytes of binary64 scratch per element that an instruction reads or writes."""


class InvalidProgram(Stop):
    """The program breaks a rule; the message names the node, its operation and the rule."""

    code = "invalid-program"


def _invalid(where: str, rule: str) -> InvalidProgram:
    return InvalidProgram(
        f"{where}: {rule}; the program cannot be run", hint="refuse the job, or trace its model again"
    )


@dataclass(frozen=True)
class Cost:
    """Cost of one step: maximum bytes alive at once (with scratch), elementary operations, and maximum bytes
    of one node's output with its scratch, or of a slot with its file."""

    peak_bytes: int
    operations: int
    widest_bytes: int

    @property
    def streamed_bytes(self) -> int:
        """Memory of a step whose tensors lie in files (``program.streamed``)."""
        return 2 * self.widest_bytes


def validate(program: Program, record_size: int, *, max_bytes: int, max_operations: int) -> Cost:
    """Checks every rule of section 2, and that one step stays within `max_bytes` of memory and
    `max_operations`.

    `record_size` (bytes) is that of the job's terms; a program without a data or record node has 0 in its
    header. Returns the cost. Raises InvalidProgram.
    """
    _check_program(program, record_size)
    quantised: set[int] = set()
    for index, node in enumerate(program.nodes):
        try:
            check_node(node, program.record_size)
            _check_place(program, index, node, quantised)
        except RuleBroken as error:
            raise _invalid(f"node {index} ({node.op.word})", str(error)) from error
    _check_outputs(program)
    cost = measure(program)
    if cost.peak_bytes > max_bytes:
        raise _invalid(
            "the whole program", f"a step needs {cost.peak_bytes} bytes, the limit here is {max_bytes}"
        )
    if cost.operations > max_operations:
        raise _invalid(
            "the whole program", f"a step takes {cost.operations} operations, the limit is {max_operations}"
        )
    return cost


def _check_program(program: Program, record_size: int) -> None:
    if not 1 <= len(program.nodes) <= MAX_NODES:
        raise _invalid("header", f"a program has 1 to {MAX_NODES} nodes, not {len(program.nodes)}")
    if not 1 <= program.slots <= min(MAX_SLOTS, len(program.nodes)):
        raise _invalid(
            "header", f"a program has 1 to {MAX_SLOTS} slots and a node for each, not {program.slots}"
        )
    if not 0 <= program.params <= program.slots:
        raise _invalid("header", f"{program.params} parameters do not fit {program.slots} slots")
    reads = any(node.op.reads_records for node in program.nodes)
    if program.record_size != (record_size if reads else 0):
        raise _invalid("header", f"records have {program.record_size} bytes here, {record_size} in the terms")


def _check_place(program: Program, index: int, node: Node, quantised: set[int]) -> None:
    """Checks rules between a node and earlier ones; `quantised` collects nodes that products may read."""
    if (node.op is Op.STATE) != (index < program.slots):
        raise RuleBroken("the state nodes are the first ones, one for each slot")
    if node.op is Op.STATE and node.attrs[0] != index:
        raise RuleBroken(f"node {index} is state({index}), not state({node.attrs[0]})")
    for ref in node.inputs:
        if not 0 <= ref.ref < index:
            raise RuleBroken(f"it reads node {ref.ref}, which is not an earlier one")
        source = program.nodes[ref.ref]
        if (source.dtype, source.shape) != (ref.dtype, ref.shape):
            raise RuleBroken(f"it takes node {ref.ref} for {ref.dtype.name} {ref.shape}, which that is not")
    if node.op is Op.PRODUCT and not {node.inputs[0].ref, node.inputs[2].ref} <= quantised:
        raise RuleBroken("product operands are outputs of quantise, moved at most by index operations")
    if node.op is Op.QUANTISE or (
        node.op.moves and all(r.ref in quantised for r in node.inputs if r.dtype is node.dtype)
    ):
        quantised.add(index)


def _check_outputs(program: Program) -> None:
    for slot, ref in enumerate(program.outputs):
        if not 0 <= ref < len(program.nodes):
            raise _invalid(f"output {slot}", f"there is no node {ref}")
        before, after = program.nodes[slot], program.nodes[ref]
        if (before.dtype, before.shape) != (after.dtype, after.shape):
            raise _invalid(
                f"output {slot}", f"node {ref} is {after.dtype.name} {after.shape}, the slot {before.shape}"
            )


def last_uses(program: Program) -> list[int]:
    """For each node, the index of its last reader; outputs live to the end (len(nodes))."""
    last = list(range(len(program.nodes)))
    for index, node in enumerate(program.nodes):
        for source in node.inputs:
            last[source.ref] = index
    for ref in program.outputs:
        last[ref] = len(program.nodes)
    return last


def operations(node: Node) -> int:
    """Elementary operations of one node: its reads, or a product's multiplications."""
    if node.op is Op.PRODUCT:
        return node.elements * node.inputs[0].shape[-1]
    return max([node.elements, *(ref.elements for ref in node.inputs)])


def step_operations(programs: Iterable[Program]) -> tuple[int, ...]:
    """Operations of a step of each program."""
    return tuple(measure(program).operations for program in programs)


def node_bytes(node: Node) -> int:
    """Maximum bytes of a node's output and scratch."""
    return node.bytes + SCRATCH_BYTES * (node.elements + sum(prod(ref.shape) for ref in node.inputs))


def measure(program: Program) -> Cost:
    """Cost of one step of a valid program. The state before the step is alive throughout."""
    dying: list[list[int]] = [[] for _ in range(len(program.nodes) + 1)]
    for index, last in enumerate(last_uses(program)):
        dying[last].append(index)
    alive = peak = program.state_bytes
    total = widest = 0
    for index, node in enumerate(program.nodes):
        if node.op is Op.STATE:
            widest = max(widest, 2 * node.bytes)
        else:
            needs = node_bytes(node)
            peak, widest = max(peak, alive + needs), max(widest, needs)
            alive += node.bytes
            total += operations(node)
        alive -= sum(program.nodes[i].bytes for i in dying[index] if program.nodes[i].op is not Op.STATE)
    return Cost(peak, total, widest)
