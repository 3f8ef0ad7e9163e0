"""Calls of Tasks that are due at once, sent in one transaction.

Contract: every call's effect comes once, by a batch or by itself: a batch that is refused as a whole did
nothing, and leaves its calls to be sent one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from assay.chain.eth.contract import Contract
from assay.chain.eth.sender import Sender
from assay.protocol.encoding import as_tuple
from assay.protocol.errors import AssayError, Reverted
from assay.protocol.ports import Together, Write

BATCH_CALLS = 16
"""Most calls in one transaction: a few million gas."""


def entry_point(method: Together) -> str:
    """Tasks' name for a method of the port: the same words, written as Solidity does."""
    first, *rest = method.split("_")
    return first + "".join(map(str.capitalize, rest))


def send_together(sender: Sender, tasks: Contract, writes: Sequence[Write]) -> dict[str, AssayError]:
    """Send those that were not sent before, several in a transaction.

    The errors, by intent, of those of which it is not known whether they took effect; each of the others did,
    or is to be sent by itself.
    """
    unknown: dict[str, AssayError] = {}
    fresh = [write for write in writes if sender.unsent(write.intent)]
    for first in range(0, len(fresh), BATCH_CALLS):
        batch = fresh[first : first + BATCH_CALLS]
        if len(batch) > 1 and (error := _send_batch(sender, tasks, batch)) is not None:
            unknown.update((write.intent, error) for write in batch)
    return unknown


def _send_batch(sender: Sender, tasks: Contract, batch: Sequence[Write]) -> AssayError | None:
    """None if it is settled whether the batch took effect: it did, or was refused and did nothing."""
    calls = [tasks.call(entry_point(w.method), *(as_tuple(a) for a in w.arguments)).data for w in batch]
    members = [write.intent for write in batch]
    key = "batch/" + sha256("\n".join(members).encode()).hexdigest()
    call = tasks.call("multicall", calls, purpose=f"Tasks.multicall of {len(batch)}")
    try:
        sender.send_batch(key, members, call)
    except Reverted:
        return None
    except AssayError as error:
        return error
    return None
