"""Segments and links against a simulator that runs a job step by step and copies every slot."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from hashlib import sha256

import pytest

from assay.protocol.loops import (
    Byte,
    FromClaim,
    FromGenesis,
    diloco_links,
    link_of,
    locate,
    own_link,
    own_slots,
    read_later,
    source_of,
    trained_steps,
    wire,
)
from assay.protocol.params import check_shape
from assay.protocol.types import NO_SLOT, ZERO_DIGEST, Kind, Link, Loop, Origin, Seconds, Terms
from tests.fakes.classes import WIDE
from tests.fakes.shapes import one_loop_each
from tests.property.markets import TERMS

ROUNDS = 5
State = list[object]


def some_loops(rng: random.Random, samples: bool) -> tuple[Loop, ...]:
    def one() -> Loop:
        segment_steps, segments = rng.choice([1, 1, 2, 3]), rng.choice([1, 1, 2, 5])
        drawn = rng.randint(1, segments) if samples else 0
        slow = (rng.randint(0, 3), rng.choice([1, 2, 4])) if samples else (0, 1)
        segment_steps *= slow[1]
        return Loop(rng.randbytes(32), 9, segments * segment_steps, segment_steps, drawn, *slow)

    return tuple(one() for _ in range(rng.randint(1, 4)))


def some_links(
    rng: random.Random, reader: Kind, slots: dict[Kind, int], units: dict[Kind, int]
) -> tuple[Link, ...]:
    """Links that cover the reader's slots; `units`: how many claims of a kind a round has."""
    shards = units[Kind.TASK]
    found: list[Link] = []
    left = slots[reader]
    while left:
        origin, source = rng.choice(list(Origin)), rng.choice(list(Kind))
        least = 0 if (source, reader) == (Kind.TASK, Kind.OUTER) else 1
        lag = rng.randint(least, 3)
        if origin in (Origin.OWN, Origin.GENESIS):
            link = replace(own_link(rng.randint(1, left)), origin=origin)
        elif origin == Origin.PRESENT:
            least = 0 if reader == Kind.OUTER else 1
            times = rng.randint(1, min(shards, left))
            link = Link(origin, Kind.TASK, max(lag, least), 1, times, 0, rng.randint(0, 3), 0)
        else:
            count = rng.randint(1, min(left, slots[source]))
            times = rng.randint(1, min(left // count, units[source]))
            first = rng.randint(0, slots[source] - count)
            otherwise = rng.choice([NO_SLOT, rng.randint(0, slots[reader] - count)])
            link = Link(origin, source, lag, count, times, first, rng.randint(0, 3), otherwise)
            mod, stride = rng.randint(1, 3), count + rng.randint(0, 1)
            if first + (mod - 1) * stride + count <= slots[source]:
                link = replace(link, div=rng.randint(1, 3), mod=mod, stride=stride)
        if origin != Origin.OUT:  # whose part nobody asks for
            link = replace(link, div=rng.randint(0, 2), mod=rng.randint(0, 2), stride=rng.randint(0, 2))
        found.append(link)
        left -= link.slots
    return tuple(found)


def some_terms(rng: random.Random) -> Terms:
    shards, slices = rng.randint(1, 3), rng.choice([1, 1, 2, 3])
    slots = {Kind.TASK: rng.randint(slices, 6), Kind.OUTER: rng.randint(1, 6)}
    units = {Kind.TASK: shards, Kind.OUTER: slices}
    loops, outer_loops = some_loops(rng, True), some_loops(rng, False)
    terms = replace(
        TERMS,
        slots=slots[Kind.TASK],
        outer_slots=slots[Kind.OUTER],
        params=slices,
        shards=shards,
        min_shards=1,
        straggler_time=Seconds(2_000),
        slices=slices,
        segments=sum(loop.segments for loop in loops),
        outer_segments=sum(loop.segments for loop in outer_loops),
        samples=sum(loop.samples for loop in loops),
        loops=loops,
        outer_loops=outer_loops,
        links=some_links(rng, Kind.TASK, slots, units),
        outer_links=some_links(rng, Kind.OUTER, slots, units),
    )
    check_shape(terms, WIDE)
    return terms


def paced(loop: Loop, shard: int) -> tuple[int, int]:
    """Steps of a loop and of its segments, in the task of a shard."""
    slow = loop.slow_by if shard >= loop.slow_from else 1
    return loop.steps // slow, loop.segment_steps // slow


def walked(loops: tuple[Loop, ...], shard: int) -> Iterator[tuple[int, int, int]]:
    """(loop, its step, how many steps the segment has) for the first step of each segment, step by step."""
    for number, loop in enumerate(loops):
        steps, segment_steps = paced(loop, shard)
        for step in range(steps):
            if step % segment_steps == 0:
                yield number, step, segment_steps


@pytest.mark.long
def test_every_segments_loop_and_step_are_those_of_a_walk_through_all_steps() -> None:
    rng = random.Random("loops")
    for _ in range(10_000):
        loops, round_, shard = some_loops(rng, True), rng.randrange(2**32), rng.randrange(4)
        expected = list(walked(loops, shard))
        assert len(expected) == sum(loop.segments for loop in loops), "of every shard alike"
        for segment, (number, step, steps) in enumerate(expected):
            found = locate(loops, segment, shard)
            assert (found.number, found.loop.segment_steps) == (number, steps)
            assert found.first_step(round_) == round_ * paced(loops[number], shard)[0] + step
        with pytest.raises(IndexError):
            locate(loops, len(expected), shard)


class Simulator:
    """A job in which every output slot of every claim is a unique name, and inputs are copied."""

    def __init__(self, terms: Terms, rng: random.Random) -> None:
        self.terms = terms
        self.outputs: dict[tuple[Kind, int, int], State] = {}
        self.present = {(r, k): rng.random() < 0.7 for r in range(ROUNDS) for k in range(terms.shards)}

    def genesis(self, kind: Kind) -> State:
        return [FromGenesis(slot) for slot in range(self.terms.slots_of(kind))]

    def latest(self, kind: Kind, round_: int, shard: int) -> State:
        """The place's own state when the round begins: its last output."""
        state = self.genesis(kind)
        for past in range(round_):
            state = self.outputs.get((kind, past, shard), state)
        return state

    def input(self, kind: Kind, round_: int, shard: int) -> State:
        """Slot by slot, as a node that copies would put it together."""
        genesis, own = self.genesis(kind), self.latest(kind, round_, shard)
        state: State = []
        for link in self.terms.links_of(kind):
            for k in range(link.times):
                own_unit = shard if link.source == kind else 0
                past = round_ - link.lag
                other = (own_unit + link.shift + k) % self.terms.units_of(link.source)
                place = (link.source, past, other)
                for j in range(link.count):
                    slot = len(state)
                    if link.origin == Origin.OWN:
                        state.append(own[slot])
                    elif link.origin == Origin.GENESIS or past < 0:
                        state.append(genesis[slot])
                    elif link.origin == Origin.PRESENT:
                        state.append(Byte(place in self.outputs))
                    elif place in self.outputs:
                        part = shard // link.div % link.mod
                        state.append(self.outputs[place][link.first + j + part * link.stride])
                    else:
                        state.append(genesis[slot] if link.otherwise == NO_SLOT else own[link.otherwise + j])
        return state

    def play(self) -> None:
        for round_ in range(ROUNDS):
            for shard in range(self.terms.shards):
                self.check(Kind.TASK, round_, shard)
                if self.present[round_, shard]:
                    self.left_behind(Kind.TASK, round_, shard)
            for number in range(self.terms.slices):
                self.check(Kind.OUTER, round_, number)
                self.left_behind(Kind.OUTER, round_, number)

    def left_behind(self, kind: Kind, round_: int, shard: int) -> None:
        place = (kind, round_, shard)
        self.outputs[place] = [FromClaim(place, slot) for slot in range(self.terms.slots_of(kind))]

    def check(self, kind: Kind, round_: int, shard: int) -> None:
        def stands(past: int, other: int) -> bool:
            return (Kind.TASK, past, other) in self.outputs

        terms = self.terms
        found = [source_of(terms, kind, round_, shard, s, stands) for s in range(terms.slots_of(kind))]
        assert found == self.input(kind, round_, shard), (terms.links_of(kind), kind, round_, shard)
        self.kept(kind, round_, shard, found)

    def kept(self, kind: Kind, round_: int, shard: int, found: Sequence[object]) -> None:
        """Whatever is read of an earlier round is among what is kept for it."""
        for source in found:
            if not isinstance(source, FromClaim) or source.place[1] == round_:
                continue
            other, past, where = source.place
            kept = read_later(self.terms, other, round_ - past)
            if (other, where) == (kind, shard):
                kept |= own_slots(self.terms, kind)
            assert source.slot in kept
            if other == Kind.TASK and where != shard:
                assert source.slot in wire(self.terms)


@pytest.mark.long
def test_every_input_slot_is_what_copying_gives() -> None:
    rng = random.Random("links")
    seen = set()
    for _ in range(2_000):
        terms = some_terms(rng)
        Simulator(terms, rng).play()
        seen |= {(k, link.origin, link.source, link.lag) for k in Kind for link in terms.links_of(k)}
    assert len(seen) == 24, "links of every kind were tried"


def test_diloco_is_two_links_on_each_side() -> None:
    """Rule 4.4 as it was before links: fixed, and for every slot."""
    terms = replace(TERMS, **one_loop_each(TERMS.program(Kind.TASK), TERMS.program(Kind.OUTER), 2, 8, 2, 2))
    assert (terms.links, terms.outer_links) == diloco_links(3, 1, 2)
    absent = {(0, 1)}

    def stands(round_: int, shard: int) -> bool:
        return (round_, shard) not in absent

    def sources(kind: Kind, round_: int, shard: int) -> list[object]:
        return [source_of(terms, kind, round_, shard, s, stands) for s in range(terms.slots_of(kind))]

    assert sources(Kind.TASK, 0, 1) == [FromGenesis(0), FromGenesis(1), FromGenesis(2)]
    outer = (Kind.OUTER, 0, 0)
    assert sources(Kind.TASK, 1, 1) == [FromClaim(outer, 0), FromGenesis(1), FromGenesis(2)]
    own = (Kind.TASK, 0, 0)
    assert sources(Kind.TASK, 1, 0) == [FromClaim(outer, 0), FromClaim(own, 1), FromClaim(own, 2)]
    assert sources(Kind.OUTER, 0, 0) == [FromGenesis(0), FromGenesis(1), FromClaim(own, 0), FromGenesis(0)]
    second = sources(Kind.OUTER, 1, 0)
    assert second == [
        FromClaim(outer, 0),
        FromClaim(outer, 1),
        FromClaim((Kind.TASK, 1, 0), 0),
        FromClaim((Kind.TASK, 1, 1), 0),
    ]


def test_a_presence_slot_is_a_bool_tensors_root() -> None:
    assert Byte(True).leaf == sha256(b"\0\1").digest()
    assert Byte(False).leaf == sha256(b"\0\0").digest()


def test_a_slot_or_a_segment_that_is_not_there_is_refused() -> None:
    with pytest.raises(IndexError, match="slot 3"):
        link_of(TERMS.links, 3)
    with pytest.raises(IndexError, match="segment 4"):
        locate(TERMS.loops, 4, 0)


def test_steps_of_training_are_those_of_the_longest_loop() -> None:
    long, short = Loop(ZERO_DIGEST, 1, 8, 2, 1), Loop(b"\1" * 32, 1, 1, 1, 1)
    terms = replace(TERMS, loops=(short, long, short), segments=6)
    assert [trained_steps(terms, n, 1) for n in range(7)] == [0, 0, 2, 4, 6, 8, 8]
    terms = replace(terms, loops=(short, replace(long, slow_from=1, slow_by=2), short))
    assert [trained_steps(terms, n, 1) for n in range(7)] == [0, 0, 1, 2, 3, 4, 4]
    assert trained_steps(terms, 6, 0) == 8
