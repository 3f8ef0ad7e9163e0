"""What every command shares: settings, output, and the adapters behind the ports, made when first needed.

Contract: nothing heavy is imported and no connection is opened before a command asks for it; every write is
announced and, unless ``--yes``, confirmed first. A dry run sends nothing and leaves every file as it was:
what it keeps is in a folder that goes with it, and a transaction that comes to its sender is refused there.
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
    from tempfile import TemporaryDirectory

    from assay.app.wiring import Connection, NodeStorage
    from assay.protocol.types import JobId, JobView

EVENTS_FILE = "events.jsonl"
"""A node's events as JSON lines, in its folder."""


def event_of(line: bytes) -> dict[str, Any]:
    """One line of such a file; empty where the line is damaged."""
    try:
        event = bounded_json.loads(line)
    except ValueError:
        return {}
    return event if isinstance(event, dict) else {}


@dataclass
class App:
    """One invocation of the command."""

    flags: Flags
    output: Output
    yes: bool
    dry_run: bool
    max_spend: str | None
    _open: list[Connection] = field(default_factory=list)
    _scratch: TemporaryDirectory[str] | None = None
    """In which a dry run keeps what it would keep in the home folder."""

    @cached_property
    def settings(self) -> Settings:
        return Settings(self.flags)

    def choose(self, **flags: str | None) -> None:
        """Take options that were given after the command's name as if they had been given before it."""
        given = {name: value for name, value in flags.items() if value is not None}
        self.flags = replace(self.flags, **given)
        self.__dict__.pop("settings", None)

    def connect(self, account: str | None = None) -> Connection:
        """Market for an account (the chosen one, or `account`), ready to write."""
        from assay.app.wiring import connect

        name = account or self.settings.account
        home, sends = self.node_home(name), not self.dry_run
        connection = connect(self.settings, name, home, max_spend=self.max_spend, sends=sends)
        self._open.append(connection)
        return connection

    def view(self) -> Connection:
        """Market for reading only; no key is opened."""
        from assay.app.wiring import connect_readonly

        connection = connect_readonly(self.settings, self._kept("view"))
        self._open.append(connection)
        return connection

    def look_up(self, connection: Connection, job: str) -> JobView:
        """The job of a name, an id, or the first digits of one, said before what takes longer (PyTorch alone
        takes seconds to import). Raises Stop where there is none."""
        found = connection.market.job(self.job_id(connection.market, job))
        self.output.say(f"looking at job {found.job_id.hex()[:SHORT]}")
        return found

    def job_id(self, market: Ids, job: str) -> JobId:
        """The id of the job that was typed. Raises Stop."""
        return job_id_of(market, job, job_names(self.settings.home))

    def storage(self, name: str) -> NodeStorage:
        """The block store of account `name` in this home folder, fetching from the nodes on chain; beside it
        the operator's Kubo, where there is one."""
        from assay.app.reach import private_peers
        from assay.app.wiring import open_storage

        home, private = self.node_home(name), private_peers(self.settings)
        if self.dry_run:
            return open_storage(home, below=self.settings.home / "nodes" / name / "store", private=private)
        return open_storage(home, self.settings.value("ipfs"), private=private)

    def node_home(self, name: str) -> Path:
        """Folder of one account's blocks, journal and event cursor; in a dry run a copy without the blocks,
        which ends with the command."""
        return self._kept(f"nodes/{name}")

    def _kept(self, below: str) -> Path:
        """A folder of the home, or its copy for a dry run."""
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
        """A command as it is to be typed here: with the options that this one was given. Endpoints, which
        often have a key in them, are without it."""
        given = [
            f"--{f.name.replace('_', '-')} {masked(value) if f.name in ENDPOINTS else value}"
            for f in fields(self.flags)
            if (value := getattr(self.flags, f.name))
        ]
        return " ".join(("assay", *given, words))

    def end_dry_run(self, action: str) -> None:
        """Of what is done here and sends nothing: say it and end, if this is a dry run."""
        if self.dry_run:
            self.output.result("dry-run", {"action": action, "amount": "0"}, f"would {action}")
            raise typer.Exit(int(Exit.OK))

    def announce(self, action: str, amount: int = 0, worst_loss: int = 0) -> None:
        """Say what is about to be sent and ask. Raises Ask (exit 10) when nobody can answer; ends a dry
        run."""
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
        """Close what was opened."""
        for connection in self._open:
            connection.close()
        if self._scratch is not None:
            self._scratch.cleanup()


def app_of(context: typer.Context) -> App:
    """The App that the root command made."""
    app = context.find_root().obj
    assert isinstance(app, App)
    return app
