"""What a command prints and how it ends.

Contract: with ``--json`` one object ``{"schema", "data"}`` on stdout and nothing else there; errors go to
stderr with code,
message and hint; the exit status says what kind of thing happened (see EXIT). Amounts are decimal strings in
JSON, so
that no reader loses digits.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from enum import IntEnum
from typing import Any, NoReturn

from rich.console import Console
from rich.table import Table

from protocol.errors import (
    Ask,
    AssayError,
    BlockNotFound,
    InsufficientFunds,
    PeerUnreachable,
    Retry,
    Reverted,
    RpcUnreachable,
)


class Exit(IntEnum):
    """Exit statuses of every command."""

    OK = 0
    BUG = 1
    USAGE = 2
    CONFIG = 3
    NOT_FOUND = 4
    FUNDS = 5
    REVERTED = 6
    UNREACHABLE = 7
    TIMEOUT = 8
    FRAUD = 9
    CONFIRM = 10


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
}


def exit_status(error: AssayError) -> Exit:
    """Exit status that an error ends the command with."""
    if error.code in _BY_CODE:
        return _BY_CODE[error.code]
    return next((status for kind, status in _BY_CLASS if isinstance(error, kind)), Exit.USAGE)


def plain(value: Any, name: str = "") -> Any:
    """JSON form of a value: digests as 0x-hex, amounts beyond 2^53 as decimal strings, dataclasses as
    objects."""
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
    return value


@dataclass
class Output:
    """Where a command's words go."""

    as_json: bool
    quiet: bool = False

    def __post_init__(self) -> None:
        self.out = Console(file=sys.stdout, highlight=False, soft_wrap=not sys.stdout.isatty())
        self.err = Console(file=sys.stderr, highlight=False, soft_wrap=not sys.stderr.isatty())

    def result(self, schema: str, data: Any, text: str | Table | None = None) -> None:
        """The command's result: an object with --json, else `text` (or nothing if quiet)."""
        if self.as_json:
            sys.stdout.write(json.dumps({"schema": f"assay/{schema}/1", "data": plain(data)}) + "\n")
            sys.stdout.flush()
        elif text is not None:
            self.out.print(text)

    def say(self, text: str) -> None:
        """Progress, on stderr; silent when quiet."""
        if not self.quiet:
            self.err.print(text)

    def fail(self, error: AssayError) -> NoReturn:
        """Report an error and end with its status."""
        if self.as_json:
            body = {"code": error.code, "message": error.message, "hint": error.hint}
            sys.stderr.write(json.dumps({"schema": "assay/error/1", "error": body}) + "\n")
        else:
            self.err.print(f"[bold red]error[/] \\[{error.code}] {error.message}", markup=True)
            if error.hint:
                self.err.print(f"  [bold]next:[/] {error.hint}")
        raise SystemExit(int(exit_status(error)))


@contextmanager
def reporting(output: Output) -> Iterator[None]:
    """Turn every AssayError of a command into its report and exit status."""
    try:
        yield
    except AssayError as error:
        output.fail(error)


def table(title: str, *columns: str) -> Table:
    """A table in the house's look; columns whose name starts with '#' are right-aligned."""
    result = Table(title=title, title_justify="left", header_style="bold", box=None, pad_edge=False)
    for column in columns:
        result.add_column(column.removeprefix("#"), justify="right" if column.startswith("#") else "left")
    return result
