"""Sums the traffic that the nodes of one home folder have recorded."""

from __future__ import annotations

from pathlib import Path

from assay.blocks.traffic import FILE, read_totals


def totals_by_node(home: Path) -> dict[str, dict[str, int]]:
    """Bytes by direction and purpose (``blocks.traffic``), by the node's name."""
    return {path.parent.name: read_totals(path) for path in sorted((home / "nodes").glob(f"*/{FILE}"))}


def in_words(home: Path) -> str:
    """Total over all nodes in one line; empty if nothing was recorded."""
    nodes = totals_by_node(home).values()
    summed = {name: sum(node[name] for node in nodes) for name in next(iter(nodes), {})}
    if not any(summed.values()):
        return ""
    told = [f"{name.replace('_', ' for ')} {count / 1e6:,.1f} MB" for name, count in summed.items()]
    return f"blocks of the nodes in {home}, all jobs: {', '.join(told)}"
