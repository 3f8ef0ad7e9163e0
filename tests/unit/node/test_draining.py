"""A node that is drained finishes what it owes, loses nothing, holds nothing, and says that it can be
stopped; let work again, it does."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from assay.node.obligations import Obligations, obligations_of
from assay.node.pausing import Drained, Machine, Rest, Wishes, hours_of
from assay.node.role import Node
from assay.node.upkeep import voted
from assay.protocol.types import ZERO_DIGEST, JobId, Kind, Phase, Role, Seconds, Wei
from assay.verifier.class_choice import ClassLimits
from assay.verifier.left_class import LEFT_FILE
from drills.orders import WeightPlan
from drills.solvers import FaultySolver
from spec.market_state import Moment
from tests.fakes.classes import ROOM
from tests.fakes.jobs import account
from tests.fakes.market_day import MarketDay

FREE = "drained: nothing is owed, it can be stopped"
JOINS = ClassLimits(Wei(200), Wei(0), Seconds(1), ROOM, ROOM, ROOM, ROOM, Wei(0), Seconds(2_000))


def drain(day: MarketDay, name: str) -> Drained:
    """Runs the command in another terminal than the node's, and returns its output."""
    role = day.services[name].status.role
    drained = Drained(day.folder / name, role)
    drained.set()
    return drained


def stoppable(day: MarketDay, name: str, role: Role | None) -> Callable[[], bool]:
    """Whether a node says that it can be stopped; then it is true."""

    def over() -> bool:
        said = day.services[name].status.action == FREE
        if said:
            assert not obligations_of(day.markets[name], day.address(name), role)
        return said

    return over


def shards_of(day: MarketDay, job_id: JobId, name: str) -> list[int]:
    holders = day.market_state.jobs[job_id].holders
    return [k for k, holder in enumerate(holders) if holder.solver == account(name)]


def staffed(day: MarketDay, verifiers: int = 2) -> None:
    day.solver("bob")
    day.verifiers(verifiers)


def test_a_solver_commits_what_it_owes_gives_its_shard_back_and_is_paid(day: MarketDay) -> None:
    job_id = day.post()
    ann = day.solver("ann")
    staffed(day)
    assert day.run(lambda: bool(shards_of(day, job_id, "ann")))
    me, market = day.address("ann"), day.markets["ann"]
    drained = drain(day, "ann")
    assert obligations_of(market, me, Role.SOLVER).shards == 1 and market.claims(job_id) == []
    assert day.run(lambda: not shards_of(day, job_id, "ann"))
    (mine,) = (view for view in market.claims(job_id) if view.claim.claimant == me)
    left = obligations_of(market, me, Role.SOLVER)
    assert (left.shards, left.claims) == (0, 1) and left.locked, "its claim answers still"
    day.run(lambda: False, turns=1)
    assert ann.status.action.startswith("drained: still owed: 1 claim, ") and "waits for" in ann.status.action
    assert day.run(stoppable(day, "ann", Role.SOLVER))
    assert market.claim(mine.claim_id).status.phase == Phase.SETTLED, "paid"
    stake = market.stake(me, Role.SOLVER)
    assert (stake.active, stake.locked) == (2_000, 0) and day.market_state.burnt == 0
    assert [event["shard"] for event in day.named("took")].count(mine.claim.shard) == 1
    assert isinstance(ann, Node) and ann.status.error == ""

    drained.end()
    assert day.run(day.closed(job_id)), [s.status for s in day.services.values()]
    assert any(v.claim.claimant == me and v.claim.round > 0 for v in market.claims(job_id)), "it works again"


def test_a_node_that_starts_drained_takes_nothing(day: MarketDay) -> None:
    job_id = day.post()
    Drained(day.folder / "ann", "solver").set()
    ann = day.solver("ann")
    day.run(lambda: False, turns=5)
    assert ann.status.action == FREE and not day.named("took")
    assert ann.why(job_id) == "drained: nothing new is taken"


def test_outside_of_its_hours_a_solver_is_as_drained(day: MarketDay) -> None:
    minute = [60 * 23]
    machine, wishes = Machine(minute=lambda: minute[0]), Wishes((hours_of("22-06"),))
    rest = Rest(Drained(day.folder / "ann", "solver"), wishes, machine)
    job_id = day.post()
    ann = day.solver("ann", rest=rest)
    staffed(day)
    assert day.run(lambda: bool(shards_of(day, job_id, "ann")))
    minute[0] = 60 * 6
    said = "outside of its hours (22:00-06:00): nothing is owed, it can be stopped"
    assert day.run(lambda: ann.status.action == said), ann.status
    assert not obligations_of(day.markets["ann"], day.address("ann"), Role.SOLVER)
    minute[0] = 60 * 22
    assert day.run(lambda: bool(shards_of(day, job_id, "ann")))


def test_while_it_pauses_a_solver_takes_nothing_and_goes_on_with_what_it_owes(day: MarketDay) -> None:
    load = [9.0]
    rest = Rest(Drained(day.folder / "ann", "solver"), Wishes(max_load=4.0), Machine(load=lambda: load[0]))
    job_id = day.post()
    ann = day.solver("ann", rest=rest)
    staffed(day)
    day.run(lambda: False, turns=5)
    assert not shards_of(day, job_id, "ann")
    assert ann.status.action.endswith("this machine's load is over 4: nothing new is taken")
    load[0] = 4.0
    assert day.run(lambda: bool(shards_of(day, job_id, "ann")))
    load[0] = 9.0
    assert day.run(day.closed(job_id)), "with its shard it goes on to the end"
    assert "segments_ahead" not in ann.status.counters
    assert day.market_state.burnt == 0


def test_a_verifier_leaves_its_class_casts_its_votes_and_comes_back(day: MarketDay) -> None:
    job_id = day.post()
    class_id = day.market_state.jobs[job_id].view.terms.class_id
    staffed(day, 3)
    day.solver("ann")

    def seat() -> str:
        """The account that has a seat and has not voted."""
        views = day.markets["client"].claims(job_id)
        votes = [vote for view in views for vote in view.votes if not voted(vote)]
        names = {account(f"v{i}"): f"v{i}" for i in range(3)}
        return names[votes[0].verifier] if votes else ""

    late = {name: day.services.pop(name) for name in ("v0", "v1", "v2")}
    assert day.run(lambda: bool(seat()))
    name = seat()
    day.services.update(late)
    market, me = day.markets[name], day.address(name)
    drained = drain(day, name)
    before = obligations_of(market, me, Role.VERIFIER)
    assert before.seats >= 1 and before.locked
    assert day.run(stoppable(day, name, Role.VERIFIER)), day.services[name].status
    assert market.subscription(me) == ZERO_DIGEST
    now = Moment(day.market_state.time, day.market_state.block)
    weights = day.market_state.rules.draw_weights(class_id, now)
    assert dict(weights).get(me, 0) == 0, "it is drawn no more"
    assert (day.folder / name / LEFT_FILE).exists()
    mine = [vote for view in market.claims(job_id) for vote in view.votes if vote.verifier == me]
    assert len(mine) >= before.seats and all(vote.shown and vote.valid for vote in mine), "none was missed"
    stake = market.stake(me, Role.VERIFIER)
    assert (stake.active, stake.locked) == (1_000, 0) and not day.named("abstained")

    drained.end()
    day.run(lambda: False, turns=2)
    assert market.subscription(me) == class_id, "the class that it left"
    day.run(lambda: False, turns=2)
    assert not (day.folder / name / LEFT_FILE).exists()
    assert day.run(day.closed(job_id)), [s.status for s in day.services.values()]
    assert all(not locked for locked in day.market_state.locked.values())


def test_the_class_that_was_left_outlasts_a_restart(day: MarketDay) -> None:
    job_id = day.post()
    class_id = day.market_state.jobs[job_id].view.terms.class_id
    vera = day.verifier("vera")
    drained = drain(day, "vera")
    vera.tick()
    assert day.markets["vera"].subscription(day.address("vera")) == ZERO_DIGEST
    vera.tick()
    assert "it may be drawn in the class that it has left" in vera.status.action, "for two epochs more"
    day.market_state.advance(8)
    vera.tick()
    assert vera.status.action == FREE
    drained.end()
    day.verifier("vera").tick()
    assert day.markets["vera"].subscription(day.address("vera")) == class_id


def test_a_class_that_its_owner_left_is_not_come_back_to(day: MarketDay) -> None:
    day.post()
    vera, market = day.verifier("vera"), day.markets["vera"]
    market.subscribe("none", ZERO_DIGEST)
    drained = drain(day, "vera")
    vera.tick()
    drained.end()
    for _ in range(3):
        vera.tick()
    assert market.subscription(market.me) == ZERO_DIGEST and not day.named("subscribed")


def test_a_verifier_with_join_leaves_and_joins_again_by_itself(day: MarketDay) -> None:
    job_id = day.post()
    class_id = day.market_state.jobs[job_id].view.terms.class_id
    load = [9.0]
    wishes, machine = Wishes(max_load=4.0), Machine(load=lambda: load[0])
    rest = Rest(Drained(day.folder / "vera", "verifier"), wishes, machine)
    vera, market = day.verifier("vera", join=JOINS, rest=rest), day.markets["vera"]
    market.subscribe("none", ZERO_DIGEST)
    vera.tick()
    assert market.subscription(market.me) == ZERO_DIGEST, "it joins none while it pauses"
    assert vera.status.action == "joins no class: this machine's load is over 4, so nothing new is taken"
    load[0] = 0.0
    vera.tick()
    assert market.subscription(market.me) == class_id
    drained = drain(day, "vera")
    vera.tick()
    assert market.subscription(market.me) == ZERO_DIGEST
    drained.end()
    vera.tick()
    assert market.subscription(market.me) == class_id


def test_a_whistleblower_plays_its_game_to_the_end_and_audits_nothing_new(day: MarketDay) -> None:
    job_id = day.post()
    day.solver("ann", partial(FaultySolver, plan=WeightPlan(0, 3, 0, 5)))
    staffed(day)
    wendy = day.whistleblower("wendy")
    market, me = wendy.market, wendy.market.me

    def games() -> list[bool]:
        return [g.decided for g in market.games(job_id) if g.game.challenger == me]

    assert day.run(lambda: bool(games())), day.events[-5:]
    drain(day, "wendy")
    assert not all(games()) and obligations_of(market, me, None) == Obligations(games=1)
    wendy.tick()
    audits = wendy.status.counters["audits"]
    assert day.run(stoppable(day, "wendy", None), turns=600), wendy.status
    assert all(games()) and Phase.CONVICTED in day.phases(job_id, Kind.TASK)
    assert wendy.status.counters["audits"] == audits
    day.run(lambda: False, turns=10)
    assert wendy.status.counters["audits"] == audits and wendy.status.action == FREE


def test_while_it_pauses_a_whistleblower_audits_nothing(day: MarketDay) -> None:
    load = [9.0]
    wishes, machine = Wishes(max_load=4.0), Machine(load=lambda: load[0])
    job_id = day.post(rounds=1)
    day.solver("ann")
    staffed(day)
    rest = Rest(Drained(day.folder / "wendy", "whistleblower"), wishes, machine)
    wendy = day.whistleblower("wendy", rest=rest)
    assert day.run(lambda: bool(day.phases(job_id)))
    day.run(lambda: False, turns=2)
    assert wendy.status.action == "rechecks nothing new: this machine's load is over 4"
    assert "audits" not in wendy.status.counters
    load[0] = 1.0
    assert day.run(lambda: "audits" in wendy.status.counters)
