"""Commands behind an endpoint that allows few requests: right answers or an error, never an empty list."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.app.devnet_record import read_devnet
from assay.app.output import Exit
from drills.faulty_rpc import FaultyGateway
from tests.integration.cli.conftest import Assay


class Limiting(FaultyGateway):
    """Takes so many requests a second, and refuses the others with HTTP status 429."""

    def __init__(self, url: str, a_second: int) -> None:
        super().__init__(url, 0.0)
        self.a_second = a_second
        self.taken: list[float] = []
        self.refused = 0

    def fault(self, path: str = "") -> tuple[str, float]:
        with self._lock:
            now = time.monotonic()
            self.taken = [at for at in self.taken if now - at < 1.0]
            if len(self.taken) >= self.a_second:
                self.refused += 1
                return "429", 0.0
            self.taken.append(now)
            return "answered", 0.0


@pytest.fixture
def chain(home: Path) -> Iterator[str]:
    devnet = read_devnet(home)
    assert devnet is not None
    yield devnet.rpc_url


def test_w7_a_limit_of_requests_costs_time_and_hides_nothing(assay: Assay, chain: str) -> None:
    free = assay("account", "balance", "client").data
    gateway = Limiting(chain, 5)
    with gateway:
        assert assay("-r", gateway.url, "account", "balance", "client").data == free
        assert assay("-r", gateway.url, "job", "ls").status == Exit.OK
        assert gateway.refused


def test_w7_an_endpoint_that_refuses_everything_is_an_error_and_no_empty_list(
    assay: Assay, chain: str
) -> None:
    with Limiting(chain, 0) as gateway:
        for words in (("job", "ls"), ("dispute", "ls"), ("stake", "ls"), ("account", "balance", "client")):
            ran = assay("-r", gateway.url, *words)
            assert ran.status == Exit.UNREACHABLE and ran.error["code"] == "rate-limited", words
            assert "limits its requests" in ran.error["message"], words
