"""Sections of job files by which shards differ from one another: in speed.

Contract: a file without them has shards that are all alike. Whether their numbers suit those of [training]
is for ``jobfile.build`` to refuse.
"""

from __future__ import annotations

from assay.jobfile.values import Count, Section


class SpeedsSection(Section):
    """The last `slow_shards` of the shards, which slower machines take: `slow_by` times fewer steps a round,
    and in each of their segments."""

    slow_shards: Count
    slow_by: Count
