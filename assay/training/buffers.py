"""Adds model state other than parameters (running statistics, weight averages) to the settled model.

Contract: `with_buffers` adds a one-step loop to the outer claim. Its result is stored behind the parameters
in the outer state, so that the fetched model has it and its receipt proves it. f32 values are the mean over
present shards; integers and bools are the first present shard's. Tasks continue from their own values. No
other slot's bits change. Not guaranteed: that a mean of variances is the variance of all shards' data; it
differs by the variance of their means.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from assay.program.build import ProgramBuilder
from assay.program.embedded import Slot, layout, placed
from assay.program.isa import DType, Input, Program
from assay.protocol.loops import link_of
from assay.protocol.types import NO_SLOT, Kind, Link, Origin
from assay.training.rounds import Round, empty


def moving(train: Program, count: int) -> list[int]:
    """Which of the `count` slots behind the parameters a step changes."""
    beside = range(train.params, train.params + count)
    return [slot for slot in beside if train.outputs[slot] != slot]


def with_buffers(whole: Round, names: Sequence[str], shards: int) -> Round:
    """The round in which these slots of a task belong to the settled model.

    A shard keeps its own from round to round, as all slots between the parameters and them; needs one slice.
    """
    params, count = whole.inner.params, len(names)
    found = [whole.slot_names.index(name) for name in names]
    between = (link_of(whole.links, slot)[0].origin for slot in range(params, max(found) + 1))
    assert whole.slices == 1 and all(origin == Origin.OWN for origin in between)
    order = [*range(params), *found, *(i for i in range(params, len(whole.genesis)) if i not in found)]
    slots = layout(whole.inner)
    at = {old: new for new, old in enumerate(order)}
    tasks = tuple(
        placed(task, [slots[i] for i in order], [at[i] for i in range(len(slots))], params + count)
        for task in whole.tasks
    )
    held, beyond = [slots[i] for i in found], layout(whole.outer)
    wider = [*beyond[:params], *held, *beyond[params:], *held * shards, *[(DType.BOOL, ())] * shards]
    before = [*range(params), *range(params + count, len(beyond) + count)]
    own = [*range(params, params + count), *range(len(beyond) + count, len(wider))]
    outers = [placed(outer, wider, before, params + count) for outer in whole.outers]
    outers.append(placed(_mean(held, shards), wider, own, params + count))
    start = [whole.genesis[i] for i in found]
    first, *rest = whole.outer_links  # the outer claim's own
    sent = Link(Origin.OUT, Kind.TASK, 0, count, shards, params, 0, NO_SLOT)
    present = Link(Origin.PRESENT, Kind.TASK, 0, 1, shards, 0, 0, 0)
    return replace(
        whole,
        tasks=tasks,
        outers=tuple(outers),
        links=tuple(moved for link in whole.links for moved in _behind(link, params, count)),
        outer_links=(replace(first, count=first.count + count), *rest, sent, present),
        genesis=[whole.genesis[i] for i in order],
        outer_genesis=[
            *whole.outer_genesis[:params],
            *(x.clone() for x in start),
            *whole.outer_genesis[params:],
            *(x.clone() for _ in range(shards) for x in start),
            *(empty((DType.BOOL, ())) for _ in range(shards)),
        ],
        slot_names=[whole.slot_names[i] for i in order],
    )


def _behind(link: Link, params: int, count: int) -> Iterator[Link]:
    """A task's link after `count` slots were inserted behind the outer claim's first `params`."""
    if link.origin != Origin.OUT or link.source != Kind.OUTER or link.first + link.count <= params:
        yield link
    elif link.first >= params:
        yield replace(link, first=link.first + count)
    else:
        inside = params - link.first
        yield replace(link, count=inside)
        yield replace(link, count=link.count - inside, first=params + count)


def _mean(held: Sequence[Slot], shards: int) -> Program:
    """[means, each shard's, present (K)] → the means renewed."""
    b = ProgramBuilder()
    kept = [b.state(*slot) for slot in held]
    sent = [[b.state(*slot) for slot in held] for _ in range(shards)]
    present = [b.state(DType.BOOL, ()) for _ in range(shards)]
    there = [b.convert(x, DType.F32) for x in present]
    count = there[0]
    for x in there[1:]:
        count = b.add(count, x)
    none = b.const(0.0, DType.F32)

    def made(i: int) -> Input:
        if kept[i].dtype is not DType.F32:
            first = kept[i]
            for here, wires in zip(reversed(present), reversed(sent), strict=True):
                first = b.select(here, wires[i], first)
            return first
        total = b.select(present[0], sent[0][i], none)
        for here, wires in zip(present[1:], sent[1:], strict=True):
            total = b.add(total, b.select(here, wires[i], none))
        return b.div(total, count)

    after = [made(i) for i in range(len(held))]
    return b.finish([*after, *(x for wires in sent for x in wires), *present], params=len(held))
