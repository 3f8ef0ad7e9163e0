"""What pydantic finds wrong with a job file, in words: the key as the file has it, and what may be meant.

Contract: a fault is one sentence after the key that it is about. A key is named by its place in the file: not
by the kind of section that pydantic tried, and not by a word of the contracts.
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
"""Characters of a value in a fault at most."""


def fault(found: ErrorDetails, body: Mapping[str, Any], whole: type[BaseModel]) -> str:
    """One fault of `body`, which was read as a `whole`."""
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
    """The value that is there instead, as TOML has it; nothing of one that is long or no value by itself."""
    if not isinstance(value, str | int | float):
        return ""
    odd = not str(value).isprintable()  # a terminal may do something else with it than show it
    shown = repr(value) if type(value) in (int, float) else json.dumps(value, ensure_ascii=odd)
    return f", not {shown}" if len(shown) <= _SHOWN else ""


def _choice(value: object, expected: str) -> str:
    near = meant(value, _QUOTED.findall(expected)) if isinstance(value, str) else ""
    return f"is {value!r}; it is one of {expected}{near}"


def _path(place: Sequence[int | str], body: object) -> list[str]:
    """A place without the kinds that pydantic tried on the way, which are no keys."""
    path = []
    for number, part in enumerate(place, 1):
        there = part in body if isinstance(body, Mapping) else isinstance(part, int)
        if there or number == len(place):
            path.append(str(part))
            body = body[part] if there and isinstance(body, Mapping) else None
    return path


def _keys(whole: type[BaseModel], path: Sequence[str], body: object) -> list[str]:
    """Keys that a section of `body` may have: of the kind that it says to be, of any where it says none."""
    kinds = [whole]
    for part in path:
        fields = [(field.alias or name, field) for kind in kinds for name, field in kind.model_fields.items()]
        kinds = [kind for name, field in fields if name == part for kind in _sections(field.annotation)]
        body = body.get(part) if isinstance(body, Mapping) else None
        kinds = [kind for kind in kinds if _said_to_be(kind, body)] or kinds
    return [field.alias or name for kind in kinds for name, field in kind.model_fields.items()]


def _said_to_be(kind: type[BaseModel], section: object) -> bool:
    """Whether a section names this kind by the one word that the kind's field may hold, or by having it."""
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
