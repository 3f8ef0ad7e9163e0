"""Runs a scenario: a whole market on this machine in which somebody cheats, up to the verified model.

Contract: honest processes are the commands of ``assay`` that a person would run; cheating ones are the same
commands of ``drills`` with a drill's option. A scenario (``drills.scenarios``) passes only if its promises
held, the job ended, the model was verified against its receipt, and the tokens add up. Otherwise it fails
with the reasons.
"""

from __future__ import annotations

import signal
import time
import webbrowser
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from enum import Enum
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING

from rich.console import Group
from rich.live import Live
from rich.markup import escape
from rich.text import Text

from assay.app.invocation import App
from assay.app.units import parse_amount, show_amount
from assay.app.wiring import Connection, NodeStorage
from assay.devnet.devices import with_devices
from assay.devnet.market import NodeSpec, bring_up, fund_account, make_account, node_events
from assay.job.read import GptModel, JobFile, parse_job_file
from assay.job.templates import LOCAL, template
from assay.protocol.errors import AssayError, Stop
from assay.protocol.game_state import GameView
from assay.protocol.types import Address, ClaimView, JobId, Phase, Vote
from drills.balances import snapshot
from drills.disturbances import disturb
from drills.narrator import Event, EventTail, Narrator
from drills.outcome import Outcome, Played, gas_by_kind, judge, report
from drills.promises import STRANGER
from drills.scenarios import SCENARIOS, Scenario

if TYPE_CHECKING:
    from assay.node.states import StateProvider
    from assay.training.job import JobArtifacts
    from drills.evidence import Evidence
    from drills.hostile_jobs import PostedJob

BUDGET = parse_amount("400tok")
CLIENT_TOKENS = parse_amount("1000tok")
BLOCK_TIME_S = 0.5
"""Seconds between empty blocks; transactions are mined at once."""


def demo_job(source: str, quick: bool, scenario: Scenario) -> JobFile:
    """Job of a scenario: a byte-level GPT of 0.86 million parameters, or a smaller one."""
    times = {**LOCAL, "task": "180s", "vote": "90s", "move": "45s"}
    times["window"] = "12s" if quick else "32s"
    rounds = scenario.quick_rounds if quick else 3
    text = template("gpt", source=source, rounds=rounds, times=times | dict(scenario.times))
    text = text.replace("steps_per_round = 64", "steps_per_round = 16")
    small = {"layers = 4": "layers = 1", "width = 128": "width = 32", "context = 64": "context = 32"}
    for old, new in ({**small, **scenario.changes} if quick else scenario.changes).items():
        text = text.replace(old, new)
    return parse_job_file(text, "the scenario's job")


class Shown(Enum):
    """Whether a run can be seen in a browser."""

    NOT = 0
    SERVED = 1
    OPENED = 2


class Run:
    """One run of a scenario."""

    def __init__(
        self,
        app: App,
        scenario: Scenario,
        body: JobFile,
        out: Path,
        dashboard: Shown = Shown.NOT,
        limit_s: float = 600.0,
        held_out_rows: int = 256,
    ) -> None:
        self.app, self.scenario, self.body, self.out = app, scenario, body, out
        self.dashboard = dashboard
        self.limit_s, self.held_out_rows = limit_s, held_out_rows
        self.narrator = Narrator()
        self.games: list[GameView] = []
        self._disturbances = list(scenario.disturbances)
        self.outcome = Outcome()
        self.say = app.output.err.print
        self.addresses: dict[str, Address] = {}

    def play(self) -> Outcome:
        """Runs the scenario. Raises AssayError if it cannot go on; leaves the devnet running."""
        begin = time.monotonic()
        specs = self.scenario.nodes()
        self.say(f"[bold]{self.scenario.name}[/]: {self.scenario.summary}")
        from assay.job.build import build
        from assay.job.terms import conditions_of

        self.tell("client", "traces the model's training step into a program")
        with ThreadPoolExecutor(1) as beside:
            files = beside.submit(build, self.body)
            self._accounts(specs)
            bring_up(self.app, specs, BLOCK_TIME_S, conditions_of(self.body))
            self.addresses["client"] = fund_account(self.app, "client", CLIENT_TOKENS)
            if self.scenario.hostile_job:
                self.addresses[STRANGER] = fund_account(self.app, STRANGER, CLIENT_TOKENS)
            self.outcome.seconds_ready = time.monotonic() - begin
            self._job(specs, files.result())
        self.outcome.seconds_run = time.monotonic() - begin
        return self.outcome

    def _accounts(self, specs: list[NodeSpec]) -> None:
        for spec in specs:
            self.addresses[spec.name] = make_account(self.app, spec.name)

    def _parties(self) -> dict[str, Address]:
        from assay.chain.eth.anvil import dev_account

        return {**self.addresses, "faucet": Address(dev_account(0).address)}

    def _job(self, specs: list[NodeSpec], files: JobArtifacts) -> None:
        from assay.app.web import serve_blocks
        from assay.job.estimate import counted, drafted
        from assay.job.post import agreed, publish_and_post
        from drills.evidence import Evidence

        count, size = counted(files.records)
        self.outcome.parameters = sum(x.numel() for x in files.genesis[: files.inner.params])
        self.tell(
            "client",
            f"{self.outcome.parameters:,} parameters,"
            f" {len(files.inner.nodes):,} nodes,"
            f" {count:,} records of {size} bytes",
        )
        connection, storage = self.app.connect("client"), self.app.storage("client")
        connection.writer.deposit("scenario/deposit", CLIENT_TOKENS)
        self.outcome.before = snapshot(connection, self._parties())
        with ExitStack() as shown, serve_blocks("client", connection, storage):
            hostile = self._post_hostile(shown, files)
            terms = drafted(self.body, files)
            job = agreed(self.app, connection, self.body, files, terms, BUDGET)
            job_id = publish_and_post(connection, storage, job)
            self.tell("client", f"posts job {job_id.hex()[:16]} with a budget of {show_amount(BUDGET)}")
            self._show(shown, job_id)
            with Evidence(storage, job_id) as evidence:
                self._follow(connection, evidence, job_id, [spec.name for spec in specs])
            if hostile is not None:
                hostile.take_back()
                self.tell(STRANGER, "closes its job, which nobody took: the budget comes back")
            self._finish(connection, storage, job_id)
        self.outcome.gas = gas_by_kind(self.app, self.addresses)

    def _post_hostile(self, posted_for: ExitStack, files: JobArtifacts) -> PostedJob | None:
        """Posts the stranger's job, if the scenario has one."""
        from drills.hostile_jobs import HOSTILE_JOBS, posted

        kind = self.scenario.hostile_job
        if not kind:
            return None
        job = posted_for.enter_context(posted(self.app, kind, self.body, files, BUDGET))
        plan = HOSTILE_JOBS[kind].plan
        self._seen(STRANGER, {"event": "fault-planted", "plan": plan, "job": job.job_id.hex()})
        return job

    def _show(self, shown: ExitStack, job_id: JobId) -> None:
        """Serves the dashboard until the run is over, and prints its URL."""
        if self.dashboard == Shown.NOT:
            return
        from assay.dashboard.server import serving

        url = f"{shown.enter_context(serving(self.app))}/#/job/{job_id.hex()[:16]}"
        self.tell("dashboard", f"{url} until the run is over")
        if self.dashboard == Shown.OPENED:
            webbrowser.open(url)

    def tell(self, name: str, text: str) -> None:
        """Prints a line that comes from no node."""
        if line := self.narrator.line(name, {"event": "said", "text": escape(text)}):
            self.say(line)

    def _seen(self, name: str, event: Event) -> None:
        self.outcome.events.append((name, event))
        if line := self.narrator.line(name, event):
            self.say(line)

    def _disturb(self, name: str, event: Event) -> None:
        """Applies the disturbances triggered by this event."""
        due = [d for d in self._disturbances if (d.node, d.event) == (name, event["event"])]
        for disturbance in due:
            self._disturbances.remove(disturbance)
            self._seen("devnet", {"event": "disturbed", "plan": disturb(self.app, disturbance)})

    def _follow(
        self,
        connection: Connection,
        evidence: Evidence,
        job_id: JobId,
        names: list[str],
    ) -> None:
        from assay.app.job_progress import progress_table
        from assay.client.following import follow

        tail = EventTail({name: node_events(self.app.settings.home, name) for name in names})
        deadline = time.monotonic() + self.limit_s
        terminal = self.app.output.err.is_terminal
        with Live(
            console=self.app.output.err, transient=True, auto_refresh=False, redirect_stderr=False
        ) as live:
            while True:
                for name, event in tail.new():
                    self._seen(name, event)
                    self._disturb(name, event)
                connection.market.refresh()
                evidence.look(connection.market)
                following = follow(connection.market, job_id)
                if terminal:
                    live.update(Group(Text(), progress_table(following)), refresh=True)
                games = connection.market.games(job_id)
                if following.job.progress.closed and all(game.decided for game in games):
                    return  # also games on fallen claims, whose bonds come back once their time is over
                if time.monotonic() > deadline:
                    raise Stop(
                        f"the job did not end within {self.limit_s:.0f} s",
                        hint=f"see the logs in {self.app.settings.home / 'logs'}",
                        code="too-slow",
                    )
                time.sleep(0.4)

    def _finish(self, connection: Connection, storage: NodeStorage, job_id: JobId) -> None:
        from assay.app.computing import engine_of
        from assay.app.resource_limits import RESOURCE_LIMITS
        from assay.client.chain_check import compare
        from assay.client.fetched import sample_text
        from assay.client.fetching import fetch
        from assay.client.receipt import read_receipt
        from assay.client.verifying import verify
        from assay.node.states import open_state_provider
        from drills.held_out import held_out_losses

        outcome, market = self.outcome, connection.market
        self.games = list(market.games(job_id))
        outcome.games = [Played.of(view) for view in self.games]
        storage.follow(market)
        self.tell("client", "fetches the model, led to the root that the chain settled")
        with market.snapshot():
            fetch(market, storage.blocks, job_id, self.out, RESOURCE_LIMITS, connection.chain, market.block)
        outcome.verified = verify(self.out)
        self.tell("client", f"offline: it is consistent with {self.out / 'receipt.json'}")
        seen = compare(read_receipt(self.out), market, connection.chain, market.block)
        self.tell(
            "client",
            f"on the chain at block {seen.block}: all {seen.claims} claims of the"
            f" receipt, {seen.settled} of them settled",
        )
        engine = engine_of(self.app.settings)
        state_provider = open_state_provider(
            market, storage.blocks, market.job(job_id), RESOURCE_LIMITS, engine=engine
        )
        self.tell("client", "recomputes what was convicted, and measures the model on text held out")
        self._check_verdicts(state_provider, job_id)
        outcome.held_out_loss = held_out_losses(state_provider, job_id, self.body, self.held_out_rows)
        if isinstance(self.body.model, GptModel):
            outcome.sample = sample_text(self.out, "def ", 160, 0)
        outcome.after = snapshot(connection, self._parties())
        assert outcome.before is not None
        minted = outcome.before.supply + outcome.before.burnt - outcome.before.undestroyed
        for shot in (outcome.before, outcome.after):
            shot.check(minted)

    def _check_verdicts(self, state_provider: StateProvider, job_id: JobId) -> None:
        """Replays everything that was convicted."""
        from assay.node.audit import audit_claim, audit_vote
        from assay.node.rounds import missing
        from assay.whistleblower.service import describe

        market, names = state_provider.market, {address: name for name, address in self.addresses.items()}
        job, claims = market.job(job_id), market.claims(job_id)
        self.outcome.demands = [demand.outcome for demand in market.demands(job_id)]
        for round_ in range(job.progress.round):
            without = missing(job, claims, round_)
            self.outcome.missing_shards += [{"round": round_, "shard": shard} for shard in without]
        for view in claims:
            if view.status.phase == Phase.CONVICTED:
                claim, found = view.claim, audit_claim(state_provider, view)
                guilty = self._guilty(state_provider, view) if found else []
                self.outcome.convicted.append(
                    {
                        "claimant": names.get(claim.claimant, claim.claimant),
                        "kind": claim.kind.name.lower(),
                        "round": claim.round,
                        "shard": claim.shard,
                        "passedBy": len(_passed(view)),
                        "guilty": [names[vote.verifier] for vote in guilty],
                        "finding": describe(found) if found else "",
                    }
                )
        for game in self.games:
            if game.challenger_won and game.game.ballot:
                view = market.claim(game.game.claim_id)
                vote = view.votes[game.game.ballot - 1]
                lie = audit_vote(state_provider, view, vote)
                said = {"verifier": names[vote.verifier], "finding": describe(lie) if lie else ""}
                self.outcome.lies.append(said)

    def _guilty(self, state_provider: StateProvider, view: ClaimView) -> list[Vote]:
        """Valid votes on a fallen claim whose sample included its fault.

        That is the segment of the won game, or the input if there was no game (rules 5.1 and 5.5).
        """
        from assay.node.findings import sampled

        won = [g.game for g in self.games if g.challenger_won and g.game.claim_id == view.claim_id]
        won = [game for game in won if game.defender == view.claim.claimant]
        if not won:
            return _passed(view)
        segment = won[0].segment
        return [
            vote
            for vote in _passed(view)
            if segment in sampled(state_provider.work.terms, view, vote.verifier)
        ]


def _passed(view: ClaimView) -> list[Vote]:
    """Votes that called a claim valid, including those that fell or were freed since."""
    return [vote for vote in view.votes if view.traces.get(vote.verifier)]


def next_steps() -> list[str]:
    """Commands to type after a scenario."""
    steps = [] if which("assay") else [("source .venv/bin/activate", "the commands below are there")]
    steps += [
        ("python -m drills list", "other cheats, by name"),
        ("assay devnet up", "a market for jobs of your own"),
    ]
    width = max(len(command) for command, _ in steps)
    told = [f"  {command:<{width}}  # {what}" for command, what in steps]
    return ["next:", *told, "and a page for each of four people: docs/tutorials"]


def _leave(*_: object) -> None:
    raise SystemExit(128 + signal.SIGTERM)


def run_scenario(
    app: App,
    name: str,
    *,
    source: str,
    quick: bool,
    out: Path,
    dashboard: Shown = Shown.NOT,
    devices: Mapping[str, str] | None = None,
) -> bool:
    """Runs and reports one scenario; True if it passed. `devices`: by role or node.

    Raises Stop for an unknown name, Ask for an unknown role or node.
    """
    from assay.devnet.market import take_down

    scenario = SCENARIOS.get(name)
    if scenario is None:
        raise Stop(
            f"there is no scenario {name!r}", hint=f"there are: {', '.join(SCENARIOS)}", code="not-found"
        )
    nodes = with_devices(scenario.nodes(), devices or {})
    scenario = replace(scenario, nodes=lambda: nodes)
    run = Run(app, scenario, demo_job(source, quick, scenario), out, dashboard)
    signal.signal(signal.SIGTERM, _leave)
    try:
        outcome = run.play()
    finally:
        try:
            take_down(app.settings.home)
        except AssayError as error:
            app.output.say(f"taking the devnet down: {error.message}")
    missing = judge(scenario.promised, outcome)
    report(app, scenario.attackers, scenario.name, outcome, missing)
    for line in next_steps():
        app.output.say(line)
    return not missing
