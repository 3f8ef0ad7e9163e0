"""Chooses the precision of each matrix product: the client's choice, or found by rehearsing the first steps.

Contract: `Precisions` says "single", "split" or "auto" for all products and for those of named lines.
`chosen` lowers a traced step accordingly. For "auto" the first steps run from genesis with all those products
split, each product's error at every precision is measured relative to bfloat16's (``program.accuracy``), and
each gets the cheapest one within `ADMITTED`. The resulting program is rehearsed again, and worse errors count
too. The precisions are part of the program, and so of its root. Not guaranteed: that later steps are like the
first ones (``node.inaccuracy`` monitors them), and the same choices on a machine whose f64 sums differ, for a
product at the limit.

Source: docs/decisions/0028-outliers.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial

import torch
from torch import Tensor

from assay.program.accuracy import Error, Meter
from assay.program.execute import Executor, Records, StepContext
from assay.program.isa import Program
from assay.program.kernels import FAST
from assay.program.lowering import Choose, Lowered, ProductSite
from assay.program.operand_parts import Precision
from assay.protocol.errors import Stop

AUTO = "auto"
CHOICES = (Precision.SINGLE.value, Precision.SPLIT.value, AUTO)
ADMITTED = Error(whole=0.5, line=1.0)
"""Half of bfloat16's error for a product, since numbers drift in training; all of it for a row or column."""
REHEARSED_STEPS = 3
"""More than one: an adapter's gradients are zero at the first."""
_PROGRAMS = 3
"""Maximum number of programs that are tried; the last one is taken."""
_SEED = bytes(32)


@dataclass(frozen=True)
class Precisions:
    """`products`: precision of every product; `at`: of those whose line matches a pattern, such as
    "model.py:31"."""

    products: str = Precision.SINGLE.value
    at: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises Stop for a word that is no precision."""
        for word in (self.products, *self.at.values()):
            if word not in CHOICES:
                raise Stop(f"a product has no precision {word!r}", hint=f"write one of {', '.join(CHOICES)}")

    def of(self, source: str) -> str:
        """Requested precision of the product at this line."""
        return next((word for pattern, word in self.at.items() if _fits(source, pattern)), self.products)

    def check(self, sources: Iterable[str]) -> None:
        """Raises Stop for a pattern that no product's line matches."""
        known = {source.partition(",")[0] for source in sources}
        for pattern in self.at:
            if not any(_fits(source, pattern) for source in known):
                raise Stop(
                    f"the step has no product from {pattern!r}",
                    hint=f"its products come from {', '.join(sorted(known)) or 'nowhere'}",
                )


def _fits(source: str, pattern: str) -> bool:
    """True if the pattern matches the line, also by file name alone; a gradient has its forward product's
    line."""
    line = source.partition(",")[0]
    return fnmatchcase(line, pattern) or fnmatchcase(line, f"*/{pattern}")


@dataclass(frozen=True)
class ChosenProduct:
    """A product with the precision that "auto" chose, and the reason."""

    site: ProductSite
    precision: Precision
    single: Error
    """Error with whole operands."""
    error: Error
    """Error at the chosen precision."""
    measured: bool = True
    """True if any of its operands was finite; otherwise both errors are 0."""

    @property
    def within(self) -> bool:
        """True if its error is at most bfloat16's."""
        return self.error.whole <= 1

    def __str__(self) -> str:
        if not self.measured:
            return (
                f"{self.site.source}: {self.precision.value}: nothing is known of it, since it was given Inf"
                " or NaN in every step rehearsed"
            )
        before, after = self.single, self.error
        return (
            f"{self.site.source}: {self.precision.value}: error {after.whole:.2g} times bfloat16's instead of"
            f" {before.whole:.2g} (worst row or column: {after.line:.2g} instead of {before.line:.2g})"
        )


Lower = Callable[[Choose], Lowered]


def as_stored(state: Sequence[Tensor], names: Sequence[str] = ()) -> list[Tensor]:
    """A traced state as slots hold it: 64-bit integers in 32 bits. Raises Stop with the slot's name if one
    does not fit."""
    stored = [x.to(torch.int32) if x.dtype == torch.int64 else x for x in state]
    for number, (x, y) in enumerate(zip(state, stored, strict=True)):
        if x.dtype == torch.int64 and not torch.equal(x, y.long()):
            name = names[number] if names else f"number {number}"
            raise Stop(
                f"the buffer {name} has whole numbers beyond 31 bits, and a state stores 32-bit ones",
                hint="keep them below 2^31 in size, or in float32",
            )
    return stored


def chosen(
    lower: Lower, precisions: Precisions, genesis: Sequence[Tensor], records: Records
) -> tuple[Lowered, tuple[ChosenProduct, ...]]:
    """Lowers the step with the requested precisions; also returns every product that "auto" decided.

    Raises Stop for a pattern without match, and what `lower` raises.
    """
    first = lower(lambda site: _fixed(precisions, site) or Precision.SPLIT)
    precisions.check(site.source for site, _, _ in first.sites)
    open_sites = [site for site, _, _ in first.sites if _fixed(precisions, site) is None]
    if not open_sites:
        return first, ()
    picked: dict[ProductSite, Precision] = dict.fromkeys(open_sites, Precision.SPLIT)
    worst: dict[ProductSite, dict[Precision, Error]] = {site: {} for site in open_sites}
    made = first
    for _ in range(_PROGRAMS):
        errors = _measured(made, genesis, records)
        for site in open_sites:
            for precision, error in errors.get(site, {}).items():
                worst[site][precision] = error.or_worse(worst[site].get(precision, Error()))
        before, picked = (
            picked,
            {site: least(worst[site]) if site in errors else Precision.SINGLE for site in open_sites},
        )
        if picked == before:
            break
        made = lower(partial(_pick, precisions, picked))
    return made, tuple(
        ChosenProduct(site, p, found.get(Precision.SINGLE, Error()), found.get(p, Error()), bool(found))
        for site, p in picked.items()
        for found in (worst[site],)
    )


def _pick(precisions: Precisions, picked: Mapping[ProductSite, Precision], site: ProductSite) -> Precision:
    return _fixed(precisions, site) or picked[site]


def _fixed(precisions: Precisions, site: ProductSite) -> Precision | None:
    wanted = precisions.of(site.source)
    return None if wanted == AUTO else Precision(wanted)


def least(errors: Mapping[Precision, Error]) -> Precision:
    """The cheapest precision within `ADMITTED`; if there is none, within twice the best possible.

    Rows and columns may stay outside whatever is done: 27 bits below a row's largest number is the end.
    Without measurements the product's numbers were not finite.
    """
    if not errors:
        return Precision.SPLIT
    limit = Error(
        max(ADMITTED.whole, 2 * min(error.whole for error in errors.values())),
        max(ADMITTED.line, 2 * min(error.line for error in errors.values())),
    )
    good = [p for p in Precision if p in errors and errors[p].within(limit)]
    return good[0] if good else Precision.FULL


Errors = Mapping[ProductSite, Mapping[Precision, Error]]


def rehearsed(
    program: Program, genesis: Sequence[Tensor], records: Records, meter: Meter, steps: int = REHEARSED_STEPS
) -> Meter:
    """Runs the first steps of shard 0 on some batches and returns `meter`."""
    executor, state = Executor(program, kernels=FAST), list(genesis)
    for step in range(steps):
        state = executor.step(state, StepContext(records, _SEED, 0, step), meter.observe)
    return meter


def _measured(made: Lowered, genesis: Sequence[Tensor], records: Records) -> Errors:
    """Worst error of each site's product nodes in the first steps, by precision."""
    sites: dict[int, list[ProductSite]] = {}
    for site, _, nodes in made.sites:
        for node in nodes:
            sites.setdefault(node, []).append(site)
    found: dict[ProductSite, dict[Precision, Error]] = {}
    for reading in rehearsed(made.program, genesis, records, Meter(made.program, Precision)).readings:
        for site in sites.get(reading.product.node, ()):
            errors = found.setdefault(site, {})
            for precision, error in reading.errors.items():
                errors[precision] = error.or_worse(errors.get(precision, Error()))
    return found
