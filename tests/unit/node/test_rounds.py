"""Claims by place give what a search through all of them gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from assay.node.rounds import (
    CHALLENGEABLE,
    STANDING,
    Claims,
    closable,
    closable_from,
    closable_since,
    moving,
    slices,
    standing,
    stragglers_end,
)
from assay.protocol.types import ClaimView, Kind, Phase, Seconds
from tests.unit.solver.test_solver_policy import ME, OTHER, claim, observation

PLACES = [(kind, round_, shard) for kind in Kind for round_ in range(3) for shard in range(2)]


@st.composite
def claims_of_a_job(draw: st.DrawFn) -> list[ClaimView]:
    """Claims of a few places, several of one place among them."""
    chosen = st.tuples(st.sampled_from(PLACES), st.sampled_from([*Phase][1:]), st.booleans())
    return [replace(claim(*place, phase), stale=stale) for place, phase, stale in draw(st.lists(chosen))]


def searched(claims: Sequence[ClaimView], kind: Kind, round_: int, shard: int) -> ClaimView | None:
    """The standing claim at a place, by the definition: its last claim, unless that has ended or is
    overtaken."""
    of_place = [v for v in claims if (v.claim.kind, v.claim.round, v.claim.shard) == (kind, round_, shard)]
    last = of_place[-1] if of_place else None
    return None if last is None or last.stale or last.status.phase not in STANDING else last


@given(claims_of_a_job())
def test_what_stands_at_a_place_is_its_last_claim(claims: list[ClaimView]) -> None:
    known = Claims(claims)
    assert list(known) == claims
    for place in PLACES:
        assert standing(known, *place) is searched(claims, *place)
        assert standing(claims, *place) is searched(claims, *place)


@given(claims_of_a_job())
def test_what_has_ended_is_looked_at_no_more(claims: list[ClaimView]) -> None:
    wanted = [view for view in claims if view.status.phase in CHALLENGEABLE]
    assert list(moving(Claims(claims))) == wanted == list(moving(claims))


def at(view: ClaimView, committed: int) -> ClaimView:
    return replace(view, claim=replace(view.claim, committed_at=Seconds(committed)))


def test_a_round_with_a_slice_is_closable_since_its_first_one() -> None:
    """From then on no task is accepted, however many there are, and the other slices have their time."""
    job = observation((ME, OTHER)).jobs[0].view
    cut = replace(job, terms=replace(job.terms, slices=2, min_shards=1))
    now = Seconds(cut.progress.round_start + 5)
    task = at(claim(Kind.TASK, 0, 0, Phase.ACCEPTED), 0)
    assert not closable(cut, [task], now), "the other shard's time is not over"
    first = at(claim(Kind.OUTER, 0, 1, Phase.ACCEPTED), cut.progress.round_start + 3)
    assert closable(cut, [task, first], now) and slices(cut, [task, first]) == [first]
    assert closable_since(cut, [task, first]) == cut.progress.round_start + 3
    assert not closable(cut, [task, replace(first, stale=True)], now)
    early = at(first, cut.progress.round_start - 9)
    assert closable_since(cut, [task, early]) == cut.progress.round_start, "a rewind has begun it anew"


def test_a_stalled_round_is_closable_a_votes_time_after_its_last_acceptance() -> None:
    """Rule 4.3.1: others are voted on while the acceptance comes that is enough."""
    job = observation((ME, OTHER)).jobs[0].view
    stalled = replace(job, terms=replace(job.terms, min_shards=1))
    end = stragglers_end(stalled)
    passed = claim(Kind.TASK, 0, 0, Phase.ACCEPTED)

    def since(when: int) -> list[ClaimView]:
        return [replace(passed, status=replace(passed.status, since=Seconds(when)))]

    for when, until in ((end, end), (end + 1, end + 1 + job.terms.vote_time)):
        assert closable_from(stalled, since(when)) == closable_since(stalled, since(when)) == until
        assert not closable(stalled, since(when), Seconds(until))
        assert closable(stalled, since(when), Seconds(until + 1))
    assert closable_from(stalled, []) is None, "too few"
