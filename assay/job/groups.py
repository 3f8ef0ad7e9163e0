"""Sections of job files by which shards differ from one another: in speed, and in the modules they train.

Contract: a file without them has shards that are all alike. Whether their numbers suit those of [training]
is for ``jobfile.build`` to refuse.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from assay.job.values import Count, Section
from assay.protocol.params import MAX_SHARDS


class SpeedsSection(Section):
    """The last `slow_shards` of the shards, which slower machines take: `slow_by` times fewer steps a round,
    and in each of their segments."""

    slow_shards: Count
    slow_by: Count


class PathsSection(Section):
    """DiPaCo's modules: of each level `modules` of the same shapes. A level is patterns of parameters' names,
    such as "blocks.0.*"; what no level names all paths share. Each shard trains one path, on its own equal
    part of the records."""

    modules: Annotated[int, Field(ge=2, le=MAX_SHARDS)]
    levels: Annotated[
        tuple[Annotated[tuple[str, ...], Field(min_length=1)], ...], Field(min_length=1, max_length=5)
    ]
