"""A job as a node's worker opens it, for tests whose nodes compute in the test's process."""

from __future__ import annotations

from typing import cast

from assay.compute.inline import InlinePool
from assay.compute.node_calls import Home
from assay.node.job_cache import OpenJob
from assay.node.orders import Examine
from assay.node.role import Node
from assay.node.states import StateProvider
from assay.protocol.ports import Blocks
from assay.protocol.types import JobId


def opened_jobs(node: Node) -> dict[JobId, OpenJob]:
    """The jobs that its worker has open."""
    jobs: dict[JobId, OpenJob] = cast(InlinePool, node.pool).context.cache.get("jobs", {})
    return jobs


def opened(node: Node, job_id: JobId) -> OpenJob:
    """A job, which is opened now if it is not yet. Raises what ``load_job`` raises."""
    node.pool.submit(Examine(node.spec(job_id), "test")).result()
    return opened_jobs(node)[job_id]


def give_blocks(node: Node, blocks: Blocks) -> None:
    """Have a node and its worker, which has no job open then, use these blocks from now on."""
    pool = cast(InlinePool, node.pool)
    node.blocks = cast(Home, pool.context.desk).blocks = blocks
    pool.renew()


def states_of(node: Node, job_id: JobId) -> StateProvider:
    """Where its worker has a job's states from."""
    return opened(node, job_id).state_provider
