"""Parses the text options that tell a node how to cheat.

Contract: every text selects one class of ``drills.solvers`` or ``drills.whistleblowers``, or is refused with
the valid ones. Without a text the service is the honest one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from assay.protocol.errors import Stop
from assay.protocol.types import Address

if TYPE_CHECKING:
    from assay.solver.service import SolverService
    from assay.whistleblower.service import WhistleblowerService
    from drills.orders import AggregatePlan, WeightPlan

FAULT_HELP = (
    "One element is off by one ulp: ROUND:STEP:SLOT:ELEMENT of a weight, "
    "state:ROUND:STEP:SLOT:ELEMENT of the claimed state alone, aggregate:SLOT:ELEMENT of the outer step."
)
CHEATS = {
    "wrong-input": "every task starts from the genesis state",
    "hidden-input": "every task after the first round starts from a state that nobody else has",
    "omitted-shard": "the aggregate counts a tensor of the last shard as zero",
    "wrong-data": "trains on records of its own choice",
    "invented-segments": "computes nothing and invents every state",
    "hidden-states": "answers no demand for its states (with --withhold)",
    "interpolated": "claims states between its first and last instead of those it has passed",
    "half-invented": "invents the second half of its segments",
    "idle": "holds its shard and computes nothing after the first round",
}
CHEAT_HELP = f"What it does wrong: {', '.join(CHEATS)}."


def _numbers(text: str, count: int, form: str) -> list[int]:
    try:
        found = [int(part) for part in text.split(":")]
    except ValueError:
        found = []
    if len(found) != count or min(found) < 0:
        raise Stop(f"{text!r} is not a fault", hint=f"write {form}", code="bad-fault")
    return found


def solver_kind(fault: str | None, cheat: str | None, waits: bool = False) -> Callable[..., SolverService]:
    """Factory of the solver: an honest one without `fault` and `cheat`, which waits if `waits`. Raises Stop
    for a bad text."""
    from assay.solver.service import SolverService
    from drills import orders, solvers

    if fault is not None:
        return partial(solvers.FaultySolver, plan=_plan(fault))
    cheats: dict[str, Callable[..., SolverService]] = {
        "wrong-input": partial(solvers.WrongInputSolver, patch=orders.restart, first_round=1),
        "hidden-input": partial(solvers.WrongInputSolver, patch=orders.invent, first_round=1),
        "omitted-shard": partial(solvers.WrongInputSolver, patch=orders.omit_last_shard),
        "wrong-data": solvers.WrongDataSolver,
        "invented-segments": solvers.InventingSolver,
        "hidden-states": solvers.HidingSolver,
        "interpolated": partial(solvers.PatchworkSolver, patch=orders.interpolated),
        "half-invented": partial(solvers.PatchworkSolver, patch=orders.half_invented),
        "idle": partial(solvers.IdleSolver, first_round=1),
    }
    if cheat is None:
        return solvers.WaitingSolver if waits else SolverService
    if cheat not in cheats:
        raise Stop(f"there is no cheat {cheat!r}", hint=f"choose {', '.join(CHEATS)}", code="bad-fault")
    return cheats[cheat]


def _plan(text: str) -> AggregatePlan | WeightPlan:
    from drills.orders import AggregatePlan, StatePlan, WeightPlan

    kind, _, rest = text.partition(":")
    if kind == "aggregate":
        return AggregatePlan(*_numbers(rest, 2, "aggregate:SLOT:ELEMENT"))
    if kind == "state":
        return StatePlan(*_numbers(rest, 4, "state:ROUND:STEP:SLOT:ELEMENT"))
    return WeightPlan(*_numbers(text, 4, "ROUND:STEP:SLOT:ELEMENT"))


ACCUSE_HELP = (
    "Accuse the task ROUND:SHARD, whoever claims it, or ROUND:ACCOUNT, whichever it claims; with"
    " :silent it then makes no move, with :slow each in the last seconds, with :votes it accuses its votes."
)
MANNERS = ("", "silent", "slow", "votes")


def whistleblower_kind(
    junk: str | None, address_of: Callable[[str], Address], *, late: bool = False
) -> Callable[..., WhistleblowerService]:
    """Factory of the whistleblower: an honest one without `junk`, delayed if `late`. Raises Stop for a bad
    text."""
    from assay.whistleblower.service import WhistleblowerService
    from drills import whistleblowers

    if junk is None:
        return whistleblowers.LateChallenger if late else WhistleblowerService
    round_, _, rest = junk.partition(":")
    whose, _, manner = rest.partition(":")
    if not (round_.isdecimal() and round_.isascii()) or not whose or manner not in MANNERS:
        form = "ROUND:SHARD or ROUND:ACCOUNT, and :silent, :slow or :votes after it, if at all"
        raise Stop(f"{junk!r} names no claim to accuse", hint=f"write {form}", code="bad-fault")
    accused: int | Address = int(whose) if whose.isdecimal() and whose.isascii() else address_of(whose)
    kinds: dict[str, Callable[..., WhistleblowerService]] = {
        "": whistleblowers.JunkChallenger,
        "silent": whistleblowers.SilentChallenger,
        "slow": whistleblowers.SlowChallenger,
        "votes": whistleblowers.VoteChallenger,
    }
    return partial(kinds[manner], round=int(round_), accused=accused)
