"""Formats the status of a node's workers, as data and as text.

Contract: `shown` makes the list in /status. `in_words` and `in_short` also accept a stranger's list of any
shape; print their result only through `node_status.printable`. Unknown amounts are left out.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from assay.app.units import show_bytes
from assay.compute.pool import WorkerStatus

MOST_SHOWN = 64


def shown(workers: Iterable[WorkerStatus]) -> tuple[dict[str, Any], ...]:
    """Status of each worker: device, order and its start, memory, speed, slow paths, losses, and what a
    crew's member measures."""
    now_s = time.monotonic()
    return tuple(
        {
            "device": worker.device,
            "order": worker.order,
            "done": worker.done if worker.order else 0,
            "total": worker.total if worker.order else 0,
            "order_seconds": round(now_s - worker.since_s, 1) if worker.order else 0.0,
            "seconds_a_step": round(worker.seconds_a_step, 6),
            "resident_bytes": worker.resident_bytes,
            "device_bytes": worker.device_bytes,
            "orders": worker.orders,
            "losses": worker.losses,
            "trouble": worker.trouble,
            "slower": list(worker.slower),
            "crew": dict(worker.crew),
        }
        for worker in workers
    )


def listed(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Workers in a node's status, whoever wrote it."""
    workers = status.get("workers")
    found = workers if isinstance(workers, (list, tuple)) else []
    return [worker for worker in found[:MOST_SHOWN] if isinstance(worker, Mapping)]


def in_short(worker: Mapping[str, Any]) -> str:
    """``cuda:0: Train 3/16``."""
    order, total = worker.get("order"), number(worker.get("total"))
    steps = f" {number(worker.get('done')):.0f}/{total:.0f}" if total else ""
    return f"{worker.get('device', '?')}: {f'{order}{steps}' if order else 'idle'}"


def in_words(worker: Mapping[str, Any]) -> str:
    """``Train 3/16, 0.21 s a step, 812.3 MB, 3.1 GB of the device, 1 lost: its process ended by SIGKILL``."""
    parts = [in_short(worker).partition(": ")[2]]
    if step_s := number(worker.get("seconds_a_step")):
        parts.append(f"{step_s:.3g} s a step")
    if resident := number(worker.get("resident_bytes")):
        parts.append(show_bytes(int(resident)))
    if taken := number(worker.get("device_bytes")):
        parts.append(f"{show_bytes(int(taken))} of the device")
    if losses := number(worker.get("losses")):
        why = worker.get("trouble")
        parts.append(f"{losses:.0f} lost{f': {why}' if why else ''}")
    slower = worker.get("slower")
    parts += [f"slower: {why}" for why in slower[:MOST_SHOWN]] if isinstance(slower, (list, tuple)) else []
    return ", ".join(parts)


def number(value: Any) -> float:
    """A non-negative number; 0 for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1 << 63:
        return 0.0
    return float(value)
