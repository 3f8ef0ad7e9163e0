"""A solver's pace behind an RPC gateway that fails a fifth of its requests, against its undisturbed pace.

A whole market runs in this process on a real Anvil (`tests/adversaries/chain_day.py`). One solver alone asks
its node through a faulty gateway (drops, delays of 0.5 to 3 s, 429, 500, truncated, null, HTML, stale heads,
in equal parts), then through one without faults. Its pace is what it trains in the time that its looks,
transactions and training take, a segment of training taking `--segment` seconds and a pause of `--poll`
seconds after each look, as in `assay solver run`. Exits with 0 if it keeps `--least` of its pace, pays no
fine, and the job has the same bits.

    scripts/bench/faulty_rpc.py --share 0.2 --segment 3
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from assay.chain.contracts.artifacts import load_artifacts
from assay.chain.eth.anvil import Anvil
from assay.chain.eth.rpc import HttpRpc
from assay.node.service import Service
from tests.adversaries.chain_day import ChainDay
from tests.fakes.faulty_rpc import FaultyGateway

SOLVER = "ann"


class Timed:
    """Counts the looks in which a service had work, and the seconds that they took with what follows them.
    (What it waits for, votes and windows, is the chain's time.)"""

    def __init__(self, service: Service) -> None:
        self.spent_s, self.looks, self.longest_s = 0.0, 0, 0.0
        self._service, self._worked = service, False
        self._tick, service.tick = service.tick, self.tick  # type: ignore[method-assign]
        self._keep, service.housekeeping = service.housekeeping, self.keep

    def tick(self) -> None:
        before, begin = self._work(), time.monotonic()
        try:
            self._tick()
        finally:
            failed = self._service.status.error.startswith("tick: ")
            self._worked = self._work() != before or failed
            self._count(begin, 1)

    def keep(self) -> None:
        begin = time.monotonic()
        try:
            self._keep()
        finally:
            self._count(begin, 0)

    def _work(self) -> tuple[int, ...]:
        return tuple(self._service.status.counters.get(name, 0) for name in ("segments", "claims", "retries"))

    def _count(self, begin: float, looks: int) -> None:
        if self._worked:
            took = time.monotonic() - begin
            self.spent_s, self.looks = self.spent_s + took, self.looks + looks
            self.longest_s = max(self.longest_s, took)


def measured(share: float, second: bool, seed: int, segment_s: float, poll_s: float) -> dict[str, Any]:
    """One job from its post to its close."""
    with ExitStack() as stack:
        node, folder = stack.enter_context(Anvil()), stack.enter_context(tempfile.TemporaryDirectory())
        gateway, other = (stack.enter_context(FaultyGateway(node.url, share, seed + i)) for i in range(2))
        urls = [gateway.url, other.url] if second else [gateway.url]
        day = ChainDay(HttpRpc(node.url), load_artifacts(), Path(folder), urls={SOLVER: urls})
        before = day.wealth()[SOLVER]
        job_id = day.post()
        timed = Timed(day.services[SOLVER])
        turns = 0
        while not day.closed(job_id)() and turns < 400:
            day.turn()
            turns += 1
        found, status = day.unsound(job_id), day.services[SOLVER].status
        trained = status.counters.get("segments", 0)
        counters = dict(day.markets[SOLVER].sender.rpc.counters)  # type: ignore[attr-defined]
        seconds = timed.spent_s + timed.looks * poll_s + trained * segment_s
        return {
            "share": share,
            "endpoints": len(urls),
            "segments": trained,
            "turns": turns,
            "looks": timed.looks,
            "secondsOfLooks": round(timed.spent_s, 2),
            "longestLook": round(timed.longest_s, 2),
            "segmentsPerMinute": round(60 * trained / seconds, 2),
            "faults": {k: n for k, n in gateway.done.items() if k != "answered"},
            "requests": sum(gateway.done.values()),
            "earned": day.wealth()[SOLVER] - before,
            "status": status.counters,
            "rpc": counters,
            "unsound": found,
            "model": day.model(job_id),
        }


def main() -> int:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--share", type=float, default=0.2)
    options.add_argument("--second", action="store_true", help="two endpoints, both of them faulty")
    options.add_argument("--segment", type=float, default=3.0, help="seconds of a segment of training")
    options.add_argument("--poll", type=float, default=0.5)
    options.add_argument("--least", type=float, default=0.8)
    options.add_argument("--seed", type=int, default=1)
    given = options.parse_args()
    times = given.segment, given.poll
    plain = measured(0.0, given.second, given.seed, *times)
    faulty = measured(given.share, given.second, given.seed, *times)
    kept = faulty["segmentsPerMinute"] / plain["segmentsPerMinute"]
    print(json.dumps({"undisturbed": plain, "disturbed": faulty, "kept": round(kept, 3)}, indent=2))
    fined = faulty["earned"] < plain["earned"]
    sound = not faulty["unsound"] and faulty["model"] == plain["model"]
    return 0 if kept >= given.least and sound and not fined else 1


if __name__ == "__main__":
    raise SystemExit(main())
