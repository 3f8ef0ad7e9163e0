"""From a parsed job file to a job on the market: store its files, state its terms, ask, post."""

from __future__ import annotations

import secrets
from hashlib import sha256
from typing import TYPE_CHECKING

from assay.app.invocation import App
from assay.app.units import show_amount
from assay.job.read import JobFile
from assay.protocol.types import JobId, Wei

if TYPE_CHECKING:
    from assay.app.wiring import Connection, NodeStorage
    from assay.training.job import JobArtifacts


def publish_and_post(
    app: App, connection: Connection, storage: NodeStorage, body: JobFile, files: JobArtifacts, budget: Wei
) -> JobId:
    """Store the job's files, check that it can be paid for, ask, and post it."""
    from assay.client import posting
    from assay.job.by_key import by_key
    from assay.job.terms import conditions_of, terms_of

    market = connection.writer
    conditions = conditions_of(body)
    class_id = market.class_id(conditions)
    terms = posting.publish(
        storage.blocks,
        files,
        lambda published: terms_of(
            body, published, class_id, market.me, _nonce(connection, published.manifest, body, budget)
        ),
    )
    with by_key(body):
        found = posting.quote(market, terms, conditions, budget)
    agreed = market.class_weight(class_id)
    app.output.say(f"verifiers with {show_amount(agreed)} of stake have agreed to its class {class_id.hex()}")
    if thin := posting.thin_class(agreed, conditions):
        app.output.say(f"WARNING: {thin}")
    worst = found.worst_case
    app.announce(f"post a job: worst case {show_amount(worst)}", budget, worst_loss=worst)
    return posting.post(market, terms, conditions, budget)


def _nonce(connection: Connection, manifest: bytes, body: JobFile, budget: Wei) -> int:
    """A fresh nonce; that of the same job and budget where its posting was cut off under way."""
    tag = int.from_bytes(sha256(f"{body!r} {budget}".encode()).digest()[:5], "big")
    prefix = f"post/{manifest.hex()}/"
    for key in connection.unfinished(prefix):
        nonce = int(key.removeprefix(prefix).split("/")[0])
        if nonce >> 23 == tag:
            return nonce
    return tag << 23 | secrets.randbits(23)
