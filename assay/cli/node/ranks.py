"""Several processes for one solver's steps: how many, and who starts them.

Contract: `ranks_of` gives what the first rank's engine needs, None for one process alone. A process that
`torchrun` started as a later rank does its part in `serve_if_later` until the first one ends, and is no node:
it has no account, opens no store and talks to nobody else.
"""

from __future__ import annotations

import os

import torch

from assay.app.settings import Settings
from assay.node.engine import Engine
from assay.program.ranks.launch import LaunchedRanks, LocalRanks, Ranks, launched
from assay.protocol.errors import Ask


def serve_if_later() -> bool:
    """Whether this process was a later rank of `torchrun`; if so its work is done."""
    ranks = launched()
    if ranks is None or ranks.rank == 0:
        return False
    ranks.serve()
    return True


def ranks_of(count: int, engine: Engine, settings: Settings) -> Ranks | None:
    """The ranks that `--ranks` or `torchrun` asks for. Raises Ask where they cannot be."""
    ranks: LaunchedRanks | LocalRanks | None = launched()
    if ranks is not None and count not in (1, ranks.size):
        raise Ask(
            f"torchrun started {ranks.size} ranks and --ranks asks for {count}, so nothing was started",
            hint="leave --ranks out",
            code="bad-ranks",
        )
    if ranks is None and count != 1:
        ranks = LocalRanks(count)
    if ranks is not None and engine.device != "cpu":
        raise Ask(
            f"several ranks compute on processors only, not on {engine.device}, so nothing was started",
            hint="run with --device cpu, or without --ranks",
            code="bad-ranks",
        )
    if isinstance(ranks, LocalRanks) and not settings.threads:
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // ranks.size))
    return ranks
