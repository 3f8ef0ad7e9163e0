"""Garbage-collects files of settled jobs and claims that no later input needs.

Contract: only files that the market names, of jobs and claims that are over, are deleted. Of a closed job
that is everything but its final model; of an open one, the states of settled, fallen and voided claims except
those that a later input reads (docs/protocol.md, rule 4.4). Pinned files, files of a role's unfinished work,
and all files of a claim that still answers for something stay, also after its job has closed. That covers a
claim that has not ended, since its sources may be gone, and a fallen claim whose votes may be disputed.
Everything deleted can be recomputed from the job's files, which its client keeps. Files that no claim names
are never touched.

With an executor, its thread deletes what was decided, and each call compares that with the market: on any
change the deletion stops and is decided again. A stop or crash leaves no file that nothing names.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from threading import Event
from typing import Any, Protocol

from assay.node.checkpoints import read_checkpoints
from assay.node.manifests import BadManifest, raw_cid, read_manifest
from assay.node.rounds import PASSED, Claims, standing
from assay.node.slot_index import MAX_INDEX_BYTES, UNFETCHABLE, SlotFile, decode_index
from assay.protocol.cid import is_cid
from assay.protocol.loops import model_part, own_slots, read_later
from assay.protocol.ports import MarketView
from assay.protocol.types import ClaimId, ClaimView, JobId, JobView, Kind, Phase, Terms

UNSETTLED = (Phase.COMMITTED, Phase.SEEDED, Phase.ACCEPTED)
GRACE_S = 5.0
"""Minimum age in seconds of deleted blocks: newer ones may be of a state that is being published."""
REST = 3.0
"""Idle time after each portion, as a multiple of the time it took."""
_ABSENT = (*UNFETCHABLE, BadManifest, ValueError)


class Store(Protocol):
    """The local block store: nothing is fetched."""

    def has(self, cid: str) -> bool: ...
    def get(self, cid: str) -> bytes: ...
    def read_file(self, cid: str, max_bytes: int) -> bytes: ...
    def drop(
        self, dead: Iterable[str], kept: Iterable[str], grace_s: float, pause: Callable[[float], bool] = ...
    ) -> Any: ...


@dataclass
class Disposal:
    """CIDs of files to keep, and of files to delete unless another claim keeps them."""

    keep: set[str] = field(default_factory=set)
    drop: set[str] = field(default_factory=set)
    tells: dict[str, int] = field(default_factory=dict)
    """Level of files that name others: 1 for an index, 2 for a manifest, which names indices. They are
    deleted last, so that an interrupted collection leaves no unnamed file."""


@dataclass(frozen=True)
class Unclaimed:
    """Indices of inner states that a role has published and no claim names: of unfinished and of discarded
    work."""

    live: frozenset[str] = frozenset()
    over: frozenset[str] = frozenset()


NOTHING = Unclaimed()


@dataclass(frozen=True)
class _Mark:
    """Progress of a job; while it is unchanged, there is nothing more to delete."""

    job_id: JobId
    at: tuple[int, int, bool]
    answering: frozenset[ClaimId]


@dataclass(frozen=True)
class _Decided:
    """A decision on what to delete, with the state of the jobs on which it is based."""

    jobs: Sequence[JobView]
    seen: Sequence[_Mark]
    claims: Sequence[int]
    """Number of claims of each job: a new claim's files may be an old one's."""
    found: dict[JobId, Disposal]
    drop: set[str]


class Retention:
    """Deletes files of what is over whenever a job progresses.

    `unclaimed`: files of a role's unclaimed work; `models`: whether models of closed jobs are kept.
    """

    def __init__(
        self,
        market: MarketView,
        store: Store,
        unclaimed: Callable[[JobId], Unclaimed] = lambda _: NOTHING,
        *,
        models: bool = True,
        executor: Executor | None = None,
    ) -> None:
        """`executor`: deletes blocks in the background; None: the caller waits."""
        self._market, self._store, self._unclaimed, self._models = market, store, unclaimed, models
        self._executor = executor
        self._under_way: tuple[Future[Any], _Decided] | None = None
        self._stopped = Event()
        self.kept: frozenset[str] = frozenset()
        """CIDs that the last collection had to keep."""
        self._seen: object = None
        self._over: dict[JobId, frozenset[str]] = {}
        """Collected closed jobs, with the CIDs that stay; they are not looked at again."""

    def __call__(self) -> Any:
        """Starts or continues a collection; returns what was freed, or None if nothing changed or it is still
        running.

        A running collection is cancelled and decided again if anything changed. Raises what deleting raised.
        """
        jobs = self._market.jobs()
        running = [job for job in jobs if job.job_id not in self._over]
        seen = [self._mark(job) for job in running]
        if self._under_way is not None:
            under_way, decided = self._under_way
            if seen == decided.seen and self._counted(running) == decided.claims:
                return self._finished() if under_way.done() else None
            self.stop()
            self._finished()
            self._seen = None
        if seen == self._seen:
            return None
        self._stopped.clear()
        found = {job.job_id: self._of(job) for job in running}
        keep = {cid for kept in self._over.values() for cid in kept}
        keep |= {cid for disposal in found.values() for cid in disposal.keep}
        drop = {cid for disposal in found.values() for cid in disposal.drop} - keep
        tells = {cid: level for disposal in found.values() for cid, level in disposal.tells.items()}
        order = sorted(drop, key=lambda cid: tells.get(cid, 0))
        self.kept = frozenset(keep)
        decided = _Decided(running, seen, self._counted(running), found, drop)
        if self._executor is not None and drop:
            deleting = self._executor.submit(self._store.drop, order, keep, GRACE_S, self._rested)
            self._under_way = deleting, decided
            return None
        return self._over_with(decided, self._store.drop(order, keep, GRACE_S))

    def stop(self) -> None:
        """Cancels the running collection; the next one is decided anew. Thread-safe."""
        self._stopped.set()

    def _rested(self, took_s: float) -> bool:
        """Leaves the store to others after a portion that took `took_s`; True to go on."""
        return not self._stopped.wait(REST * took_s)

    def _finished(self) -> Any:
        """Waits for the deleting thread and returns what it has freed."""
        assert self._under_way is not None
        under_way, decided = self._under_way
        self._under_way = None
        return self._over_with(decided, under_way.result())

    def _over_with(self, decided: _Decided, freed: Any) -> Any:
        left = {cid for cid in decided.drop if self._store.has(cid)}  # put a moment ago
        for job, mark in zip(decided.jobs, decided.seen, strict=True):
            disposal = decided.found[job.job_id]
            if job.progress.closed and not mark.answering and not disposal.drop & left:
                self._over[job.job_id] = frozenset(disposal.keep)
        self._seen = None if left else [mark for mark in decided.seen if mark.job_id not in self._over]
        return freed

    def _counted(self, jobs: Sequence[JobView]) -> list[int]:
        return [len(self._market.claims(job.job_id)) for job in jobs]

    def _mark(self, job: JobView) -> _Mark:
        progress = job.progress
        at = progress.settled_rounds, progress.rewinds, progress.closed
        return _Mark(job.job_id, at, self._answering(job))

    def _answering(self, job: JobView) -> frozenset[ClaimId]:
        """Claims that still need their files.

        They have an open game or demand, or are fallen with valid votes, or have not ended though their job
        is closed.
        """
        games = (game.game.claim_id for game in self._market.games(job.job_id) if not game.decided)
        demands = (demand.claim_id for demand in self._market.demands(job.job_id) if not demand.outcome)
        claims = self._market.claims(job.job_id)
        vouched = (view.claim_id for view in claims if view.fallen and any(v.valid for v in view.votes))
        left = (view.claim_id for view in claims if job.progress.closed and _unended(view))
        return frozenset((*games, *demands, *vouched, *left))

    def _of(self, job: JobView) -> Disposal:
        claims, answering = Claims(self._market.claims(job.job_id)), self._answering(job)
        over = job.progress.closed and not answering
        files, terms = Files(self._store), job.terms
        found = Disposal()
        (found.drop if over else found.keep).update(files.of_job(terms))
        found.tells |= {raw_cid(terms.manifest): 2}
        for view in claims:
            found.tells |= {raw_cid(view.claim.manifest): 2}
            live = view.claim_id in answering or _unended(view)
            (found.keep if live else found.drop).update(files.of_claim(view, terms))
        for view, slots in () if over and not self._models else _built_on(job, claims, over):
            found.keep.update(files.of_claim(view, terms, slots))
        unclaimed = self._unclaimed(job.job_id)
        for cids, into in ((unclaimed.live, found.keep), (unclaimed.over, found.drop)):
            for cid in cids:
                into |= {cid, *(slot.cid for slot in files.slots(cid, terms.slots))}
        found.tells |= dict.fromkeys(files.indices, 1)
        return found


def _unended(view: ClaimView) -> bool:
    """True if a claim is neither settled nor over.

    A claim overtaken by a rewind has not ended: only its own states show what it started from.
    """
    return view.status.phase in UNSETTLED


def _built_on(
    job: JobView, claims: Sequence[ClaimView], over: bool
) -> Iterator[tuple[ClaimView, frozenset[int]]]:
    """Settled claims whose last state is still read by later inputs, and the slots read; the model, if the
    job is over."""
    settled, terms = job.progress.settled_rounds, job.terms
    if over:
        for number in range(terms.slices if settled else 0):
            last = standing(claims, Kind.OUTER, settled - 1, number)
            if last is not None:
                yield last, frozenset(range(model_part(terms)))
        return
    lags = max((link.lag for link in (*terms.links, *terms.outer_links)), default=0)
    places = [(kind, unit) for kind in Kind for unit in range(terms.units_of(kind))]
    for round_ in range(max(settled - max(lags, 1), 0), settled):
        for kind, shard in places:
            view = standing(claims, kind, round_, shard)
            slots = read_later(terms, kind, settled - round_)
            if kind == Kind.OUTER and round_ == settled - 1:
                slots |= own_slots(terms, kind)
            if view is not None and slots and view.status.phase in PASSED:
                yield view, slots
    for shard in range(terms.shards):
        tasks = (standing(claims, Kind.TASK, round_, shard) for round_ in range(settled - 1, -1, -1))
        latest = next((task for task in tasks if task is not None and task.status.phase in PASSED), None)
        if latest is not None:
            yield latest, own_slots(terms, Kind.TASK)


class Files:
    """Resolves the files of a job or claim, as far as their manifests and indices are local."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.indices = set[str]()
        """CIDs of the indices that were read."""

    def of_job(self, terms: Terms) -> set[str]:
        """CIDs of the job's manifest, programs, dataset and genesis states."""
        try:
            manifest = read_manifest(self._store, terms.manifest)
        except _ABSENT:
            return set()
        programs = (entry["cid"] for name in ("inner", "outer") for entry in manifest[name])
        found = {raw_cid(terms.manifest), manifest["dataset"]["cid"], *programs}
        for name, slots in (("genesis", terms.slots), ("outerGenesis", terms.outer_slots)):
            cid = manifest[name]["cid"]
            found |= {cid, *(slot.cid for slot in self.slots(cid, slots))}
        return {cid for cid in found if is_cid(cid)}

    def of_claim(self, view: ClaimView, terms: Terms, only: Collection[int] | None = None) -> set[str]:
        """CIDs of a claim's manifest and all of its states; with `only`, of these slots of its last state."""
        try:
            states = read_checkpoints(self._store, view.claim.manifest, view.roots)
        except _ABSENT:
            return set()
        count = terms.slots_of(view.claim.kind)
        found = {raw_cid(view.claim.manifest)}
        for state in states if only is None else states[-1:]:
            if is_cid(state.cid):
                slots = enumerate(self.slots(state.cid, count))
                found |= {state.cid, *(slot.cid for i, slot in slots if only is None or i in only)}
        return found

    def slots(self, cid: str, count: int) -> tuple[SlotFile, ...]:
        """Entries of an index; empty if it is not local."""
        try:
            found = decode_index(self._store.read_file(cid, MAX_INDEX_BYTES), count)
        except _ABSENT:
            return ()
        self.indices.add(cid)
        return found
