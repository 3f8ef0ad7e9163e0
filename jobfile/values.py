"""Values of a job file: amounts and durations with their units, counts, numbers; and what a section is.

Contract: every key of a section is required, unknown ones are refused.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from assay.app.units import parse_amount, parse_duration
from assay.protocol.errors import AssayError


def _amount(value: object) -> int:
    if not isinstance(value, str):
        raise ValueError("write an amount with its unit, such as '5tok'")
    try:
        return parse_amount(value)
    except AssayError as error:
        raise ValueError(error.message) from error


def _duration(value: object) -> int:
    if not isinstance(value, str):
        raise ValueError("write a duration with its unit, such as '60s'")
    try:
        return parse_duration(value)
    except AssayError as error:
        raise ValueError(error.message) from error


Amount = Annotated[int, BeforeValidator(_amount)]
Duration = Annotated[int, BeforeValidator(_duration)]
Count = Annotated[int, Field(ge=1, le=(1 << 31) - 1)]
Size = Annotated[int, Field(ge=0, le=(1 << 63) - 1)]
Whole = Annotated[int, Field(ge=0, le=(1 << 31) - 1)]


def _finite(value: float) -> float:
    if not -1e30 < value < 1e30:
        raise ValueError("must be a finite number")
    return value


Number = Annotated[float, AfterValidator(_finite)]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
