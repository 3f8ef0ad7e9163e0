"""Validates a job's terms and a class's conditions (docs/protocol.md, rules 3.1, 3.2 and 3.4).

Contract: ``check_terms`` accepts exactly what ``Jobs.post`` accepts from a client with the budget, and
``check_conditions`` what ``Classes.register`` accepts. Both name the first invalid field, as the contracts
do. Nothing has a default.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from assay.protocol.errors import Stop
from assay.protocol.types import (
    NO_SLOT,
    ZERO_DIGEST,
    Bounds,
    Conditions,
    Kind,
    Loop,
    Origin,
    Seconds,
    Terms,
    Wei,
)

MAX_SEGMENT_STEPS = 64
MAX_VERIFIERS = 4
MAX_SAMPLES = 8
MAX_SEGMENTS = 256
MAX_SHARDS = 1_024
MAX_SLICES = 1_024
MAX_UNSETTLED = 32
MAX_SEATS = 8
"""Verifiers that one claim can ever draw."""
MAX_CALLS = 3
"""Maximum number of replacement draws for a claim's empty seats."""
STAKE_PER_FEES = 16
"""Minimum solverStake as a multiple of a task's vote fees (rule 3.1): a conviction pays them and its
finder."""
MAX_NODES = 65_536
MAX_SLOTS = 4_096
MAX_LOOPS = 8
"""Maximum number of loops of each kind of claim."""
MAX_LINKS = 16
MAX_LAG = 255
"""Maximum number of rounds between a link's reader and its source: one byte in the contracts."""
MAX_ABSENCE = 128
"""Number of rounds for which a shard's own state is kept without a task (rule 4.4)."""
GRACE_MOVES = 18
"""Maximum number of moves of a game (rule 6.6): a dispute delays a round for at most that long (4.3.3)."""
CHUNKS = 4
"""Maximum number of leaves that one demand names."""

_TIMES = (
    ("taskTime", "task_time"),
    ("stragglerTime", "straggler_time"),
    ("outerTime", "outer_time"),
)
_EXACT = (
    ("verifiers", "verifiers"),
    ("samples", "samples"),
    ("seedDelay", "seed_delay"),
    ("voteTime", "vote_time"),
    ("challengeWindow", "challenge_window"),
    ("moveTime", "move_time"),
    ("verifierStake", "verifier_stake"),
    ("missPenalty", "miss_penalty"),
    ("challengeBond", "challenge_bond"),
)
"""Fields that must be equal in terms and class, in the contract's order."""

MAX_WORST_CASE = 2**96 - 1


class BadTerms(Stop):
    """The terms break a rule; `field` names the first invalid one, as the contract does."""

    code = "bad-terms"

    def __init__(self, field: str, why: str) -> None:
        super().__init__(
            f"the job's terms are refused: {field} {why}",
            hint=f"change {field} in the job file and validate again",
        )
        self.field, self.why = field, why


def _require(holds: bool, field: str, why: str) -> None:
    if not holds:
        raise BadTerms(field, why)


class BadConditions(Stop):
    """The conditions of a class break a rule; `field` names the first invalid one, as the contract does."""

    code = "bad-conditions"

    def __init__(self, field: str, why: str) -> None:
        super().__init__(
            f"the class of conditions is refused: {field} {why}",
            hint=f"change {field} to what this market admits",
        )
        self.field, self.why = field, why


def check_conditions(conditions: Conditions, bounds: Bounds) -> None:
    """Raises BadConditions for the first rule of 3.4 that the conditions break, in the contract's order."""

    def within(field: str, value: int, least: int, most: int) -> None:
        if not least <= value <= most:
            raise BadConditions(field, f"is {value}, and must be {least} to {most}")

    c, b = conditions, bounds
    within("verifiers", c.verifiers, 1, MAX_VERIFIERS)
    within("segments", c.segments, 1, MAX_SEGMENTS)
    within("samples", c.samples, 1, min(MAX_SAMPLES, c.segments))
    within("segmentSteps", c.segment_steps, 1, MAX_SEGMENT_STEPS)
    within("nodes", c.nodes, 1, MAX_NODES)
    within("seedDelay", c.seed_delay, b.least_delay, b.most_delay)
    within("voteTime", c.vote_time, b.least_vote, b.most_vote)
    within("challengeWindow", c.challenge_window, b.least_window, b.most_window)
    within("moveTime", c.move_time, b.least_move, b.most_move)
    within("verifierStake", c.verifier_stake, b.least_stake, b.most_stake)
    within("missPenalty", c.miss_penalty, 0, c.verifier_stake // 2)
    within("challengeBond", c.challenge_bond, b.least_bond, c.verifier_stake)
    seats = c.verifiers * c.verifier_stake
    if c.solver_stake < seats:
        raise BadConditions("solverStake", f"is {c.solver_stake}, less than its seats' {seats}")


def check_terms(terms: Terms, conditions: Conditions, bounds: Bounds) -> None:
    """Raises BadTerms for the first rule of 2.5, 3.1 and 3.4 that the terms break, in the contract's order.

    `conditions`: those of `terms.class_id`.
    """
    check_shape(terms, bounds)
    check_class(terms, conditions)
    least = least_stake(most_wasted(terms))
    enough = terms.solver_stake >= least
    _require(enough, "solverStake", f"is less than {least}, 8/3 of what a conviction may waste")
    fees = STAKE_PER_FEES * terms.verifiers * terms.verifier_fee
    _require(terms.solver_stake >= fees, "solverStake", f"is less than {fees}, 16 times a task's fees")
    _require(worst_case(terms) <= MAX_WORST_CASE, "priceCap", "makes the worst case 2^96 or more")


def check_shape(terms: Terms, bounds: Bounds) -> None:
    """Checks the rules that do not depend on the class. Raises BadTerms."""
    _require(terms.slots <= MAX_SLOTS, "slots", f"are more than {MAX_SLOTS}")
    _require(terms.outer_slots <= MAX_SLOTS, "outerSlots", f"are more than {MAX_SLOTS}")
    _require(1 <= terms.slices <= MAX_SLICES, "slices", f"must be 1 to {MAX_SLICES}")
    fits = 1 <= terms.params <= terms.slots and terms.params % terms.slices == 0
    fits = fits and terms.params // terms.slices <= terms.outer_slots
    _require(fits, "params", "must be at least 1, at most slots and, a slice's part of them, outerSlots")
    _require(terms.manifest != ZERO_DIGEST, "manifest", "is zero")
    _require(1 <= terms.shards <= MAX_SHARDS, "shards", f"must be 1 to {MAX_SHARDS}")
    _require(1 <= terms.min_shards <= terms.shards, "minShards", "must be 1 to shards")
    _require(terms.rounds >= 1, "rounds", "must be at least 1")
    _check_loops(terms.loops, terms.segments, terms.samples, "loops", "segments")
    _check_loops(terms.outer_loops, terms.outer_segments, 0, "outerLoops", "outerSegments")
    for kind, field in ((Kind.TASK, "links"), (Kind.OUTER, "outerLinks")):
        covered, slots = _covered(terms, kind, field), terms.slots_of(kind)
        _require(covered == slots, field, f"cover {covered} input slots of {slots}")
    _require(1 <= terms.max_unsettled <= MAX_UNSETTLED, "maxUnsettled", f"must be 1 to {MAX_UNSETTLED}")
    _require(terms.price_floor <= terms.price_cap, "priceFloor", "exceeds priceCap")
    least, most = bounds.least_time, bounds.most_time
    for field, name in _TIMES:
        _require(least <= getattr(terms, name) <= most, field, f"must be {least} to {most} seconds")
    _require(1 <= terms.price_period <= most, "pricePeriod", f"must be 1 to {most} seconds")
    votes = most_voting(terms, bounds)
    late = terms.min_shards == terms.shards or terms.straggler_time >= votes
    _require(late, "stragglerTime", f"must be at least {votes} seconds, which silent verifiers can take up")


def most_voting(terms: Terms, bounds: Bounds) -> Seconds:
    """From a task's commit to its acceptance, if somebody does what is due (rule 3.1): its seed; for the draw
    and each call voteTime, and the most blocks in which that passes (7.4); leastTime for transactions."""
    calls = 1 + MAX_CALLS
    blocks = terms.seed_delay + 1 + calls * 2 * bounds.clock_lag
    return Seconds(calls * terms.vote_time + blocks * bounds.block_time + bounds.least_time)


def check_class(terms: Terms, conditions: Conditions) -> None:
    """Checks that the terms meet the conditions of their class (rule 3.4). Raises BadTerms."""
    c = conditions
    for field, name in _EXACT:
        given, agreed = getattr(terms, name), getattr(c, name)
        _require(given == agreed, field, f"is {given}, its class has {agreed}")
    least = c.verifier_fee
    _require(terms.verifier_fee >= least, "verifierFee", f"is less than its class's {least}")
    least = c.solver_stake
    _require(terms.solver_stake >= least, "solverStake", f"is less than its class's {least}")
    for loop in (*terms.loops, *terms.outer_loops):
        _require(loop.nodes <= c.nodes, "nodes", f"are {loop.nodes}, its class allows {c.nodes}")
        fits = loop.segment_steps <= c.segment_steps
        _require(fits, "segmentSteps", f"are {loop.segment_steps}, its class allows {c.segment_steps}")
    for field, segments in (("segments", terms.segments), ("outerSegments", terms.outer_segments)):
        _require(segments <= c.segments, field, f"are {segments}, its class allows {c.segments}")
    data = terms.records * terms.record_size
    _require(data <= c.data_bytes, "records", f"take {data} bytes, its class allows {c.data_bytes}")
    for field, name in (
        ("stateBytes", "state_bytes"),
        ("stepBytes", "step_bytes"),
        ("stepOperations", "step_operations"),
    ):
        given, most = getattr(terms, name), getattr(c, name)
        _require(given <= most, field, f"is {given}, its class allows {most}")


def _check_loops(loops: tuple[Loop, ...], segments: int, samples: int, field: str, counted: str) -> None:
    """Checks that each loop has whole segments and samples (none in an outer claim), and that they add up to
    the claim's."""
    _require(1 <= len(loops) <= MAX_LOOPS, field, f"must be 1 to {MAX_LOOPS}")
    sampled = samples > 0
    for number, loop in enumerate(loops):
        _require(1 <= loop.nodes <= MAX_NODES, field, f"need 1 to {MAX_NODES} nodes; loop {number} has not")
        _require(loop.steps >= 1, field, f"need at least 1 step; loop {number} has none")
        whole = loop.segment_steps >= 1 and loop.steps % loop.segment_steps == 0
        _require(
            whole, field, f"need segments that divide their steps: {loop.segment_steps}, {loop.steps} steps"
        )
        slow = loop.slow_by == 1 or (sampled and loop.slow_by >= 1 and loop.segment_steps % loop.slow_by == 0)
        _require(slow, field, f"of slow shards need whole steps of segments; loop {number} has not")
        _require(loop.segments <= segments, counted, "are fewer than the loops' segments")
        good = loop.samples <= min(samples, loop.segments) and (loop.samples > 0) == sampled
        what = "each loop needs 1 to all of its segments" if sampled else "an outer claim has none"
        _require(good, "samples", f"are not those of the loops, of which {what}")
        segments, samples = segments - loop.segments, samples - loop.samples
    _require(segments == 0, counted, "are more than the loops' segments")
    _require(samples == 0, "samples", "are more than the loops' samples")


def _covered(terms: Terms, reader: Kind, field: str) -> int:
    """Counts the slots that the links of a kind of claim cover, and checks each link.

    A link must name slots that its source has, of claims that exist before the reader's.
    """
    links = terms.links_of(reader)
    _require(len(links) <= MAX_LINKS, field, f"are more than {MAX_LINKS}")
    for number, link in enumerate(links):
        where = f"link {number}"
        _require(link.count >= 1 and link.times >= 1, field, f"cover no slot in {where}")
        near = 0 <= link.lag <= MAX_LAG
        _require(near, field, f"reach back {link.lag} rounds in {where}; at most {MAX_LAG} are possible")
        if link.origin in (Origin.OWN, Origin.GENESIS):
            continue
        of_tasks = link.source == Kind.TASK
        early = link.lag >= 1 or (of_tasks and reader == Kind.OUTER)
        _require(early, field, f"name a claim that is not there before its reader in {where}")
        most = terms.units_of(link.source)
        _require(link.times <= most, field, f"name more than {most} claims of a round in {where}")
        if link.origin == Origin.PRESENT:
            good = link.count == 1 and of_tasks
            _require(good, field, f"must give the presence of tasks one slot each in {where}")
            continue
        _require(link.div >= 1 and link.mod >= 1, field, f"divide by zero in {where}")
        _require(link.mod == 1 or link.stride >= link.count, field, f"have parts that overlap in {where}")
        last = link.first + (link.mod - 1) * link.stride
        there = last + link.count <= terms.slots_of(link.source)
        _require(there, field, f"name slots that their source has not in {where}")
        instead = link.otherwise == NO_SLOT or link.otherwise + link.count <= terms.slots_of(reader)
        _require(instead, field, f"name slots instead that their reader has not in {where}")
    return sum(link.slots for link in links)


OPERATIONS = 10**15
"""A rate is the price of this many operations."""


def task_operations(terms: Terms, shard: int, steps: Sequence[int]) -> int:
    """Operations of a shard's task; `steps`: those of a step of each of its loops."""
    return sum(loop.of(shard).steps * each for loop, each in zip(terms.loops, steps, strict=True))


def price_at(rate: Wei, operations: int) -> Wei:
    """Price of operations at a rate, rounded up."""
    return Wei(-(-rate * operations // OPERATIONS))


def rate_of(price: Wei, operations: int) -> Wei:
    """Rate at which operations have this price, rounded down."""
    return Wei(price * OPERATIONS // max(operations, 1))


def worst_case(terms: Terms) -> Wei:
    """Maximum that the job can pay out, which its budget must cover (rule 3.2)."""
    task = terms.price_cap + terms.verifiers * terms.verifier_fee
    return Wei(terms.rounds * (terms.shards * task + terms.slices * terms.outer_fee))


def most_wasted(terms: Terms) -> Wei:
    """Maximum value of the work that one conviction can waste (rule 3.1).

    That is the tasks, with their votes' fees, of all later rounds that may be unsettled, and all outer
    claims.
    """
    task = terms.price_cap + terms.verifiers * terms.verifier_fee
    return wasted_at_most(task, terms.slices * terms.outer_fee, terms.shards, terms.max_unsettled)


def wasted_at_most(task: int, outer: int, shards: int, unsettled: int) -> Wei:
    """As `most_wasted`, from the price of a task with its votes' fees and the fees of a round's outer
    claims."""
    return Wei((unsettled - 1) * shards * task + unsettled * outer)


def least_stake(wasted: int) -> Wei:
    """Minimum solver stake for each claim: 8/3 of what its conviction may waste (rule 3.1), rounded up."""
    return Wei(-(-8 * wasted // 3))


def shard_price(terms: Terms, opened: int, now: int) -> Wei:
    """Price at time `now` of a shard that opened at `opened` (rule 4.2), rounded down. Times in seconds."""
    elapsed = min(max(now - opened, 0), terms.price_period)
    return Wei(terms.price_floor + (terms.price_cap - terms.price_floor) * elapsed // terms.price_period)


_TOKEN = 10**18
_HOUR, _DAY = 3_600, 86_400
MOST_TIME = Seconds(30 * _DAY)
DEVNET_BOUNDS = Bounds(
    least_vote=Seconds(5),
    most_vote=Seconds(600),
    least_move=Seconds(5),
    most_move=Seconds(600),
    least_window=Seconds(5),
    most_window=Seconds(3 * _HOUR),
    least_delay=1,
    most_delay=32,
    least_time=Seconds(5),
    most_time=MOST_TIME,
    least_stake=Wei(_TOKEN),
    most_stake=Wei(1_000 * _TOKEN),
    least_bond=Wei(_TOKEN),
    clock_lag=5,
    block_time=Seconds(1),
)
"""Bounds of a devnet."""
L2_BOUNDS = Bounds(
    least_vote=Seconds(600),
    most_vote=Seconds(6 * _HOUR),
    least_move=Seconds(_HOUR),
    most_move=Seconds(12 * _HOUR),
    least_window=Seconds(12 * _HOUR),
    most_window=Seconds(4 * _DAY),
    least_delay=32,
    most_delay=1_024,
    least_time=Seconds(600),
    most_time=MOST_TIME,
    least_stake=Wei(20 * _TOKEN),
    most_stake=Wei(10_000 * _TOKEN),
    least_bond=Wei(_TOKEN),
    clock_lag=75,
    block_time=Seconds(2),
)
L1_BOUNDS = Bounds(
    least_vote=Seconds(1_200),
    most_vote=Seconds(10 * _HOUR),
    least_move=Seconds(_HOUR),
    most_move=Seconds(12 * _HOUR),
    least_window=Seconds(_DAY),
    most_window=Seconds(7 * _DAY),
    least_delay=16,
    most_delay=256,
    least_time=Seconds(1_200),
    most_time=MOST_TIME,
    least_stake=Wei(100 * _TOKEN),
    most_stake=Wei(100_000 * _TOKEN),
    least_bond=Wei(10 * _TOKEN),
    clock_lag=25,
    block_time=Seconds(12),
)
ANYWHERE = replace(L1_BOUNDS, least_time=Seconds(1), clock_lag=1, block_time=Seconds(1))
"""Bounds on a job's shape and times that every deployment enforces."""


def admitting(conditions: Conditions) -> Bounds:
    """The first of the predefined bounds that the conditions keep to.

    Raises BadConditions, as the devnet's bounds do, where none admits them.
    """
    for bounds in (DEVNET_BOUNDS, L2_BOUNDS, L1_BOUNDS):
        try:
            check_conditions(conditions, bounds)
        except BadConditions:
            continue
        return bounds
    check_conditions(conditions, DEVNET_BOUNDS)
    raise AssertionError("not reached: the conditions were refused by these bounds")
