"""The [outer] section of job files: the outer algorithm and its keys.

Contract: names, integers and their bounds are those of ``training.catalogue``; `unsuitable` validates a
section by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, create_model

from assay.job.values import Count, Decay, Number, Rate, Section
from assay.training.catalogue import CATALOGUE, NUMBERS, OTHER_USES, OWN

MAX_OVERLAP = 254
"""Maximum rounds of overlap: a link's lag, which is one more, is a byte (docs/protocol.md)."""
if TYPE_CHECKING:
    Name = str
else:
    Name = Literal[(*CATALOGUE, *sorted(OTHER_USES), OWN)]


class _Outer(Section):
    """The outer algorithm, by its name in ``training.catalogue``, with rate and momentum of its outer rule.

    "evaluate", "infer" and "grpo" have no rate or momentum (``job.use_sections``); an "own" algorithm sets
    them itself (``training.recipe``). `momentum_every`: rounds between moves of the momentum of
    "delayed-nesterov". `fragments`, `overlap_rounds` (τ, in rounds) and `alpha` are "streaming"'s; their
    defaults are ``training.outer.Overlap``'s. `slices`: number of equal parts of the outer step; without it
    there is one, of whole tensors. The keys of `NUMBERS` are added.
    """

    algorithm: Name
    learning_rate: Rate
    momentum: Decay
    momentum_every: Count | None = None
    fragments: Count | None = None
    overlap_rounds: Annotated[int, Field(strict=True, ge=0, le=MAX_OVERLAP)] | None = None
    alpha: Number | None = None
    slices: Count | None = None


if TYPE_CHECKING:
    Outer = _Outer
else:
    Outer = create_model("Outer", __base__=_Outer, **dict.fromkeys(NUMBERS, (Count | None, None)))


def numbers_in(outer: Outer) -> dict[str, int]:
    """The `NUMBERS` that the section states."""
    return {key: number for key in NUMBERS if (number := getattr(outer, key)) is not None}


def unsuitable(outer: Outer) -> str:
    """Describes what is wrong with a section; empty if nothing is."""
    name = outer.algorithm
    for other, entry in CATALOGUE.items():
        for key in entry.requires:
            if (getattr(outer, key) is None) == (name == other):
                return f"outer.{key}: {other} needs it, and no other algorithm has it"
        for key in entry.admits:
            if getattr(outer, key) is not None and name != other:
                return f"outer.{key}: {other} may have it, and no other algorithm has it"
    for key, value in numbers_in(outer).items():
        number = NUMBERS[key]
        usual = number.usual
        if name not in usual:
            return f"outer.{key} is for an algorithm that {number.of}: {', '.join(usual)}; not for {name}"
        if value > number.most:
            return f"outer.{key} is {value}, and at most {number.most}: {number.why}"
    if outer.alpha is not None and not 0 <= outer.alpha < 1:
        return (
            f"outer.alpha is {outer.alpha}; it is at least 0.0, a shard goes on with what came of the outer"
            " step, and below 1.0, it keeps its own and learns nothing from the others"
        )
    if name == OWN and (outer.learning_rate or outer.momentum):
        return "outer: an algorithm of your own has its rate and momentum itself; write 0.0 for both"
    if not outer.learning_rate and name in CATALOGUE:
        return f"outer.learning_rate: by {name} with 0 nothing is ever learnt"
    return ""


def more_keys(name: str) -> str:
    """Extra lines of [outer], and extra sections, of an algorithm's job file."""
    own = [f"{key} = {n.usual[name]}  # {n.comment}" for key, n in NUMBERS.items() if name in n.usual]
    return "\n".join(lines for lines in (*own, CATALOGUE[name].more) if lines)
