"""Adds the root's options, and examples, to every command, so that options may follow the command's name.

Contract: an option of the root counts the same wherever it stands; if given twice the later one counts. A
command's own option of the same name takes precedence. A command's help does not repeat the root's options.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

from assay.cli.examples import EXAMPLES


def completed(options: Sequence[Any], command: Any, path: str) -> None:
    """Adds the root's `options` and examples to a command. `path`: its full name."""
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
    """A copy of a root option for use after a command's name."""
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
