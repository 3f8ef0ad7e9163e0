"""Drill options of the role commands: how a node on a devnet is told to cheat.

Contract: every text gives one adversary of ``solver.adversary``, ``verifier.adversary`` or
``whistleblower.adversary``, or is refused with what may be written. Without these options a node is honest.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from assay.protocol.errors import Stop

if TYPE_CHECKING:
    from assay.solver.adversary import AggregatePlan, WeightPlan
    from assay.solver.service import SolverService
    from assay.whistleblower.service import WhistleblowerService

FAULT_HELP = (
    "Drills only: one element is off by one ulp: ROUND:STEP:SLOT:ELEMENT of a weight, "
    "state:ROUND:STEP:SLOT:ELEMENT of the claimed state alone, aggregate:SLOT:ELEMENT of the outer step."
)
CHEATS = {
    "wrong-input": "every task starts from the genesis state",
    "hidden-input": "every task after the first round starts from a state that nobody else has",
    "omitted-shard": "the aggregate counts a tensor of the last shard as zero",
    "wrong-data": "trains on records of its own choice",
    "invented-segments": "computes nothing and invents every state",
    "hidden-states": "answers no demand for its states (with --withhold)",
    "idle": "holds its shard and computes nothing after the first round",
}
CHEAT_HELP = f"Drills only: {', '.join(CHEATS)}."


def _numbers(text: str, count: int, form: str) -> list[int]:
    try:
        found = [int(part) for part in text.split(":")]
    except ValueError:
        found = []
    if len(found) != count or min(found) < 0:
        raise Stop(f"{text!r} is not a fault", hint=f"write {form}", code="bad-fault")
    return found


def solver_kind(fault: str | None, cheat: str | None) -> Callable[..., SolverService]:
    """Makes the solver: an honest one without `fault` and `cheat`. Raises Stop for a bad text."""
    from assay.solver import adversary
    from assay.solver.service import SolverService

    if fault is not None:
        return partial(adversary.FaultySolver, plan=_plan(fault))
    cheats: dict[str, Callable[..., SolverService]] = {
        "wrong-input": partial(adversary.WrongInputSolver, patch=adversary.restart),
        "hidden-input": partial(adversary.WrongInputSolver, patch=adversary.invent),
        "omitted-shard": partial(adversary.WrongInputSolver, patch=adversary.omit_last_shard),
        "wrong-data": adversary.WrongDataSolver,
        "invented-segments": adversary.InventingSolver,
        "hidden-states": adversary.HidingSolver,
        "idle": partial(adversary.IdleSolver, first_round=1),
    }
    if cheat is None:
        return SolverService
    if cheat not in cheats:
        raise Stop(f"there is no cheat {cheat!r}", hint=f"choose {', '.join(CHEATS)}", code="bad-fault")
    return cheats[cheat]


def _plan(text: str) -> AggregatePlan | WeightPlan:
    from assay.solver.adversary import AggregatePlan, StatePlan, WeightPlan

    kind, _, rest = text.partition(":")
    if kind == "aggregate":
        return AggregatePlan(*_numbers(rest, 2, "aggregate:SLOT:ELEMENT"))
    if kind == "state":
        return StatePlan(*_numbers(rest, 4, "state:ROUND:STEP:SLOT:ELEMENT"))
    return WeightPlan(*_numbers(text, 4, "ROUND:STEP:SLOT:ELEMENT"))


def whistleblower_kind(junk: str | None) -> Callable[..., WhistleblowerService]:
    """Makes the whistleblower: an honest one without `junk`. Raises Stop for a bad text."""
    from assay.whistleblower.adversary import JunkChallenger
    from assay.whistleblower.service import WhistleblowerService

    if junk is None:
        return WhistleblowerService
    round_, shard = _numbers(junk, 2, "ROUND:SHARD")
    return partial(JunkChallenger, round=round_, shard=shard)
