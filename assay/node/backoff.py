"""Exponential backoff of failed actions."""

from __future__ import annotations

FIRST_BACKOFF_S = 1.0
LONGEST_BACKOFF_S = 16.0


class Backoff:
    """Wait times that double with each failure of a key, and are cleared by its success."""

    def __init__(self) -> None:
        self._until: dict[object, float] = {}
        self._next: dict[object, float] = {}

    def failed(self, what: object, now_s: float) -> float:
        """Records a failure and returns the seconds until `ready`."""
        pause = self._next.get(what, FIRST_BACKOFF_S)
        self._next[what] = min(2 * pause, LONGEST_BACKOFF_S)
        self._until[what] = now_s + pause
        return pause

    def succeeded(self, what: object) -> None:
        self._next.pop(what, None)
        self._until.pop(what, None)

    def has_failed(self, what: object) -> bool:
        """True if the key has failed and not succeeded since."""
        return what in self._until

    def ready(self, what: object, now_s: float) -> bool:
        return self.left_s(what, now_s) <= 0

    def left_s(self, what: object, now_s: float) -> float:
        """Seconds until the key is ready; 0 or less if it is."""
        return self._until.get(what, 0.0) - now_s
