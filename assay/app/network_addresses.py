"""Decides where a node listens, which URL it announces, and in which networks it asks other nodes.

Contract: loopback unless the operator says otherwise. What is announced is usable by others, never the
wildcard that a socket listens on. `announce_url` is "auto" (where it listens), "none" (announces nothing and
withdraws an earlier URL), or the base URL of a reverse proxy, a forwarded port or an IPFS gateway with the
same blocks.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from assay.app.settings import Settings
from assay.protocol.errors import Ask
from assay.protocol.peer_url import BadPeerUrl, peer_url
from assay.protocol.types import Address

if TYPE_CHECKING:
    from assay.blocks.public_net import Network

AUTO, NONE = "auto", "none"


@dataclass(frozen=True)
class Reach:
    """Listening address and announcement. `announce`: "auto", "none" or a base URL."""

    host: str
    port: int
    announce: str

    def announced(self, listening_url: str) -> str:
        """Base URL to announce; empty: none."""
        if self.announce == NONE:
            return ""
        return peer_url(listening_url if self.announce == AUTO else self.announce)

    @property
    def names(self) -> frozenset[str] | None:
        """Host names by which the node's status may be asked for; None: any, as it listens to a network."""
        if not is_loopback(base_url(self.host, self.port)):
            return None
        told = "" if self.announce in (AUTO, NONE) else self.announce
        return frozenset({self.host, urlsplit(told).hostname or self.host})


PROBE_S, PROBED_S, MOST_PROBED = 1.5, 60.0, 1_024


class Reaches:
    """Tells accounts whether this node can fetch from their announced URL. Thread-safe.

    Only URLs on chain are tried, each account's at most once a minute, one after the other: whoever asks
    meanwhile is told nothing new, so that silent URLs hold one thread of the server and not all.
    """

    def __init__(
        self,
        announced: Callable[[Address], str | None],
        answers: Callable[[str, float], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._announced, self._answers, self._clock = announced, answers, clock
        self._known: dict[tuple[Address, str], tuple[float, bool]] = {}
        self._probing = threading.Lock()

    def __call__(self, account: Address) -> bool | None:
        """True if this node can fetch from the account's URL; None if it announces none, or another one is
        tried just now."""
        url = self._announced(account)
        if not url:
            return None
        now, known = self._clock(), self._known.get((account, url))
        if (known is None or now - known[0] > PROBED_S) and self._probing.acquire(blocking=False):
            try:
                known = now, self._answers(url, PROBE_S)
                self._known[account, url] = known
                if len(self._known) > MOST_PROBED:
                    del self._known[next(iter(self._known))]
            finally:
                self._probing.release()
        return None if known is None else known[1]


def reach_of(settings: Settings, port: int = 0) -> Reach:
    """Reach from the settings. Raises Ask for an unusable address or an invalid URL."""
    host, announce = settings.value("host").strip("[]"), settings.value("announce_url")
    if announce not in (AUTO, NONE):
        _check(announce)
    if announce == AUTO and _is_wildcard(host):
        raise Ask(
            f"a node that listens on {host} listens on every address of this machine, and has to announce one"
            " that others can reach; nothing was started",
            hint="name it with --announce-url http://ADDRESS:PORT, or announce none with --announce-url none",
            code="bad-config",
        )
    return Reach(host, port, announce)


def private_peers(settings: Settings) -> list[Network]:
    """Networks beside the public one in which other nodes are asked: the operator's, and on a local chain
    this machine's.

    Raises Ask for an invalid network.
    """
    from assay.blocks.public_net import LOOPBACK, networks
    from assay.chain.contracts.deploy import NoDeployment, parse
    from assay.chain.eth.anvil import AnvilOptions

    given = settings.value("private_peers")
    try:
        named = networks(given)
    except ValueError as error:
        raise Ask(
            f"private_peers: {error}; no peer was asked",
            hint="name networks, such as 10.0.0.0/8 or 192.168.1.0/24,fd00::/8",
            code="bad-config",
        ) from error
    try:
        local = parse(settings.deployment).chain_id == AnvilOptions.chain_id
    except NoDeployment:
        local = False
    return [*named, *(LOOPBACK if local else ())]


def base_url(host: str, port: int) -> str:
    """An HTTP base URL; an IPv6 address is put in brackets."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def is_loopback(url: str) -> bool:
    """True if the URL is a loopback address."""
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def is_named(host_header: str, names: Collection[str]) -> bool:
    """True if a request's Host is an address, localhost or one of these names.

    A web page elsewhere reaches a server behind a browser by a name of its own that it points there (DNS
    rebinding); an address it cannot point anywhere.
    """
    try:
        host = urlsplit(f"//{host_header}").hostname or ""
    except ValueError:
        return False
    with suppress(ValueError):
        ip_address(host)
        return True
    return host == "localhost" or host in names


def _is_wildcard(host: str) -> bool:
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return host == ""


def _check(url: str) -> None:
    try:
        peer_url(url)
    except BadPeerUrl as error:
        raise Ask(
            f"others cannot fetch blocks from {url!a}: it is no base URL; nothing was announced",
            hint="give one such as https://node.example.org or http://[2001:db8::7]:4001; or auto, or none",
            code="bad-config",
        ) from error
