"""What every command has beside its own: the root's options after its name too, and its examples.

Contract: an option of the root counts the same wherever it stands, and where it stands twice the later one
counts. Only a command's own option of the same name takes its place there. In a command's help those of the
root are not repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

from assay.cli.examples import EXAMPLES


def completed(options: Sequence[Any], command: Any, path: str) -> None:
    """Give a command the root's `options` and its examples. `path`: its whole name."""
    own = {flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)}
    for option in options:
        if not option.is_eager and not own.intersection(option.opts):
            command.params.append(_late(option))
    if path in EXAMPLES:
        head = "Start here, in an empty folder:" if path == command.name == "assay" else "Examples:"
        command.epilog = "\n\n".join((head, *EXAMPLES[path], *_AFTER))


_AFTER = (
    "Exit statuses: docs/commands.md. Options of every command, which may stand anywhere: assay --help",
)


def _late(option: Any) -> Any:
    """An option of the root as a command takes it: as if it had been given before the command's name."""
    late = copy(option)
    late.hidden, late.expose_value, late.callback = True, False, _given_late
    return late


def _given_late(context: Any, option: Any, value: Any) -> None:
    source = context.get_parameter_source(option.name)
    if source is None or source.name != "COMMANDLINE" or context.resilient_parsing:
        return
    root = context.find_root()
    root.params[option.name] = value
    root.invoke(root.command.callback, **root.params)
