"""Calls of Tasks that are due at once, sent in one transaction.

Contract: every call's effect comes once, by a batch or by itself: a batch that is refused as a whole did
nothing, and is tried in halves, so that one call which somebody else has made before leaves but itself to be
sent alone. What is due by a clock goes with its like alone, as it may be worth a higher price of gas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

from assay.chain.eth.contract import Contract
from assay.chain.eth.fees import Due
from assay.chain.eth.sender import Sender
from assay.protocol.encoding import as_tuple
from assay.protocol.errors import AssayError, Reverted
from assay.protocol.ports import Write

BATCH_CALLS = 16
"""Most calls in one transaction: a few million gas."""


def entry_point(write: Write) -> tuple[str, tuple[Any, ...]]:
    """What Tasks calls a method of the port, the same words written as Solidity does, and its arguments."""
    first, *rest = write.method.split("_")
    return first + "".join(map(str.capitalize, rest)), write.arguments


def no_clock(write: Write) -> Due | None:
    """Of a write that nothing is lost without."""
    return None


def send_together(
    sender: Sender, tasks: Contract, writes: Sequence[Write], due_of: Callable[[Write], Due | None] = no_clock
) -> dict[str, AssayError]:
    """Send those that were not sent before, several in a transaction.

    The errors, by intent, of those of which it is not known whether they took effect; each of the others did,
    or is to be sent by itself.
    """
    unknown: dict[str, AssayError] = {}
    fresh = [(write, due_of(write)) for write in writes if sender.unsent(write.intent)]
    pressing = [(write, due) for write, due in fresh if due is not None]
    for part in (pressing, [(write, due) for write, due in fresh if due is None]):
        for first in range(0, len(part), BATCH_CALLS):
            batch = part[first : first + BATCH_CALLS]
            due = min((due for _, due in batch if due is not None), key=lambda due: due.ends, default=None)
            unknown |= _send_part(sender, tasks, [write for write, _ in batch], due)
    return unknown


def _send_part(
    sender: Sender, tasks: Contract, batch: Sequence[Write], due: Due | None
) -> dict[str, AssayError]:
    """The same of one batch, or of its halves."""
    if len(batch) < 2:
        return {}
    try:
        _send_batch(sender, tasks, batch, due)
    except Reverted:
        half = len(batch) // 2
        return _send_part(sender, tasks, batch[:half], due) | _send_part(sender, tasks, batch[half:], due)
    except AssayError as error:
        return {write.intent: error for write in batch}
    return {}


def _without_repeated_headers(batch: Sequence[Write]) -> Iterator[Write]:
    """The same; a header that an earlier record of the batch brings is not brought again (rule 4.5)."""
    brought: set[bytes] = set()
    for write in batch:
        if write.method != "record_seed":
            yield write
            continue
        claim, header = write.arguments
        yield replace(write, arguments=(claim, b"" if header in brought else header))
        brought.add(header)


def _send_batch(sender: Sender, tasks: Contract, batch: Sequence[Write], due: Due | None) -> None:
    """Raises what `Sender.send_batch` does: after Reverted the batch did nothing."""
    calls = [
        tasks.call(function, *map(as_tuple, arguments)).data
        for function, arguments in map(entry_point, _without_repeated_headers(batch))
    ]
    members = [write.intent for write in batch]
    key = "batch/" + sha256("\n".join(members).encode()).hexdigest()
    call = tasks.call("multicall", calls, purpose=f"Tasks.multicall of {len(batch)}")
    sender.send_batch(key, members, replace(call, due=due))
