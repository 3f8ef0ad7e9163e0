"""Groups of commands whose modules are imported when one of their commands is asked for.

Contract: `assay --help` and a command import what they need themselves and no other command's libraries.
Not guaranteed: that a module's own help text is the one shown in its parent's list; the list is written here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from importlib import import_module
from typing import Any

from typer.core import TyperGroup
from typer.main import get_group

Rooms = Mapping[str, tuple[str, str]]
"""Of a group's name: the module whose `commands` it is, and its help in one line."""


def _unwrapped(text: str | None) -> str | None:
    """A docstring as one line a paragraph: lists of commands wrap it to the terminal themselves."""
    return None if text is None else re.sub(r"(?<!\n)\n(?!\n)", " ", text)


class Room(TyperGroup):
    """A group that stands for `module`'s `commands` until it is entered."""

    def __init__(self, name: str, module: str, text: str) -> None:
        self._module = module
        super().__init__(name=name, help=text, no_args_is_help=True)

    @cached_property
    def _loaded(self) -> TyperGroup:
        group = get_group(import_module(self._module).commands)
        group.name = self.name
        for command in group.commands.values():
            command.help = _unwrapped(command.help)
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
            for name, (module, text) in rooms.items():
                self.add_command(Room(name, module, text))

    return WithRooms
