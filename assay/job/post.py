"""Posts a traced job: prices it, asks for confirmation, stores its files and posts it.

Contract: `agreed` writes and sends nothing, so a declined job leaves no trace.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING

from assay.app.invocation import App
from assay.app.units import round_amount, show_amount
from assay.job.read import JobFile
from assay.protocol.types import JobId, Terms, Wei

if TYPE_CHECKING:
    from assay.app.wiring import Connection, NodeStorage
    from assay.training.job import JobArtifacts


@dataclass(frozen=True)
class Agreed:
    """A confirmed job: terms without the nonce, and the deposit for it."""

    body: JobFile
    files: JobArtifacts
    terms: Terms
    budget: Wei
    bond: Wei
    """Bond for a dispute by the client's own audit; deposited if the account holds it."""


def agreed(
    app: App,
    connection: Connection,
    body: JobFile,
    files: JobArtifacts,
    terms: Terms,
    budget: Wei,
    *,
    audits: bool = False,
) -> Agreed:
    """Checks that a job with these terms (`estimate.drafted`) can be paid for, shows its cost, and asks.

    `audits`: whether the client will dispute. Raises what `posting.quote` raises, and Ask.
    """
    from assay.client import posting
    from assay.job.term_errors import by_key
    from assay.job.terms import conditions_of

    market, conditions = connection.writer, conditions_of(body)
    terms = replace(terms, client=market.me, class_id=market.class_id(conditions))
    bond = terms.challenge_bond if audits else posting.NOTHING
    with by_key(body):
        found = posting.quote(market, terms, conditions, budget)
    stake, whose = market.class_weight(terms.class_id), f"its class {terms.class_id.hex()}"
    app.output.say(f"verifiers with {round_amount(stake)} of stake have agreed to {whose}")
    if thin := posting.low_stake_warning(stake, conditions):
        app.output.say(f"WARNING: {thin}")
    action = "post the job, with its budget in escrow: what is not spent comes back"
    more = Wei(found.to_deposit(bond) - found.to_deposit())
    if more:
        action += f"; deposit {show_amount(more)} more, for the bond of a dispute: it stays yours"
    app.announce(action, budget, worst_loss=found.worst_case)
    return Agreed(body, files, terms, budget, bond)


def publish_and_post(connection: Connection, storage: NodeStorage, job: Agreed) -> JobId:
    """Stores the job's files and posts it. Raises what the port raises."""
    from assay.client import posting
    from assay.job.terms import conditions_of
    from assay.node.artifacts import publish_job

    published = publish_job(storage.blocks, job.files)
    assert published.manifest == job.terms.manifest, "the same files have the same names"
    terms = replace(job.terms, nonce=_nonce(connection, job))
    return posting.post(connection.writer, terms, conditions_of(job.body), job.budget, job.bond)


def _nonce(connection: Connection, job: Agreed) -> int:
    """A new nonce, or that of an interrupted posting of the same job and budget."""
    tag = int.from_bytes(sha256(f"{job.body!r} {job.budget}".encode()).digest()[:5], "big")
    prefix = f"post/{job.terms.manifest.hex()}/"
    for key in connection.unfinished(prefix):
        nonce = int(key.removeprefix(prefix).split("/")[0])
        if nonce >> 23 == tag:
            return nonce
    return tag << 23 | secrets.randbits(23)
