"""Converts decoded ABI structs to values of `protocol.types`; `protocol.encoding.as_tuple` is the inverse.

Contract: `protocol.types` mirrors the Solidity structs in order (a test compares the names), so fields are
matched by position. Unknown enum values are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from assay.chain.eth.abi import MalformedData
from assay.protocol.game_state import Context, Cursor, Game, Params

T = TypeVar("T")
_known_hints: dict[type, dict[str, Any]] = {}


def unpack(kind: type[T], value: Mapping[str, Any]) -> T:
    """Converts a decoded struct to a value of `protocol.types`. Raises MalformedData."""
    hints = _hints(kind)
    if len(hints) != len(value):
        raise MalformedData(f"{kind.__name__} has {len(hints)} fields, the contract's struct {len(value)}")
    return kind(
        **{name: _convert(hint, v) for (name, hint), v in zip(hints.items(), value.values(), strict=True)}
    )


def unpack_game(value: Mapping[str, Any]) -> Game:
    """Converts a decoded `Game` with its three parts. Raises MalformedData."""
    kinds = {"params": Params, "context": Context, "cursor": Cursor}
    return Game.of(*(unpack(kind, value[name]) for name, kind in kinds.items()))


def _hints(kind: Any) -> dict[str, Any]:
    """Cached types of a struct's fields, in order; resolving them dominates the cost otherwise."""
    if kind not in _known_hints:
        hints = get_type_hints(kind)
        _known_hints[kind] = {field.name: hints[field.name] for field in fields(kind)}
    return _known_hints[kind]


def _convert(hint: Any, value: Any) -> Any:
    if isinstance(hint, type) and is_dataclass(hint):
        return unpack(hint, value)
    if get_origin(hint) is tuple:
        return tuple(_convert(get_args(hint)[0], item) for item in value)
    if isinstance(hint, type) and issubclass(hint, Enum):
        try:
            return hint(value)
        except ValueError as error:
            raise MalformedData(f"{value} is no {hint.__name__}") from error
    return value
