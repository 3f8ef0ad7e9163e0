"""How long a solver may train without a look at the market, where looks are dear.

Contract: pure. Over a far link a look takes seconds, of which a segment may not take many more. Looks are to
take a small part of the time then; but one comes before a tenth of any time is over in which a solver has to
act, and twice a minute. Where a thread of its own looks beside training (``node.beside``), nothing of this
is needed.
"""

from __future__ import annotations

from assay.protocol.types import Terms

PART = 40
"""Of so many seconds a look takes one."""
LONGEST_S = 30.0
OF_A_CLOCK = 10


def stretch_s(look_s: float, terms: Terms) -> float:
    """Seconds for which training goes on after a look that took `look_s`, in a job of these terms."""
    shortest = min(terms.task_time, terms.outer_time, terms.move_time)
    return min(PART * look_s, LONGEST_S, shortest / OF_A_CLOCK)
