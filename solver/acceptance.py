"""Which jobs' terms an operator's solver agrees to.

Contract: `unacceptable` looks at every field of the terms by which a client could take or hold back what is
the solver's. The rest (roots, seeds, prices of others) can do neither. `unpaid_outer` looks at what outer
claims take beside tasks, which only the job's programs say. What a class of conditions bounds on
chain is asked again here, because the operator's limits are narrower. Times are seconds, amounts the token's
smallest units. Rules: docs/protocol.md, 3.1, 3.4, 4.3, 4.7; docs/decisions/0026.
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
    """What the operator agrees to."""

    most_stake: Wei
    """Locked by each claim, and lost with a false one."""
    most_penalty: Wei
    """For a task that is missed."""
    least_task: Seconds
    """To train one task and commit it."""
    least_move: Seconds
    """For a move of a game that somebody opens on a claim: less, and an honest claim cannot be defended."""
    most_locked: Seconds
    """From a claim's commit to its settlement at the latest, if nobody disputes it and rounds go on."""
    most_outer: Seconds
    """For which a round may wait for the one holder that its outer step is reserved to."""
    most_unsettled: int
    """Rounds that may be trained before the first of them is paid."""
    most_unpaid: int
    """Work of an outer claim that its fee does not pay for, at most: the tasks of so many rounds."""
    block: Seconds
    """Between the chain's blocks, at most; a seed is waited for so many of them."""


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
"""Of a solver whose operator says nothing."""


def unacceptable(terms: Terms, limits: TermsLimits) -> str:
    """Why a shard of a job with these terms is not to be taken; empty if it may be."""
    if terms.solver_stake > limits.most_stake:
        return f"a claim locks {terms.solver_stake}, the limit is {limits.most_stake}"
    if terms.miss_penalty > limits.most_penalty:
        return f"a missed task costs {terms.miss_penalty}, the limit is {limits.most_penalty}"
    if terms.task_time < limits.least_task:
        return f"a task has {terms.task_time} s, the least is {limits.least_task}"
    if terms.move_time < limits.least_move:
        return f"a move of a game has {terms.move_time} s, the least is {limits.least_move}"
    if terms.outer_time > limits.most_outer:
        return f"an outer step may be waited for {terms.outer_time} s, the most is {limits.most_outer}"
    if terms.max_unsettled > limits.most_unsettled:
        return f"{terms.max_unsettled} rounds may be unpaid at once, the most is {limits.most_unsettled}"
    voting = votes_end(terms, limits.block)
    if terms.min_shards < terms.shards and terms.straggler_time < voting:
        return (
            f"a round may close {terms.straggler_time} s after its last task is due, and silent verifiers can"
            f" delay a task {voting} s: it would be left out unpaid"
        )
    locked = locked_at_most(terms, limits.block)
    if locked > limits.most_locked:
        return f"a claim may be locked {locked} s, the most is {limits.most_locked}"
    return ""


def unpaid_outer(terms: Terms, price: Wei, share: Fraction, limits: TermsLimits) -> str:
    """Why the outer claims of a round, of all its slices, are not worth its tasks' price; empty if they are.
    `share`: of a task's operations, those of an outer claim, whose fee is all that it pays.

    What the fee does not pay for, at the rate at which the price pays a task, is bounded by what the round's
    tasks are paid: else the training could be in the outer loops, for nothing.
    """
    if terms.slices * (share * price - terms.outer_fee) <= limits.most_unpaid * terms.shards * price:
        return ""
    return (
        f"an outer claim has {float(share):.3g} times a task's operations; at {show_amount(price)} a task its"
        f" fee of {show_amount(terms.outer_fee)} leaves more of them unpaid than {limits.most_unpaid} rounds'"
        " tasks have"
    )


def votes_end(terms: Terms, block: Seconds) -> Seconds:
    """Seconds from a task's commit to its acceptance at the latest: the seed, then a draw and every call."""
    return Seconds((terms.seed_delay + 1) * block + (1 + MAX_CALLS) * terms.vote_time)


def locked_at_most(terms: Terms, block: Seconds) -> Seconds:
    """Seconds from a task's commit to its settlement, where nobody disputes it: until its round is closed,
    and the longer window of a claim that nobody attests."""
    closing = terms.task_time + max(terms.straggler_time, votes_end(terms, block)) + terms.outer_time
    return Seconds(closing + 2 * terms.challenge_window)
