"""Prints commands' results and errors, and sets their exit status.

Contract: with ``--json`` stdout has one object ``{"schema", "data"}`` and nothing else. Errors go to stderr
with code, message and hint; the exit status says what kind of thing happened (see Exit). Amounts are decimal
strings in JSON, so that no reader loses digits. A table is never truncated, however narrow the terminal.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Self, TextIO

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderableType, RenderHook, RenderResult
from rich.markup import escape
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from assay.protocol.errors import (
    Ask,
    AssayError,
    BlockNotFound,
    InsufficientFunds,
    PeerUnreachable,
    Retry,
    Reverted,
    RpcUnreachable,
)

if TYPE_CHECKING:
    from rich.progress import Progress


class Exit(IntEnum):
    """Exit statuses of every command; docs/commands.md explains them."""

    def __new__(cls, number: int, meaning: str) -> Self:
        made = int.__new__(cls, number)
        made._value_, made.meaning = number, meaning
        return made

    meaning: str

    OK = 0, "done"
    BUG = 1, "a bug in assay, or what a command was to compare differs"
    USAGE = 2, "the command line or a file says what cannot be; nothing was sent"
    CONFIG = 3, "something of this machine needs a person: a setting, a key, a file"
    NOT_FOUND = 4, "there is no such job, claim, block or file"
    FUNDS = 5, "the account holds too little"
    REVERTED = 6, "the contracts refuse it, or it is too early"
    UNREACHABLE = 7, "a chain's node or a peer does not answer"
    TIMEOUT = 8, "not yet: try it again later; or a clock ran out"
    FRAUD = 9, "something is false: a claim, a receipt, a model"
    CONFIRM = 10, "nobody said yes; nothing was sent"


_BY_CLASS: tuple[tuple[type[AssayError], Exit], ...] = (
    (InsufficientFunds, Exit.FUNDS),
    (Reverted, Exit.REVERTED),
    (RpcUnreachable, Exit.UNREACHABLE),
    (PeerUnreachable, Exit.UNREACHABLE),
    (BlockNotFound, Exit.NOT_FOUND),
    (Retry, Exit.TIMEOUT),
    (Ask, Exit.CONFIG),
)
_BY_CODE = {
    "needs-confirmation": Exit.CONFIRM,
    "not-found": Exit.NOT_FOUND,
    "no-such-job": Exit.NOT_FOUND,
    "no-such-claim": Exit.NOT_FOUND,
    "unfunded": Exit.FUNDS,
    "not-due": Exit.REVERTED,
    "lost-by-timeout": Exit.TIMEOUT,
    "game-lost": Exit.FRAUD,
    "bug": Exit.BUG,
    "rpc-failed": Exit.UNREACHABLE,
}


def exit_status(error: AssayError) -> Exit:
    """Exit status of a command that ends with this error."""
    if error.code in _BY_CODE:
        return _BY_CODE[error.code]
    return next((status for kind, status in _BY_CLASS if isinstance(error, kind)), Exit.USAGE)


def plain(value: Any, name: str = "") -> Any:
    """JSON form of a value.

    Digests become 0x-hex, amounts beyond 2^53 decimal strings, dataclasses objects, NaN and infinities "nan"
    and "inf".
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name), f.name) for f in fields(value)}
    if isinstance(value, IntEnum):
        return value.name.lower()
    if isinstance(value, bytes):
        return "0x" + value.hex()
    if isinstance(value, Mapping):
        return {str(k): plain(v, str(k)) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 1 << 53:
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no such numbers
    return value


FILE_COLUMNS = 240
"""Width of non-terminal output, so that piped tables are not cut."""


def visible(text: str) -> str:
    """The text without what a terminal obeys instead of showing: escape sequences, other control characters,
    marks that turn the writing direction."""
    return "".join(c if c.isprintable() or c == "\n" else " " for c in text)


class _Printable(RenderHook):
    """Has a console print text only, whoever wrote it: rich passes escape sequences on."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_Shown(renderable) for renderable in renderables]


@dataclass(frozen=True)
class _Shown:
    what: ConsoleRenderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for piece in console.render(self.what, options):
            yield piece if piece.control else Segment(visible(piece.text), piece.style)


def _console(file: TextIO) -> Console:
    terminal = file.isatty()
    made = Console(
        file=file, highlight=False, soft_wrap=not terminal, width=None if terminal else FILE_COLUMNS
    )
    made.push_render_hook(_Printable())
    return made


@dataclass
class Output:
    """Output of one command."""

    as_json: bool
    quiet: bool = False

    def __post_init__(self) -> None:
        self.out, self.err = _console(sys.stdout), _console(sys.stderr)
        self._working = False

    def result(self, schema: str, data: Any, text: str | Table | None = None) -> None:
        """Prints the command's result: an object with --json, else `text` (or nothing if quiet)."""
        if self.as_json:
            sys.stdout.write(json.dumps({"schema": f"assay/{schema}/1", "data": plain(data)}) + "\n")
            sys.stdout.flush()
        elif isinstance(text, Table) and not text.row_count and not text.caption:
            self.out.print(f"{text.title}: none", markup=False)
        elif text is not None:
            self.out.print(_as_it_is(text), markup=False)

    def say(self, text: str) -> None:
        """Prints progress on stderr, unless quiet."""
        if not self.quiet:
            self.err.print(text, markup=False)

    @contextmanager
    def working(self, text: str) -> Iterator[Step]:
        """Shows progress of work that takes over two seconds: a bar at a terminal, otherwise a line per step.
        A nested one is a line."""
        if self.quiet or self._working or not self.err.is_terminal:
            self.say(text)
            yield Step(self)
            return
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(24))
        self._working = True
        try:
            with Progress(*columns, TimeElapsedColumn(), console=self.err, transient=True) as bar:
                bar.add_task(text, total=None)
                yield Step(self, bar)
        finally:
            self._working = False

    def report(self, error: AssayError) -> None:
        """Prints an error and its hint on stderr."""
        if isinstance(error, Reverted):
            from assay.app.contract_errors import in_words

            error = in_words(error)
        if self.as_json:
            body = {"code": error.code, "message": error.message, "hint": error.hint}
            sys.stderr.write(json.dumps({"schema": "assay/error/1", "error": body}) + "\n")
        else:
            self.err.print(f"[bold red]error[/] \\[{error.code}] {escape(error.message)}")
            if error.hint:
                self.err.print(f"  [bold]next:[/] {escape(error.hint)}")

    def fail(self, error: AssayError) -> NoReturn:
        """Prints an error and exits with its status."""
        self.report(error)
        raise SystemExit(int(exit_status(error)))


@dataclass(frozen=True)
class Step:
    """Callback for the progress of long work."""

    output: Output
    bar: Progress | None = None

    def __call__(self, line: str, done: int | None = None, of: int | None = None) -> None:
        """Reports the current step, and the number of parts done and in all."""
        if self.bar is None:
            self.output.say(line)
        else:
            task = self.bar.task_ids[0]
            self.bar.update(task, description=line, completed=done, total=of)


def _as_it_is(text: str | Table) -> str | Table:
    """A table whose title and caption are not parsed as markup."""
    if isinstance(text, Table):
        for part in ("title", "caption"):
            if isinstance(said := getattr(text, part), str):
                setattr(text, part, Text(said, style=f"table.{part}"))
    return text


STYLES = {
    "settled": "green",
    "attested": "cyan",
    "unchecked": "yellow",
    "open": "cyan",
    "halted": "yellow",
    "void": "dim",
    "closed": "dim",
    "missing": "yellow",
    "disputed": "bold magenta",
    "convicted": "bold red",
    "ok": "green",
    "note": "yellow",
    "bad": "bold red",
}
"""Colour of a cell by the state it begins with: green is final, red is lost, yellow needs attention."""


class _Rows(Table):
    """A table whose cells are not parsed as markup: job files and strangers' texts have brackets. States are
    coloured."""

    def add_row(self, *cells: RenderableType | None, **more: Any) -> None:
        super().add_row(*(_cell(cell) if isinstance(cell, str) else cell for cell in cells), **more)


def _cell(text: str) -> Text:
    disputed = "(disputed)" in text
    return Text(text, STYLES["disputed"] if disputed else STYLES.get(text.partition(" ")[0].rstrip(","), ""))


def table(title: str, *columns: str) -> Table:
    """Creates a table; columns whose name starts with '#' are right-aligned."""
    result = _Rows(title=title, title_justify="left", header_style="bold", box=None, pad_edge=False)
    for column in columns:
        justify: Literal["left", "right"] = "right" if column.startswith("#") else "left"
        result.add_column(column.removeprefix("#"), justify=justify, overflow="fold")
    return result
