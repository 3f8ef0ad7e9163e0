"""Creates the adapters behind the ports from settings."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from assay.app.accounts import open_key
from assay.app.chain_settings import policy_of
from assay.app.settings import Settings
from assay.chain.contracts.artifacts import load_artifacts
from assay.chain.contracts.deploy import Deployment
from assay.chain.contracts.market import ChainMarket
from assay.chain.contracts.plan import registry_of
from assay.chain.contracts.view import ChainView
from assay.chain.eth.abi import checksummed
from assay.chain.eth.clock import ChainClock
from assay.chain.eth.endpoints import Endpoints, http_endpoints
from assay.chain.eth.errors import Registry
from assay.chain.eth.fees import FeePolicy
from assay.chain.eth.journal import Journal
from assay.chain.eth.sender import Sender
from assay.protocol.errors import Ask, Reverted
from assay.protocol.types import ZERO_ADDRESS, Address, Chain

if TYPE_CHECKING:
    from assay.blocks.blockstore import BlockStore
    from assay.blocks.exchange import Exchange
    from assay.blocks.node import NodeBlocks
    from assay.blocks.public_net import Network
    from assay.blocks.traffic import Traffic


JOURNAL_FILE = "journal.db"
"""An account's, in its folder."""
CLOCK_AGE_S = 0.2
"""Seconds for which the chain's time is reused."""


@dataclass
class Connection:
    """One account's view of one chain."""

    rpc: Endpoints
    market: ChainView
    clock: ChainClock
    journal: Journal | None
    chain: Chain
    interrupted: list[str] = field(default_factory=list)
    """Keys of intents pending when this connection was opened; each is resumed at most once."""
    _finished: bool = False

    @property
    def writer(self) -> ChainMarket:
        """The market for writing. Raises Ask if no key was opened."""
        self.require_account()
        assert isinstance(self.market, ChainMarket)
        return self.market

    @property
    def secret(self) -> bytes:
        """The account's 32 secret bytes, from which salts are derived: the same on every machine with its
        key.

        Raises Ask if no key was opened.
        """
        return self.writer.sender.secret(b"assay/secret/1")

    def require_account(self) -> None:
        """Raises Ask if no key was opened."""
        if not isinstance(self.market, ChainMarket):
            raise Ask(
                "this connection has no account, so it can only read; nothing was sent",
                hint="pass --account NAME",
                code="no-account",
            )

    def ether(self, address: Address) -> int:
        """Balance of an account in wei."""
        return self.rpc.eth.get_balance(checksummed(address), "latest")

    def total_supply(self) -> int:
        """The token's supply in smallest units."""
        return int(self.market.contracts["Token"].read("totalSupply"))

    def unfinished(self, prefix: str) -> list[str]:
        """Keys with this prefix that an earlier command has signed and not seen mined."""
        self._finish()
        return [key for key in self.interrupted if key.startswith(prefix)]

    def _finish(self) -> None:
        """Waits, once, for pending transactions on which the next ones depend."""
        if self._finished:
            return
        self._finished = True
        for intent in self.writer.sender.resume():
            with suppress(Reverted):  # told to whoever gives that command again
                self.writer.sender.wait(intent.key)

    def intent(self, *parts: object) -> str:
        """Intent of a user's command: new for each invocation, unless the same command was interrupted.

        Then it is that one, so that repeating the command finishes it once.
        """
        prefix = "/".join(("cli", *map(str, parts))) + "/"
        for key in self.unfinished(prefix):
            self.interrupted.remove(key)
            return prefix + key.removeprefix(prefix).split("/")[0]
        return prefix + secrets.token_hex(8)

    def close(self) -> None:
        """Closes the event cursor and the journal."""
        self.market.disconnect()
        if self.journal is not None:
            self.journal.close()


def connect(
    settings: Settings,
    account: str,
    home: Path,
    *,
    max_spend: str | None = None,
    sends: bool = True,
    kind: Callable[..., ChainMarket] = ChainMarket,
) -> Connection:
    """Market of an account in the keystore, whose journal is in `home`. `kind`: its class.

    Raises errors of the keystore, the deployment file and the node.
    """
    policy = policy_of(settings, max_spend)
    rpc = http_endpoints(settings.rpc_urls)
    deployment = Deployment.load(settings.deployment, rpc)
    artifacts = load_artifacts()
    sender = _sender(settings, account, home, rpc, registry_of(artifacts), policy, sends)
    journal = sender.journal
    interrupted = [intent.key for intent in journal.open_intents(sender.address)]
    events = home / "events.db"
    market = kind(rpc, deployment, artifacts, sender, events, confirmations=policy.confirmations)
    return Connection(rpc, market, ChainClock(rpc, CLOCK_AGE_S), journal, _chain(deployment), interrupted)


def _sender(
    settings: Settings,
    account: str,
    home: Path,
    rpc: Endpoints,
    registry: Registry,
    policy: FeePolicy,
    sends: bool,
) -> Sender:
    """Sender of an account; its journal is in `home`."""
    key = open_key(settings, account)
    home.mkdir(parents=True, exist_ok=True)
    return Sender(rpc, key, Journal(home / JOURNAL_FILE), registry, policy, sends=sends)


@contextmanager
def open_sender(
    settings: Settings, account: str, home: Path, *, max_spend: str | None = None, sends: bool = True
) -> Iterator[Sender]:
    """Sender of an account in the keystore, on a chain that has no market yet."""
    policy, rpc = policy_of(settings, max_spend), http_endpoints(settings.rpc_urls)
    sender = _sender(settings, account, home, rpc, registry_of(load_artifacts()), policy, sends)
    try:
        yield sender
    finally:
        sender.journal.close()


def connect_readonly(settings: Settings, home: Path) -> Connection:
    """Market without an account; its cache is in `home`."""
    rpc = http_endpoints(settings.rpc_urls)
    deployment = Deployment.load(settings.deployment, rpc)
    cursor, behind = home / "events.db", policy_of(settings).confirmations
    market = ChainView(rpc, deployment, load_artifacts(), ZERO_ADDRESS, cursor, confirmations=behind)
    return Connection(rpc, market, ChainClock(rpc, CLOCK_AGE_S), None, _chain(deployment))


def _chain(deployment: Deployment) -> Chain:
    return Chain(deployment.chain_id, {name: Address(at) for name, at in deployment.addresses.items()})


@dataclass
class NodeStorage:
    """A node's block store with its access to other nodes' stores."""

    store: BlockStore
    exchange: Exchange
    blocks: NodeBlocks
    traffic: Traffic

    def follow(self, market: ChainView) -> None:
        """Fetches from now on from the market's other accounts: a manifest's first publisher first, then by
        stake."""
        from assay.blocks.peers import PeerInfo

        self.exchange.set_peers(
            (PeerInfo(g.url, g.stake, g.publishes) for g in market.gateways() if g.account != market.speaker),
            market.publisher,
        )

    def close(self) -> None:
        """Stops fetching and saves the traffic counters."""
        self.exchange.close()
        self.traffic.save()


def open_storage(
    home: Path, ipfs_url: str = "", below: Path | None = None, private: Sequence[Network] = ()
) -> NodeStorage:
    """Block store in a node's folder; with a URL, beside the Kubo daemon with that RPC.

    `below`: a store that is only read; `private`: networks in which strangers' addresses are asked, beside
    the public one.
    """
    from assay.blocks import traffic
    from assay.blocks.blockstore import BlockStore
    from assay.blocks.exchange import Exchange
    from assay.blocks.kubo import KuboClient, KuboNodeBlocks
    from assay.blocks.node import NodeBlocks
    from assay.blocks.overlay import OverlayStore
    from assay.blocks.public_net import PublicTransport

    store = BlockStore(home / "store") if below is None else OverlayStore(home / "store", below)
    counted = traffic.Traffic(home / traffic.FILE)
    transport = traffic.CountingTransport(PublicTransport(private), counted)
    exchange = Exchange(store, transport=transport)
    if not ipfs_url:
        return NodeStorage(store, exchange, NodeBlocks(store, exchange), counted)
    return NodeStorage(store, exchange, KuboNodeBlocks(store, exchange, KuboClient(ipfs_url)), counted)
