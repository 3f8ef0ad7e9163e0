"""`assay doctor`: every line has its fix, and none stops the others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from assay.app import computing, resource_limits
from assay.app.output import Exit, Output
from assay.app.settings import Flags, Settings
from assay.chain.eth.head_tracker import EndpointLagging
from assay.cli import doctor
from assay.protocol.errors import AssayError
from tests.fakes.any_error import ENDS, ERRORS, name_of
from tests.unit.cli.test_command_line import assay

pytestmark = pytest.mark.usefixtures("user")


def looked(*words: str) -> tuple[int, dict[str, Any]]:
    status, out, _ = assay("--json", *words)
    return status, {line["check"]: line for line in json.loads(out)["data"]["checks"]}


def test_on_a_bare_machine_each_bad_line_says_what_to_do() -> None:
    status, lines = looked("doctor", "--role", "solver")
    assert status == Exit.CONFIG
    assert lines["keys"]["state"] == "bad" and "account new" in lines["keys"]["fix"]
    assert lines["chain"]["state"] == "bad" and "devnet up" in lines["chain"]["fix"]
    assert lines["exactness"]["state"] == "bad" and "solver bench" in lines["exactness"]["fix"]
    assert all(line["fix"] for line in lines.values() if line["state"] != "ok")


def test_a_password_that_others_can_read_is_found(user: Path) -> None:
    assert assay("account", "new", "ann", "--write-password")[0] == Exit.OK
    (user / "user" / ".assay" / "password").chmod(0o644)
    _, lines = looked("doctor")
    assert lines["keys"]["state"] == "ok" and "ann" in lines["keys"]["found"]
    assert lines["password"]["fix"].startswith("chmod 600 ")
    assert "exactness" not in lines, "a client trains nothing"


def test_a_full_disk_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "LEAST_DISK_BYTES", 1 << 80)
    assert looked("doctor")[1]["disk"]["state"] == "note"


def test_an_unknown_role_is_refused() -> None:
    status, _, err = assay("--json", "doctor", "--role", "king")
    assert status == Exit.CONFIG and json.loads(err)["error"]["code"] == "bad-role"


@pytest.mark.parametrize("error", ERRORS, ids=name_of)
def test_attack_T46_whatever_one_node_brings_about_the_others_are_counted(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    class Announced:
        market: Any

        def endpoints(self) -> dict[str, str]:
            return {"0xa": "http://bad", "0xb": "http://good"}

        def unusable(self) -> dict[str, str]:
            return {"0xc": "http://xn--a\x1b[31m"}

    def answer(url: str, private: object, within_s: float, most_bytes: int) -> bytes:
        if "bad" in url:
            raise error
        return b"ok"

    monkeypatch.setattr(doctor, "whole_answer", answer)
    app: Any = SimpleNamespace(settings=Settings(Flags(home="/nowhere")))
    connection: Any = Announced()
    connection.market = connection
    lines = list(doctor._tried("storage", lambda: doctor._peers(app, connection)))
    assert lines[0].state == "ok" and lines[0].found.startswith("1 of the last 2")
    assert "0xc announces 'http://xn--a\\x1b[31m'" in lines[1].found and lines[1].fix.isprintable()


@pytest.mark.parametrize("error", ERRORS, ids=name_of)
def test_a_check_that_fails_is_a_line(error: Exception) -> None:
    def fails() -> Iterator[doctor.Line]:
        yield doctor.Line("clock", "ok", "")
        raise error

    first, last = doctor._tried("clock", fails)
    assert first.state == "ok" and last.state == "bad" and (last.fix or isinstance(error, AssayError))


@pytest.mark.parametrize("error", ENDS, ids=name_of)
def test_what_ends_the_process_is_no_line(error: BaseException) -> None:
    def fails() -> Iterator[doctor.Line]:
        raise error
        yield

    with pytest.raises(type(error)):
        list(doctor._tried("clock", fails))


def test_attack_T47_an_endpoint_that_is_behind_is_a_line() -> None:
    class Behind:
        def block(self) -> int:
            return 70

        def troubles(self) -> dict[str, str]:
            return {"http://one": "it is behind by 8 blocks"}

    parts: Any = Behind()
    parts.clock = parts.rpc = parts
    app: Any = SimpleNamespace(view=lambda: parts, settings=SimpleNamespace(rpc_url="", deployment=""))
    lines = list(doctor._chain(app, []))
    assert any(line.state == "note" and "one: it is behind by 8 blocks" in line.found for line in lines)


def test_attack_T47_what_is_behind_ends_a_command_with_status_7() -> None:
    with pytest.raises(SystemExit) as ended:
        Output(as_json=True).fail(EndpointLagging("http://one", 8, 70))
    assert ended.value.code == int(Exit.UNREACHABLE) == 7


def reach_of(url: str, rpc: str, others: dict[str, str]) -> doctor.Line:
    """doctor's lines about an account's announced URL, by the other nodes' answers."""
    market: Any = SimpleNamespace(endpoints=lambda: {"0xme": url, **others})
    app: Any = SimpleNamespace(settings=Settings(Flags(home="/nowhere", rpc_url=rpc)))
    (line,) = doctor._reach(app, market, "0xme", url)  # type: ignore[arg-type]
    return line


def test_w16_an_address_that_only_this_machine_has_is_bad_on_a_chain_that_is_not_here() -> None:
    line = reach_of("http://127.0.0.1:4001", "https://eth.example.org", {})
    assert line.state == "bad" and "each machine's own" in line.found and "--announce-url" in line.fix
    assert reach_of("http://127.0.0.1:4001", "http://127.0.0.1:8545", {}).state == "note"


@pytest.mark.parametrize(
    ("told", "state"),
    [
        ([b'{"reached": true}', b'{"reached": false}'], "ok"),
        ([b'{"reached": false}', b'{"reached": false}'], "bad"),
        ([b"junk", b'{"reached": "yes"}'], "note"),
    ],
)
def test_w16_other_nodes_are_asked_whether_they_can_fetch(
    told: list[bytes], state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = dict(zip(("http://10.0.0.1/reach/0xme", "http://10.0.0.2/reach/0xme"), told, strict=True))
    monkeypatch.setattr(doctor, "whole_answer", lambda url, private, within_s, most: answers[url])
    others = {"0x1": "http://10.0.0.1", "0x2": "http://10.0.0.2"}
    line = reach_of("http://192.0.2.7:4001", "https://eth.example.org", others)
    assert line.state == state and (state == "ok") == (not line.fix)


def job_of(number: int, gigabytes: int, closed: bool = False) -> Any:
    """A job whose step takes so many gigabytes."""
    progress, terms = (
        SimpleNamespace(closed=closed, halted=False),
        SimpleNamespace(step_bytes=gigabytes * 10**9),
    )
    return SimpleNamespace(job_id=bytes([number] * 32), terms=terms, progress=progress)


@pytest.mark.parametrize(
    ("devices", "fits", "room"),
    [(["cuda:0"], 2, 7.0), (["cuda:0", "cuda:1"], 2, 7.0), (["cuda:0", "cuda:0"], 1, 3.5)],
)
def test_jobs_that_fit_a_card_of_8_gb_are_counted_and_the_others_named(
    monkeypatch: pytest.MonkeyPatch, devices: list[str], fits: int, room: float
) -> None:
    """Workers of one device share its memory; one GPU each is one worker each."""
    monkeypatch.setattr(computing, "memory_of", lambda device: computing.GPU_RESERVE_BYTES + 7 * 10**9)

    jobs = [job_of(1, 3), job_of(2, 7), job_of(3, 12), job_of(4, 99, closed=True)]
    connection: Any = SimpleNamespace(market=SimpleNamespace(jobs=lambda: jobs))
    app: Any = SimpleNamespace(command=lambda words: f"assay {words}")
    lines = list(doctor._jobs(app, connection, "solver", devices))
    assert len(lines) == len(set(devices))
    for line in lines:
        assert line.state == "note" and f"{fits} of 3 open jobs fit cuda:" in line.found
        assert f"{room} GB for a step" in line.found and "0303030303030303 (12.0 GB)" in line.found
        assert ("0202020202020202" in line.found) == (fits == 1) and "0404" not in line.found
        assert f"solver run --memory {int(room * 1000)}MB" in line.fix


@pytest.mark.parametrize(("gpu", "host"), [(7, 5), (80, 5), (7, 20)])
def test_jobs_that_a_whistleblower_replays_from_disk_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, gpu: int, host: int
) -> None:
    """The machine's memory decides, as in the engine, whatever a GPU has. A quarter of the disk may be taken;
    what is larger is too large for it, too."""
    monkeypatch.setattr(computing, "memory_of", lambda device: computing.GPU_RESERVE_BYTES + gpu * 10**9)
    reserved = resource_limits.CONTROL_BYTES + resource_limits.WORKER_BYTES
    monkeypatch.setattr(resource_limits, "memory_bytes", lambda: reserved + 3 * host * 10**9 // 2)
    monkeypatch.setattr(
        resource_limits.shutil, "disk_usage", lambda folder: SimpleNamespace(total=4 * 10**11)
    )

    jobs = [job_of(1, 3), job_of(2, 12), job_of(3, 101)]
    connection: Any = SimpleNamespace(market=SimpleNamespace(jobs=lambda: jobs))
    app: Any = SimpleNamespace(
        command=lambda words: f"assay {words}", settings=SimpleNamespace(home=tmp_path, device="cuda:0")
    )
    (line,) = doctor._jobs(app, connection, "whistleblower", ["cuda:0"])
    streamed, _, large = line.found.partition("too large")
    assert line.state == "note" and "1 of 3 open jobs fit" in line.found
    assert ("0202020202020202 (12.0 GB)" in (streamed if host < 12 else large)) and "0303" in large
    assert ("replayed streamed from disk" in streamed) == (host < 12)
    assert "0303030303030303 (101.0 GB)" in large and "0303" not in streamed
    (line,) = doctor._jobs(app, connection, "solver", ["cuda:0"])
    assert "streamed" not in line.found and ("0202" in line.found) == (gpu < 12), "a solver trains in memory"


def test_a_market_whose_jobs_all_fit_is_no_note(monkeypatch: pytest.MonkeyPatch) -> None:
    connection: Any = SimpleNamespace(market=SimpleNamespace(jobs=list))
    app: Any = SimpleNamespace()
    (line,) = doctor._jobs(app, connection, "solver", ["cpu"])
    assert line.state == "ok" and line.found.startswith("0 of 0 open jobs fit cpu") and not line.fix
