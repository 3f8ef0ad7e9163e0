"""Rules on a job's terms (docs/protocol.md, rules 3.1 and 3.2), the same that the Jobs contract enforces.

Contract: ``check_terms`` accepts exactly what ``Jobs.post`` accepts from a client with the budget, and names
the first field at fault as the contract does. Nothing has a default.
"""

from __future__ import annotations

from assay.protocol.errors import Stop
from assay.protocol.types import ZERO_DIGEST, ProgramRef, Terms, Wei

MAX_SEGMENT_STEPS = 64
MAX_VERIFIERS = 16
MAX_NODES = 65_536
MAX_SLOTS = 4_096
MAX_ABSENCE = 256
"""Rounds that a shard's own state outlives without a task (rule 4.4)."""
MAX_TIME = (1 << 32) - 1
"""Seconds; so that no sum of times leaves 64 bits and no deadline is out of reach."""
CHUNKS = 4
"""The most leaves that a demand names."""

_TIMES = (
    ("taskTime", "task_time"),
    ("stragglerTime", "straggler_time"),
    ("outerTime", "outer_time"),
    ("voteTime", "vote_time"),
    ("revealTime", "reveal_time"),
    ("challengeWindow", "challenge_window"),
    ("moveTime", "move_time"),
    ("pricePeriod", "price_period"),
)

MAX_WORST_CASE = 2**96 - 1


class BadTerms(Stop):
    """The terms break a rule; `field` names the first one at fault, as the contract does."""

    code = "bad-terms"

    def __init__(self, field: str, why: str) -> None:
        super().__init__(
            f"the job's terms are refused: {field} {why}",
            hint=f"change {field} in the job file and validate again",
        )
        self.field = field


def _require(holds: bool, field: str, why: str) -> None:
    if not holds:
        raise BadTerms(field, why)


def check_terms(terms: Terms) -> None:
    """Raise BadTerms for the first rule of 2.5 and 3.1 that the terms break, in the contract's order."""
    _check_program(terms.inner, "inner")
    _check_program(terms.outer, "outer")
    _require(terms.manifest != ZERO_DIGEST, "manifest", "is zero")
    _require(terms.shards >= 1, "shards", "must be at least 1")
    slots = (2 + terms.shards) * terms.inner.params
    _require(terms.outer.slots == slots, "outer.slots", "must be (2 + shards) * params")
    _require(1 <= terms.min_shards <= terms.shards, "minShards", "must be 1 to shards")
    _require(terms.rounds >= 1, "rounds", "must be at least 1")
    _check_steps(terms)
    _require(1 <= terms.verifiers <= MAX_VERIFIERS, "verifiers", f"must be 1 to {MAX_VERIFIERS}")
    _require(1 <= terms.quorum <= terms.verifiers, "quorum", "must be 1 to verifiers")
    _require(terms.max_unsettled >= 1, "maxUnsettled", "must be at least 1")
    _require(terms.price_floor <= terms.price_cap, "priceFloor", "exceeds priceCap")
    _require(terms.seed_delay >= 1, "seedDelay", "must be at least 1")
    for field, name in _TIMES:
        _require(1 <= getattr(terms, name) <= MAX_TIME, field, f"must be 1 to {MAX_TIME} seconds")
    _require(worst_case(terms) <= MAX_WORST_CASE, "priceCap", "makes the worst case 2^96 or more")


def _check_program(program: ProgramRef, field: str) -> None:
    _require(1 <= program.nodes <= MAX_NODES, field, f"needs 1 to {MAX_NODES} nodes")
    _require(program.slots <= MAX_SLOTS, field, f"has more than {MAX_SLOTS} slots")
    _require(1 <= program.params <= program.slots, field, "needs 1 <= params <= slots")


def _check_steps(terms: Terms) -> None:
    _require(terms.steps_per_round >= 1, "stepsPerRound", "must be at least 1")
    _require(
        1 <= terms.segment_steps <= MAX_SEGMENT_STEPS, "segmentSteps", f"must be 1 to {MAX_SEGMENT_STEPS}"
    )
    _require(terms.steps_per_round % terms.segment_steps == 0, "segmentSteps", "must divide stepsPerRound")
    _require(1 <= terms.samples <= terms.segments, "samples", "must be 1 to the number of segments")


def worst_case(terms: Terms) -> Wei:
    """The most that the job can pay out, which its budget must cover (rule 3.2)."""
    task = terms.price_cap + terms.verifiers * terms.verifier_fee
    return Wei(terms.rounds * (terms.shards * task + terms.outer_fee))


def shard_price(terms: Terms, opened: int, now: int) -> Wei:
    """Price of an open shard `now` seconds, opened at `opened` (rule 4.2), rounded down."""
    elapsed = min(max(now - opened, 0), terms.price_period)
    return Wei(terms.price_floor + (terms.price_cap - terms.price_floor) * elapsed // terms.price_period)
