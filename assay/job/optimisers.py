"""The job file's [optimiser], made of the dataclasses of ``training.optimisers``.

Contract: a section has a key for each `option` of its optimiser, all of them required. `chosen` makes the
optimiser of a section, `optimiser_text` the text of one with the options' values to begin with. Muon's
[optimiser.others] is a section of AdamW's options without the clipping, which is Muon's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import Field, fields
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, Literal, get_type_hints

from pydantic import create_model

from assay.job.values import Decay, Positive, Rate, Section, Yes
from assay.training.optimisers import OPTIMISERS, Optimiser
from assay.training.schedules import Schedule

KEYS = {"lr": "learning_rate", "eps": "epsilon"}
"""Job file keys of fields whose dataclass name differs."""
CLIP = "clip_norm"
BOUNDS: dict[str, Any] = {"rate": Rate, "decay": Decay, "positive": Positive}
NESTED = "others"
"""Field that holds another optimiser."""


def _options(kind: type[Any], nested: bool = False) -> Iterator[tuple[str, Field[Any]]]:
    """The options of an optimiser by their keys in the job file."""
    for one in fields(kind):
        if one.metadata and not (nested and one.name == CLIP):
            yield KEYS.get(one.name, one.name), one


def _section(kind: type[Any], nested: bool = False, **more: Any) -> type[Section]:
    """The section of an optimiser's dataclass."""
    hints, keys = get_type_hints(kind), dict(more)
    for key, one in _options(kind, nested):
        if one.name == NESTED:
            keys[key] = (_section(hints[one.name], nested=True), ...)
        elif hints[one.name] in (bool, tuple[str, ...]):
            keys[key] = (Yes if hints[one.name] is bool else hints[one.name], ...)
        else:
            keys[key] = (BOUNDS[one.metadata["bounds"]], ...)
    made: type[Section] = create_model(kind.__name__, __base__=Section, __doc__=kind.__doc__, **keys)
    return made


if TYPE_CHECKING:

    class OptimiserSection(Section):
        """A section of one of `OPTIMISERS`."""

        name: str
else:
    OptimiserSection = reduce(
        or_, (_section(kind, name=(Literal[name], ...)) for name, kind in OPTIMISERS.items())
    )


def chosen(section: OptimiserSection, schedule: Schedule) -> Optimiser:
    """The optimiser that a section names, with this schedule."""
    return _made(OPTIMISERS[section.name], section, schedule=schedule)


def _made(kind: type[Any], section: Section, nested: bool = False, **more: Any) -> Any:
    hints, said = get_type_hints(kind), dict(more)
    for key, one in _options(kind, nested):
        value = getattr(section, key)
        if one.name == NESTED:
            value = _made(hints[one.name], value, nested=True)
        said[one.name] = value or None if one.name == CLIP else value
    return kind(**said)


def optimiser_text(name: str) -> str:
    """Text of the [optimiser] section with this name."""
    others = ", ".join(f'"{other}"' for other in OPTIMISERS if other != name)
    head = f"\n[optimiser]                 # or {others}: `assay job init --optimiser` writes their keys\n"
    return head + f'name = "{name}"\n' + _lines(OPTIMISERS[name])


def _lines(kind: type[Any]) -> str:
    text, nested = "", ""
    for key, one in _options(kind):
        comment = one.metadata["comment"]
        if one.name == NESTED:
            others = getattr(kind(), one.name)
            nested = f"\n{f'[optimiser.{key}]':<27} # {comment}\n"
            for inner, option in _options(type(others), nested=True):
                nested += f"{inner} = {_toml(getattr(others, option.name))}\n"
        else:
            line = f"{key} = {_toml(one.metadata['start'])}"
            text += f"{line:<27} # {comment}\n" if comment else f"{line}\n"
    return text + nested


def _toml(value: Any) -> str:
    """Formats a value for a job file; None (no clipping) is 0."""
    if isinstance(value, bool | tuple):
        return json.dumps(value)
    return repr(0.0 if value is None else value).replace("e-0", "e-")
