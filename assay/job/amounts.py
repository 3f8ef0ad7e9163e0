"""Warns if a job's amounts do not pay honest verifiers and learners, as far as the job file shows.

Contract: `low_amount_warnings` compares fee and stakes with the minimum that docs/economics.md gives for the
job's `[outer] algorithm` and its held-out records, at a price of 20 tok, scaled to the price.
`short_outer_fee` compares the fee of an outer claim with the cost of its operations. Both only warn. Not
guaranteed: that higher amounts suit every model; the cost of a replay relative to a task depends on the
model.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil

from assay.job.read import JobFile
from assay.protocol.types import Terms, Wei
from assay.protocol.words import show_amount
from assay.solver.acceptance import USUAL, unpaid_outer
from assay.training.catalogue import CATALOGUE, GRPO, OWN

_TOK = 10**18
_SHOWN = _TOK // 100
"""Unit to which a minimum fee is rounded up."""
PRICE = 20
"""Price of a task in tokens for which the amounts below hold."""
COST_SHARE = Fraction(8, 10)
"""Cost of an honest task as a share of its price."""
LEAST: dict[str, tuple[float, float, float]] = {
    **{name: entry.fees for name, entry in CATALOGUE.items() if entry.fees is not None},
    GRPO: (25.7, 450, 1200),
}
"""verifier_fee, verifier_stake and solver_stake by algorithm; a vote on `grpo` replays the whole task."""
PLAIN = (2.23, 36.0, 350.0)
"""Amounts for all other algorithms, if asked for."""
HELD_OUT = 0.8
"""Cost of a vote's steps for the loss on a batch of held-out records, with its trace: the worst of three
templates. Stakes rise by ten times what a vote costs more, or by two votes, and are halved."""
LEARNERS = {GRPO: Fraction(28, 100)}
"""Cost of an outer claim's operation relative to a task's, where they differ: many rows at once are cheaper
than position by position."""
OUTER_GAS = Fraction(12, 100)
"""Tokens to commit and settle an outer claim."""
DEAR = frozenset(name for name, entry in CATALOGUE.items() if entry.unpaid)
"""Algorithms whose votes cost several times their task: rounds of one step."""
UNMEASURED = frozenset({OWN})
"""Algorithms with unknown cost: the client's code decides what a vote replays."""


def least_amounts(file: JobFile) -> tuple[float, float, float] | None:
    """Minimum verifier_fee, verifier_stake and solver_stake at `PRICE`; None if the templates' amounts
    suffice."""
    found, held, training = LEAST.get(file.outer.algorithm), file.held_out, file.training
    if held is None:
        return found
    fee, verifier, solver = found or PLAIN
    batches = held.records / (training.batch * training.accumulate)
    dearer = float(COST_SHARE) * PRICE * HELD_OUT * batches / training.steps_per_round
    return fee + dearer, verifier + 20 * dearer, solver + 40 * dearer


def low_amount_warnings(file: JobFile) -> list[str]:
    """One line about amounts that are too low; empty if none is known to be."""
    name, money = file.outer.algorithm, file.money
    if name in DEAR:
        return [
            f"a vote on a round of {name} costs several times what the task does, and no fee that is a share"
            " of the price pays for it (docs/economics.md, jobs of several loops)"
        ]
    if name in UNMEASURED:
        return [
            "what a vote costs by an algorithm of your own is not known: it replays what your coding does,"
            " and nobody has measured that; the fee has to pay for it. Of a price of 20 tok a plain change"
            f" takes {PLAIN[0]}, four bits {LEAST['diloco-4bit'][0]} and the largest of chunks"
            f" {LEAST['sparseloco'][0]} (docs/economics.md, jobs of several loops)"
        ]
    amounts = least_amounts(file)
    if amounts is None:
        return []
    asked = ("verifier_fee", "verifier_stake", "solver_stake")
    least = [round(amount * 10**6) * 10**12 * money.price_cap // (PRICE * _TOK) for amount in amounts]
    low = [
        f"{field} is {show_amount(getattr(money, field))}, and {show_amount(Wei(amount))} are the least"
        for field, amount in zip(asked, least, strict=True)
        if getattr(money, field) < amount
    ]
    if not low:
        return []
    why = "every vote replays what its shards compress, and who votes without that gains (docs/economics.md)"
    if file.held_out is not None:
        why = "every vote replays the held-out loss, and who votes without that gains (docs/economics.md)"
    if name == GRPO:
        why = "every vote replays a whole task, and who votes without that gains (docs/economics.md)"
    return [f"by {name}, {', '.join(low)}: {why}"]


def short_outer_fee(file: JobFile, terms: Terms, share: Fraction) -> list[str]:
    """Warnings if outer claims are paid below cost, and if usual solvers refuse the job only for that.

    `share`: operations of an outer claim over those of a task.
    """
    cap, name, said = terms.price_cap, file.outer.algorithm, []
    work = share * LEARNERS.get(name, Fraction(1)) * COST_SHARE
    least = Wei(ceil((work * cap + OUTER_GAS * _TOK) / _SHOWN) * _SHOWN)
    if terms.outer_fee < least:
        said.append(
            f"outer_fee is {show_amount(terms.outer_fee)}, and {show_amount(least)} are the least: an outer"
            f" claim has {float(share):.3g} times a task's operations (docs/economics.md, learners)"
        )
    refusals = (unpaid_outer(terms, price, share, USUAL) for price in (terms.price_floor, cap))
    if why := next(filter(None, refusals), ""):
        said.append(f"usual solvers take no shard: {why}")
    return said
