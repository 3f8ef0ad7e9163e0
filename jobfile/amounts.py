"""Whether a job's amounts pay honest verifiers and nobody else, as far as a job file tells.

Contract: `short_amounts` compares fee and stakes with the least that docs/economics.md finds for the job's
`[outer] algorithm` at a price of 20 tok, in proportion to the price. It warns; nothing is refused. Not
guaranteed: that amounts above these suit every model: what a replay costs beside a task is the model's.
"""

from __future__ import annotations

from assay.jobfile.read import JobFile
from assay.protocol.words import show_amount

_TOK = 10**18
PRICE = 20
"""Tokens, of which the amounts below are."""
_CODES_8, _CODES_4, _CODES_2 = (3.11, 54, 385), (3.23, 56, 390), (3.13, 54, 386)
_STREAMED = (3.47, 61, 400)
LEAST: dict[str, tuple[float, float, float]] = {
    "diloco-u8": _CODES_8,
    "diloco-4bit": _CODES_4,
    "diloco-int4": _CODES_4,
    "diloco-late": _CODES_4,
    "diloco-2bit": _CODES_2,
    "muloco": _CODES_2,
    "streaming": _STREAMED,
    "eager": _STREAMED,
    "sparseloco": (9.86, 189, 655),
}
"""verifier_fee, verifier_stake and solver_stake, the worst of three templates. `eager` was not measured: it
has a loop before and one after the training, as `streaming` has; `diloco-int4` neither: it has fewer
operations than `diloco-4bit`."""
DEAR = frozenset({"demo", "data-parallel"})
"""Whose votes cost several times what their task does: a round of one step."""
UNMEASURED = frozenset({"powersgd", "own"})
"""Of which it is not known."""


def short_amounts(file: JobFile) -> list[str]:
    """A line for the amounts that are too low; empty if none is known to be."""
    name, money = file.outer.algorithm, file.money
    if name in DEAR:
        return [
            f"a vote on a round of {name} costs several times what the task does, and no fee that is a share"
            " of the price pays for it (docs/economics.md, jobs of several loops)"
        ]
    if name in UNMEASURED:
        return [
            f"what a vote costs by {name} was not measured: it replays what the shard compresses, and the fee"
            " has to pay for it (docs/economics.md, jobs of several loops)"
        ]
    if name not in LEAST:
        return []
    asked = ("verifier_fee", "verifier_stake", "solver_stake")
    least = [round(amount * _TOK) * money.price_cap // (PRICE * _TOK) for amount in LEAST[name]]
    low = [
        f"{field} is {show_amount(getattr(money, field))}, and {show_amount(amount)} are the least"
        for field, amount in zip(asked, least, strict=True)
        if getattr(money, field) < amount
    ]
    if not low:
        return []
    why = "every vote replays what its shards compress, and who votes without that gains (docs/economics.md)"
    return [f"by {name}, {', '.join(low)}: {why}"]
