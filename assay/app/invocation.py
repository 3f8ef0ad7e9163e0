"""Context of one command: settings, output, and lazily created adapters of the ports.

Contract: nothing heavy is imported and no connection is opened before a command needs it. Every write is
announced and, unless ``--yes``, confirmed first. A dry run sends nothing and changes no file: it works on
temporary copies, and the sender refuses transactions.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from assay.app.ids import SHORT, Ids, job_id_of, job_names
from assay.app.output import Exit, Output
from assay.app.settings import ENDPOINTS, Flags, Settings, masked
from assay.app.units import round_amount, show_amount
from assay.protocol import bounded_json
from assay.protocol.errors import Ask

if TYPE_CHECKING:
    from collections.abc import Callable
    from tempfile import TemporaryDirectory

    from assay.app.wiring import Connection, NodeStorage
    from assay.chain.contracts.market import ChainMarket
    from assay.protocol.types import JobId, JobView

EVENTS_FILE = "events.jsonl"
"""File in a node's folder with its events as JSON lines."""


def event_of(line: bytes) -> dict[str, Any]:
    """Parses one line of an events file; empty if the line is damaged."""
    try:
        event = bounded_json.loads(line)
    except ValueError:
        return {}
    return event if isinstance(event, dict) else {}


@dataclass
class App:
    """Context of one invocation."""

    flags: Flags
    output: Output
    yes: bool
    dry_run: bool
    max_spend: str | None
    _open: list[Connection] = field(default_factory=list)
    _scratch: TemporaryDirectory[str] | None = None
    """Temporary folder of a dry run."""

    @cached_property
    def settings(self) -> Settings:
        return Settings(self.flags)

    def choose(self, **flags: str | None) -> None:
        """Applies options given after the command's name as if given before it."""
        given = {name: value for name, value in flags.items() if value is not None}
        self.flags = replace(self.flags, **given)
        self.__dict__.pop("settings", None)

    def connect(
        self, account: str | None = None, kind: Callable[..., ChainMarket] | None = None
    ) -> Connection:
        """Market for an account (the chosen one, or `account`), ready to write. `kind`: its class."""
        from assay.app.wiring import connect

        name = account or self.settings.account
        home, sends = self.node_home(name), not self.dry_run
        chosen = {} if kind is None else {"kind": kind}
        connection = connect(self.settings, name, home, max_spend=self.max_spend, sends=sends, **chosen)
        self._open.append(connection)
        return connection

    def view(self) -> Connection:
        """Market for reading only; no key is opened."""
        from assay.app.wiring import connect_readonly

        connection = connect_readonly(self.settings, self._kept("view"))
        self._open.append(connection)
        return connection

    def look_up(self, connection: Connection, job: str) -> JobView:
        """Resolves a job and announces it before slow work (importing PyTorch takes seconds). Raises Stop."""
        found = connection.market.job(self.job_id(connection.market, job))
        self.output.say(f"looking at job {found.job_id.hex()[:SHORT]}")
        return found

    def job_id(self, market: Ids, job: str) -> JobId:
        """Resolves a job id. Raises Stop."""
        return job_id_of(market, job, job_names(self.settings.home))

    def storage(self, name: str) -> NodeStorage:
        """Block store of account `name`, which fetches from the nodes on chain, and the operator's Kubo, if
        any."""
        from assay.app.network_addresses import private_peers
        from assay.app.wiring import open_storage

        home, private = self.node_home(name), private_peers(self.settings)
        if self.dry_run:
            return open_storage(home, below=self.settings.home / "nodes" / name / "store", private=private)
        return open_storage(home, self.settings.value("ipfs"), private=private)

    def node_home(self, name: str) -> Path:
        """Folder of an account's blocks, journal and event cursor; in a dry run a temporary copy without
        blocks."""
        return self._kept(f"nodes/{name}")

    def _kept(self, below: str) -> Path:
        """A folder of the home, or its copy in a dry run."""
        real = self.settings.home / below
        if not self.dry_run:
            return real
        from tempfile import TemporaryDirectory

        from assay.disk.copying import copy_files

        self._scratch = self._scratch or TemporaryDirectory(prefix="assay-dry-run-")
        copy = Path(self._scratch.name) / below
        if not copy.exists():
            copy_files(real, copy, without=(EVENTS_FILE,))
        return copy

    def command(self, words: str) -> str:
        """A command as to be typed here, with this invocation's options but without endpoints, which often
        contain a key."""
        given = [
            f"--{f.name.replace('_', '-')} {masked(value) if f.name in ENDPOINTS else value}"
            for f in fields(self.flags)
            if (value := getattr(self.flags, f.name))
        ]
        return " ".join(("assay", *given, words))

    def end_dry_run(self, action: str) -> None:
        """Announces a local action and ends a dry run."""
        if self.dry_run:
            self.output.result("dry-run", {"action": action, "amount": "0"}, f"would {action}")
            raise typer.Exit(int(Exit.OK))

    def announce(self, action: str, amount: int = 0, worst_loss: int = 0) -> None:
        """Announces what will be sent and asks. Raises Ask (exit 10) if nobody can answer; ends a dry run."""
        parts = [action]
        if amount and show_amount(amount) not in action:
            parts.append(f"moves {show_amount(amount)}")
        if worst_loss:
            parts.append(f"costs {round_amount(worst_loss, up=True)} at most")
        text = "; ".join(parts)
        if self.dry_run:
            self.output.result("dry-run", {"action": action, "amount": str(amount)}, f"would send: {text}")
            raise typer.Exit(int(Exit.OK))
        if self.yes:
            self.output.say(text)
            return
        if not sys.stdin.isatty():
            raise Ask(
                f"{text}. Nothing was sent: this has to be confirmed",
                hint="repeat the command with --yes",
                code="needs-confirmation",
            )
        if not typer.confirm(f"{text}. Go on?", err=True):
            raise typer.Exit(int(Exit.CONFIRM))

    def close(self) -> None:
        """Closes what was opened."""
        for connection in self._open:
            connection.close()
        if self._scratch is not None:
            self._scratch.cleanup()


def app_of(context: typer.Context) -> App:
    """The App created by the root command."""
    app = context.find_root().obj
    assert isinstance(app, App)
    return app
