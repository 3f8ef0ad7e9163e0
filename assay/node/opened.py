"""A job as a worker has it: its files checked, its programs ready to run, and the states it has at hand.

Contract: made at the first order of a job in this process, from what the node's market and blocks say, and
kept for the next ones. The last `MOST_JOBS` jobs are kept, and those of which something is being stored.
Their states in memory are bounded together, and those of settled rounds leave it. What an order that was put
off has found missing is not asked for again by it (``node.absent``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from assay.compute.orders import Bench
from assay.dispute.disputant import Disputant
from assay.node.absent import Absent, SparingBlocks
from assay.node.artifacts import load_job
from assay.node.audit import replay_for
from assay.node.engine import Engine, ExecutorKind
from assay.node.kept_replays import KeptReplays
from assay.node.orders import JobSpec
from assay.node.slots import TensorCache
from assay.node.states import StateProvider
from assay.node.work import Work

MOST_JOBS = 8


class OpenJob:
    """One job, opened. Raises what ``load_job`` raises."""

    def __init__(self, bench: Bench, spec: JobSpec, blocks: SparingBlocks) -> None:
        assert bench.desk is not None, "a job's orders need a node"
        desk, limits = bench.desk, spec.limits
        files = load_job(blocks, spec.terms, limits)
        self.spec, self.blocks, self.desk = spec, blocks, desk
        self.work: Work = spec.make_work(files, engine_of(bench), desk)
        self.state_provider: StateProvider = spec.make_states(
            desk.market, blocks, self.work, kept_of(bench, spec), desk.books
        )
        self.state_provider.reader.cache = tensors_of(bench, spec)
        self.disputant = Disputant(desk.market.me, lambda game: replay_for(self.state_provider, game))
        self.role: object = None
        """What a role keeps with the job."""

    @property
    def is_storing(self) -> bool:
        """Whether the role still stores what it has computed."""
        return bool(getattr(self.role, "is_storing", False))

    def close(self) -> None:
        """End what the role has begun."""
        if hasattr(self.role, "close"):
            self.role.close()


def tensors_of(bench: Bench, spec: JobSpec) -> TensorCache:
    """The states that this worker has in memory, of all jobs."""
    cache: TensorCache = bench.cache.setdefault("tensors", TensorCache(spec.limits.cache_bytes))
    return cache


def engine_of(bench: Bench) -> Engine:
    """How this worker computes."""
    if "engine" not in bench.cache:
        config = bench.config
        bench.cache["engine"] = Engine(
            config.device, ExecutorKind(config.executor), config.forms, config.brief
        )
        if config.threads:
            torch.set_num_threads(config.threads)
    engine: Engine = bench.cache["engine"]
    return engine


def kept_of(bench: Bench, spec: JobSpec) -> KeptReplays | None:
    """What this node has replayed, on its disk."""
    kept = spec.kept
    if kept is None:
        return None
    name = f"kept:{kept.folder}"
    if name not in bench.cache:
        bench.cache[name] = KeptReplays(kept.folder, kept.states_bytes, pinned_bytes=kept.pinned_bytes)
    found: KeptReplays = bench.cache[name]
    return found


@contextmanager
def opened(bench: Bench, spec: JobSpec, what: str, part: bool = False) -> Iterator[OpenJob]:
    """A `with` block of an order about `what`, or a `part` of that, with its job. Raises what ``load_job``
    raises."""
    jobs: dict[bytes, OpenJob] = bench.cache.setdefault("jobs", {})
    absent: Absent = bench.cache.setdefault("absent", Absent())
    with absent.during(what, part):
        job = jobs.pop(spec.job_id, None)
        if job is not None and job.spec != spec:
            job.close()
            job = None
        if job is None:
            assert bench.desk is not None, "a job's orders need a node"
            job = OpenJob(bench, spec, SparingBlocks(bench.desk.blocks, absent))
        jobs[spec.job_id] = job
        job.state_provider.settled(spec.settled)
        for oldest in list(jobs)[:-MOST_JOBS]:
            if not jobs[oldest].is_storing:
                jobs.pop(oldest).close()
        yield job
