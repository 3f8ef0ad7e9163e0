"""The solver's decisions as a table: same observation, same actions, each with its reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import pytest

from assay.node.artifacts import Published
from assay.node.job_programs import Sizes
from assay.node.upkeep import Poke
from assay.protocol.loops import diloco_links
from assay.protocol.params import rate_of, task_operations
from assay.protocol.types import (
    ZERO_ADDRESS,
    ZERO_DIGEST,
    Address,
    Claim,
    ClaimId,
    ClaimStatus,
    ClaimView,
    Holder,
    JobId,
    JobView,
    Kind,
    Phase,
    ProgramRef,
    Progress,
    Seconds,
    Terms,
    Wei,
)
from assay.solver.observation import JobObservation, Limits, Observation, Takes
from assay.solver.policy import (
    CommitOuter,
    CommitTask,
    Examine,
    Expire,
    Release,
    TakeShard,
    TrainAhead,
    TrainSegment,
    Wait,
    decide,
)
from assay.solver.reasons import why
from tests.fakes.clock import counted
from tests.fakes.jobs import account, tiny_terms

ME, OTHER, CLIENT = account("me"), account("other"), account("client")
JOB = JobId(bytes([7]) * 32)
NOW = 10_000
OVER = Progress(2, 2, 0, False, False, Seconds(NOW), Seconds(NOW), 2)
BEGUN = Progress(0, 0, 0, False, False, Seconds(NOW - 100), Seconds(NOW - 100), 2)
LIMITS = Limits(Wei(0), 2, Seconds(20))
NOTHING_TRAINED: Mapping[tuple[int, int], int] = {}


def terms(**changes: int) -> Terms:
    ref = ProgramRef(ZERO_DIGEST, 9, 3, 1)
    digests = (ZERO_DIGEST, ZERO_DIGEST, ZERO_DIGEST)
    links = diloco_links(3, 1, 2)
    published = Published(
        bytes([1]) * 32, (ref,), (replace(ref, slots=4),), 0, *links, *digests, 16, 8, Sizes(8, 8, 8), 1
    )
    return tiny_terms(published, CLIENT, **changes)


STEP = (8,)
"""Operations of a step of the tests' job."""


def floor_of(price: int) -> Wei:
    """The least price of 10^15 operations for which a task of `terms` is taken at this price."""
    return rate_of(Wei(price), task_operations(terms(), 0, STEP))


DEAR = replace(LIMITS, min_price=floor_of(11))
"""Of a solver that takes the tests' shards, at a price of 10, for one more."""


def claim(
    kind: Kind, round_: int, shard: int, phase: Phase, by: Address = OTHER, since: int = NOW
) -> ClaimView:
    roots = (ZERO_DIGEST,) * 4
    body = Claim(JOB, kind, round_, shard, 0, by, *roots, Wei(10), Seconds(since), 0)
    status = ClaimStatus(phase, 5, Seconds(since), 0, 0, 0, 0, ZERO_DIGEST)
    return ClaimView(
        ClaimId(bytes([kind, round_, shard]) + bytes(29)), body, status, (), False, False, (), {}
    )


def observation(
    holders: tuple[Address, Address] = (ZERO_ADDRESS, ZERO_ADDRESS),
    claims: tuple[ClaimView, ...] = (),
    *,
    unlocked: int = 1_000,
    staked: int = 1_000,
    now: int = NOW,
    progress: Progress = BEGUN,
    limits: Limits = LIMITS,
    min_shards: int = 2,
    examined: bool = True,
    refusal: str = "",
    trained: Mapping[tuple[int, int], int] = NOTHING_TRAINED,
) -> Observation:
    held = tuple(Holder(h, Wei(10), Seconds(NOW - 50)) for h in holders)
    view = JobView(JOB, terms(min_shards=min_shards), progress, Wei(1_000))
    job = JobObservation(view, examined, refusal, held, (Wei(10),) * 2, claims, (), trained, operations=STEP)
    return Observation(
        ME, Seconds(now), counted(now), Wei(unlocked), (job,), limits, Wei(max(staked, unlocked))
    )


def kinds(seen: Observation) -> list[type]:
    actions = decide(seen)
    assert actions == decide(seen) and all(action.reason for action in actions)
    return [type(action) for action in actions]


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (observation(examined=False), [Examine]),
        (observation(), [TakeShard]),
        (observation(refusal="hostile"), []),
        (observation(unlocked=99), []),
        (observation(limits=DEAR), []),
        (observation(limits=Limits(Wei(0), 2, Seconds(20), retire=True)), []),
        (observation((OTHER, OTHER)), []),
        (observation((ME, OTHER)), [TrainSegment]),
        (observation((ME, OTHER), trained={(0, 0): 3}), [TrainSegment]),
        (observation((ME, OTHER), trained={(0, 0): 4}), [CommitTask]),
        (observation((ME, OTHER), trained={(0, 0): 4}, unlocked=99), [Wait]),
        (observation((ME, OTHER), examined=False), [Examine]),
        (observation((ME, OTHER), progress=OVER), [Release]),
        (observation((ME, OTHER), now=NOW + 571), [Expire]),
    ],
)
def test_what_a_solver_does(seen: Observation, expected: list[type]) -> None:
    if seen.now > NOW + 500:
        expected = [Expire, *expected]
    if Release in expected:
        closing = kinds(seen)
        assert closing[-1] is Release and len(closing) == 2
        return
    assert kinds(seen) == expected


def test_the_outer_claim_is_the_first_shards_at_once_and_the_others_later() -> None:
    accepted = tuple(claim(Kind.TASK, 0, k, Phase.ACCEPTED) for k in range(2))
    assert kinds(observation((ME, OTHER), accepted)) == [CommitOuter]
    assert kinds(observation((OTHER, ME), accepted)) == [TrainAhead]
    assert kinds(observation((OTHER, ME), accepted, now=NOW + 60)) == [TrainAhead]
    assert kinds(observation((OTHER, ME), accepted, now=NOW + 61)) == [CommitOuter]
    assert kinds(observation((ME, OTHER), accepted[:1])) == []


def test_attack_48_a_solver_restarted_before_its_outer_claim_fetches_the_job_again() -> None:
    accepted = tuple(claim(Kind.TASK, 0, k, Phase.ACCEPTED) for k in (0, 1))
    assert kinds(observation((ME, OTHER), accepted, examined=False)) == [Examine]
    assert Examine not in kinds(observation((OTHER, ME), accepted, examined=False)), "not before its turn"


STRAGGLERS_END = NOW + 1_200
"""Of a round that began at NOW: its task time and its stragglers' time."""


def closing(now: int, holders: tuple[Address, Address] = (ME, OTHER)) -> list[type]:
    """The solver's actions with shard 0 accepted and shard 1 pending, when one of the two is enough."""
    one = (claim(Kind.TASK, 0, 0, Phase.ACCEPTED), claim(Kind.TASK, 0, 1, Phase.COMMITTED))
    begun = Progress(0, 0, 0, False, False, Seconds(NOW), Seconds(NOW), 2)
    return kinds(observation(holders, one, progress=begun, now=now, min_shards=1))


def test_a_round_is_closed_without_its_stragglers_once_their_time_is_over() -> None:
    assert CommitOuter not in closing(STRAGGLERS_END)
    assert CommitOuter in closing(STRAGGLERS_END + 1)
    assert CommitOuter not in closing(STRAGGLERS_END + 60, (OTHER, ME))
    assert CommitOuter in closing(STRAGGLERS_END + 61, (OTHER, ME)), "the holder in turn did not come"


def test_nobody_trains_for_a_round_that_takes_no_task_any_more() -> None:
    accepted = (claim(Kind.TASK, 0, 0, Phase.ACCEPTED),)
    begun = Progress(0, 0, 0, False, False, Seconds(NOW), Seconds(NOW), 2)
    late = partial(observation, (OTHER, ME), accepted, progress=begun, min_shards=1)
    due = NOW + terms().task_time
    assert TrainSegment in kinds(late(now=due)) and TrainSegment not in kinds(late(now=due + 1))
    assert Expire in kinds(late(now=STRAGGLERS_END))
    assert Expire not in kinds(late(now=STRAGGLERS_END + 1))


def test_votes_that_come_too_late_are_not_tallied() -> None:
    late = claim(Kind.TASK, 0, 1, Phase.SEEDED, ME)
    voted = replace(late, status=replace(late.status, valid=2), votes=())
    tasks = (claim(Kind.TASK, 0, 0, Phase.ACCEPTED), voted)
    begun = Progress(0, 0, 0, False, False, Seconds(NOW), Seconds(NOW), 2)

    def tallied(now: int) -> bool:
        seen = observation((OTHER, ME), tasks, progress=begun, now=now, min_shards=1)
        return any(isinstance(a, Poke) and a.what == "tally" for a in decide(seen))

    assert tallied(STRAGGLERS_END) and not tallied(STRAGGLERS_END + 1)


WINDOW = terms().challenge_window


def test_a_claim_that_was_left_out_is_voided_once_it_may_be_challenged_no_more() -> None:
    old = replace(claim(Kind.TASK, 0, 0, Phase.COMMITTED, ME), stale=True, left_out=True)
    disputed = replace(old, status=replace(old.status, open_games=1))
    over = Progress(1, 0, 0, False, False, Seconds(NOW), Seconds(NOW), 2)

    def voided(view: ClaimView, now: int = NOW + WINDOW + 1) -> bool:
        actions = decide(observation((ME, OTHER), (view,), progress=over, now=now))
        return any(isinstance(a, Poke) and a.what == "void" for a in actions)

    assert voided(old) and not voided(disputed)
    assert not voided(old, NOW + WINDOW), "the chain refuses it (NotDue)"


@pytest.mark.parametrize("phase", [Phase.COMMITTED, Phase.SEEDED])
def test_a_task_that_is_left_out_waits_for_its_window_and_nothing_else(
    phase: Phase,
) -> None:
    """Its seed, or a tally, the chain refuses (NotStanding)."""
    late = claim(Kind.TASK, 0, 1, phase, ME, since=STRAGGLERS_END - 10)
    tasks = (claim(Kind.TASK, 0, 0, Phase.ACCEPTED, since=NOW), late)
    begun = Progress(0, 0, 0, False, False, Seconds(NOW), Seconds(NOW), 2)

    def called(now: int) -> list[str]:
        seen = observation((OTHER, ME), tasks, progress=begun, now=now, min_shards=1)
        found = (a for a in decide(seen) if isinstance(a, Poke) and a.claim_id == late.claim_id)
        return [poke.what for poke in found]

    end = STRAGGLERS_END - 10 + WINDOW
    assert called(STRAGGLERS_END) == ["record_seed" if phase == Phase.COMMITTED else "tally"]
    assert end > STRAGGLERS_END and called(STRAGGLERS_END + 1) == called(end) == []
    assert called(end + 1) == ["void"]


def test_a_solver_pokes_its_own_claims_at_once_and_others_after_its_patience() -> None:
    own = (claim(Kind.TASK, 0, 0, Phase.COMMITTED, ME),)
    assert [a.what for a in decide(observation((ME, OTHER), own)) if isinstance(a, Poke)] == ["record_seed"]
    other = (claim(Kind.TASK, 0, 1, Phase.COMMITTED, OTHER), *own)
    pokes = [a.claim_id for a in decide(observation((ME, OTHER), other)) if isinstance(a, Poke)]
    assert pokes == [own[0].claim_id]
    later = [a.claim_id for a in decide(observation((ME, OTHER), other, now=NOW + 60)) if isinstance(a, Poke)]
    assert other[0].claim_id in later


def test_a_stale_claim_is_voided_and_nothing_else_is_done_with_it() -> None:
    old = replace(claim(Kind.TASK, 0, 0, Phase.ACCEPTED, ME), stale=True)
    actions = decide(observation((ME, OTHER), (old,), trained={(0, 0): 4}))
    assert [getattr(a, "what", type(a).__name__) for a in actions] == ["void", "CommitTask"]


def test_a_full_pipeline_stops_training() -> None:
    full = Progress(1, 0, 0, False, False, Seconds(NOW), Seconds(NOW), 2)
    seen = observation((ME, OTHER), progress=full)
    job = replace(seen.jobs[0], view=replace(seen.jobs[0].view, terms=terms(max_unsettled=1)))
    assert decide(replace(seen, jobs=(job,))) == []


def test_a_halted_jobs_present_round_is_finished_and_no_other_begun() -> None:
    halted = Progress(1, 0, 0, True, False, Seconds(NOW), Seconds(NOW), 2)
    assert kinds(observation((ME, OTHER), progress=halted)) == [TrainSegment]
    assert kinds(observation((ZERO_ADDRESS, OTHER), progress=halted)) == []
    over = replace(halted, round=2)
    assert kinds(observation((ME, OTHER), progress=over)) == [Release]


def test_a_closed_job_takes_no_work_and_keeps_none_from_another() -> None:
    closed = observation((ME, ME), progress=Progress(0, 0, 0, True, True, Seconds(NOW), Seconds(NOW), 1)).jobs
    one = observation(limits=Limits(Wei(0), 1, Seconds(20)), unlocked=107)
    given_back = [Release, Release]
    assert kinds(replace(one, jobs=closed)) == given_back, "what is locked for its shards comes back"
    assert kinds(replace(one, jobs=(*closed, *one.jobs))) == [TakeShard, *given_back]


def test_a_solver_locks_no_more_for_a_client_than_its_owner_lets_it() -> None:
    capped = [replace(job, room=Wei(106)) for job in observation().jobs]
    assert kinds(replace(observation(), jobs=tuple(capped))) == [], "a shard and its claim lock 107"
    roomy = [replace(job, room=Wei(107)) for job in observation().jobs]
    assert kinds(replace(observation(), jobs=tuple(roomy))) == [TakeShard]
    done = observation((ME, OTHER), trained={(0, 0): 4})
    assert kinds(replace(done, jobs=tuple(replace(job, room=Wei(99)) for job in done.jobs))) == [Wait]


@pytest.mark.parametrize(
    "seen",
    [
        observation((OTHER, OTHER), examined=False),
        observation(unlocked=99, examined=False),
        observation(limits=Limits(Wei(0), 0, Seconds(20)), examined=False),
        observation(limits=replace(LIMITS, release=frozenset({(JOB, 0), (JOB, 1)})), examined=False),
        observation(
            limits=replace(LIMITS, terms=replace(LIMITS.terms, least_move=Seconds(9_999))), examined=False
        ),
    ],
)
def test_attack_T34_no_file_is_fetched_of_a_job_in_which_nothing_would_be_taken(seen: Observation) -> None:
    assert kinds(seen) == []
    assert why(seen, seen.jobs[0]) not in ("", "its files are not fetched and validated yet")
    learner = replace(seen, limits=replace(LIMITS, takes=Takes.OUTER), unlocked=Wei(99))
    assert kinds(learner) == [], "a claim locks 100"
    assert kinds(replace(learner, unlocked=Wei(100))) == [Examine]


def test_whoever_holds_a_shard_leaves_the_next_to_others_for_a_moment() -> None:
    """Otherwise the first solver to poll takes all shards, and nobody else earns."""
    seen = observation((ME, ZERO_ADDRESS))
    (job,) = seen.jobs
    assert TakeShard in kinds(seen), "open for 50 s"
    fresh = replace(job, holders=(job.holders[0], replace(job.holders[1], since=Seconds(NOW - 19))))
    assert TakeShard not in kinds(replace(seen, jobs=(fresh,)))
    stranger = replace(fresh, holders=(replace(fresh.holders[0], solver=OTHER), fresh.holders[1]))
    assert TakeShard in kinds(replace(seen, jobs=(stranger,)))


def test_a_floor_is_of_the_operations_of_a_task_whatever_its_price() -> None:
    """Twice the steps are taken for twice the price."""
    seen = observation(limits=replace(LIMITS, min_price=floor_of(10)))
    assert kinds(seen) == [TakeShard]
    (job,) = seen.jobs
    loops = tuple(replace(loop, steps=2 * loop.steps) for loop in job.view.terms.loops)
    longer_terms = replace(job.view.terms, loops=loops, price_cap=Wei(20))
    longer = replace(job, view=replace(job.view, terms=longer_terms))
    assert kinds(replace(seen, jobs=(longer,))) == []
    assert "the operator's floor" in why(seen, longer)
    assert kinds(replace(seen, jobs=(replace(longer, prices=(Wei(20),) * 2),))) == [TakeShard]


def test_why_names_the_reason() -> None:
    for seen, word in [
        (observation((OTHER, OTHER)), "taken"),
        (observation(refusal="hostile"), "hostile"),
        (observation(unlocked=99), "stake"),
        (observation(limits=DEAR), "price"),
        (observation(limits=Limits(Wei(0), 0, Seconds(20))), "holds"),
        (observation(progress=Progress(0, 0, 0, True, False, Seconds(NOW), Seconds(NOW), 1)), "over"),
    ]:
        assert word in why(seen, seen.jobs[0])
    assert why(observation(), observation().jobs[0]) == ""


def sliced(*numbers: int, now: int = NOW) -> Observation:
    """Both tasks of the round are accepted, and these of its three slices are there."""
    tasks = tuple(claim(Kind.TASK, 0, shard, Phase.ACCEPTED) for shard in range(2))
    there = tuple(claim(Kind.OUTER, 0, number, Phase.ACCEPTED) for number in numbers)
    seen = observation((ME, OTHER), (*tasks, *there), now=now)
    view = replace(seen.jobs[0].view, terms=replace(seen.jobs[0].view.terms, slices=3))
    return replace(seen, jobs=(replace(seen.jobs[0], view=view),))


def test_slices_are_taken_in_turn_and_the_others_once_their_time_is_over() -> None:
    """Of three slices the holder of shard 0 has the first and the last."""

    def number(seen: Observation) -> list[int]:
        return [action.number for action in decide(seen) if isinstance(action, CommitOuter)]

    assert (number(sliced()), number(sliced(0)), number(sliced(0, 1))) == ([0], [2], [2])
    assert number(sliced(0, 2)) == [], "the other's"
    late = NOW + sliced().jobs[0].view.terms.outer_time + 1
    assert number(sliced(0, 2, now=late)) == [1]
    (action,) = [a for a in decide(sliced(0)) if isinstance(a, CommitOuter)]
    assert "slice 2 of 3" in action.reason
