"""Hostile jobs that a stranger posts to harm whoever reads or takes them.

Contract: a hostile job is on the chain like any other, with its budget in escrow, and its files are served.
Nodes refuse the files; the stranger gets the budget back when it closes its job, and has paid the gas.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING

from assay.app.devnet_record import recorded
from assay.app.invocation import App
from assay.chain.eth.rpc import HttpRpc
from assay.job.read import JobFile
from assay.protocol.ports import Blocks
from assay.protocol.types import JobId, Terms, Wei
from drills.promises import STRANGER

if TYPE_CHECKING:
    from assay.app.wiring import Connection
    from assay.training.job import JobArtifacts

BOMB = b"[" * 100_000
"""Crashes a reader that follows nested JSON without limit."""


@dataclass(frozen=True)
class HostileJob:
    """A kind of hostile job: `files` corrupts the published files, `terms` the terms."""

    plan: str
    files: Callable[[JobArtifacts], JobArtifacts] = lambda files: files
    terms: Callable[[Terms, Blocks], Terms] = lambda terms, _: terms


def unsound(files: JobArtifacts) -> JobArtifacts:
    """Gives the last instruction of the training step invalid attributes."""
    program = files.tasks[0]
    last = replace(program.nodes[-1], attrs=(1, 2, 3))
    wrong = replace(program, nodes=(*program.nodes[:-1], last))
    return replace(files, tasks=(wrong, *files.tasks[1:]))


def bombed(terms: Terms, blocks: Blocks) -> Terms:
    """Publishes a manifest of a hundred thousand unclosed brackets."""
    blocks.put(BOMB)
    return replace(terms, manifest=sha256(BOMB).digest())


HOSTILE_JOBS = {
    "hostile-manifest": HostileJob("a job whose manifest is 100,000 open brackets", terms=bombed),
    "unsound-program": HostileJob("a job whose last instruction breaks the rules of programs", files=unsound),
}


@dataclass(frozen=True)
class PostedJob:
    """A hostile job on the chain."""

    app: App
    connection: Connection
    job_id: JobId
    task_time: int

    def take_back(self) -> None:
        """Recovers the budget: halts the job, lets its round run out, closes it. Moves the devnet's clock."""
        market, name = self.connection.writer, self.job_id.hex()
        market.halt(f"hostile/halt/{name}", self.job_id)
        devnet = recorded(self.app.settings.home)
        assert devnet is not None
        rpc = HttpRpc(devnet.rpc_url)
        rpc.request("evm_increaseTime", [self.task_time + 1])
        rpc.request("evm_mine", [])
        market.close(f"hostile/close/{name}", self.job_id)


@contextmanager
def posted(app: App, kind: str, body: JobFile, files: JobArtifacts, budget: Wei) -> Iterator[PostedJob]:
    """Posts one as STRANGER, and serves its files for a `with` block."""
    from assay.app.web import serve_blocks
    from assay.client import posting
    from assay.job.terms import conditions_of, terms_of

    hostile = HOSTILE_JOBS[kind]
    connection, storage = app.connect(STRANGER), app.storage(STRANGER)
    market, conditions = connection.writer, conditions_of(body)
    place = market.class_id(conditions), market.me, secrets.randbits(60)
    terms = posting.publish(
        storage.blocks, hostile.files(files), lambda published: terms_of(body, published, *place)
    )
    terms = hostile.terms(terms, storage.blocks)
    with serve_blocks(STRANGER, connection, storage):
        job_id = posting.post(market, terms, conditions, budget)
        yield PostedJob(app, connection, job_id, int(terms.task_time))
