"""Groups of commands whose modules are imported when one of their commands is asked for.

Contract: `assay --help` and a command import what they need themselves and no other command's libraries.
What `everywhere` adds to the commands of a tree it adds to those that are imported later, too.
Not guaranteed: that a module's own help text is the one shown in its parent's list; the list is written here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cached_property
from importlib import import_module
from typing import Any

from typer.core import TyperGroup
from typer.main import get_group

Rooms = Mapping[str, tuple[str, ...]]
"""Of a group's name: the module whose `commands` it is, its help in one line, and in which part of the list
it stands, if the list has parts."""
Add = Callable[[Any, str], None]
"""Adds something to a command, which is given with its whole name."""


def _unwrapped(text: str | None) -> str | None:
    """A docstring as one line a paragraph: lists of commands wrap it to the terminal themselves."""
    return None if text is None else re.sub(r"(?<!\n)\n(?!\n)", " ", text)


class Room(TyperGroup):
    """A group that stands for `module`'s `commands` until it is entered."""

    def __init__(self, name: str, module: str, text: str, part: str | None = None) -> None:
        self._module = module
        self._add: tuple[Add, str] | None = None
        super().__init__(name=name, help=text, no_args_is_help=True, rich_help_panel=part)

    def later(self, add: Add, path: str) -> None:
        """What is added to this group and its commands, once the module is imported."""
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
        """The module's commands by name; the module is imported."""
        return self._loaded.commands

    @commands.setter
    def commands(self, _: Any) -> None:
        """Nothing is kept here: the module has the commands."""

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        return self._loaded.make_context(*arguments, **options)


def with_rooms(rooms: Rooms) -> type[TyperGroup]:
    """A kind of group that has these groups beside its own commands."""

    class WithRooms(TyperGroup):
        def __init__(self, **attributes: Any) -> None:
            super().__init__(**attributes)
            for name, room in rooms.items():
                self.add_command(Room(name, *room))

        def list_commands(self, context: Any) -> list[str]:
            """Part by part, those of other modules first."""
            rank = {room[2]: number for number, room in enumerate(rooms.values()) if len(room) > 2}
            order = [*rooms, *(name for name in super().list_commands(context) if name not in rooms)]
            part = {name: str(getattr(one, "rich_help_panel", "")) for name, one in self.commands.items()}
            return sorted(order, key=lambda name: rank.get(part[name], 0))

    return WithRooms


def everywhere(command: Any, add: Add, path: str) -> None:
    """Add to a command and all below it. `path`: the command's whole name."""
    if isinstance(command, Room):
        command.later(add, path)
        return
    for name, below in getattr(command, "commands", {}).items():
        everywhere(below, add, f"{path} {name}")
    add(command, path)
