"""Commands of which one part can be another: a node's service, a devnet's nodes.

Contract: `command_of` changes nothing of the command but its first argument; what stands there is chosen
where the command is made, and not by whoever gives it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any


@dataclass(frozen=True)
class NodeKind:
    """What a node runs: `service` makes it, and other nodes get its blocks if it `serves`."""

    service: Callable[..., Any]
    serves: bool = True


def command_of(run: Callable[..., None], part: Callable[..., Any]) -> Callable[..., None]:
    """The command `run` with `part` as its first argument. Keyword-only parameters of `part` become options
    after those of `run`."""
    _, *own = inspect.signature(run, eval_str=True).parameters.values()
    added = [
        parameter
        for parameter in inspect.signature(part, eval_str=True).parameters.values()
        if parameter.kind is parameter.KEYWORD_ONLY
    ]

    def command(**options: Any) -> None:
        chosen = {parameter.name: options.pop(parameter.name) for parameter in added}
        run(partial(part, **chosen), **options)

    parameters = [parameter.replace(kind=parameter.KEYWORD_ONLY) for parameter in (*own, *added)]
    command.__name__, command.__doc__, command.__module__ = run.__name__, run.__doc__, run.__module__
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    # Typer reads the options from it; typeshed's functions do not have the attribute.
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return command
