"""Adapters behind the ports, made from settings: where ``chain`` and ``storage`` meet the roles."""

from __future__ import annotations

import secrets
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from assay.app.settings import Settings
from assay.app.units import parse_amount
from assay.chain.contracts.compile import compile_contracts
from assay.chain.contracts.deploy import Deployment
from assay.chain.contracts.market import ChainMarket
from assay.chain.contracts.plan import registry_of
from assay.chain.contracts.view import ChainView
from assay.chain.eth.clock import ChainClock
from assay.chain.eth.endpoints import Endpoints, http_endpoints
from assay.chain.eth.journal import Journal
from assay.chain.eth.keystore import Keystore
from assay.chain.eth.rpc import quantity
from assay.chain.eth.sender import FeePolicy, Sender
from assay.protocol.errors import Ask, Reverted
from assay.protocol.types import ZERO_ADDRESS, Address, Chain

if TYPE_CHECKING:
    from assay.storage.blockstore import BlockStore
    from assay.storage.exchange import Exchange
    from assay.storage.node import NodeBlocks
    from assay.storage.traffic import Traffic


@dataclass
class Connection:
    """One account's view of one chain."""

    rpc: Endpoints
    market: ChainView
    clock: ChainClock
    journal: Journal | None
    chain: Chain
    interrupted: list[str] = field(default_factory=list)
    """Keys of intents that were under way when this connection was made; each is taken up at most once."""
    _finished: bool = False

    @property
    def writer(self) -> ChainMarket:
        """The market, for writing. Raises Ask when no key was opened."""
        if not isinstance(self.market, ChainMarket):
            raise Ask("this connection only reads", hint="pass --account NAME", code="no-account")
        return self.market

    def ether(self, address: Address) -> int:
        """Ether of an account in wei."""
        return quantity(self.rpc.request("eth_getBalance", [address, "latest"]), "a balance")

    def total_supply(self) -> int:
        """The token's supply in smallest units."""
        return int(self.market.contracts["Token"].read("totalSupply"))

    def unfinished(self, prefix: str) -> list[str]:
        """Keys under this prefix that an earlier command has signed and not seen mined."""
        self._finish()
        return [key for key in self.interrupted if key.startswith(prefix)]

    def _finish(self) -> None:
        """Wait, once, for the transactions that were under way: what comes next builds on them."""
        if self._finished:
            return
        self._finished = True
        for intent in self.writer.sender.resume():
            with suppress(Reverted):  # told to whoever gives that command again
                self.writer.sender.wait(intent.key)

    def intent(self, *parts: object) -> str:
        """Intent of a command that a person gave: each time it is given it is meant anew, unless the same
        command was cut off under way; then it is that one, so that repeating it finishes it once."""
        prefix = "/".join(("cli", *map(str, parts))) + "/"
        for key in self.unfinished(prefix):
            self.interrupted.remove(key)
            return prefix + key.removeprefix(prefix).split("/")[0]
        return prefix + secrets.token_hex(8)

    def close(self) -> None:
        """Close the event cursor and the journal."""
        self.market.disconnect()
        if self.journal is not None:
            self.journal.close()


def connect(settings: Settings, account: str, *, max_spend: str | None = None) -> Connection:
    """Market of an account in the keystore. Raises what the keystore, the deployment file and the node
    raise."""
    rpc = http_endpoints(settings.rpc_urls)
    deployment = Deployment.load(settings.deployment, rpc)
    key = Keystore(settings.keystore).load(account, settings.password_file)
    home = settings.home / "nodes" / account
    home.mkdir(parents=True, exist_ok=True)
    artifacts = compile_contracts()
    journal = Journal(home / "journal.db")
    policy = FeePolicy(spend_limit_wei=parse_amount(max_spend) if max_spend else None)
    sender = Sender(rpc, key, journal, registry_of(artifacts), policy)
    interrupted = [intent.key for intent in journal.open_intents(sender.address)]
    market = ChainMarket(rpc, deployment, artifacts, sender, home / "events.db")
    return Connection(rpc, market, ChainClock(rpc), journal, _chain(deployment), interrupted)


def connect_readonly(settings: Settings) -> Connection:
    """Market without an account."""
    rpc = http_endpoints(settings.rpc_urls)
    deployment = Deployment.load(settings.deployment, rpc)
    cursor = settings.home / "view" / "events.db"
    market = ChainView(rpc, deployment, compile_contracts(), ZERO_ADDRESS, cursor)
    return Connection(rpc, market, ChainClock(rpc), None, _chain(deployment))


def _chain(deployment: Deployment) -> Chain:
    return Chain(deployment.chain_id, {name: Address(at) for name, at in deployment.addresses.items()})


@dataclass
class NodeStorage:
    """A node's block store and its way to the others'."""

    store: BlockStore
    exchange: Exchange
    blocks: NodeBlocks
    traffic: Traffic

    def follow(self, market: ChainView) -> None:
        """Fetch from now on from where the market's accounts serve, but this one: whoever published a
        manifest first, the others by what they have at stake."""
        from assay.storage.peers import PeerInfo

        self.exchange.set_peers(
            (PeerInfo(g.url, g.stake, g.publishes) for g in market.gateways() if g.account != market.me),
            market.publisher,
        )

    def close(self) -> None:
        """Stop fetching, and keep what was counted."""
        self.exchange.close()
        self.traffic.save()


def open_storage(home: Path) -> NodeStorage:
    """Block store under a node's folder."""
    import httpx

    from assay.storage import traffic
    from assay.storage.blockstore import BlockStore
    from assay.storage.exchange import Exchange
    from assay.storage.node import NodeBlocks

    store = BlockStore(home / "store")
    counted = traffic.Traffic(home / traffic.FILE)
    transport = traffic.CountingTransport(httpx.AsyncHTTPTransport(trust_env=False), counted)
    exchange = Exchange(store, transport=transport)
    return NodeStorage(store, exchange, NodeBlocks(store, exchange), counted)
