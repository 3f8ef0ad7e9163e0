"""Provides the state of any claim: from memory, from published files, or by recomputation.

Contract: every state returned has the requested root. A claim's input is assembled from the claims before it
(docs/protocol.md, rule 4.4), so all states follow from genesis, and withholding cannot hide a true claim.
Only the slots in use are fetched; none if tensor roots suffice. An outer step is recomputed if that misses no
more bytes than downloading its result.

If the replay leaves the committed roots, the answer is `Broken` with the first wrong segment: a value, to be
disputed. `Hidden` is false, too: the input root is wrong and its claimant shows no preimage. Not guaranteed:
speed, if nothing is published.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from random import Random

import torch
from torch import Tensor

from assay.node.artifacts import State, load_job
from assay.node.checkpoints import Checkpoint, Gap
from assay.node.engine import REFERENCE_ENGINE, Engine
from assay.node.findings import SourceMissing
from assay.node.limits import ResourceLimits
from assay.node.published_states import Published
from assay.node.replay_cache import ReplayCache
from assay.node.rounds import PASSED
from assay.node.slot_index import SlotFile, Slots, state_root_of
from assay.node.slots import SlotReader, TensorCache
from assay.node.work import Work
from assay.program.isa import Program
from assay.program.state import state_root, state_tree
from assay.protocol import trees
from assay.protocol.errors import Retry
from assay.protocol.loops import Byte, FromClaim, FromGenesis, Place, Source, model_part, source_of
from assay.protocol.ports import Blocks, MarketView
from assay.protocol.types import ClaimView, JobId, JobView, Kind

CACHE_BYTES = 1 << 30
"""Byte budget of the tensor cache, which saves reading from disk and hashing."""


@dataclass(frozen=True)
class Broken:
    """The replay leaves the claim's roots in this segment: leaf `segment` is right, the next is not."""

    segment: int
    root: bytes
    """Root of the right state."""


@dataclass(frozen=True)
class Hidden:
    """The input root is wrong, and its claimant shows no preimage."""

    what: str


@dataclass(frozen=True)
class Known:
    """A state with its root."""

    state: State
    root: bytes


class StateProvider:
    """Provides the states of one job's claims."""

    def __init__(
        self,
        market: MarketView,
        blocks: Blocks,
        job_id: JobId,
        work: Work,
        cache_bytes: int = CACHE_BYTES,
        kept: ReplayCache | None = None,
    ) -> None:
        self.market, self.blocks, self.job_id, self.work = market, blocks, job_id, work
        self._kept = kept
        self.reader = SlotReader(blocks, TensorCache(cache_bytes), work.place)
        self._published = Published(blocks, self.reader)
        self._settled = 0

    def share(self, other: StateProvider) -> None:
        """Shares the caches of another provider of the same job."""
        self.reader, self._published, self._kept = other.reader, other._published, other._kept

    def genesis(self, kind: Kind) -> State:
        """State before round 0; for outer claims, that of the first slice.

        Raises Retry if its files, which were read once, are gone.
        """
        slots = self.work.files.genesis_of(kind, 0)
        tensors = self.reader.tensors(slots, self.work.program(kind).state)
        state = [tensor for tensor in tensors if tensor is not None]
        if len(state) < len(tensors):
            raise _genesis_gone()
        return state

    # -- inputs

    def current(self, kind: Kind, round_: int, shard: int) -> ClaimView | None:
        """The standing claim at a place, or None."""
        return self.market.current(self.job_id, kind, round_, shard)

    def standing(self, kind: Kind, round_: int, shard: int) -> ClaimView:
        """The standing claim at a place. Raises SourceMissing."""
        view = self.current(kind, round_, shard)
        if view is None:
            raise SourceMissing(
                f"{_named(kind, round_, shard)} has no standing claim, so what builds on it cannot be"
                " computed",
                hint="a node tries again by itself; repeat a command before the deadline",
            )
        return view

    def output(self, kind: Kind, round_: int, shard: int) -> tuple[ClaimView, State]:
        """The standing claim at a place and its output state. Raises SourceMissing."""
        view = self.standing(kind, round_, shard)
        found = self.leaf(view, self.work.segments(kind))
        if isinstance(found, Known):
            return view, found.state
        place = _named(kind, round_, shard)
        raise SourceMissing(
            f"{place} is false ({found}), so nothing is built on it until it is convicted",
            hint="`assay dispute open` challenges it",
        )

    def _summed(self, round_: int, shard: int) -> bool:
        """True if the round's outer step includes this shard's task: it was accepted in time."""
        view = self.current(Kind.TASK, round_, shard)
        return view is not None and view.status.phase in PASSED

    def source_of(self, kind: Kind, round_: int, shard: int, slot: int) -> Source:
        """Source of an input slot by its link (rule 4.4)."""
        return source_of(self.work.terms, kind, round_, shard, slot, self._summed)

    def _sources(self, kind: Kind, round_: int, shard: int) -> list[Source]:
        """Source of each input slot of a claim. Raises SourceMissing."""
        terms = self.work.terms
        stands = cache(self._summed)  # one look at each task
        if kind == Kind.OUTER:
            present = sum(stands(round_, k) for k in range(terms.shards))
            if present < terms.min_shards:
                raise SourceMissing(
                    f"round {round_} cannot be closed: {present} of its tasks are accepted, and it needs"
                    f" {terms.min_shards}",
                    hint="a node tries again by itself; repeat a command before the deadline",
                )
        return [source_of(terms, kind, round_, shard, slot, stands) for slot in range(terms.slots_of(kind))]

    def _output_slots(self, kind: Kind, unit: int, source: FromClaim | FromGenesis) -> Slots:
        """Slots of the output state that a source belongs to, or of the genesis state of a shard or slice.

        Raises SourceMissing.
        """
        if isinstance(source, FromGenesis):
            return self.work.files.genesis_of(kind, unit)
        place = source.place
        view, program, last = self.standing(*place), self.work.program(place[0]), self.work.segments(place[0])
        slots = self._published.slots(view, last, program)
        if slots is None:
            self.output(*place)
            slots = self._published.slots(view, last, program)
            assert slots is not None  # a state that was computed is known
        return slots

    def source_proof(
        self, kind: Kind, unit: int, source: FromClaim | FromGenesis
    ) -> tuple[ClaimView | None, bytes, tuple[bytes, ...]]:
        """The claim of a source, the slot's tensor root, and its Merkle path to the claim's output root.

        For a genesis slot the claim is None, and the path leads to the genesis root of the kind. Raises
        SourceMissing.
        """
        slots = self._output_slots(kind, unit, source)
        view = self.standing(*source.place) if isinstance(source, FromClaim) else None
        way = list(trees.build([slot.root for slot in slots]).proof(source.slot))
        if view is None and kind == Kind.OUTER:
            files, slices = self.work.files, range(self.work.terms.slices)
            roots = [state_root_of(files.genesis_of(kind, number)) for number in slices]
            way += trees.build(roots).proof(unit)
        return view, slots[source.slot].root, tuple(way)

    def _input_slots(self, kind: Kind, unit: int, sources: Sequence[Source]) -> Slots:
        outputs: dict[Place | None, Slots] = {}
        found: list[SlotFile] = []
        for source in sources:
            if isinstance(source, Byte):
                found.append(SlotFile(source.leaf, ""))
                self.reader.keep(found[-1:], [torch.tensor(source.value)])
                continue
            place = source.place if isinstance(source, FromClaim) else None
            if place not in outputs:
                outputs[place] = self._output_slots(kind, unit, source)
            found.append(outputs[place][source.slot])
        return tuple(found)

    def input_tree(self, kind: Kind, round_: int, shard: int) -> trees.Tree:
        """Tree over the tensor roots of the right input at a place.

        No tensor is fetched if the claims before publish theirs. Raises SourceMissing.
        """
        slots = self._input_slots(kind, shard, self._sources(kind, round_, shard))
        return trees.build([slot.root for slot in slots])

    def input_state(self, kind: Kind, round_: int, shard: int) -> State:
        """The right input state at a place. Raises SourceMissing."""
        sources = self._sources(kind, round_, shard)
        self._compute_base(kind, round_, sources)
        slots = self._input_slots(kind, shard, sources)
        nodes = self.work.program(kind).state
        output = cache(self.output)  # whole, once for all slots of it that are not at hand

        def tensor_of(source: Source) -> Tensor:
            if isinstance(source, Byte):
                return torch.tensor(source.value)
            if isinstance(source, FromGenesis):
                raise _genesis_gone()
            return output(*source.place)[1][source.slot]

        found = zip(self.reader.tensors(slots, nodes), sources, strict=True)
        return [tensor_of(source) if tensor is None else tensor for tensor, source in found]

    def input_part(
        self, kind: Kind, round_: int, shard: int, wanted: Sequence[int]
    ) -> tuple[list[bytes], State]:
        """Tensor roots of all slots of the right input at a place, and the tensors of the wanted ones.

        Raises SourceMissing.
        """
        slots = self._input_slots(kind, shard, self._sources(kind, round_, shard))
        nodes = self.work.program(kind).state
        found = self.reader.tensors([slots[i] for i in wanted], [nodes[i] for i in wanted])
        state = [tensor for tensor in found if tensor is not None]
        if len(state) < len(found):
            whole = self.input_state(kind, round_, shard)
            state = [whole[i] for i in wanted]
        return [slot.root for slot in slots], state

    def _compute_base(self, kind: Kind, round_: int, sources: Sequence[Source]) -> None:
        """Recomputes the outer step that a claim builds on, slice by slice, if that misses no more bytes than
        its result.

        An unpublished outer step is recomputed in any case, by the next call that needs it.
        """
        used: dict[Place, set[int]] = {}
        for source in sources:
            if isinstance(source, FromClaim) and source.place[:2] == (Kind.OUTER, round_ - 1):
                used.setdefault(source.place, set()).add(source.slot)
        for base, slots in used.items():
            self._compute_slice(base, sorted(slots))

    def _compute_slice(self, base: Place, used: Sequence[int]) -> None:
        view, outer = self.standing(*base), self.work.program(Kind.OUTER)
        after = self._output_slots(Kind.OUTER, base[2], FromClaim(base, 0))
        wanted = self.reader.missing_bytes([after[i] for i in used], [outer.state[i] for i in used])
        if wanted == 0:
            return
        try:
            inputs = self._sources(*base)
            before = self._input_slots(Kind.OUTER, base[2], inputs)
        except SourceMissing:
            return
        if self.reader.missing_bytes(before, outer.state) <= wanted and (
            trees.root([slot.root for slot in before]) == view.claim.input_root
        ):
            tensors = self.reader.tensors(before, outer.state)
            state = [tensor for tensor in tensors if tensor is not None]
            for segment in range(self.work.segments(Kind.OUTER) if len(state) == len(tensors) else 0):
                state = self._segment(view, segment, state)
                if not self.learn(view, segment + 1, state):
                    return

    def parameters(self, round_: int) -> list[Tensor] | Broken | Hidden | None:
        """Slots of the parameters after a round, of all slices in order.

        `Broken` or `Hidden` if a slice is wrong; None if one does not stand.
        """
        found: list[Tensor] = []
        wanted, last = range(model_part(self.work.terms)), self.work.segments(Kind.OUTER)
        for number in range(self.work.terms.slices):
            view = self.current(Kind.OUTER, round_, number)
            part = None if view is None else self.some(view, last, wanted)
            if not isinstance(part, list):
                return part
            found += part
        return found

    # -- leaves

    def checkpoints(self, view: ClaimView) -> tuple[Checkpoint, ...]:
        """Roots of the leaves of a claim's segments tree, with the CIDs of their indices ("" if
        unpublished)."""
        return self._published.checkpoints(view)

    def unpublished(self, view: ClaimView) -> None:
        """Records that a claim publishes nothing."""
        self._published.unpublished(view)

    def slots(self, view: ClaimView, leaf: int) -> Slots | None:
        """Slots of a claim's state at a leaf, if known or published."""
        return self._published.slots(view, leaf, self._program(view))

    def published(self, view: ClaimView) -> bool:
        """True if all states that the claim publishes, including the last, are available and right."""
        return self._published.all_can_be_had(view, self._program(view))

    def gap(self, view: ClaimView, order: Random, most: int) -> Gap | None:
        """A random unavailable state of the claim with up to `most` of its missing byte ranges; None if all
        are available."""
        return self._published.gap(view, self._program(view), order, most)

    def some(self, view: ClaimView, leaf: int, wanted: Sequence[int]) -> list[Tensor] | Broken | Hidden:
        """These slots of a claim's state, published or recomputed."""
        found = self._published.some(view, leaf, self._program(view), wanted)
        tensors = [tensor for tensor in found or () if tensor is not None]
        if found is not None and len(tensors) == len(found):
            return tensors
        whole = self.leaf(view, leaf)
        return [whole.state[i] for i in wanted] if isinstance(whole, Known) else whole

    def leaf(self, view: ClaimView, leaf: int) -> Known | Broken | Hidden:
        """The state at a leaf of a claim's segments tree, published or recomputed from an earlier leaf."""
        claim = view.claim
        start = leaf
        while start >= 0 and (state := self.available_state(view, start)) is None:
            start -= 1
        if start < 0:
            start, state = 0, self.input_state(claim.kind, claim.round, claim.shard)
            tree = state_tree(state)
            if tree.root != view.roots[0]:
                return Hidden("the state that the input root stands for, which is not the one it must be")
            self.keep(state, tree)
            self._keep_on_disk(view, 0, state)
        assert state is not None
        for segment in range(start, leaf):
            state = self._segment(view, segment, state)
            if not self.learn(view, segment + 1, state):
                return Broken(segment, state_root(state))
        return Known(state, view.roots[leaf])

    def available_state(self, view: ClaimView, leaf: int) -> State | None:
        """The claim's state at a leaf, right or wrong, if it is available without computing; else None."""
        root, program = view.roots[leaf], self._program(view)
        if (state := self._published.remembered(root, program)) is not None:
            return state
        if (
            self._kept is not None
            and (state := self._kept.state(root, program, view, self.work.place)) is not None
        ):
            self.keep(state)
            return state
        return self._published.state(view, leaf, program)

    def _segment(self, view: ClaimView, segment: int, state: State) -> State:
        """Runs a segment from this state."""
        claim = view.claim
        return self.work.run(claim.kind, claim.round, claim.shard, segment, state)

    def keep(self, state: State, tree: trees.Tree | None = None) -> bytes:
        """Caches a computed state and returns its root; `tree`: its state tree, if known."""
        tree = state_tree(state) if tree is None else tree
        self._published.keep(tree.root, tree.levels[0], state)
        return tree.root

    def settled(self, rounds: int) -> None:
        """Records the number of settled rounds.

        With each further one, entries last used before the previous one leave the cache: no later input needs
        them, and they can be read or recomputed.
        """
        if rounds > self._settled:
            self._settled = rounds
            self.reader.used.turn()
            self._published.turn()

    def forget(self) -> None:
        """Clears the tensors in memory, which may be corrupt."""
        self.reader.forget()

    def learn(self, view: ClaimView, leaf: int, state: State) -> bool:
        """Caches a computed state if it is the claim's at this leaf; True if it is."""
        tree = state_tree(state)
        if tree.root != view.roots[leaf]:
            return False
        self.keep(state, tree)
        self.mark_right(view, leaf - 1)
        self._keep_on_disk(view, leaf, state)
        return True

    def _keep_on_disk(self, view: ClaimView, leaf: int, state: State) -> None:
        """Stores a state on disk unless the claim's files for it are already local."""
        if self._kept is not None and not self._published.is_here(view, leaf, self._program(view)):
            self._kept.keep_state(view.roots[leaf], state)

    def pin(self, view: ClaimView, leaf: int, state: State) -> None:
        """Pins a claim's state at a leaf until the claim, its votes and its games are over, across rewinds.

        Raises PinSpaceExceeded.
        """
        if self._kept is not None:
            self._kept.pin(view, leaf, state)

    def pin_start(self, view: ClaimView, segment: int) -> None:
        """Pins the start of a segment; a pinned state is read, and repaired if damaged.

        Raises PinSpaceExceeded, and SourceMissing if the state is unavailable.
        """
        if self._kept is not None:
            self.pin(view, segment, self.known_leaf(view, segment))

    def known_leaf(self, view: ClaimView, segment: int) -> State:
        """State at the start of a segment. Raises SourceMissing if it is unavailable."""
        start = self.leaf(view, segment)
        if not isinstance(start, Known):
            raise SourceMissing(
                f"the state at the start of segment {segment} is unavailable: {start}",
                hint="a node tries again by itself; repeat a command before the deadline",
            )
        return start.state

    def _program(self, view: ClaimView) -> Program:
        return self.work.program(view.claim.kind)

    def mark_right(self, view: ClaimView, segment: int) -> None:
        """Records that a segment's replay matches the claim."""
        if self._kept is not None:
            self._kept.add(view, segment)

    def is_known_right(self, view: ClaimView, segment: int) -> bool:
        """True if this node has replayed the segment before, from the claim's start to its end."""
        return self._kept is not None and self._kept.knows(view, segment)


def _genesis_gone() -> Retry:
    return Retry(
        "a file of the job's first state is gone from this node's blocks, and nobody serves it",
        hint="wait for its client, or another node of the job",
    )


def _named(kind: Kind, round_: int, shard: int) -> str:
    return f"the {kind.name.lower()} claim of round {round_}, shard {shard}"


def open_state_provider(
    market: MarketView,
    blocks: Blocks,
    job: JobView,
    resource_limits: ResourceLimits,
    *,
    engine: Engine = REFERENCE_ENGINE,
    kept: ReplayCache | None = None,
) -> StateProvider:
    """Fetches and checks a job's files, ready to replay any claim. Raises what ``load_job`` raises."""
    files = load_job(blocks, job.terms, resource_limits)
    work = Work(job.terms, files, engine=engine)
    return StateProvider(market, blocks, job.job_id, work, resource_limits.cache_bytes, kept)
