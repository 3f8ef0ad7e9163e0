"""Builds commands with an exchangeable part (a node's service, a devnet's nodes) and options from
dataclasses.

Contract: `command_of` only replaces the command's first argument, which is chosen where the command is
defined, and expands a dataclass parameter into options.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, is_dataclass
from functools import partial
from typing import Any


@dataclass(frozen=True)
class NodeKind:
    """Kind of node: `service` creates it; other nodes get its blocks if it `serves`."""

    service: Callable[..., Any]
    serves: bool = True


def command_of(run: Callable[..., None], part: Callable[..., Any] | None = None) -> Callable[..., None]:
    """Builds a command from `run`, with `part`, if there is one, as its first argument.

    Keyword-only parameters of `part` become options after those of `run`.
    """
    taken = _parameters(run)[part is not None :]
    added = [p for p in (_parameters(part) if part else []) if p.kind is p.KEYWORD_ONLY]
    groups: dict[str, Any] = {p.name: p.annotation for p in taken if is_dataclass(p.annotation)}
    own = [one for p in taken for one in (_parameters(groups[p.name]) if p.name in groups else [p])]

    def command(**options: Any) -> None:
        chosen = {parameter.name: options.pop(parameter.name) for parameter in added}
        for name, group in groups.items():
            options[name] = group(**{p.name: options.pop(p.name) for p in _parameters(group)})
        run(*([partial(part, **chosen)] if part else []), **options)

    parameters = [parameter.replace(kind=parameter.KEYWORD_ONLY) for parameter in (*own, *added)]
    command.__name__, command.__doc__, command.__module__ = run.__name__, run.__doc__, run.__module__
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    # Typer reads the options from it; typeshed's functions do not have the attribute.
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return command


def _parameters(called: Callable[..., Any]) -> list[inspect.Parameter]:
    return list(inspect.signature(called, eval_str=True).parameters.values())
