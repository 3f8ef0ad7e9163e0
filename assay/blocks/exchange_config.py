"""How long a fetch waits, how many it asks at once, and what it puts up with: ``blocks.exchange``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ExchangeConfig:
    """Times in seconds.

    `rounds`: how often a fetch goes round the peers while some fail without saying "not here".
    `fetch_deadline_s`: after this long, a fetch asks no further peer for its block. `patience_s`: a peer that
    has not answered for three times its usual pace, within these bounds, gets company. `file_grace_s`: for
    which a whole file may come slower than `min_bytes_per_s`, all waits for its blocks together; longer than
    `stranger_s`, so that whoever has something at stake is asked for the first of them. `file_again_s`: for
    how long a file that took longer is not asked for again, where all that is fetched has one time together.
    `car_peers`: how many are asked for a CAR before the blocks are fetched one by one.
    """

    connect_timeout_s: float = 3.0
    block_deadline_s: float = 20.0
    fetch_deadline_s: float = 120.0
    grace_s: float = 2.0
    min_bytes_per_s: float = 16_384.0
    file_grace_s: float = 30.0
    file_again_s: float = 60.0
    patience_s: tuple[float, float] = (0.05, 2.0)
    fanout: int = 32
    stranger_s: float = 20.0
    stranger_bytes: int = 128 << 20
    car_stall_s: float = 2.0
    car_min_bytes_per_s: float = 100_000.0
    car_peers: int = 3
    rounds: int = 2
    backoff_s: float = 0.2
    max_backoff_s: float = 3600.0
    ban_s: float = 900.0
    max_ban_s: float = 86_400.0
    parallel: int = 4
