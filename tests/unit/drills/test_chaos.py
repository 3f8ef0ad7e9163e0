"""A storm's schedule, its faulty endpoints, and what it is measured by; the storm itself is
tests/adversaries/test_storm.py."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest

from assay.app.devnet_record import process_alive
from assay.job.read import parse_job_file
from assay.protocol.types import Wei
from drills import chaos, faulty_rpc
from drills.chaos import FAULTS, Storm, Strike, job_text, left_out, lineup, schedule_of, strikes
from drills.faulty_rpc import A_SECOND, FaultyEndpoints
from drills.market_run import Process
from tests.fakes.http_server import serving

NAMES = [node.name for node in lineup()]


def test_a_seed_is_a_storm_of_every_kind() -> None:
    first = list(islice(strikes(7, NAMES, 10.0), 500))
    assert first == list(islice(strikes(7, NAMES, 10.0), 500)) != list(islice(strikes(8, NAMES, 10.0), 500))
    assert len(FAULTS) >= 12 and len(NAMES) >= 8
    kinds = [strike.kind for strike in first]
    assert set(kinds[: len(FAULTS)]) == set(FAULTS), "each once before one comes twice"
    times = [strike.at_s for strike in first]
    assert times == sorted(times) and 4_000 < times[-1] < 6_000, "ten seconds apart on average"
    assert {strike.node for strike in first if not FAULTS[strike.kind].of_chain} == set(NAMES)
    assert all(not strike.node for strike in first if FAULTS[strike.kind].of_chain)
    for strike in first:
        least, most = FAULTS[strike.kind].lasts_s
        assert least <= strike.lasts_s <= most
    assert len(list(schedule_of(7, 10.0))) == 100


def test_what_cannot_strike_here_is_left_out_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chaos.sys, "platform", "darwin")
    assert "full disk" in left_out() and "read-only disk" in left_out()
    assert "full disk" not in {strike.kind for strike in islice(strikes(1, NAMES, 1.0), 100)}


@pytest.fixture
def weather() -> Iterator[FaultyEndpoints]:
    """Before a chain whose block is 100."""
    block = json.dumps({"jsonrpc": "2.0", "id": 1, "result": "0x64"}).encode()
    with serving(lambda path, body: (200, block)) as url, FaultyEndpoints(url) as found:
        yield found


def asked(weather: FaultyEndpoints, name: str) -> Any:
    """The result of a client's request: a result, a status, or an exception."""
    question = {"jsonrpc": "2.0", "id": 1, "method": "eth_blockNumber", "params": []}
    try:
        answer = httpx.post(weather.path(name), json=question, timeout=5, trust_env=False)
        return answer.json()["result"] if answer.status_code == 200 else answer.status_code
    except (httpx.HTTPError, ValueError) as error:
        return type(error).__name__


def test_each_client_has_weather_of_its_own(
    weather: FaultyEndpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    weather.over["ann/a"] = "drop"
    assert asked(weather, "ann/a") == "RemoteProtocolError" and asked(weather, "ann/b") == "0x64"
    weather.over["ann/a"] = "lie"
    assert asked(weather, "ann/a") == hex(0x64 + 1_000) and asked(weather, "bob/a") == "0x64"
    weather.over["ann/a"] = "stale"
    assert {asked(weather, "ann/a") for _ in range(20)} == {"0x64", "0x61"}
    monkeypatch.setattr(faulty_rpc, "monotonic", lambda: 7.0)
    weather.over["ann/a"] = "limit"
    answers = [asked(weather, "ann/a") for _ in range(3 * A_SECOND)]
    assert answers == ["0x64"] * A_SECOND + [429] * 2 * A_SECOND
    weather.over["ann/a"] = "garbled"
    assert "0x64" not in {asked(weather, "ann/a") for _ in range(10)}
    del weather.over["ann/a"]
    assert asked(weather, "ann/a") == "0x64"


@pytest.fixture
def struck(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Storm]:
    """A storm whose one node writes the time into a file again and again."""
    monkeypatch.chdir(tmp_path)
    found = Storm(tmp_path / "devnet", job_text(5, 16), lineup(), Wei(10**18), say=lambda _: None)
    folder = found.home / "nodes" / "solver-1" / "tasks"
    folder.mkdir(parents=True)
    (folder / "a segment").write_bytes(bytes(64))
    words = "\n ".join(
        (
            *("import time\nwhile True:", "try: open('said', 'a').write('x' * 9)", "except OSError: pass"),
            "time.sleep(.01)",
        )
    )
    node = subprocess.Popen([sys.executable, "-c", words])
    threading.Thread(target=node.wait, daemon=True).start()
    found.processes["solver-1"] = Process("solver-1", "solver", list, tmp_path / "none", node.pid)
    yield found
    node.kill()
    node.wait()


def grows(path: Path) -> bool:
    """Whether a file grows within a while."""
    size = path.stat().st_size if path.exists() else 0
    for _ in range(100):
        threading.Event().wait(0.02)
        if path.exists() and path.stat().st_size > size:
            return True
    return False


def begun(storm_: Storm, kind: str) -> Any:
    return FAULTS[kind].begin(storm_, Strike(0.0, kind, "solver-1", 1.0))


@pytest.mark.parametrize(
    "kind",
    [
        "sleep",
        pytest.param(
            "full disk", marks=pytest.mark.skipif(sys.platform != "linux", reason="limits another process")
        ),
    ],
)
def test_a_fault_strikes_for_as_long_as_it_lasts(struck: Storm, kind: str) -> None:
    said = Path("said")
    assert grows(said)
    end = begun(struck, kind)
    threading.Event().wait(0.1)
    assert not grows(said)
    end()
    assert grows(said)


def test_what_strikes_at_once_is_seen_to_have_struck(struck: Storm) -> None:
    segment = struck.home / "nodes" / "solver-1" / "tasks" / "a segment"
    assert begun(struck, "flipped bit") is not None
    assert sum(byte.bit_count() for byte in segment.read_bytes()) == 1
    pid = struck.processes["solver-1"].pid
    assert begun(struck, "kill a worker") is None, "it has none"
    assert begun(struck, "kill") is not None and not process_alive(pid)
    assert begun(struck, "kill") is None and begun(struck, "sleep") is None, "nobody is there to be struck"


def test_goodput_is_the_calm_pace_over_the_stormy_one(tmp_path: Path) -> None:
    found = Storm(tmp_path / "devnet", job_text(5, 16), lineup(), Wei(10**18))
    assert found.goodput() == 0.0
    found._rounds = [100.0, 110.0, 120.0, 130.0, 145.0]
    assert found.goodput() == 20 / 25


def test_a_cheat_comes_with_every_tenth_round(tmp_path: Path) -> None:
    found = Storm(tmp_path / "devnet", job_text(40, 16), lineup(), Wei(10**18), say=lambda _: None)
    found.processes = {name: cast(Process, SimpleNamespace(kill=lambda: True)) for name in NAMES}
    plots = []
    for round_ in range(40):
        found._cheat(round_)
        plots.append(dict(found._plots))
    assert plots[8] == {} and plots[9] == {"solver-1": ("--fault", "10:9:0:5")}
    assert plots[19] == {"whistle-2": ("--accuse", "20:1")} and found.struck["cheat"] == 4
    job = parse_job_file(found.job, "the storm's")
    assert (job.training.rounds, job.training.shards) == (40, 2)


def test_once_its_hours_are_over_the_client_halts_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Storm(
        tmp_path / "devnet", job_text(40, 16), lineup(), Wei(10**18), say=lambda _: None, hours=0.01
    )
    progress, halted = SimpleNamespace(round=3, halted=False, closed=False), list[bytes]()
    monkeypatch.setattr(found, "jobs", lambda: [SimpleNamespace(progress=progress)])
    monkeypatch.setattr(found, "job_id", lambda: b"the job")
    writer = SimpleNamespace(halt=lambda intent, job_id: halted.append(job_id))
    monkeypatch.setattr(found.app, "connect", lambda name: SimpleNamespace(writer=writer))
    for name in ("LOOK_S", "CALM_ROUNDS"):
        monkeypatch.setattr(chaos, name, 0)
    now = [0.0]
    monkeypatch.setattr(chaos.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(found, "_begin", lambda strike: None)
    found.strike()
    now[0] = 36.0
    found.strike()
    assert halted == []
    now[0] = 36.1
    found.strike()
    progress.halted = True
    found.strike()
    assert halted == [b"the job"]
