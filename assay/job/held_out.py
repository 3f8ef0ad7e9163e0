"""A job file that asks for the loss on held-out records, with amounts that pay for it.

Contract: `with_held_out` adds [held_out] to a job file's text and raises what `jobfile.amounts` finds too
low, and the solver's stake to what a job may waste (rule 3.1); it lowers nothing.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil

from assay.job.amounts import PRICE, least_amounts
from assay.job.read import JobFile, parse_job_file
from assay.job.templates import stated
from assay.protocol.params import least_stake, wasted_at_most
from assay.protocol.words import show_amount

_TOK = 10**18
_SHOWN = _TOK // 100
"""To which amounts are rounded up."""
_SECTION = """
[held_out]                  # the loss on these of the parameters with which each round begins
records = {records}
"""


def with_held_out(text: str, records: int, origin: str) -> str:
    """The job file `text` with the loss on so many held-out records, every round. `origin`: what it is called
    where it is at fault. Raises BadJobFile for an algorithm that computes none."""
    head, mark, rest = text.partition("\n[training]")
    text = head + _SECTION.format(records=records) + mark + rest
    body = parse_job_file(text, origin)
    amounts = least_amounts(body)
    assert amounts is not None, "held-out records have a price"
    money, cap = body.money, Fraction(body.money.price_cap, PRICE * _TOK)
    fee, stake, solver = (ceil(Fraction(amount) * _TOK * cap / _SHOWN) * _SHOWN for amount in amounts)
    fee, stake = max(fee, money.verifier_fee), max(stake, money.verifier_stake)
    solver = max(solver, money.solver_stake, _least_solver_stake(body, fee))
    miss = stake // 2 if stake > money.verifier_stake else money.miss_penalty
    for key, amount, was in (
        ("verifier_fee", fee, money.verifier_fee),
        ("verifier_stake", stake, money.verifier_stake),
        ("solver_stake", solver, money.solver_stake),
        ("miss_penalty", miss, money.miss_penalty),
    ):
        if amount != was:
            text = stated(text, f"money.{key}", f'"{show_amount(amount).replace(" ", "")}"')
    return text


def _least_solver_stake(body: JobFile, fee: int) -> int:
    """What rule 3.1 asks for with this fee, rounded up."""
    checks, money = body.verification, body.money
    task, outer = money.price_cap + checks.verifiers * fee, (body.outer.slices or 1) * money.outer_fee
    wasted = wasted_at_most(task, outer, body.training.shards, checks.max_unsettled_rounds)
    return ceil(Fraction(least_stake(wasted), _SHOWN)) * _SHOWN
