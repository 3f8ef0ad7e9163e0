"""Terms of a small job for tests; what a test is about, it says itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.protocol.types import Conditions, Seconds, Terms, Wei

_SMALL: dict[str, Any] = {
    "dataset_root": b"\x03" * 32,
    "genesis_root": b"\x04" * 32,
    "outer_genesis_root": b"\x05" * 32,
    "manifest": b"\x06" * 32,
    "seed": b"\x07" * 32,
    "class_id": bytes(32),
    "records": 10,
    "record_size": 8,
    "shards": 2,
    "min_shards": 2,
    "rounds": 2,
    "verifiers": 2,
    "seed_delay": 2,
    "max_unsettled": 1,
    "task_time": Seconds(600),
    "straggler_time": Seconds(600),
    "outer_time": Seconds(60),
    "vote_time": Seconds(60),
    "challenge_window": Seconds(300),
    "move_time": Seconds(60),
    "price_period": Seconds(100),
    "nonce": 1,
    "state_bytes": 100,
    "step_bytes": 100,
    "step_operations": 100,
    "price_floor": Wei(10),
    "price_cap": Wei(1_000),
    "verifier_fee": Wei(11),
    "outer_fee": Wei(12),
    "solver_stake": Wei(1_801),
    "verifier_stake": Wei(303),
    "challenge_bond": Wei(57),
    "miss_penalty": Wei(31),
}
_OF_A_CLASS = (
    *("verifiers", "seed_delay", "vote_time", "challenge_window", "move_time"),
    *("verifier_stake", "challenge_bond", "miss_penalty"),
)


def some_terms(shape: Mapping[str, Any], **said: Any) -> Terms:
    """Terms with this `shape` (``protocol.loops.round_shape``) and what is `said` of them, `client` at least.
    Nothing is checked."""
    return Terms(**{**_SMALL, **shape, **said})


def kept_to(conditions: Conditions) -> dict[str, Any]:
    """Fields that terms have from their class."""
    return {name: getattr(conditions, name) for name in _OF_A_CLASS}
