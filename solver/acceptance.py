"""Decides whether a job's terms are acceptable to a solver's operator.

Contract: `unacceptable` checks every field of the terms by which a client could take or withhold a solver's
money; no other field can. `unpaid_outer` checks the cost of outer claims beside tasks, which only the job's
programs show. Bounds that the chain puts on a class of conditions are checked again here, because the
operator's limits are narrower. Times are seconds, amounts the token's smallest units. Rules:
docs/protocol.md, 3.1, 3.4, 4.3, 4.7; docs/decisions/0026.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from assay.protocol.params import MAX_CALLS
from assay.protocol.types import Seconds, Terms, Wei
from assay.protocol.words import show_amount

_DAY = 86_400
_TOKEN = 10**18


@dataclass(frozen=True)
class TermsLimits:
    """Limits on a job's terms, set by the operator."""

    most_stake: Wei
    """Maximum stake that each claim locks, and loses if it is false."""
    most_penalty: Wei
    """Maximum penalty for a missed task."""
    least_task: Seconds
    """Minimum time to train and commit one task."""
    least_move: Seconds
    """Minimum time for a move of a game; with less, an honest claim cannot be defended."""
    most_locked: Seconds
    """Maximum time from a claim's commit to its settlement, if nobody disputes it and rounds go on."""
    most_outer: Seconds
    """Maximum time for which a round waits for the holder that its outer step is reserved to."""
    most_unsettled: int
    """Maximum number of rounds trained before the first of them is paid."""
    most_unpaid: int
    """Maximum unpaid work of an outer claim, in tasks' prices of this many rounds."""
    block: Seconds
    """Maximum seconds between the chain's blocks; the wait for a seed is counted in blocks."""


USUAL = TermsLimits(
    most_stake=Wei(20_000 * _TOKEN),
    most_penalty=Wei(1_000 * _TOKEN),
    least_task=Seconds(5),
    least_move=Seconds(5),
    most_locked=Seconds(30 * _DAY),
    most_outer=Seconds(_DAY),
    most_unsettled=32,
    most_unpaid=8,
    block=Seconds(1),
)
"""Default limits."""


def unacceptable(terms: Terms, limits: TermsLimits) -> str:
    """Reason why these terms are unacceptable; empty if they are acceptable."""
    if terms.solver_stake > limits.most_stake:
        locks, most = show_amount(terms.solver_stake), show_amount(limits.most_stake)
        return f"a claim locks {locks}, the limit is {most}"
    if terms.miss_penalty > limits.most_penalty:
        costs, most = show_amount(terms.miss_penalty), show_amount(limits.most_penalty)
        return f"a missed task costs {costs}, the limit is {most}"
    if terms.task_time < limits.least_task:
        return f"a task has {terms.task_time} s, the least is {limits.least_task}"
    if terms.move_time < limits.least_move:
        return f"a move of a game has {terms.move_time} s, the least is {limits.least_move}"
    if terms.outer_time > limits.most_outer:
        return f"an outer step may be waited for {terms.outer_time} s, the most is {limits.most_outer}"
    if terms.max_unsettled > limits.most_unsettled:
        return f"{terms.max_unsettled} rounds may be unpaid at once, the most is {limits.most_unsettled}"
    locked = locked_at_most(terms, limits.block)
    if locked > limits.most_locked:
        return f"a claim may be locked {locked} s, the most is {limits.most_locked}"
    return ""


def unpaid_outer(terms: Terms, price: Wei, share: Fraction, limits: TermsLimits) -> str:
    """Reason why the outer claims of a round cost too much for its tasks' price; empty if they do not.

    `share`: operations of an outer claim over those of a task; its fee is all that it is paid. Its unpaid
    work, valued at the task's rate, is bounded by what the round's tasks are paid. Otherwise a client could
    move the training into the outer loops and get it for free.
    """
    if terms.slices * (share * price - terms.outer_fee) <= limits.most_unpaid * terms.shards * price:
        return ""
    return (
        f"an outer claim has {float(share):.3g} times a task's operations; at {show_amount(price)} a task its"
        f" fee of {show_amount(terms.outer_fee)} leaves more of them unpaid than {limits.most_unpaid} rounds'"
        " tasks have"
    )


def votes_end(terms: Terms, block: Seconds) -> Seconds:
    """Seconds from a task's commit to its acceptance: the seed, then a draw and every replacement draw, each
    of which passes at once (7.4)."""
    return Seconds((terms.seed_delay + 1) * block + (1 + MAX_CALLS) * terms.vote_time)


def locked_at_most(terms: Terms, block: Seconds) -> Seconds:
    """Maximum seconds from a task's commit to its settlement without a dispute.

    It covers the closing of the round and the longer window of a claim that nobody attests.
    """
    closing = terms.task_time + max(terms.straggler_time, votes_end(terms, block)) + terms.outer_time
    return Seconds(closing + 2 * terms.challenge_window)
