"""Value types of job files: amounts and durations with units, counts, numbers, and sections.

Contract: every key of a section is required, unknown ones are refused. A number must be a TOML number, not
text or a boolean.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from assay.app.units import parse_amount, parse_duration
from assay.protocol.errors import AssayError


def _parsed(parse: Callable[[str], int], what: str) -> BeforeValidator:
    """Validator that parses text with a unit."""

    def read(value: object) -> int:
        if not isinstance(value, str):
            raise ValueError(f"write {what}")
        try:
            return parse(value)
        except AssayError as error:
            raise ValueError(error.message) from error

    return BeforeValidator(read)


Amount = Annotated[int, _parsed(parse_amount, "an amount with its unit, such as '5tok'")]
Duration = Annotated[int, _parsed(parse_duration, "a duration with its unit, such as '60s'")]
Count = Annotated[int, Field(strict=True, ge=1, le=(1 << 31) - 1)]
Size = Annotated[int, Field(strict=True, ge=0, le=(1 << 63) - 1)]
Whole = Annotated[int, Field(strict=True, ge=0, le=(1 << 31) - 1)]


def _finite(value: float) -> float:
    if not -1e30 < value < 1e30:
        raise ValueError("must be a finite number")
    return value


Number = Annotated[float, Field(strict=True), AfterValidator(_finite)]
Rate = Annotated[Number, Field(ge=0)]
"""A rate, such as a learning rate: not negative."""
Positive = Annotated[Number, Field(gt=0)]
Decay = Annotated[float, Field(strict=True, ge=0, lt=1)]
"""A decay factor per step, such as momentum: below 1, so that sums stay bounded."""
Share = Annotated[float, Field(strict=True, ge=0, le=1)]
Yes = Annotated[bool, Field(strict=True)]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
