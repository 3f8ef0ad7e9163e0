"""Checks a job's programs against its terms and each other.

Contract: covers what the chain cannot check. Anyone who agreed to the terms can run programs, links and sizes
that pass `check_shapes` and `check_sizes`; anything else is refused with the slot or size at fault.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

from assay.node.manifests import bad
from assay.program.embedded import Slot, layout
from assay.program.isa import DType, Program
from assay.program.validate import measure
from assay.protocol.loops import model_names
from assay.protocol.types import NO_SLOT, Kind, Link, Origin, ProgramRef, Terms
from assay.training.losses import LOSS_SLOT
from assay.training.results import SCALARS, TOKENS

WORDS = {Kind.TASK: "inner", Kind.OUTER: "outer"}
"""Manifest keys of the programs of each kind of claim."""


def program_ref(program: Program) -> ProgramRef:
    """Builds the reference to a program for the terms."""
    return ProgramRef(program.root, len(program.nodes), program.slots, program.params)


@dataclass(frozen=True)
class Sizes:
    """Maxima over a job's programs: state bytes, memory bytes of a step, and operations."""

    state_bytes: int
    step_bytes: int
    step_operations: int


def sizes_of(*programs: Program) -> Sizes:
    """Computes the sizes that the terms must declare for these valid programs."""
    costs = [measure(program) for program in programs]
    return Sizes(
        max(program.state_bytes for program in programs),
        max(cost.peak_bytes for cost in costs),
        max(cost.operations for cost in costs),
    )


def check_shapes(programs: Mapping[Kind, Sequence[Program]], terms: Terms) -> None:
    """Checks that all programs of a kind share their slots, and each link's slots fit its source (rules 2.8
    and 4.4).

    Otherwise no honest input would fit them. Raises BadManifest.
    """
    layouts = {kind: layout(programs[kind][0]) for kind in Kind}
    for kind in Kind:
        for number, program in enumerate(programs[kind][1:], 1):
            if layout(program) != layouts[kind]:
                raise bad(f"loop {number} of the {WORDS[kind]} programs differs from the first in its slots")
        slot = 0
        for link in terms.links_of(kind):
            for j in range(link.count):
                wanted = list(_linked(layouts, kind, link, j))
                for at in range(slot + j, slot + link.slots, link.count):
                    for what, shape in wanted:
                        if layouts[kind][at] != shape:
                            raise bad(
                                f"the dtype or shape of slot {at} of the {WORDS[kind]} state differs from"
                                f" that of {what}"
                            )
            slot += link.slots
    part = terms.params_of(Kind.OUTER)
    for slot in range(terms.params):
        if layouts[Kind.TASK][slot] != layouts[Kind.OUTER][slot % part]:
            raise bad(f"the dtype or shape of parameter {slot} differs in the outer state")


def _linked(layouts: Mapping[Kind, list[Slot]], kind: Kind, link: Link, j: int) -> Iterator[tuple[str, Slot]]:
    """Dtypes and shapes that a link's slot must have, and the slot each comes from."""
    if link.origin == Origin.PRESENT:
        yield "a shard's presence", (DType.BOOL, ())
    if link.origin == Origin.OUT:
        for slot in (link.first + j + part * link.stride for part in range(link.mod)):
            yield f"slot {slot} of the {WORDS[link.source]} state", layouts[link.source][slot]
        if link.otherwise != NO_SLOT:
            yield f"slot {link.otherwise + j}, which replaces it", layouts[kind][link.otherwise + j]


def check_named(names: Sequence[str], program: Program) -> None:
    """Checks the shapes of slots that are read by name, such as the loss that a solver reads after each
    segment.

    The client chooses the names. Raises BadManifest.
    """
    for name, (dtype, shape) in zip(names, layout(program), strict=True):
        if name in (LOSS_SLOT, *SCALARS) and (dtype, shape) != (DType.F32, ()):
            raise bad(f"the slot {name} is not an f32 scalar")
        if name == TOKENS and (dtype, len(shape)) != (DType.I32, 2):
            raise bad(f"the slot {name} is not an i32 matrix")


def check_model(names: Sequence[str], terms: Terms) -> None:
    """Checks that the leading slots of the outer state are the model, with unique names.

    So one file and one range proof hold it (F7.1). Raises BadManifest.
    """
    held = model_names(terms, names)
    if len(set(held)) != len(held):
        twice = next(name for i, name in enumerate(held) if name in held[:i])
        raise bad(f"two tensors of the model have the name {twice[:64]!r}")
    for slot, name in enumerate(held[terms.params :], terms.params):
        if "@" not in name:
            raise bad(f"slot {slot} of the outer state lies within the model and is no part of it")


def check_sizes(sizes: Sizes, terms: Terms) -> None:
    """Checks the programs' real sizes against the terms, because the chain cannot measure a program."""
    for field in fields(sizes):
        found, declared = getattr(sizes, field.name), getattr(terms, field.name)
        if found > declared:
            raise bad(
                f"the programs need {found} {field.name.replace('_', ' ')}, and the terms declare {declared}"
            )
