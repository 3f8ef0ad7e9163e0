"""Jobs that a stranger posts beside the client's, to harm whoever reads or takes them.

Contract: a bait is on the chain like any job, with its budget in escrow, and its files are served. Whoever
posts one has them refused: the budget comes back to it when it closes its job, and gas is what it has paid.
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
from assay.scenario.promises import STRANGER

if TYPE_CHECKING:
    from assay.app.wiring import Connection
    from assay.training.job import JobArtifacts

BOMB = b"[" * 100_000
"""What ends a reader that follows nested JSON as deep as it goes."""


@dataclass(frozen=True)
class Bait:
    """What is wrong with a job: `files` spoils what is published, `terms` what the chain is told."""

    plan: str
    files: Callable[[JobArtifacts], JobArtifacts] = lambda files: files
    terms: Callable[[Terms, Blocks], Terms] = lambda terms, _: terms


def unsound(files: JobArtifacts) -> JobArtifacts:
    """The last instruction of the training step has attributes that no such instruction has."""
    program = files.tasks[0]
    last = replace(program.nodes[-1], attrs=(1, 2, 3))
    wrong = replace(program, nodes=(*program.nodes[:-1], last))
    return replace(files, tasks=(wrong, *files.tasks[1:]))


def bombed(terms: Terms, blocks: Blocks) -> Terms:
    """The manifest is a hundred thousand brackets, none of which is closed."""
    blocks.put(BOMB)
    return replace(terms, manifest=sha256(BOMB).digest())


BAITS = {
    "hostile-manifest": Bait("a job whose manifest is 100,000 open brackets", terms=bombed),
    "unsound-program": Bait("a job whose last instruction breaks the rules of programs", files=unsound),
}


@dataclass(frozen=True)
class Laid:
    """A bait that is on the chain."""

    app: App
    connection: Connection
    job_id: JobId
    task_time: int

    def take_back(self) -> None:
        """Have the budget back: halt the job, let its round run out, close it. Moves the devnet's clock."""
        market, name = self.connection.writer, self.job_id.hex()
        market.halt(f"bait/halt/{name}", self.job_id)
        devnet = recorded(self.app.settings.home)
        assert devnet is not None
        rpc = HttpRpc(devnet.rpc_url)
        rpc.request("evm_increaseTime", [self.task_time + 1])
        rpc.request("evm_mine", [])
        market.close(f"bait/close/{name}", self.job_id)


@contextmanager
def lay(app: App, kind: str, body: JobFile, files: JobArtifacts, budget: Wei) -> Iterator[Laid]:
    """Post one as STRANGER, and serve its files for the length of a `with` block."""
    from assay.app.web import serve_blocks
    from assay.client import posting
    from assay.job.terms import conditions_of, terms_of

    bait = BAITS[kind]
    connection, storage = app.connect(STRANGER), app.storage(STRANGER)
    market, conditions = connection.writer, conditions_of(body)
    place = market.class_id(conditions), market.me, secrets.randbits(60)
    terms = posting.publish(
        storage.blocks, bait.files(files), lambda published: terms_of(body, published, *place)
    )
    terms = bait.terms(terms, storage.blocks)
    with serve_blocks(STRANGER, connection, storage):
        job_id = posting.post(market, terms, conditions, budget)
        yield Laid(app, connection, job_id, int(terms.task_time))
