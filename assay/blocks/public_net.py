"""HTTP transports for strangers' URLs: they connect to public addresses and to networks the operator allows.

Contract: a host name is resolved here, and the connection goes to the very address that was checked, so a
changed DNS answer leads nowhere else. Private, loopback, link-local, shared, reserved and multicast addresses
raise `PrivateAddress`, as do clouds' metadata addresses that count as public. An IPv6 address that embeds an
IPv4 address (mapped, 6to4, NAT64) is checked as that address. Not guaranteed: that a public address is not a
machine of one's own. Source: IANA's special-purpose address registries (RFC 6890), by the standard library's
`ipaddress`.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any

import httpcore
import httpx

from assay.protocol.errors import PeerUnreachable

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

LOOPBACK = ip_network("127.0.0.0/8"), ip_network("::1/128")
EVERYWHERE = ip_network("0.0.0.0/0"), ip_network("::/0")
_AT_ONCE = 128
"""Maximum number of idle connections."""
_NAT64 = ip_network("64:ff9b::/96")
_INSIDE_CLOUDS = (ip_network("168.63.129.16/32"), ip_network("192.0.0.0/24"))
"""Metadata and control addresses that are global in the registry: Azure's, Oracle's."""


class PrivateAddress(PeerUnreachable):
    """The host's address is neither public nor in an allowed network."""

    code = "private-address"


def networks(text: str) -> list[Network]:
    """Parses networks such as ``10.0.0.0/8,fd00::/8``. Raises ValueError."""
    return [ip_network(part.strip()) for part in text.split(",") if part.strip()]


def admitted(host: str, found: Iterable[str], private: Sequence[Network]) -> list[str]:
    """Allowed addresses of a host, each once. Raises PrivateAddress if there is none."""
    all_found = list(dict.fromkeys(found))
    fit = [address for address in all_found if _may_be_asked(ip_address(address), private)]
    if all_found and not fit:
        raise PrivateAddress(
            f"{host} resolves to {all_found[0]}, which is not a public address; it was not contacted",
            hint="if you know this machine, allow its network: --private-peers 10.0.0.0/8",
        )
    return fit


def _may_be_asked(address: Address, private: Sequence[Network]) -> bool:
    meant = _carried(address)
    if any(meant in network for network in private):
        return True
    odd = meant.is_multicast or meant.is_reserved or getattr(meant, "is_site_local", False)
    return meant.is_global and not odd and not any(meant in network for network in _INSIDE_CLOUDS)


def _carried(address: Address) -> Address:
    if isinstance(address, IPv4Address):
        return address
    nat64 = IPv4Address(int(address) & 0xFFFFFFFF) if address in _NAT64 else None
    return address.ipv4_mapped or address.sixtofour or nat64 or address


def _hosts(found: Iterable[tuple[Any, ...]]) -> Iterable[str]:
    """Addresses in a result of `getaddrinfo`."""
    return (str(place[0]) for *_, place in found)


class _Backend(httpcore.AnyIOBackend):
    def __init__(self, private: Sequence[Network]) -> None:
        self._private = private

    async def connect_tcp(
        self, host: str, port: int, timeout: float | None = None, *given: Any, **named: Any
    ) -> httpcore.AsyncNetworkStream:
        try:
            async with asyncio.timeout(timeout):
                found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except TimeoutError as error:
            raise httpcore.ConnectTimeout(f"{host} is not looked up in time") from error
        except (OSError, UnicodeError) as error:
            raise httpcore.ConnectError(str(error)) from error
        failure: Exception = httpcore.ConnectError(f"{host} has no address")
        fit = admitted(host, _hosts(found), self._private)
        for address in fit:
            try:
                share = None if timeout is None else timeout / len(fit)
                return await super().connect_tcp(address, port, share, *given, **named)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure


class PublicTransport(httpx.AsyncHTTPTransport):
    """HTTP transport of a client to strangers, with the backend put into its pool, for which httpx has no
    option."""

    def __init__(self, private: Sequence[Network] = ()) -> None:
        super().__init__(trust_env=False)
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=httpx.create_ssl_context(trust_env=False),
            max_connections=None,
            max_keepalive_connections=_AT_ONCE,
            keepalive_expiry=5.0,
            network_backend=_Backend(private),
        )
