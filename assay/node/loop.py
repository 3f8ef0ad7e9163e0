"""Runs a node's loop: polls the market, starts actions, does housekeeping, waits.

Contract: no exception in a part ends the loop. An error that prevents polling, such as an unreachable chain,
is reported once and retried, as is a lack of memory or disk. A bug is logged and counted. The wait ends early
once a running action can go on. Not guaranteed: that a tick is short.
"""

from __future__ import annotations

from collections.abc import Callable

from assay.node.actions import Actions
from assay.node.report import LOOK, Report
from assay.protocol.ports import Clock

CALLS_EVERY_S = 0.05
"""Seconds between checks of running actions while the loop waits."""


class Loop:
    """One node's loop. `tick`: polls and starts actions; `rest_s`: seconds between two ticks."""

    def __init__(
        self,
        report: Report,
        actions: Actions,
        clock: Clock,
        tick: Callable[[], None],
        rest_s: Callable[[], float],
    ) -> None:
        self._report, self._actions, self._clock = report, actions, clock
        self._tick, self._rest_s = tick, rest_s
        self.housekeeping: Callable[[], None] = lambda: None
        """Called before each wait, for peers and pending transactions."""
        self.at_once = False
        """True if the next tick follows without a wait: the last one left work undone."""
        self.unsaid = 0
        """Number of errors that could not be reported."""

    def run(self) -> None:
        """Ticks until the clock says stop."""
        try:
            while True:
                self._guarded(LOOK, self._tick)
                self._guarded("housekeeping", lambda: self.housekeeping())
                if not self._pause():
                    return
        finally:
            self._actions.end_all()

    def _pause(self) -> bool:
        """Waits; True to go on. An error while waiting does not end the loop."""
        told: list[bool] = []
        self._guarded("wait", lambda: told.append(self._wait()))
        return told != [False]

    def _wait(self) -> bool:
        """Waits for the usual time, or until a running action can go on; True to go on."""
        left = 0.0 if self.at_once else self._rest_s()
        while left > 0 and self._actions.waiting:
            if self._actions.ready:
                return self._clock.wait(0.0)
            if not self._clock.wait(min(left, CALLS_EVERY_S)):
                return False
            left -= CALLS_EVERY_S
        return self._clock.wait(max(left, 0.0))

    def _guarded(self, what: str, work: Callable[[], object]) -> None:
        """Runs one part of the loop and reports whatever it raises."""
        failed: Exception | None = None
        try:
            work()
        except Exception as error:  # noqa: BLE001 - the one place: a bug must not stop a staked node
            failed = error
        try:
            if failed is not None:
                self._report.broken(what, failed)
            else:
                self._report.mended(what)
        except Exception:  # noqa: BLE001 - not even that goes, as without memory: at least go on
            self.unsaid += 1
