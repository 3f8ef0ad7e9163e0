"""Attack 48: real processes of every role, killed at random instants of a job's life."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from assay.protocol.params import DEVNET_BOUNDS
from drills.market_run import settings
from scripts.prove.kills import life_of

pytestmark = pytest.mark.slow
KILLS = 30


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in settings():
        monkeypatch.delenv(name)


def test_attack_48_processes_killed_at_random_lose_nothing(tmp_path: Path) -> None:
    calm = life_of(tmp_path / "calm" / "devnet", "nobody", random.Random(1), 1.0, 0)
    killed = life_of(tmp_path / "killed" / "devnet", "nobody", random.Random(2), 1.0, KILLS)
    bits, faults = calm.play()
    assert len(bits) == 3 and faults == [] and not calm.kills
    assert killed.play() == (bits, [])
    assert len(killed.kills) >= KILLS and {kill["role"] for kill in killed.kills} >= {"solver", "verifier"}


def test_a_call_that_is_sent_twice_is_seen(tmp_path: Path) -> None:
    """So that the check of a life does see what it looks for."""
    life = life_of(tmp_path / "devnet", "nobody", random.Random(1), 1.0, 0)
    try:
        life.begin()
        market = life.app.connect("verifier-3").writer
        for number in range(2):
            market.set_endpoint(f"said {number}", "http://twice")
            market.tick(f"ticked {number}")
            life.rpc.request("anvil_mine", [hex(DEVNET_BOUNDS.clock_lag), hex(1)])
        life.view.market.refresh()
        found = [fault for fault in life._twice() if "has sent" in fault]
    finally:
        life.stop()
    assert len(found) == 1 and found[0].startswith("verifier-3 has sent"), found
