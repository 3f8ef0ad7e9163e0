"""Caches open jobs in a worker process: checked files, programs ready to run, and states in memory.

Contract: a job is opened at its first order, from the node's market and blocks, and reused by later orders.
The last `MOST_JOBS` jobs are kept, plus those that still store results. Their states share one memory budget;
states of settled rounds are dropped. A resumed order does not request again the files that it found missing
(``node.fetch_failures``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch

from assay.compute.orders import WorkerContext
from assay.dispute.disputant import Disputant
from assay.node.artifacts import load_job
from assay.node.audit import replay_for
from assay.node.engine import Engine, ExecutorKind
from assay.node.fetch_failures import Absent, MissCachingBlocks
from assay.node.orders import JobSpec
from assay.node.replay_cache import ReplayCache
from assay.node.slots import TensorCache
from assay.node.states import StateProvider
from assay.node.work import Work

MOST_JOBS = 8


class OpenJob:
    """One opened job. Raises what ``load_job`` raises."""

    def __init__(self, context: WorkerContext, spec: JobSpec, blocks: MissCachingBlocks) -> None:
        assert context.desk is not None, "a job's orders need a node"
        desk, limits = context.desk, spec.limits
        files = load_job(blocks, spec.terms, limits)
        self.spec, self.blocks, self.desk = spec, blocks, desk
        engine = replace(engine_of(context), room=limits.memory_bytes)
        self.work: Work = spec.make_work(files, engine, desk)
        self.state_provider: StateProvider = spec.make_states(
            desk.market, blocks, self.work, kept_of(context, spec), desk.books
        )
        self.state_provider.reader.cache = tensors_of(context, spec)
        self.disputant = Disputant(desk.market.me, lambda game: replay_for(self.state_provider, game))
        self.role: object = None
        """The role's own data about the job."""

    @property
    def is_storing(self) -> bool:
        """True if the role is still storing results."""
        return bool(getattr(self.role, "is_storing", False))

    def close(self) -> None:
        """Stops the role's background work."""
        if hasattr(self.role, "close"):
            self.role.close()


def tensors_of(context: WorkerContext, spec: JobSpec) -> TensorCache:
    """The worker's cache of state tensors, shared by all jobs."""
    cache: TensorCache = context.cache.setdefault("tensors", TensorCache(spec.limits.cache_bytes))
    return cache


def engine_of(context: WorkerContext) -> Engine:
    """The worker's engine, created from its configuration."""
    if "engine" not in context.cache:
        config = context.config
        context.cache["engine"] = Engine(
            config.device, ExecutorKind(config.executor), config.forms, config.brief, spill=config.spill
        )
        if config.threads:
            torch.set_num_threads(config.threads)
    engine: Engine = context.cache["engine"]
    return engine


def kept_of(context: WorkerContext, spec: JobSpec) -> ReplayCache | None:
    """The node's on-disk cache of replays; None if the spec has none."""
    kept = spec.kept
    if kept is None:
        return None
    name = f"kept:{kept.folder}"
    if name not in context.cache:
        context.cache[name] = ReplayCache(kept.folder, kept.states_bytes, pinned_bytes=kept.pinned_bytes)
    found: ReplayCache = context.cache[name]
    return found


@contextmanager
def opened(context: WorkerContext, spec: JobSpec, what: str, part: bool = False) -> Iterator[OpenJob]:
    """Opens a job for an order about action `what`, or for one `part` of it. Raises what ``load_job``
    raises."""
    jobs: dict[bytes, OpenJob] = context.cache.setdefault("jobs", {})
    absent: Absent = context.cache.setdefault("absent", Absent())
    with absent.during(what, part):
        job = jobs.pop(spec.job_id, None)
        if job is not None and job.spec != spec:
            job.close()
            job = None
        if job is None:
            assert context.desk is not None, "a job's orders need a node"
            job = OpenJob(context, spec, MissCachingBlocks(context.desk.blocks, absent))
        jobs[spec.job_id] = job
        job.state_provider.settled(spec.settled)
        for oldest in list(jobs)[:-MOST_JOBS]:
            if not jobs[oldest].is_storing:
                jobs.pop(oldest).close()
        yield job
