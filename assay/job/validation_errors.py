"""Formats pydantic's validation errors of a job file: the key as written, and the likely intended one.

Contract: one sentence per fault, after its key. A key is named by its place in the file, not by pydantic's
union branches or a contract's field name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from assay.protocol.words import meant

_QUOTED = re.compile(r"'([^']*)'")
_QUOTED_KINDS = re.compile(r'"(\w+)"')
_SHOWN = 60
"""Maximum characters of a value in a message."""


def fault(found: ErrorDetails, body: Mapping[str, Any], whole: type[BaseModel]) -> str:
    """Formats one validation error of `body`, parsed as `whole`."""
    path = _path(found["loc"], body)
    key = ".".join(path)
    match found["type"]:
        case "missing":
            return f"{key} is missing"
        case "extra_forbidden":
            return f"{key} is no key of a job file{meant(path[-1], _keys(whole, path[:-1], body))}"
        case "literal_error":
            return f"{key} {_choice(found['input'], found['ctx']['expected'])}"
        case "union_tag_invalid":
            named = found["ctx"]["discriminator"].strip("'")
            return f"{key}.{named} {_choice(found['ctx']['tag'], found['ctx']['expected_tags'])}"
        case "union_tag_not_found":
            named = found["ctx"]["discriminator"].strip("'")
            return f"{key}.{named} is missing"
        case "model_kind":
            tag = found["input"].get("template") if isinstance(found["input"], dict) else None
            near = meant(tag, _QUOTED_KINDS.findall(found["msg"])) if isinstance(tag, str) else ""
            return f"{key}: {found['msg']}{near}"
    said = found["msg"].removeprefix("Value error, ").replace("Input should be", "it should be", 1)
    if found["type"] != "value_error":
        said += _instead(found["input"])
    return f"{key}: {said}" if key else said


def _instead(value: object) -> str:
    """The invalid value in TOML syntax; empty if it is long or a table."""
    if not isinstance(value, str | int | float):
        return ""
    odd = not str(value).isprintable()  # a terminal may do something else with it than show it
    shown = repr(value) if type(value) in (int, float) else json.dumps(value, ensure_ascii=odd)
    return f", not {shown}" if len(shown) <= _SHOWN else ""


def _choice(value: object, expected: str) -> str:
    near = meant(value, _QUOTED.findall(expected)) if isinstance(value, str) else ""
    return f"is {value!r}; it is one of {expected}{near}"


def _path(place: Sequence[int | str], body: object) -> list[str]:
    """A location without pydantic's union branches."""
    path = []
    for number, part in enumerate(place, 1):
        there = part in body if isinstance(body, Mapping) else isinstance(part, int)
        if there or number == len(place):
            path.append(str(part))
            body = body[part] if there and isinstance(body, Mapping) else None
    return path


def _keys(whole: type[BaseModel], path: Sequence[str], body: object) -> list[str]:
    """Keys that a section of `body` may have: of its stated kind, or of any kind if it states none."""
    kinds = [whole]
    for part in path:
        fields = [(field.alias or name, field) for kind in kinds for name, field in kind.model_fields.items()]
        kinds = [kind for name, field in fields if name == part for kind in _sections(field.annotation)]
        body = body.get(part) if isinstance(body, Mapping) else None
        kinds = [kind for kind in kinds if _said_to_be(kind, body)] or kinds
    return [field.alias or name for kind in kinds for name, field in kind.model_fields.items()]


def _said_to_be(kind: type[BaseModel], section: object) -> bool:
    """True if a section states this kind by its literal field, or by having the field."""
    if not isinstance(section, Mapping):
        return False
    words = [(field.alias or name, get_args(field.annotation)) for name, field in kind.model_fields.items()]
    names = [(name, allowed[0]) for name, allowed in words if len(allowed) == 1 and type(allowed[0]) is str]
    if names:
        return all(section.get(name) == allowed for name, allowed in names)
    return any(name in section for name, _ in words)


def _sections(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [kind for part in get_args(annotation) for kind in _sections(part)]
