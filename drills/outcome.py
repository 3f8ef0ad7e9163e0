"""Collects a scenario's outcome and prints its closing tables.

Contract: an `Outcome` holds only data from the chain, the nodes' events and the verified model; the report
adds nothing.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.text import Text

from assay.app.invocation import App
from assay.app.output import table
from assay.app.units import show_amount
from assay.protocol.game_state import GameView
from assay.protocol.types import Address
from drills.balances import Snapshot, balance_table
from drills.narrator import Event


@dataclass(frozen=True)
class Played:
    """Result of one game."""

    game_id: int
    moves: int
    reason: str
    decided: bool
    challenger_won: bool

    @classmethod
    def of(cls, view: GameView) -> Played:
        return cls(view.game_id, view.moves, view.reason, view.decided, view.challenger_won)


@dataclass
class Outcome:
    """Everything that a run showed."""

    seconds_ready: float = 0.0
    seconds_run: float = 0.0
    events: list[tuple[str, Event]] = field(default_factory=list)
    convicted: list[dict[str, Any]] = field(default_factory=list)
    """Convicted claims, each with the finding of the client's own replay."""
    lies: list[dict[str, Any]] = field(default_factory=list)
    """Convicted votes, likewise."""
    demands: list[str] = field(default_factory=list)
    """Outcome of each demand for a state."""
    missing_shards: list[dict[str, int]] = field(default_factory=list)
    """Shards that rounds were closed without."""
    games: list[Played] = field(default_factory=list)
    gas: dict[str, list[int]] = field(default_factory=dict)
    held_out_loss: list[float] = field(default_factory=list)
    parameters: int = 0
    verified: Any = None
    sample: str = ""
    before: Snapshot | None = None
    after: Snapshot | None = None

    def reported(self, name: str, event: str) -> bool:
        return any(who == name and e["event"] == event for who, e in self.events)

    def told(self, name: str, event: str) -> list[Event]:
        """A node's events of one kind, in order."""
        return [e for who, e in self.events if who == name and e["event"] == event]

    def burnt(self) -> int:
        """Tokens burnt during the run."""
        assert self.before is not None and self.after is not None
        return self.after.burnt - self.before.burnt

    def parties(self) -> list[str]:
        """All accounts whose tokens are counted."""
        return list(self.after.parties) if self.after is not None else []

    def change(self, name: str) -> int:
        """Change of a party's tokens over the run, in smallest units."""
        assert self.before is not None and self.after is not None
        return self.after.parties[name] - self.before.parties[name]


def gas_by_kind(app: App, accounts: dict[str, Address]) -> dict[str, list[int]]:
    """Gas used by each mined transaction of these accounts, by entry point."""
    from assay.chain.eth.journal import Journal

    found: dict[str, list[int]] = {}
    for name, address in accounts.items():
        path = app.node_home(name) / "journal.db"
        if not path.exists():
            continue
        journal = Journal(path)
        for intent in journal.executed(address, 0):
            if intent.receipt is not None:
                found.setdefault(intent.call.purpose, []).append(intent.receipt.gas_used)
        journal.close()
    return found


def judge(promised: Callable[[Outcome], list[str]], outcome: Outcome) -> list[str]:
    """Broken promises; empty if the scenario passed."""
    missing = promised(outcome)
    losses = outcome.held_out_loss
    if len(losses) < 2 or not losses[-1] < losses[0]:
        missing.append(f"the loss did not fall: {losses}")
    if outcome.verified is None:
        missing.append("the model was not checked against its receipt")
    return missing


def report_of(name: str, outcome: Outcome, missing: list[str]) -> dict[str, Any]:
    """The report as JSON."""
    return {
        "scenario": name,
        "passed": not missing,
        "missing": missing,
        "secondsReady": round(outcome.seconds_ready, 1),
        "secondsRun": round(outcome.seconds_run, 1),
        "parameters": outcome.parameters,
        "heldOutLoss": [round(loss, 4) for loss in outcome.held_out_loss],
        "convicted": outcome.convicted,
        "lies": outcome.lies,
        "missingShards": outcome.missing_shards,
        "demands": outcome.demands,
        "games": [
            {"id": g.game_id, "moves": g.moves, "reason": g.reason, "challengerWon": g.challenger_won}
            for g in outcome.games
            if g.decided
        ],
        "disputeGas": dispute_gas(outcome.gas),
        "gas": {kind: int(statistics.median(used)) for kind, used in sorted(outcome.gas.items())},
        "verified": outcome.verified,
        "sample": outcome.sample,
        "before": outcome.before,
        "after": outcome.after,
    }


def report(app: App, attackers: Sequence[str], name: str, outcome: Outcome, missing: list[str]) -> None:
    """Prints the closing tables, or one object with --json."""
    if app.output.as_json:
        app.output.result("scenario", report_of(name, outcome, missing))
        return
    out = app.output.out
    rows = table("gas by transaction", "entry point", "#count", "#median", "#most")
    for kind, used in sorted(outcome.gas.items()):
        rows.add_row(kind, str(len(used)), f"{int(statistics.median(used)):,}", f"{max(used):,}")
    out.print(rows)
    losses = " → ".join(f"{loss:.3f}" for loss in outcome.held_out_loss)
    out.print(f"\nheld-out loss, nats a byte, at genesis and after each round: [bold]{losses}[/]")
    for fallen in outcome.convicted:
        place = f"{fallen['kind']} {fallen['round']}/{fallen['shard']}"
        guilty = ", ".join(fallen["guilty"]) or "nobody"
        found = fallen["finding"] or "nothing wrong"
        out.print(f"convicted: {place} of {fallen['claimant']}; the client's own replay: {found}")
        out.print(f"verifiers that had vouched for what was wrong: {guilty}")
    if outcome.demands:
        out.print(f"demands for states: {', '.join(outcome.demands)}")
    for gap in outcome.missing_shards:
        out.print(f"round {gap['round']} was closed without shard {gap['shard']}")
    for lie in outcome.lies:
        out.print(f"convicted: a vote of {lie['verifier']}; the client's own replay: {lie['finding']}")
    for game in outcome.games:
        side = "challenger" if game.challenger_won else "defender"
        out.print(f"game {game.game_id}: {game.moves} moves, won by the {side} ({game.reason})")
    if outcome.games:
        out.print(f"gas of all disputes: {dispute_gas(outcome.gas):,}")
    if outcome.before and outcome.after:
        out.print(balance_table(outcome.before, outcome.after))
        for line in in_short(attackers, outcome):
            out.print(line)
    written = "".join(c if c.isprintable() or c == "\n" else "\N{MIDDLE DOT}" for c in outcome.sample)
    out.print(Text("what the model writes after 'def ':\n" + written, style="italic"))
    out.print(f"ready after {outcome.seconds_ready:.0f} s, done after {outcome.seconds_run:.0f} s")
    if missing:
        out.print("[bold red]FAILED:[/] " + "; ".join(missing))
    else:
        out.print(f"[bold green]{name}: everything that it promises happened.[/]")


def in_short(attackers: Sequence[str], outcome: Outcome) -> list[str]:
    """Summary of the attacker's loss and the others' balances."""
    others = [name for name in outcome.parties() if name not in (*attackers, "client", "faucet")]

    def told(names: Sequence[str]) -> str:
        change = sum(outcome.change(name) for name in names)
        return f"{'+' if change > 0 else ''}{show_amount(change)}"

    guilty = {name for fallen in outcome.convicted for name in fallen["guilty"] if name not in attackers}
    honest = [name for name in others if name not in guilty]
    lines = [f"the attack: {', '.join(attackers)} {told(attackers)}"] if attackers else []
    if guilty:
        lines.append(f"who covered for it: {', '.join(sorted(guilty))} {told(sorted(guilty))}")
    lines.append(f"{'all other nodes' if attackers else 'all nodes'}: {told(honest)}, and none lost anything")
    losers = [name for name in honest if outcome.change(name) < 0]
    if losers:
        lines[-1] = f"all other nodes: {told(honest)}, of which {', '.join(losers)} lost {told(losers)}"
    return lines


def dispute_gas(gas: dict[str, list[int]]) -> int:
    """Gas of all transactions of disputes: finding, opening and every move."""
    return sum(sum(used) for kind, used in gas.items() if kind.split(".")[0] in ("Court", "Challenges"))
