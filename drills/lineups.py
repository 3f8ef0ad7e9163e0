"""Builds the nodes of a scenario, with the options that make some of them cheat.

Contract: names are the devnet's (solver-1, verifier-2, whistle-1). Cheating nodes are started by ``python -m
drills``, others by ``python -m assay``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

from assay.devnet.market import NodeSpec, default_nodes
from assay.protocol.errors import Stop
from assay.protocol.types import Wei

LOOK = ("--poll", "0.4")
PATIENT = (*LOOK, "--patience", "3s")


DRILLS = frozenset(
    (
        *("--fault", "--cheat", "--withhold", "--waits"),
        *("--collude-with", "--lazy", "--copy-from", "--silent"),
        *("--accuse", "--late"),
    )
)
"""Options of `drills.nodes` commands that the commands of ``assay`` do not have."""


def told(spec: NodeSpec, *words: str) -> NodeSpec:
    """The node with more arguments, started by ``drills`` if any of them is a drill's option."""
    package = "drills" if DRILLS & {*words} else spec.package
    return replace(spec, arguments=(*spec.arguments, *words), package=package)


def lineup(verifiers: int, whistleblowers: int = 1, **arguments: tuple[str, ...]) -> list[NodeSpec]:
    """Two solvers, the second of which waits for a better price, verifiers and whistleblowers.

    `arguments`: extra arguments by name (solver_1).
    """
    own = {"solver-1": ("--max-shards", "1"), "solver-2": ("--waits",)}
    specs = []
    for spec in default_nodes(2, verifiers, whistleblowers):
        common = LOOK if spec.role == "whistleblower" else PATIENT
        added = arguments.get(spec.name.replace("-", "_"), ())
        specs.append(told(spec, *common, *own.get(spec.name, ()), *added))
    return specs


def covered(*cheat: str, verifiers: int = 2, **arguments: tuple[str, ...]) -> Callable[[], list[NodeSpec]]:
    """solver-1 cheats, every verifier approves whatever it claims, and one or more whistleblowers watch."""
    accomplices = {f"verifier_{i + 1}": ("--collude-with", "solver-1") for i in range(verifiers)}
    watch = {"whistle_1": ("--no-audit-votes",)} | arguments
    return lambda: lineup(verifiers, len(watch), solver_1=cheat, **accomplices, **watch)


def alone(*cheat: str) -> Callable[[], list[NodeSpec]]:
    """solver-1 cheats among honest nodes."""
    return lambda: lineup(2, solver_1=cheat)


def weighty(name: str, nodes: list[NodeSpec]) -> list[NodeSpec]:
    """The same, but one of them has three times the stake, and is drawn more often."""
    return [
        replace(spec, tokens=Wei(3 * spec.tokens), stake=Wei(3 * spec.stake)) if spec.name == name else spec
        for spec in nodes
    ]


def accused(*accusations: str) -> Callable[[], list[NodeSpec]]:
    """Everybody is honest but the whistleblowers, each of which makes one of these accusations."""
    junk = {f"whistle_{i + 1}": ("--accuse", text) for i, text in enumerate(accusations)}
    return lambda: lineup(2, len(junk), **junk)


def fault_of(arguments: Sequence[str]) -> re.Match[str] | None:
    """The round in a node's fault, if it has one."""
    texts = [value for option, value in pairwise(arguments) if option == "--fault"]
    return re.fullmatch(r"((?:state:)?)(\d+)(:\d+:\d+:\d+)", texts[0]) if texts else None


def in_round(arguments: tuple[str, ...], name: str, round_: str) -> tuple[str, ...]:
    """The same arguments with their fault in this round."""
    if not round_.isdecimal():
        raise Stop(f"{round_!r} is not a round", hint=f"write {name}@0", code="bad-fault")
    found = fault_of(arguments)
    if found is None:
        return arguments
    moved = f"{found[1]}{round_}{found[3]}"
    return tuple(moved if text == found[0] else text for text in arguments)
