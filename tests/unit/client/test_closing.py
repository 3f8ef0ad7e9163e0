"""Who closes a job and when; its client gets the unspent budget back."""

from __future__ import annotations

from typing import Any

from assay.app.outlook import in_words, outlook_of
from assay.client.closing import SOLVERS_FIRST_S, Closing, closes_at
from assay.protocol.types import JobId, Kind, Phase, Seconds
from assay.solver.service import SolverService
from tests.fakes.market_day import MarketDay


def halted(day: MarketDay, job_id: JobId) -> None:
    day.markets["client"].halt("halt", job_id)


def words(day: MarketDay, job_id: JobId) -> str:
    market, now = day.markets["client"], Seconds(day.market_state.time)
    return "; ".join(in_words(one, now) for one in outlook_of(market, market.job(job_id), now, str))


def look(day: MarketDay, closing: Closing) -> list[JobId]:
    return [job.job_id for job in closing.look(Seconds(day.market_state.time))]


class Leaving(SolverService):
    """Goes away before it has closed the job."""

    async def _close(self, action: Any) -> None:
        """Nothing."""


def with_nodes(day: MarketDay, kind: type[SolverService] = SolverService) -> None:
    for name in ("ann", "bob"):
        day.solver(name, kind)
    day.verifiers()


def test_W24_a_job_that_nobody_took_gives_its_escrow_back(day: MarketDay) -> None:
    job_id = day.post()
    client = day.markets["client"]
    closing, escrow, free = Closing(client), client.job(job_id).escrow, client.free(client.me)
    assert look(day, closing) == [] and closes_at(client, client.job(job_id), []) is None
    halted(day, job_id)
    at = closes_at(client, client.job(job_id), client.claims(job_id))
    assert at is not None and "then the job can be closed" in words(day, job_id)
    assert "(until " in words(day, job_id) and "no solver" not in words(day, job_id)
    day.market_state.advance(at - 1 - day.market_state.time)
    assert look(day, closing) == [] and client.job(job_id).escrow == escrow
    day.market_state.advance(1)
    assert "halted: it can be closed (`assay job close`)" in words(day, job_id)
    assert look(day, closing) == [job_id]
    assert client.job(job_id).progress.closed and client.free(client.me) == free + escrow
    assert look(day, closing) == [] and words(day, job_id).startswith("closed")


def test_a_halted_job_is_closed_once_nobody_can_commit_to_it(day: MarketDay) -> None:
    """A solver takes a shard just before the job is halted, and does nothing."""
    job_id = day.post()
    client, solver = day.markets["client"], day.join("ann", solver=2_000)
    day.market_state.advance(30)
    solver.take_shard("take", job_id, 1)
    halted(day, job_id)
    at = closes_at(client, client.job(job_id), client.claims(job_id))
    assert at == day.market_state.time + client.job(job_id).terms.task_time + 1
    closing = Closing(client)
    day.market_state.advance(at - 1 - day.market_state.time)
    assert look(day, closing) == []
    day.market_state.advance(1)
    assert look(day, closing) == [job_id]


def test_a_clock_that_only_the_contract_knows_puts_it_off(day: MarketDay) -> None:
    """A shard that was taken last and given back: nobody sees since when it was held."""
    job_id = day.post()
    client, solver = day.markets["client"], day.join("ann", solver=2_000)
    day.market_state.advance(30)
    solver.take_shard("take", job_id, 1)
    solver.release("release", job_id, 1)
    halted(day, job_id)
    closing, task_time = Closing(client), client.job(job_id).terms.task_time
    day.market_state.advance(task_time)
    assert look(day, closing) == [] and not client.job(job_id).progress.closed
    day.market_state.advance(1)
    assert look(day, closing) == [job_id] and client.job(job_id).progress.closed


def test_what_has_begun_is_settled_first(day: MarketDay) -> None:
    job_id = day.post(rounds=3)
    client, closing = day.markets["client"], Closing(day.markets["client"])
    with_nodes(day)
    assert day.run(lambda: Phase.ACCEPTED in day.phases(job_id, Kind.TASK))
    halted(day, job_id)
    assert look(day, closing) == [] and "then what has begun is settled" in words(day, job_id)
    assert day.run(lambda: bool(look(day, closing)) or day.closed(job_id)())
    assert client.job(job_id).progress.closed and client.job(job_id).escrow == 0


def test_a_job_that_is_done_is_its_solvers_to_close_and_then_its_clients(day: MarketDay) -> None:
    job_id = day.post(rounds=1)
    client, closing = day.markets["client"], Closing(day.markets["client"])
    with_nodes(day, Leaving)
    assert day.run(lambda: client.job(job_id).progress.settled_rounds == 1)
    assert not client.job(job_id).progress.closed
    day.services.clear()
    assert look(day, closing) == []
    day.market_state.advance(SOLVERS_FIRST_S - 1)
    assert look(day, closing) == []
    day.market_state.advance(1)
    assert look(day, closing) == [job_id]
