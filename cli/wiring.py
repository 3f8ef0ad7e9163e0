"""Adapters behind the ports, made from settings: the one place where ``chain`` and ``storage`` meet the
roles."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from chain.bindings import ChainMarket
from chain.deploy import Deployment
from chain.errors import Registry
from chain.journal import Journal
from chain.keystore import Keystore
from chain.rpc import HttpRpc, Rpc, get_block, quantity
from chain.sender import FeePolicy, Sender
from cli.settings import Settings
from cli.units import parse_amount
from protocol.errors import RpcUnreachable
from protocol.types import Address, Seconds
from storage.blockstore import BlockStore
from storage.exchange import Exchange
from storage.node import NodeBlocks


@dataclass
class Connection:
    """One account's market on one chain."""

    rpc: Rpc
    market: ChainMarket
    journal: Journal | None

    def now(self) -> Seconds:
        """Timestamp of the latest block."""
        return Seconds(quantity(self._latest()["timestamp"], "a block's time"))

    def block(self) -> int:
        """Number of the latest block."""
        return quantity(self._latest()["number"], "a block's number")

    def _latest(self) -> dict[str, object]:
        block = get_block(self.rpc, "latest")
        if block is None:
            raise RpcUnreachable("the node has no latest block", hint="choose another node with -r URL")
        return block

    def ether(self, address: Address) -> int:
        """Ether of an account in wei."""
        return quantity(self.rpc.request("eth_getBalance", [address, "latest"]), "a balance")

    def fresh_intent(self, purpose: str) -> str:
        """Intent of a command that a person gave: each time it is given, it is meant anew."""
        return f"cli/{purpose}/{secrets.token_hex(8)}"

    def close(self) -> None:
        """Close the event cursor and the journal."""
        self.market.close()
        if self.journal is not None:
            self.journal.close()


def connect(settings: Settings, account: str, *, max_spend: str | None = None) -> Connection:
    """Market of an account in the keystore. Raises what the keystore, the deployment file and the node
    raise."""
    rpc = HttpRpc(settings.rpc_url)
    deployment = Deployment.load(settings.deployment, rpc)
    key = Keystore(settings.keystore).load(account, settings.password_file)
    home = settings.home / "nodes" / account
    home.mkdir(parents=True, exist_ok=True)
    journal = Journal(home / "journal.db")
    policy = FeePolicy(spend_limit_wei=parse_amount(max_spend) if max_spend else None)
    sender = Sender(rpc, key, journal, Registry(), policy)
    return Connection(rpc, ChainMarket(rpc, deployment, home / "events.db", sender), journal)


def connect_readonly(settings: Settings) -> Connection:
    """Market without an account."""
    rpc = HttpRpc(settings.rpc_url)
    deployment = Deployment.load(settings.deployment, rpc)
    cursor = settings.home / "view" / "events.db"
    return Connection(rpc, ChainMarket(rpc, deployment, cursor, None), None)


@dataclass
class NodeStorage:
    """A node's block store and its way to the others'."""

    store: BlockStore
    exchange: Exchange
    blocks: NodeBlocks

    def set_peers(self, urls: Iterable[str]) -> None:
        """Fetch from these gateways from now on."""
        self.blocks.set_peers(list(urls))

    def close(self) -> None:
        """Stop fetching."""
        self.exchange.close()


def open_storage(home: Path) -> NodeStorage:
    """Block store under a node's folder."""
    store = BlockStore(home / "store")
    exchange = Exchange(store)
    return NodeStorage(store, exchange, NodeBlocks(store, exchange))
