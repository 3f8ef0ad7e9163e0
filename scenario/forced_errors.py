"""The client's part in a scenario of forced errors: it forces one in the place of a solver that it has agreed
with, reveals the forced error once somebody has found it, and takes its deposit back after the conviction.

Contract: `look` does at most one of these a call, and each once. The salt is the client's own and is kept in
memory only: a forced error of a scenario is not meant to outlive it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable

from assay.app.wiring import Connection
from assay.chain.contracts.forced_errors import Forcer, forced_error_commitment
from assay.protocol.types import Address, ClaimView, JobId, Kind, Phase


class Forcing:
    """One forced error in round `round_` of whatever shard `solver` holds."""

    def __init__(
        self, connection: Connection, job_id: JobId, solver: Address, round_: int, say: Callable[[str], None]
    ) -> None:
        self._connection, self._forcer = connection, Forcer(connection.writer)
        self._job_id, self._solver, self._round, self._say = job_id, solver, round_, say
        self._salt = secrets.token_bytes(32)
        self._shard: int | None = None
        self._done: list[str] = []

    def _commitment(self) -> bytes:
        assert self._shard is not None
        me = self._connection.writer.me
        return forced_error_commitment(me, self._solver, self._job_id, self._round, self._shard, self._salt)

    def _claim(self) -> ClaimView | None:
        """The claim of the forced error's place, if it is committed."""
        for view in self._connection.market.claims(self._job_id):
            claim = view.claim
            place = (claim.kind, claim.round, claim.shard, claim.claimant)
            if place == (Kind.TASK, self._round, self._shard, self._solver):
                return view
        return None

    def look(self) -> None:
        """The next step, if it is due. Raises what the port raises."""
        market = self._connection.market
        if self._shard is None:
            terms = market.job(self._job_id).terms
            held = [k for k in range(terms.shards) if market.holder(self._job_id, k).solver == self._solver]
            if held:
                self._shard = held[0]
                self._forcer.forced_error("scenario/forced-error", self._commitment(), terms.solver_stake)
                self._say(
                    f"forces an error in task {self._round}/{self._shard}, by agreement with its solver"
                )
            return
        view = self._claim()
        if view is None:
            return
        if "reveal" not in self._done and view.status.open_games and view.status.phase != Phase.CONVICTED:
            self._done.append("reveal")
            self._forcer.reveal("scenario/reveal", view.claim, self._salt)
            self._say("reveals its forced error, so that its solver is not punished for it")
        elif "finish" not in self._done and view.status.phase == Phase.CONVICTED:
            self._done.append("finish")
            self._forcer.finish("scenario/finish", self._commitment())
            self._say("takes the forced error's deposit back")
