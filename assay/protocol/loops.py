"""Resolves loops and links: the steps of a segment, and the source of each input slot (docs/protocol.md, 2.6,
4.4).

Contract: pure functions of the terms, the same in Solidity (``libraries/Loops.sol``,
``Challenges._sourceOf``). A slot's source is a value: a slot of a claim at a place, a genesis slot, or a
byte. The caller says which tasks stand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from assay.protocol import trees
from assay.protocol.params import MAX_ABSENCE
from assay.protocol.types import NO_SLOT, Kind, Link, Loop, Origin, Terms

Place = tuple[Kind, int, int]
"""Kind, round, and shard or slice of a claim."""


@dataclass(frozen=True)
class Located:
    """A segment's position: the number of its loop, its index in that loop, and the counter of its first
    step."""

    number: int
    loop: Loop
    within: int

    def first_step(self, round_: int) -> int:
        """Step counter of the segment's first step in a round (rule 2.6)."""
        return round_ * self.loop.steps + self.within * self.loop.segment_steps


def locate(loops: Sequence[Loop], segment: int, shard: int) -> Located:
    """Finds the loop that contains a segment of this shard's claim. Raises IndexError for a segment it does
    not have."""
    within = segment
    for number, loop in enumerate(loops):
        if within < loop.segments:
            return Located(number, loop.of(shard), within)
        within -= loop.segments
    raise IndexError(f"there is no segment {segment}")


def trained_steps(terms: Terms, segments: int, shard: int) -> int:
    """Number of main-loop steps in the first `segments` segments of a task."""
    done = 0
    for loop in terms.loops:
        inside = min(segments, loop.segments)
        segments -= inside
        if loop == terms.main:
            done += inside * loop.of(shard).segment_steps
    return done


def link_of(links: Sequence[Link], slot: int) -> tuple[Link, int]:
    """The link that covers an input slot, and the slot's index within it. Raises IndexError."""
    at = slot
    for link in links:
        if at < link.slots:
            return link, at
        at -= link.slots
    raise IndexError(f"no link covers slot {slot}")


@dataclass(frozen=True)
class FromClaim:
    """A slot of the output of the claim at a place."""

    place: Place
    slot: int


@dataclass(frozen=True)
class FromGenesis:
    """A slot of the reader's genesis state."""

    slot: int


@dataclass(frozen=True)
class Byte:
    """A presence flag: whether a task stands."""

    value: bool

    @property
    def leaf(self) -> bytes:
        """Root of the one-element bool tensor with this value."""
        return trees.leaf(bytes([self.value]))


Source = FromClaim | FromGenesis | Byte
Stands = Callable[[int, int], bool]
"""Maps (round, shard) to whether its task stands, or its round was closed with it."""


def source_of(terms: Terms, kind: Kind, round_: int, shard: int, slot: int, stands: Stands) -> Source:
    """Source of slot `slot` of a claim's input (rule 4.4)."""
    link, at = link_of(terms.links_of(kind), slot)
    if link.origin == Origin.OWN:
        return own(kind, round_, shard, slot, stands)
    if link.origin == Origin.GENESIS or round_ < link.lag:
        return FromGenesis(slot)
    k, j = divmod(at, link.count)
    past = round_ - link.lag
    unit = ((shard if kind == link.source else 0) + link.shift + k) % terms.units_of(link.source)
    if link.source == Kind.OUTER:
        return FromClaim((Kind.OUTER, past, unit), link.first_of(shard) + j)
    present = stands(past, unit)
    if link.origin == Origin.PRESENT:
        return Byte(present)
    if present:
        return FromClaim((Kind.TASK, past, unit), link.first_of(shard) + j)
    if link.otherwise == NO_SLOT:
        return FromGenesis(slot)
    return own(kind, round_, shard, link.otherwise + j, stands)


def genesis_place(terms: Terms, kind: Kind, unit: int, slot: int) -> tuple[int, int]:
    """Leaf index of a slot in the tree under a kind's genesis root, and the tree's leaf count.

    The outer states of all slices share one tree (rule 4.4).
    """
    if kind == Kind.TASK:
        return slot, terms.slots
    depth = trees.depth(terms.outer_slots)
    return (unit << depth) + slot, terms.slices << depth


def own(kind: Kind, round_: int, shard: int, slot: int, stands: Stands) -> Source:
    """Source of an OWN link: the slot in the latest output at the claim's own place.

    For an outer claim that is the last round's output; for a task, the latest one of at most MAX_ABSENCE
    rounds ago.
    """
    if kind == Kind.OUTER:
        return FromClaim((kind, round_ - 1, shard), slot) if round_ else FromGenesis(slot)
    for past in range(round_ - 1, max(round_ - MAX_ABSENCE, 0) - 1, -1):
        if stands(past, shard):
            return FromClaim((kind, past, shard), slot)
    return FromGenesis(slot)


def wire(terms: Terms) -> frozenset[int]:
    """Slots of a task's output that anything but the shard's own next task reads."""
    found = set[int]()
    for kind in Kind:
        for link in terms.links_of(kind):
            if link.origin == Origin.OUT and link.source == Kind.TASK:
                found |= link.sources
    return frozenset(found)


def model_names(terms: Terms, names: Sequence[str]) -> list[str]:
    """Names of the leading slots of the outer state, which hold the model.

    They are the parameters' names of the first shard. Where tasks read parts, the other parts are called
    NAME@PART. `names`: those of a task's slots.
    """
    others = dict[int, str]()
    for i, link, j in _parameters(terms):
        others |= {link.first + j + part * link.stride: f"{names[i]}@{part}" for part in range(1, link.mod)}
    last = max(others, default=0)
    rest = (others.get(slot, f"outer.{slot}") for slot in range(terms.params, last + 1))
    return [*names[: terms.params], *rest]


def model_part(terms: Terms) -> int:
    """Number of leading slots of an outer claim's output that hold the model, or a slice's part of it."""
    return len(model_names(terms, [""] * terms.slots)) // terms.slices


def _parameters(terms: Terms) -> Iterator[tuple[int, Link, int]]:
    """Yields each parameter that tasks read as a part of the outer state, its link, and its index there."""
    slot = 0
    for link in terms.links:
        if link.origin == Origin.OUT and link.source == Kind.OUTER and link.mod > 1:
            yield from ((slot + j, link, j) for j in range(min(link.count, max(terms.params - slot, 0))))
        slot += link.slots


def own_slots(terms: Terms, kind: Kind) -> frozenset[int]:
    """Slots of a claim's output that the next claim at the same place may read."""
    found = set[int]()
    slot = 0
    for link in terms.links_of(kind):
        if link.origin == Origin.OWN:
            found.update(range(slot, slot + link.slots))
        if link.origin == Origin.OUT and link.otherwise != NO_SLOT:
            found.update(range(link.otherwise, link.otherwise + link.count))
        slot += link.slots
    return frozenset(found)


def read_later(terms: Terms, kind: Kind, rounds: int) -> frozenset[int]:
    """Slots of a claim's output that claims `rounds` or more rounds later may read, other than those at its
    own place."""
    found = set[int]()
    for link in (*terms.links, *terms.outer_links):
        if link.origin == Origin.OUT and link.source == kind and link.lag >= rounds:
            found |= link.sources
    return frozenset(found)


def diloco_links(
    slots: int, params: int, shards: int, slices: int = 1
) -> tuple[tuple[Link, ...], tuple[Link, ...]]:
    """Links of tasks and of outer claims for DiLoCo with whole parameters.

    A task starts from the outer parameters and the rest of its own state. The outer step reads its own
    parameters and momenta, and every shard's parameters; a missing shard is replaced by the outer step's own.
    Each slice has an equal run of the parameters' slots.
    """
    part = params // slices
    tasks = [Link(Origin.OUT, Kind.OUTER, 1, part, slices, 0, 0, NO_SLOT)]
    if slots > params:
        tasks.append(own_link(slots - params))
    shared = Link(Origin.OUT, Kind.TASK, 0, part, shards, 0, 0, 0, **parted(slices, part))
    return tuple(tasks), (own_link(2 * part), shared)


def parted(slices: int, stride: int) -> dict[str, int]:
    """Fields of a link of outer claims with which slice s reads the s-th of equal parts of its source's
    slots."""
    return {"mod": slices, "stride": stride if slices > 1 else 0}


def round_shape(
    tasks: Sequence[Loop],
    outers: Sequence[Loop],
    links: tuple[Sequence[Link], Sequence[Link]],
    params: int,
    slices: int = 1,
) -> dict[str, Any]:
    """Fields of `Terms` that describe a round with these loops, over states whose slots the links cover."""
    return {
        "slices": slices,
        "slots": sum(link.slots for link in links[0]),
        "outer_slots": sum(link.slots for link in links[1]),
        "params": params,
        "segments": sum(loop.segments for loop in tasks),
        "outer_segments": sum(loop.segments for loop in outers),
        "samples": sum(loop.samples for loop in tasks),
        "loops": tuple(tasks),
        "outer_loops": tuple(outers),
        "links": tuple(links[0]),
        "outer_links": tuple(links[1]),
    }


def own_link(count: int) -> Link:
    """A link to `count` slots of the reader's own latest output."""
    return Link(Origin.OWN, Kind.TASK, 0, count, 1, 0, 0, 0)
