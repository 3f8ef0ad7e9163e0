"""Rounds of DiLoCo for tests that need terms and no programs: one loop on each side."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from assay.protocol.loops import diloco_links, round_shape
from assay.protocol.types import Kind, Loop, ProgramRef, Terms


def one_loop_each(
    inner: ProgramRef,
    outer: ProgramRef,
    shards: int,
    steps: int,
    segment_steps: int,
    samples: int,
    slices: int = 1,
) -> dict[str, Any]:
    """Terms of such a round."""
    task = Loop(inner.root, inner.nodes, steps, segment_steps, samples)
    step = Loop(outer.root, outer.nodes, 1, 1, 0)
    links = diloco_links(inner.slots, inner.params, shards, slices)
    return round_shape([task], [step], links, inner.params, slices)


def lone(samples: int, segments: int) -> tuple[Loop, ...]:
    """One loop of so many segments, of which so many are drawn."""
    return (Loop(bytes(32), 1, segments, 1, samples),)


def with_steps(
    terms: Terms, steps: int = 0, segment_steps: int = 0, samples: int = 0, shards: int = 0
) -> Terms:
    """The terms with other steps, segments, samples or shards of their one loop; 0: as they are."""
    loop = terms.loops[0]
    task = ProgramRef(loop.root, loop.nodes, terms.slots, terms.params)
    shape = one_loop_each(
        task,
        terms.program(Kind.OUTER),
        shards or terms.shards,
        steps or loop.steps,
        segment_steps or loop.segment_steps,
        samples or loop.samples,
    )
    return replace(terms, **shape, shards=shards or terms.shards)
