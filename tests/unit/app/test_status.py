"""What a node says of itself, as ``assay devnet status`` shows it."""

from __future__ import annotations

from assay.node.service import FIRST_BACKOFF_S, Service, ignore
from assay.protocol.errors import Retry
from assay.protocol.types import Address, Seconds


class StillClock:
    """A clock that is set by hand."""

    time_s = 1_000

    def now(self) -> Seconds:
        return Seconds(self.time_s)

    def block(self) -> int:
        return 1

    def wait(self, seconds: float) -> bool:
        return False


def test_an_error_is_shown_until_the_same_thing_succeeds() -> None:
    clock = StillClock()
    service = Service("solver", Address("0x" + "11" * 20), clock, ignore, 1.0)

    def fail() -> None:
        raise Retry("the node did not answer", hint="wait")

    assert not service.attempt("commit", None, fail)
    assert service.status.error == "commit: the node did not answer; wait"
    assert service.attempt("train", None, lambda: None)
    assert service.status.error, "another thing's success says nothing of this one"
    clock.time_s += int(FIRST_BACKOFF_S)
    assert service.attempt("commit", None, lambda: None)
    assert service.status.error == ""
