"""Command groups whose modules are imported on first use.

Contract: `assay --help` and a command import only what they need. `everywhere` also applies to commands that
are imported later. Not guaranteed: that the help text in the parent's list, which is written here, equals the
module's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cached_property
from importlib import import_module
from typing import Any

from typer.core import TyperGroup
from typer.main import get_group

LazyGroups = Mapping[str, tuple[str, ...]]
"""By group name: the module with its `commands`, its one-line help, and its panel in the list, if any."""
Add = Callable[[Any, str], None]
"""Adds something to a command, given its full name."""


def _unwrapped(text: str | None) -> str | None:
    """Joins the lines of each paragraph of a docstring: help lists wrap it themselves."""
    return None if text is None else re.sub(r"(?<!\n)\n(?!\n)", " ", text)


class Room(TyperGroup):
    """A group that imports `module`, and uses its `commands`, when entered."""

    def __init__(self, name: str, module: str, text: str, part: str | None = None) -> None:
        self._module = module
        self._add: tuple[Add, str] | None = None
        super().__init__(name=name, help=text, no_args_is_help=True, rich_help_panel=part)

    def later(self, add: Add, path: str) -> None:
        """Registers what `everywhere` adds to this group once the module is imported."""
        self._add = add, path

    @cached_property
    def _loaded(self) -> TyperGroup:
        group = get_group(import_module(self._module).commands)
        group.name = self.name
        for command in group.commands.values():
            command.help = _unwrapped(command.help)
        if self._add is not None:
            everywhere(group, *self._add)
        return group

    @property
    def commands(self) -> Any:
        """The module's commands by name; imports the module."""
        return self._loaded.commands

    @commands.setter
    def commands(self, _: Any) -> None:
        """Ignores assignments: the module has the commands."""

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        return self._loaded.make_context(*arguments, **options)


def with_lazy_groups(rooms: LazyGroups) -> type[TyperGroup]:
    """A group class that has these lazy groups beside its own commands."""

    class WithLazyGroups(TyperGroup):
        def __init__(self, **attributes: Any) -> None:
            super().__init__(**attributes)
            for name, room in rooms.items():
                self.add_command(Room(name, *room))

        def list_commands(self, context: Any) -> list[str]:
            """Commands by panel, lazy groups first."""
            rank = {room[2]: number for number, room in enumerate(rooms.values()) if len(room) > 2}
            order = [*rooms, *(name for name in super().list_commands(context) if name not in rooms)]
            part = {name: str(getattr(one, "rich_help_panel", "")) for name, one in self.commands.items()}
            return sorted(order, key=lambda name: rank.get(part[name], 0))

    return WithLazyGroups


def everywhere(command: Any, add: Add, path: str) -> None:
    """Applies `add` to a command and all below it. `path`: the command's full name."""
    if isinstance(command, Room):
        command.later(add, path)
        return
    for name, below in getattr(command, "commands", {}).items():
        everywhere(below, add, f"{path} {name}")
    add(command, path)
