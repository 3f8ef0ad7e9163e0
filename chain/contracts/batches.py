"""Sends calls of Tasks that are due together in one transaction.

Contract: every call takes effect once, in a batch or alone. A batch that reverts had no effect and is retried
in halves, so that one outdated call leaves only itself to be sent alone. Calls with a deadline are batched
separately, because they may justify a higher gas price.
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
"""Maximum number of calls in one transaction: a few million gas."""


def entry_point(write: Write) -> tuple[str, tuple[Any, ...]]:
    """Function name and arguments in Tasks for a method of the port."""
    first, *rest = write.method.split("_")
    return first + "".join(map(str.capitalize, rest)), write.arguments


def no_clock(write: Write) -> Due | None:
    """The deadline of a write that has none."""
    return None


def send_together(
    sender: Sender, tasks: Contract, writes: Sequence[Write], due_of: Callable[[Write], Due | None] = no_clock
) -> dict[str, AssayError]:
    """Sends the writes that were not sent before, several per transaction.

    Returns by intent the errors of those whose outcome is unknown; each of the others took effect, or must be
    sent alone.
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
    """As `send_together`, for one batch or its halves."""
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
    """Removes block headers that an earlier record in the batch already has (rule 4.5)."""
    brought: set[bytes] = set()
    for write in batch:
        if write.method != "record_seed":
            yield write
            continue
        claim, header = write.arguments
        yield replace(write, arguments=(claim, b"" if header in brought else header))
        brought.add(header)


def _send_batch(sender: Sender, tasks: Contract, batch: Sequence[Write], due: Due | None) -> None:
    """Sends one batch. Raises what `Sender.send_batch` raises; after Reverted it had no effect."""
    calls = [
        tasks.call(function, *map(as_tuple, arguments)).data
        for function, arguments in map(entry_point, _without_repeated_headers(batch))
    ]
    members = [write.intent for write in batch]
    key = "batch/" + sha256("\n".join(members).encode()).hexdigest()
    call = tasks.call("multicall", calls, purpose=f"Tasks.multicall of {len(batch)}")
    sender.send_batch(key, members, replace(call, due=due))
