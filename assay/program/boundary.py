"""Rounds the tensors that cross between a program's stages to 8 bits, by instructions of the program itself.

Contract: what members send is then codes and scales, which the reader decodes. Both are outputs of ordinary
instructions, so they are as exact and as disputable as any. The result is another program: its readers, in
every stage, read the rounded tensor, and gradients are those of its values (a straight-through estimator).
NaN and Inf stay visible: the row's scale has them. Not guaranteed: that the model learns as well.
"""

from __future__ import annotations

from assay.program.build import ProgramBuilder
from assay.program.isa import DType, Input, Node, Op, Program
from assay.program.stages import NoCut, Plan, cut

MOST = 127
"""Largest magnitude of a code. Codes are sent with 128 added, as u8."""
ROW = 32
"""Rows shorter than this are not rounded: their scales would be a large part."""


def with_rounded_boundaries(program: Program, members: int) -> tuple[Program, dict[int, int]]:
    """The program that rounds what crosses between so many stages, and the new index of each node. Raises
    NoCut if there is no cut, or if the rounded program's is elsewhere."""
    crossing = _wide(cut(program, members))
    b = ProgramBuilder(program.record_size)
    made = [b.state(node.dtype, node.shape) for node in program.state]
    read = list(made)
    for index, node in enumerate(program.nodes[program.slots :], program.slots):
        b.period = index  # shares no nodes: what is computed twice, as by checkpointing, is so on purpose
        inputs = tuple(read[x.ref] for x in node.inputs)
        made.append(b.emit(node.op, node.dtype, node.shape, inputs, node.attrs))
        read.append(_rounded(b, made[index]) if index in crossing else made[index])
    done = b.finish([made[ref] for ref in program.outputs], program.params)
    if left := _wide(cut(done, members)):
        raise NoCut(
            f"rounding moves the cut of the program for {members} members: {len(left)} tensors would cross in"
            " 32 bits",
            hint="leave boundary out of [crew], or give it another number of members",
        )
    return done, {old: b.places[x.ref] for old, x in enumerate(made) if x.ref in b.places}


def _wide(plan: Plan) -> set[int]:
    """Nodes that cross in 32 bits and can be rounded; slots cross as they are."""
    nodes = plan.whole.nodes
    return {node for stage in plan.stages for node in stage.sent if _can_round(nodes[node])}


def _can_round(node: Node) -> bool:
    return node.op is not Op.STATE and node.dtype is DType.F32 and max(node.shape[-1:], default=0) >= ROW


def _rounded(b: ProgramBuilder, x: Input) -> Input:
    """f32 [.., K]: whole multiples of a 127th of each row's largest magnitude, decoded from codes."""
    line = (*x.shape[:-1], 1)
    scale = b.reshape(b.long_amax(b.abs(x)), line)
    zero, one = b.const(0.0, DType.F32), b.const(1.0, DType.F32)
    share = b.div(x, b.select(b.lt(zero, scale), scale, one))
    whole = b.floor(b.add(b.mul(share, b.const(MOST, DType.F32)), b.const(128.5, DType.F32)))
    codes = b.convert(b.convert(whole, DType.I32), DType.U8)
    centred = b.sub(b.convert(codes, DType.F32), b.const(128.0, DType.F32))
    return b.mul(centred, b.div(scale, b.const(MOST, DType.F32)))
