"""Rules on a job's terms (docs/protocol.md, rules 3.1 and 3.2), the same that the Jobs contract enforces.

Contract: ``check_terms`` accepts exactly what ``Jobs.post`` accepts, and names the first field at fault.
Nothing has a default.
"""

from __future__ import annotations

from protocol.errors import Stop
from protocol.types import ZERO_ADDRESS, ZERO_DIGEST, Terms, Wei

MAX_SEGMENT_STEPS = 64
MAX_VERIFIERS = 16
MAX_UINT128 = (1 << 128) - 1

_COUNTS = (
    "shards",
    "rounds",
    "steps_per_round",
    "segment_steps",
    "samples",
    "verifiers",
    "quorum",
    "seed_delay",
    "max_unsettled",
    "task_time",
    "vote_time",
    "reveal_time",
    "challenge_window",
    "move_time",
    "price_period",
)


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
    """Raise BadTerms for the first rule of 3.1 that the terms break."""
    _require(terms.client != ZERO_ADDRESS, "client", "is the zero address")
    for name in _COUNTS:
        _require(getattr(terms, name) >= 1, name, "must be at least 1")
    _require(terms.steps_per_round % terms.segment_steps == 0, "segmentSteps", "must divide stepsPerRound")
    _require(terms.segment_steps <= MAX_SEGMENT_STEPS, "segmentSteps", f"must be at most {MAX_SEGMENT_STEPS}")
    _require(terms.quorum <= terms.verifiers, "quorum", "exceeds verifiers")
    _require(terms.verifiers <= MAX_VERIFIERS, "verifiers", f"must be at most {MAX_VERIFIERS}")
    _require(terms.samples <= terms.segments, "samples", "exceeds the number of segments")
    _require(terms.price_floor <= terms.price_cap, "priceFloor", "exceeds priceCap")
    for name, program in (("inner", terms.inner), ("outer", terms.outer)):
        _require(1 <= program.params <= program.slots, name, "needs 1 <= params <= slots")
        _require(program.slots <= program.nodes, name, "needs slots <= nodes")
    _require(
        terms.outer.slots == (2 + terms.shards) * terms.inner.params,
        "outer",
        "needs (2 + shards) * params slots",
    )
    _require(terms.manifest != ZERO_DIGEST, "manifest", "is zero")
    _require(worst_case(terms) <= MAX_UINT128, "priceCap", "makes a budget beyond 128 bits")


def worst_case(terms: Terms) -> Wei:
    """The most that the job can pay out, which its budget must cover (rule 3.2)."""
    task = terms.price_cap + terms.verifiers * terms.verifier_fee
    return Wei(terms.rounds * (terms.shards * task + terms.outer_fee))


def shard_price(terms: Terms, opened: int, now: int) -> Wei:
    """Price of an open shard `now` seconds, opened at `opened` (rule 4.2), rounded down."""
    elapsed = min(max(now - opened, 0), terms.price_period)
    return Wei(terms.price_floor + (terms.price_cap - terms.price_floor) * elapsed // terms.price_period)
