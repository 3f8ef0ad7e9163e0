"""Decoded ABI structs as the market's values; `protocol.encoding.as_tuple` is the way there.

Contract: `protocol.types` mirrors the Solidity structs field by field and in order (a test compares the
names), so fields go by position; enumerations become numbers and unknown numbers are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, TypeVar, get_type_hints

from chain.abi import MalformedData

T = TypeVar("T")


def unpack(kind: type[T], value: Mapping[str, Any]) -> T:
    """A decoded struct as a value of `protocol.types`. Raises MalformedData."""
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    if len(names) != len(value):
        raise MalformedData(f"{kind.__name__} has {len(names)} fields, the contract's struct {len(value)}")
    hints = get_type_hints(kind)
    return kind(**{n: _convert(hints[n], v) for n, v in zip(names, value.values(), strict=True)})


def _convert(hint: Any, value: Any) -> Any:
    if isinstance(hint, type) and is_dataclass(hint):
        return unpack(hint, value)
    if isinstance(hint, type) and issubclass(hint, Enum):
        try:
            return hint(value)
        except ValueError as error:
            raise MalformedData(f"{value} is no {hint.__name__}") from error
    return value
