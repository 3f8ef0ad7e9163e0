"""Attack 46: a reorganisation removes a client's job while the client only serves its files."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from assay.chain.contracts.artifacts import Artifacts
from assay.chain.eth.rpc import HttpRpc
from assay.cli.commands import job_post
from assay.protocol.errors import RpcUnreachable, Unknown
from tests.adversaries.chain_day import ChainDay


class Waits:
    """A clock that lets a client wait so many times, and does something before each."""

    def __init__(self, *before: Any) -> None:
        self.before = list(before)

    def wait(self, seconds: float) -> bool:
        if not self.before:
            return False
        self.before.pop(0)()
        return True

    def now(self) -> int:
        return 0

    def stop(self) -> None:
        """Stops as if a signal had come."""


@pytest.mark.long
def test_attack_46_a_job_lost_while_its_client_serves_comes_back(
    rpc: HttpRpc, artifacts: Artifacts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    day = ChainDay(rpc, artifacts, tmp_path)
    job_id = day.post()
    client, said = day.markets["client"], list[str]()

    def lose() -> None:
        day.lose(3)
        day.pass_time(2)
        with pytest.raises(Unknown):
            client.job(job_id)

    def fail() -> None:
        def down() -> None:
            raise RpcUnreachable("the node is down")

        monkeypatch.setattr(client.sender, "resume", down)

    clock = Waits(lambda: None, lose, lambda: day.pass_time(1), fail, monkeypatch.undo)
    connection = SimpleNamespace(clock=clock, writer=client, market=client)
    settings = SimpleNamespace(deployment=tmp_path)  # which is there
    app = SimpleNamespace(output=SimpleNamespace(say=said.append), settings=settings)
    job_post.wait_for_signal(app, connection, job_id)  # type: ignore[arg-type]
    assert client.job(job_id).terms.client == client.me
    again = "; serving goes on, and this is tried again every 5 s"
    assert said[-2:] == [f"the node is down{again}", "all is well again"]
    assert day.lost >= 3
