"""Where the state of any claim comes from: published checkpoints if there are any, recomputation if not.

Contract: every state returned has the root that was asked for. A claim's input is put together from the
claims before it (docs/protocol.md, rule 4.4), so everything follows from the genesis states, and withholding
hides no true claim. Where the true run leaves the committed roots, the answer is `Broken` with the first
segment that is wrong: a value, to be disputed. `Hidden` is false too: its claimant shows no preimage of its
input root, which is not the one it must be. Not guaranteed: speed, when nothing is published.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from random import Random

from torch import Tensor

from assay.node.artifacts import BadManifest, Checkpoint, ResourceLimits, State, load_job, read_checkpoints
from assay.node.engine import REFERENCE_ENGINE, Engine
from assay.node.rounds import PASSED
from assay.node.work import Work
from assay.program.state import InvalidState, state_root
from assay.protocol.errors import (
    BadCid,
    BadFile,
    BlockNotFound,
    BlockTooLarge,
    CorruptBlock,
    PeerUnreachable,
    Retry,
)
from assay.protocol.params import MAX_ABSENCE
from assay.protocol.ports import Blocks, MarketView
from assay.protocol.types import ClaimId, ClaimView, JobId, JobView, Kind

Place = tuple[Kind, int, int]
"""Kind, round and shard of a claim."""
UNFETCHABLE = (BlockNotFound, CorruptBlock, PeerUnreachable, BlockTooLarge, BadCid, BadFile)


class SourceMissing(Retry):
    """A claim that this one builds on does not stand, or is itself false and awaits its conviction."""

    code = "source-missing"


@dataclass(frozen=True)
class Broken:
    """The true run leaves the claim's roots in this segment: leaf `segment` is right, the next is not."""

    segment: int


@dataclass(frozen=True)
class Hidden:
    """The claimant shows no preimage of its input root, which is not the one it must be."""

    what: str


@dataclass(frozen=True)
class Known:
    """A state, and its root."""

    state: State
    root: bytes


@dataclass(frozen=True)
class Gap:
    """A state that cannot be had as it was committed: at which segment end, and the bytes of its file that
    are missing (all of them where no more is known)."""

    end: int
    spans: tuple[range, ...]


class StateCache:
    """States by root, the least recently used dropped beyond a number of bytes."""

    def __init__(self, capacity_bytes: int) -> None:
        self._capacity = capacity_bytes
        self._states: OrderedDict[bytes, State] = OrderedDict()
        self._bytes = 0

    @staticmethod
    def _size(state: Sequence[Tensor]) -> int:
        return sum(x.numel() * x.element_size() for x in state)

    def get(self, root: bytes) -> State | None:
        if root in self._states:
            self._states.move_to_end(root)
        return self._states.get(root)

    def put(self, root: bytes, state: State) -> None:
        if root in self._states:
            return
        self._states[root] = state
        self._bytes += self._size(state)
        while self._bytes > self._capacity and len(self._states) > 1:
            _, dropped = self._states.popitem(last=False)
            self._bytes -= self._size(dropped)


class StateProvider:
    """States of one job's claims."""

    def __init__(
        self, market: MarketView, blocks: Blocks, job_id: JobId, work: Work, cache_bytes: int = 1 << 30
    ) -> None:
        self.market, self.blocks, self.job_id, self.work = market, blocks, job_id, work
        self._cache = StateCache(cache_bytes)
        self._checkpoints: dict[ClaimId, tuple[Checkpoint, ...]] = {}

    # -- inputs

    def output(self, kind: Kind, round_: int, shard: int) -> tuple[ClaimView, State]:
        """The standing claim of a place, and its output state. Raises SourceMissing."""
        view = self.market.current(self.job_id, kind, round_, shard)
        place = f"the {kind.name.lower()} claim of round {round_}, shard {shard}"
        if view is None:
            raise SourceMissing(f"{place} does not stand; what builds on it cannot be computed", hint="wait")
        found = self.leaf(view, self.work.segments(kind))
        if isinstance(found, Known):
            return view, found.state
        raise SourceMissing(f"{place} is false ({found}) and awaits its conviction", hint="dispute it first")

    def _summed(self, round_: int, shard: int) -> bool:
        """Whether the outer step of a round adds up this shard's task: whether it was accepted in time."""
        view = self.market.current(self.job_id, Kind.TASK, round_, shard)
        return view is not None and view.status.phase in PASSED

    def _latest(self, round_: int, shard: int) -> int | None:
        """The latest round before this one that has a task of the shard, if it is not too long ago."""
        earlier = range(round_ - 1, max(round_ - MAX_ABSENCE, 0) - 1, -1)
        return next((r for r in earlier if self._summed(r, shard)), None)

    def source_of(self, kind: Kind, round_: int, shard: int, slot: int) -> tuple[Place | None, int]:
        """Where a slot of a claim's input comes from, and which slot there it is (None: the genesis state).

        Rule 4.4. A shard that the round was closed without counts with the round's own base.
        """
        params = self.work.files.inner.params
        before: Place | None = None if round_ == 0 else (Kind.OUTER, round_ - 1, 0)
        if kind == Kind.TASK:
            if slot < params:
                return before, slot
            latest = self._latest(round_, shard)
            return (None if latest is None else (Kind.TASK, latest, shard)), slot
        if slot < 2 * params:
            return before, slot
        k, j = divmod(slot - 2 * params, params)
        return ((Kind.TASK, round_, k) if self._summed(round_, k) else before), j

    def source(self, kind: Kind, place: Place | None) -> tuple[ClaimView | None, State]:
        """The claim of a place and its output state; the genesis state of a kind of claim for None.

        Raises SourceMissing.
        """
        if place is not None:
            return self.output(*place)
        return None, self.work.files.genesis if kind == Kind.TASK else self.work.files.outer_genesis

    def input_state(self, kind: Kind, round_: int, shard: int) -> State:
        """What the claim of a place must start from. Raises SourceMissing."""
        params, terms = self.work.files.inner.params, self.work.terms
        if kind == Kind.TASK:
            base, rest = (self.source_of(kind, round_, shard, slot)[0] for slot in (0, params))
            start = self.source(kind, base)[1]
            return start if rest == base else start[:params] + self.source(kind, rest)[1][params:]
        present = [shard for shard in range(terms.shards) if self._summed(round_, shard)]
        if len(present) < terms.min_shards:
            raise SourceMissing(
                f"{len(present)} of the {terms.min_shards} tasks are accepted without which round {round_}"
                " cannot be closed",
                hint="wait",
            )
        base_state = self.source(kind, self.source_of(kind, round_, 0, 0)[0])[1]
        state = list(base_state[: 2 * params])
        for k in range(terms.shards):
            summed = self.output(Kind.TASK, round_, k)[1] if k in present else base_state
            state += summed[:params]
        return state

    # -- leaves

    def checkpoints(self, view: ClaimView) -> tuple[Checkpoint, ...]:
        """Roots of the leaves of a claim's segments tree, with the CIDs of their states (empty if
        unpublished)."""
        if view.claim_id not in self._checkpoints:
            self._checkpoints[view.claim_id] = self._find_checkpoints(view)
        return self._checkpoints[view.claim_id]

    def _find_checkpoints(self, view: ClaimView) -> tuple[Checkpoint, ...]:
        try:
            return read_checkpoints(self.blocks, view.claim.manifest, view.roots)
        except (BadManifest, *UNFETCHABLE):
            return tuple(Checkpoint("", root) for root in view.roots)

    def _published(self, kind: Kind, checkpoint: Checkpoint) -> State | None:
        """A published state, if it can be fetched and has its root."""
        if (cached := self._cache.get(checkpoint.root)) is not None:
            return cached
        if not checkpoint.cid:
            return None
        try:
            data = self.blocks.read_file(checkpoint.cid, self.work.program(kind).state_bytes)
            state = self.work.load(kind, data)
        except (*UNFETCHABLE, InvalidState):
            return None
        if state_root(state) != checkpoint.root:
            return None
        self._cache.put(checkpoint.root, state)
        return state

    def published(self, view: ClaimView) -> bool:
        """Whether the states at the ends of all the claim's segments can be fetched, and are what they should
        be."""
        return all(self._published(view.claim.kind, checkpoint) for checkpoint in self.checkpoints(view))

    def gap(self, view: ClaimView, order: Random, most: int) -> Gap | None:
        """One of the claim's unpublished states, and up to `most` of what is missing of it, both at random;
        None if all can be had."""
        kind, checkpoints = view.claim.kind, self.checkpoints(view)
        ends = [i for i, checkpoint in enumerate(checkpoints) if not self._published(kind, checkpoint)]
        if not ends:
            return None
        end, size = order.choice(ends), self.work.program(kind).state_bytes
        spans: list[range] = []
        if checkpoints[end].cid:
            with suppress(*UNFETCHABLE):
                spans = self.blocks.holes(checkpoints[end].cid, size, order, most)
        return Gap(end, tuple(spans) or (range(size),))

    def leaf(self, view: ClaimView, leaf: int) -> Known | Broken | Hidden:
        """The state at a leaf of a claim's segments tree, published or recomputed from the leaf before it."""
        checkpoints, claim = self.checkpoints(view), view.claim
        start = leaf
        while start >= 0 and (state := self._published(claim.kind, checkpoints[start])) is None:
            start -= 1
        if start < 0:
            start, state = 0, self.input_state(claim.kind, claim.round, claim.shard)
            if state_root(state) != checkpoints[0].root:
                return Hidden("the state that the input root stands for, which is not the one it must be")
            self._cache.put(checkpoints[0].root, state)
        assert state is not None
        for segment in range(start, leaf):
            state, root = self.work.segment(claim.kind, claim.round, claim.shard, segment, state)
            if root != checkpoints[segment + 1].root:
                return Broken(segment)
            self._cache.put(root, state)
        return Known(state, checkpoints[leaf].root)


def open_state_provider(
    market: MarketView,
    blocks: Blocks,
    job: JobView,
    resource_limits: ResourceLimits,
    *,
    engine: Engine = REFERENCE_ENGINE,
) -> StateProvider:
    """Fetch and check a job's files, ready to replay any claim. Raises what ``load_job`` raises."""
    files = load_job(blocks, job.terms, resource_limits)
    return StateProvider(market, blocks, job.job_id, Work(job.terms, files, engine=engine))
