"""One job from Python: its progress, its events, its model.

Contract: reads the chain and published checkpoints; writes only to halt, fund or close the job on request.
What is fetched is verified against the settled root (``client.fetching``).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING

from assay.app.computing import engine_of
from assay.app.invocation import App
from assay.app.resource_limits import RESOURCE_LIMITS
from assay.app.units import parse_amount
from assay.app.wiring import Connection, NodeStorage
from assay.client.closing import Closing, close, closes_at
from assay.client.following import Following, follow
from assay.client.job_events import JobEvent, events_between
from assay.client.losses import Losses, losses_of
from assay.node.artifacts import load_job
from assay.protocol.errors import Retry, Stop
from assay.protocol.types import JobId, Seconds, Wei

if TYPE_CHECKING:
    from torch import nn

    from assay.client.replaying import Replayed
    from assay.client.verifying import Verified

PATIENCE_S = 120.0
"""Seconds for which `Job.watch` goes on while the chain's node does not answer."""


class Job:
    """A job on a market; ``Market.post`` and ``Market.job`` give one."""

    def __init__(
        self,
        app: App,
        connection: Connection,
        storage: NodeStorage,
        job_id: JobId,
        model: nn.Module | None,
    ) -> None:
        """`model`: the untrained module, if this process posted it."""
        self._app, self._connection, self._storage = app, connection, storage
        self._job_id, self._model = job_id, model
        self._losses: Losses | None = None
        self._closing = Closing(connection.writer) if connection.journal is not None else None
        self.folder = app.settings.home / "models" / job_id.hex()[:16]
        """Default folder of `fetch`."""

    def __repr__(self) -> str:
        return f"<Job {self.id[:16]}>"

    @property
    def id(self) -> str:
        """The job's id as 64 hex digits."""
        return self._job_id.hex()

    def progress(self, *, losses: bool = True) -> Following:
        """The job's present progress: rounds, tasks, phases, payments; with losses if their states are
        available.

        Raises RpcUnreachable.
        """
        market = self._connection.market
        market.refresh()
        if losses and self._losses is None:
            self._losses = self._open_losses()
        return follow(market, self._job_id, self._losses if losses else None)

    async def watch(self, *, every: float = 1.0, losses: bool = True) -> AsyncIterator[JobEvent]:
        """Yields everything that happens to the job, from its beginning until it is done.

        Polls every `every` seconds, off the event loop, and resends this account's transactions that a
        reorganisation removed. Raises Retry if the chain's node has not answered for `PATIENCE_S`.
        """
        before: Following | None = None
        answered = time.monotonic()
        while True:
            try:
                now = await asyncio.to_thread(self._look, losses)
            except Retry:
                if time.monotonic() - answered > PATIENCE_S:
                    raise
                await asyncio.sleep(every)
                continue
            answered = time.monotonic()
            for event in events_between(before, now):
                yield event
            if now.done:
                return
            before = now
            await asyncio.sleep(every)

    async def wait(self, *, every: float = 1.0) -> Following:
        """Waits until the job is done; returns its progress. Raises as `watch`."""
        async for _ in self.watch(every=every, losses=False):
            pass
        return await asyncio.to_thread(partial(self.progress, losses=False))

    def fetch(self, folder: str | Path | None = None, *, model: nn.Module | None = None) -> nn.Module:
        """Fetches the trained model, in evaluation mode, on the CPU.

        Writes model.safetensors, programs and receipt to `folder` (default: `self.folder`). `model` is a
        module of the job's architecture, of which a copy with the parameters is returned; it can be omitted
        if this process posted the job, or the job trains a built-in model. For one of `transformers`' own
        modules config.json is written too, so that `from_pretrained` loads the folder; for a built-in GPT,
        ``client.exporting`` makes such a folder. Raises NotSettled while no round is settled, and Stop if the
        architecture is unknown or does not fit.
        """
        from assay.client.exporting import write_config
        from assay.client.fetched import model_and_parameters
        from assay.client.fetching import fetch
        from assay.training.copies import copied
        from assay.training.evaluate import loaded, with_parameters

        into = self.folder if folder is None else Path(folder)
        market, connection = self._connection.market, self._connection
        market.refresh()
        self._set_peers()
        with market.snapshot():
            place = connection.chain, market.block
            fetch(market, self._storage.blocks, self._job_id, into, RESOURCE_LIMITS, *place)
        description, params = model_and_parameters(into)
        given = self._model if model is None else model
        if given is not None:
            write_config(given, into)
            return with_parameters(copied(given), params)
        if description.get("kind") == "own":
            raise Stop(
                f"the parameters of {description.get('name')!r} were fetched to {into}, and fetch() was given"
                " no module to load them into",
                hint="pass one: job.fetch(model=MyModel())",
                code="no-module",
            )
        return loaded(params, description)

    def verify(self, folder: str | Path | None = None) -> Verified:
        """Verifies a fetched folder against its receipt, offline. Raises BadReceipt with the fault."""
        from assay.client.verifying import verify

        return verify(self.folder if folder is None else Path(folder))

    def replay(self, folder: str | Path | None = None, *, segments: int | None = None) -> Replayed:
        """Recomputes a fetched job's segments, all or a random number of them, bit by bit.

        Raises BadReceipt with the segment that differs.
        """
        from assay.client.receipt import read_receipt
        from assay.client.replaying import replay

        receipt = read_receipt(self.folder if folder is None else Path(folder))
        self._set_peers()
        engine = engine_of(self._app.settings, brief=True)
        return replay(receipt, self._storage.blocks, RESOURCE_LIMITS, segments, SystemRandom(), engine)

    def fund(self, amount: str | int) -> None:
        """Adds to the job's budget, for example "50tok". Raises InsufficientFunds, and Ask without an
        account."""
        value = Wei(amount) if isinstance(amount, int) else parse_amount(amount)
        market, connection = self._connection.writer, self._connection
        if (missing := value - market.free(market.me)) > 0:
            market.deposit(connection.intent("deposit", missing), Wei(missing))
        market.top_up(connection.intent("top-up", self.id, value), self._job_id, value)

    def halt(self) -> None:
        """Halts the job: no further round begins, finished work is paid, and the rest is refunded once the
        job is closed."""
        self._connection.writer.halt(f"halt/{self.id}", self._job_id)

    def close(self) -> None:
        """Closes a job whose rounds are settled, or that was halted; refunds the unspent budget.

        `watch` and solvers also do this by themselves. Raises Reverted if it is too early.
        """
        market = self._connection.writer
        found = market.job(self._job_id)
        close(market, found, closes_at(market, found, market.claims(self._job_id)) or Seconds(0))

    def _look(self, losses: bool) -> Following:
        if self._closing is not None:
            self._connection.writer.sender.resume()
            self._closing.look(self._connection.clock.now())
        return self.progress(losses=losses)

    def _set_peers(self) -> None:
        self._storage.follow(self._connection.market)

    def _open_losses(self) -> Losses | None:
        """The loss reader; None while the job's files are unavailable."""
        market = self._connection.market
        self._set_peers()
        try:
            files = load_job(self._storage.blocks, market.job(self._job_id).terms, RESOURCE_LIMITS)
        except Retry:
            return None
        engine = engine_of(self._app.settings, brief=True)
        return losses_of(market, self._storage.blocks, self._job_id, files, engine)
