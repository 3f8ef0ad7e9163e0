"""A market from Python, as returned by `assay.connect`.

Contract: settings are those of the command line (arguments, then ASSAY_*, ETH_*, assay.toml, the devnet of
the home folder). A budget given to `post` is the consent to spend it; nothing else is spent but gas and bonds
of disputes that its audit opens. This process serves a job's files and audits the job, so keep it running
until solvers have the files, best until the job is done. Errors are ``assay.protocol.errors`` with code,
message and hint. Not guaranteed: anything about other processes that use the same account at the same time.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from assay.api.job import Job
from assay.api.plan import Plan, traced_job
from assay.app.devnet_record import read_devnet
from assay.app.invocation import App
from assay.app.output import Output
from assay.app.settings import Flags
from assay.app.units import parse_amount
from assay.app.wiring import Connection, NodeStorage
from assay.protocol.types import Address, Wei

if TYPE_CHECKING:
    from torch import nn

    from assay.app.auditing import Auditing
    from assay.job.read import JobFile
    from assay.training.datasets import Dataset
    from assay.training.job import JobArtifacts
    from assay.training.optimisers import Optimiser
    from assay.training.recipe import LossFunction


@dataclass(frozen=True)
class Balance:
    """Balances of an account."""

    free: Wei
    """Unlocked tokens in the market's vault, in the smallest unit (10^-18)."""
    wallet: Wei
    """Tokens outside the vault, in the smallest unit."""
    ether: int
    """Ether for gas, in wei."""


def connect(
    *,
    home: str | Path | None = None,
    rpc_url: str | Sequence[str] | None = None,
    account: str | None = None,
    password_file: str | Path | None = None,
    keystore: str | Path | None = None,
    deployment: str | Path | None = None,
    max_spend: str | None = None,
    host: str | None = None,
    port: int = 0,
    announce_url: str | None = None,
    quiet: bool = True,
) -> Market:
    """Connects to a market; without `account`, and none in the settings, for reading only.

    `rpc_url`: one URL, or several in order of preference; `max_spend`: maximum ether for gas, such as
    "0.1ether"; `host`, `port` and `announce_url`: where a posted job's files are served, and the base URL
    announced to others (``app.network_addresses``; default: loopback, which suits a devnet); `quiet=False`
    reports progress on stderr. Raises Ask if there is no chain, deployment or key, and RpcUnreachable.
    """
    urls = rpc_url if rpc_url is None or isinstance(rpc_url, str) else ",".join(rpc_url)
    texts = (None if path is None else str(path) for path in (home, password_file, keystore, deployment))
    home_text, password_text, keystore_text, deployment_text = texts
    flags = Flags(
        home_text,
        urls,
        account,
        password_text,
        keystore_text,
        deployment_text,
        host=host,
        announce_url=announce_url,
    )
    app = App(flags, Output(as_json=False, quiet=quiet), yes=True, dry_run=False, max_spend=max_spend)
    return Market(app, port)


class Market:
    """A market with one account on it. Close it, or use it as a context manager."""

    def __init__(self, app: App, port: int = 0) -> None:
        self._app, self._port, self._stack = app, port, ExitStack()
        name = app.settings.describe()["account"].value
        self._connection: Connection = app.connect(name) if name else app.view()
        self._account = name
        self._stack.callback(app.close)
        self._storage: NodeStorage | None = None
        self._serving = ""
        self._auditing: Auditing | None = None

    def __repr__(self) -> str:
        return f"<Market chain={self._connection.chain.chain_id} account={self._account or 'none'}>"

    @property
    def address(self) -> Address:
        """The account's address; the zero address without an account."""
        return self._connection.market.me

    def balance(self) -> Balance:
        """The account's balances."""
        market, me = self._connection.market, self.address
        market.refresh()
        return Balance(market.free(me), market.wallet(me), self._connection.ether(me))

    def jobs(self) -> list[Job]:
        """All jobs, oldest first."""
        market = self._connection.market
        market.refresh()
        return [self._job(view.job_id, None) for view in market.jobs()]

    def job(self, job_id: str) -> Job:
        """A job by its id, or a unique prefix of at least 8 digits. Raises Stop if there is none, or
        several."""
        market = self._connection.market
        market.refresh()
        found = self._app.job_id(market, job_id)
        market.job(found)
        return self._job(found, None)

    def estimate(
        self,
        model: nn.Module,
        loss: LossFunction,
        optimiser: Optimiser,
        data: Dataset,
        plan: Plan | None = None,
    ) -> Wei:
        """Maximum cost of a job in the token's smallest unit; stores and sends nothing. Raises as `post`."""
        from assay.job.estimate import drafted
        from assay.protocol.params import worst_case
        from assay.training.recipe import unfrozen_after

        with unfrozen_after(model):
            body, files = self._traced(model, loss, optimiser, data, plan)
        return worst_case(drafted(body, files, self._connection.market.bounds()))

    def post(
        self,
        model: nn.Module,
        loss: LossFunction,
        optimiser: Optimiser,
        data: Dataset,
        *,
        budget: str | int,
        plan: Plan | None = None,
        audit: float = 0.1,
    ) -> Job:
        """Posts a job that trains `model`: traces its step, publishes the files, posts the job, serves its
        files, and audits.

        `loss` maps (outputs, targets) to an f32 scalar; `optimiser` is one of ``assay.training.optimisers``;
        `budget` is such as "400tok" or an int in the smallest unit, and must cover the worst case
        (`estimate`); `plan` states the job's shape, and by its `outer` the outer algorithm. `model` itself is
        not changed; `Job.fetch` returns a trained copy. `audit`: secretly sampled share of the job's claims
        and votes that a thread replays until the market is closed. It disputes faults; a challenge bond for
        that is deposited beside the budget if the wallet has it. With 0 a solver gains by inventing about one
        task in a hundred. Raises UnsupportedOperation with the line of your code that cannot be expressed,
        BadRecipe, BadJobFile, OverBudget, Unfunded, and Ask if no account was chosen.
        """
        from assay.app.auditing import checked, shares_of
        from assay.job.estimate import drafted
        from assay.job.post import agreed, publish_and_post
        from assay.training.copies import copied
        from assay.training.recipe import unfrozen_after

        connection = self._connection
        connection.require_account()
        share = checked(audit)
        value = Wei(budget) if isinstance(budget, int) else parse_amount(budget)
        with unfrozen_after(model):
            body, files = self._traced(model, loss, optimiser, data, plan)
            untrained = copied(model)
        job = agreed(self._app, connection, body, files, drafted(body, files), value, audits=share > 0)
        self._serve()
        job_id = publish_and_post(connection, self._own_storage(), job)
        shares_of(self._app, self._account).say(job_id, share)
        self._audit()
        return self._job(job_id, untrained)

    def close(self) -> None:
        """Stops serving and closes what was opened."""
        self._stack.close()

    def __enter__(self) -> Market:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _job(self, job_id: bytes, model: nn.Module | None) -> Job:
        from assay.protocol.types import JobId

        return Job(self._app, self._connection, self._own_storage(), JobId(job_id), model)

    def _traced(
        self,
        model: nn.Module,
        loss: LossFunction,
        optimiser: Optimiser,
        data: Dataset,
        plan: Plan | None,
    ) -> tuple[JobFile, JobArtifacts]:
        plan = plan or Plan()
        if plan.local is None:
            plan = replace(plan, local=read_devnet(self._app.settings.home) is not None)
        from assay.job.trace_cache import traces

        return traced_job(model, loss, optimiser, data, plan, traces(self._app).keep)

    def _own_storage(self) -> NodeStorage:
        if self._storage is None:
            self._storage = self._app.storage(self._account or "view")
            self._stack.callback(self._storage.close)
        return self._storage

    def _serve(self) -> None:
        """Serves the account's blocks until the market is closed."""
        from assay.app.network_addresses import reach_of
        from assay.app.web import serve_blocks

        if not self._serving:
            connection, storage = self._connection, self._own_storage()
            reach = reach_of(self._app.settings, self._port)
            served = serve_blocks(self._account, connection, storage, reach)
            self._serving = self._stack.enter_context(served)

    def _audit(self) -> None:
        """Audits the account's open jobs until the market is closed."""
        from assay.app.auditing import Auditing

        if self._auditing is None:
            parts = (self._app, self._connection, self._own_storage(), self._account)
            self._auditing = self._stack.enter_context(Auditing(*parts))
        self._auditing.look()
