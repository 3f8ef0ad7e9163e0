"""The loop of every node: look and act, keep house, wait.

Contract: nothing that a part raises ends the loop: what stops the look itself, such as a chain that does not
answer, is shown once and tried again. So is what the machine lacks for the moment; a bug is logged and
counted. The wait ends early once something that is under way is over. Not guaranteed: that a look is short.
"""

from __future__ import annotations

from collections.abc import Callable

from assay.node.actions import Actions
from assay.node.report import LOOK, Report
from assay.protocol.ports import Clock

CALLS_EVERY_S = 0.05
"""How often it is seen, where there is nothing else to do, whether what is under way is over."""


class Loop:
    """One node's loop. `tick`: a look and the beginning of its actions; `rest_s`: seconds between two."""

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
        """Done before each wait, such as to look after peers and pending transactions."""
        self.at_once = False
        """Whether there is to be another look without a wait: the last one ended before all was done."""
        self.unsaid = 0
        """Errors of which nothing could be said."""

    def run(self) -> None:
        """Tick until the clock says stop."""
        try:
            while True:
                self._guarded(LOOK, self._tick)
                self._guarded("housekeeping", lambda: self.housekeeping())
                if not self._pause():
                    return
        finally:
            self._actions.end_all()

    def _pause(self) -> bool:
        """Whether to go on. A wait that fails is no reason to end."""
        told: list[bool] = []
        self._guarded("wait", lambda: told.append(self._wait()))
        return told != [False]

    def _wait(self) -> bool:
        """Wait as long as is usual, or until something that is under way is over; whether to go on."""
        left = 0.0 if self.at_once else self._rest_s()
        while left > 0 and self._actions.waiting:
            if self._actions.ready:
                return self._clock.wait(0.0)
            if not self._clock.wait(min(left, CALLS_EVERY_S)):
                return False
            left -= CALLS_EVERY_S
        return self._clock.wait(max(left, 0.0))

    def _guarded(self, what: str, work: Callable[[], object]) -> None:
        """Do one part of the loop. Nothing that it raises ends the loop."""
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
