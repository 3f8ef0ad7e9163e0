"""A client audits a tenth of its jobs by default, and reads what the audit lacks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from assay.app import auditing
from assay.app.auditing import UNAUDITED, Auditing, AuditShares, Told, audit_told, checked, shares_of
from assay.app.invocation import App
from assay.app.output import Output
from assay.app.settings import Flags
from assay.protocol.errors import Ask, Stop
from assay.protocol.types import ZERO_ADDRESS, JobId, JobView, Kind, Wei
from tests.fakes.jobs import account
from tests.fakes.market_day import MarketDay

BOND = Wei(40 * 10**18)
NO_BLOCKS: Any = SimpleNamespace(blocks=None, store=SimpleNamespace(root=None))


@pytest.fixture
def jobs(tmp_path: Path) -> list[JobView]:
    """Two jobs of the client, and a stranger's."""
    day = MarketDay(tmp_path / "day")
    posted = [day.post(nonce=n) for n in (1, 2)]
    mine = [day.market_state.jobs[job_id].view for job_id in posted]
    theirs = replace(mine[0], job_id=JobId(b"t" * 32), terms=replace(mine[0].terms, client=account("x")))
    return [replace(job, terms=replace(job.terms, challenge_bond=BOND)) for job in (*mine, theirs)]


class Kept(Output):
    """Output lines."""

    def __init__(self) -> None:
        super().__init__(as_json=False, quiet=False)
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)


def the_app(home: Path) -> App:
    return App(Flags(home=str(home), account="client"), Kept(), True, False, None)


def connected(jobs: list[JobView], free: int = BOND) -> Any:
    market = SimpleNamespace(me=account("client"), jobs=lambda: jobs, free=lambda _: Wei(free))
    return SimpleNamespace(market=market, writer=market, rpc=None, journal=None, secret=b"s" * 32)


class Service:
    """An audit that waits for its stop."""

    begun: list[Service]

    def __init__(self, market: Any, blocks: Any, clock: Any, *rest: Any, **options: Any) -> None:
        self.clock, self.limits, self.emit = clock, rest[2], options["emit"]
        self.ended, self.loop = threading.Event(), SimpleNamespace()
        Service.begun.append(self)

    unclaimed = staticmethod(lambda _: None)

    def run(self) -> None:
        while self.clock.wait(10.0):
            pass
        self.ended.set()


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[Service]:
    Service.begun = []
    monkeypatch.setattr(auditing, "WhistleblowerService", Service)
    return Service.begun


def said(app: App, act: Callable[[], object]) -> str:
    """Output of a block."""
    kept = app.output
    assert isinstance(kept, Kept)
    kept.lines.clear()
    act()
    return " ".join(kept.lines)


def test_a_tenth_is_audited_unless_said_and_that_outlasts_a_restart(
    tmp_path: Path, jobs: list[JobView]
) -> None:
    first, second = jobs[0].job_id, jobs[1].job_id
    shares = AuditShares(tmp_path / "shares")
    assert shares.of(jobs[:2]) == {first: 0.1, second: 0.1}
    shares.say(first, 0.25)
    assert AuditShares(tmp_path / "shares").of(jobs[:2]) == {first: 0.25, second: 0.1}
    shares.say(first, 0.0)
    assert AuditShares(tmp_path / "shares").of(jobs[:2]) == {second: 0.1}
    (tmp_path / "shares").write_bytes(b"junk")
    assert AuditShares(tmp_path / "shares").of(jobs[:1]) == {first: 0.1}


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_what_is_no_share_is_refused(share: float) -> None:
    with pytest.raises(Stop):
        checked(share)


@pytest.mark.parametrize("share", [0.0, 0.1, 1.0])
def test_a_share_is_from_none_to_all(share: float) -> None:
    assert checked(share) == share


def test_what_the_audit_lacks_is_said_with_the_command_that_mends_it(
    tmp_path: Path, jobs: list[JobView]
) -> None:
    app = the_app(tmp_path)
    command = app.command
    told = audit_told(connected(jobs).market, jobs[0], 0.1, command)
    assert told.startswith(f"audits 10% of job {jobs[0].job_id.hex()[:16]}'s claims and votes")
    lacking = audit_told(connected(jobs, BOND // 2).market, jobs[0], 0.1, command)
    assert "cannot dispute: its bond of 40 tok is not free" in lacking
    assert "--account client token deposit 20tok`" in lacking
    assert audit_told(connected(jobs, 0).market, jobs[0], 0.0, command) == UNAUDITED


def test_own_jobs_alone_are_audited_by_one_thread_that_ends_with_the_block(
    tmp_path: Path, jobs: list[JobView], begun: list[Service]
) -> None:
    app, mine = the_app(tmp_path), jobs[:1]
    connection = connected([*mine, jobs[2]])
    with Auditing(app, connection, NO_BLOCKS, "client") as audit:
        assert said(app, audit.look).count("audits 10%") == 1 and said(app, audit.look) == ""
        (service,) = begun
        assert service.limits.shares.of == {mine[0].job_id: 0.1}
        assert service.limits.bond_budget == 8 * BOND
        shares_of(app, "client").say(jobs[1].job_id, 1.0)
        mine.append(jobs[1])
        connection.market.jobs = lambda: [*mine, jobs[2]]
    assert service.ended.wait(5)
    secret = service.limits.shares.secret
    with Auditing(app, connection, NO_BLOCKS, "client") as audit:
        assert "audits 100%" in said(app, audit.look)
        assert begun[1].limits.shares.of == {mine[0].job_id: 0.1, mine[1].job_id: 1.0}
        assert begun[1].limits.shares.secret == secret, "a restart draws the same"


def test_the_workers_of_an_audit_share_the_memory_and_the_disk_of_the_home(
    tmp_path: Path, jobs: list[JobView], begun: list[Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Streamed steps spill there, wherever the block store is."""
    asked: list[tuple[object, ...]] = []
    monkeypatch.setattr(
        auditing, "limits_of", lambda *given, **named: asked.append((*given, *named.values()))
    )
    monkeypatch.setenv("ASSAY_DEVICE", "cpu,cpu")
    app = the_app(tmp_path)
    with Auditing(app, connected(jobs[:1]), NO_BLOCKS, "client") as audit:
        said(app, audit.look)
    assert len(begun) == 1 and asked == [(None, 2, app.settings.home)]


def test_a_job_that_is_not_to_be_audited_starts_nothing(
    tmp_path: Path, jobs: list[JobView], begun: list[Service]
) -> None:
    app = the_app(tmp_path)
    shares_of(app, "client").say(jobs[0].job_id, 0.0)
    with Auditing(app, connected(jobs[:1]), NO_BLOCKS, "client") as audit:
        assert said(app, audit.look) == UNAUDITED
    assert not begun


def test_a_key_that_cannot_be_used_is_said_and_serving_goes_on(
    tmp_path: Path, jobs: list[JobView], begun: list[Service]
) -> None:
    class Locked:
        """A connection whose key was not opened."""

        market = connected(jobs[:1]).market
        writer, rpc, journal = market, None, None

        @property
        def secret(self) -> bytes:
            raise Ask("this connection can only read", hint="pass --account NAME")

    app = the_app(tmp_path)
    with Auditing(app, cast(Any, Locked()), NO_BLOCKS, "client") as audit:
        assert "WARNING: nothing is audited: " in said(app, audit.look)
    assert not begun


def test_what_was_audited_and_found_is_told_in_words() -> None:
    lines: list[str] = []
    claim = SimpleNamespace(claim=SimpleNamespace(kind=Kind.TASK, round=1, shard=0))
    told = Told(SimpleNamespace(claim=lambda _: claim), lines.append)
    about = {"claim": "ab" * 32, "verifier": ZERO_ADDRESS}
    told({"event": "audited", **about})
    told({"event": "found", **about, "verifier": account("v"), "finding": "WrongVote: sampled trace 0"})
    told({"event": "opened", **about, "reason": "sample 0 is disputed"})
    told({"event": "advice", **about, "reason": "its bond exceeds balance or budget"})
    told({"event": "moved", **about})
    assert lines == [
        "audited task 1/0: right",
        f"audited the vote of {account('v')} on task 1/0: FALSE: WrongVote: sampled trace 0",
        "audit: task 1/0: opened: sample 0 is disputed",
        "WARNING: audit: its bond exceeds balance or budget",
    ]
