"""Attack W14: whom a node connects to where a stranger has said whom to ask."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import httpx
import pytest

from assay.blocks.blockstore import BlockStore
from assay.blocks.exchange import Exchange, ExchangeConfig
from assay.blocks.public_net import (
    LOOPBACK,
    PrivateAddress,
    PublicTransport,
    admitted,
    networks,
)
from assay.protocol.cid import Cid
from assay.protocol.errors import BlockNotFound
from tests.fakes.http_server import serving

DATA = b"the block"
CID = Cid.of(DATA)

PRIVATE = [
    *("127.0.0.1", "127.255.255.254", "0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1"),
    *("169.254.169.254", "100.100.100.200", "192.0.0.192", "168.63.129.16"),  # clouds' metadata
    *("198.18.0.1", "203.0.113.7", "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255"),
    *("::", "::1", "fe80::1", "fe80::1%lo", "fc00::1", "fd00:ec2::254", "fec0::1", "ff02::1", "2001:db8::1"),
    *("::ffff:127.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "2002:7f00:1::", "2002:a9fe:a9fe::1"),
    *("64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "2001::1", "100::1"),
]
PUBLIC = [
    *("1.1.1.1", "93.184.216.34", "2606:4700::1111"),
    *("::ffff:1.1.1.1", "64:ff9b::101:101", "2002:101:101::1"),
]


@pytest.mark.parametrize("address", PRIVATE)
def test_attack_W14_no_address_of_ones_own_net_is_asked(address: str) -> None:
    with pytest.raises(PrivateAddress, match="not a public address"):
        admitted("a.example", [address], [])


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_asked(address: str) -> None:
    assert admitted("a.example", [address], []) == [address]


def test_of_several_addresses_the_public_ones_are_asked_each_once() -> None:
    found = ["10.0.0.1", "1.1.1.1", "1.1.1.1", "::1", "2606:4700::1111"]
    assert admitted("a.example", found, []) == ["1.1.1.1", "2606:4700::1111"]


def test_what_the_operator_names_is_asked_and_nothing_beside_it() -> None:
    own = networks("10.1.0.0/16, fd00::/8")
    assert own == [ip_network("10.1.0.0/16"), ip_network("fd00::/8")]
    assert admitted("a", ["10.1.2.3", "10.2.2.3", "fd00::1", "::ffff:10.1.0.1"], own) == [
        *("10.1.2.3", "fd00::1", "::ffff:10.1.0.1")
    ]
    assert networks("") == []
    for wrong in ("10.0.0.1/8", "all", "10.0.0.0/40"):
        with pytest.raises(ValueError, match=wrong.split("/")[0]):
            networks(wrong)


@pytest.fixture
def service() -> Iterator[tuple[str, list[str]]]:
    """A service on this machine that a stranger would like to have asked: its URL, and what it was asked."""
    asked: list[str] = []

    def answer(path: str, _: bytes) -> tuple[int, bytes]:
        asked.append(path)
        return 200, DATA

    with serving(answer) as url:
        yield url.removeprefix("http://"), asked


def resolved(monkeypatch: pytest.MonkeyPatch, answers: list[str]) -> list[str]:
    """Have each look-up of a name give the next of these addresses, the last for good; the names."""
    names: list[str] = []
    real = socket.getaddrinfo

    def look_up(host: Any, port: Any, *given: Any, **named: Any) -> Any:
        if not str(host).endswith(".example"):
            return real(host, port, *given, **named)
        names.append(str(host))
        return real(answers.pop(0) if len(answers) > 1 else answers[0], port, *given, **named)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return names


def fetched(tmp_path: Path, url: str, private: Any = ()) -> bytes:
    config = ExchangeConfig(backoff_s=0.0)
    with Exchange(BlockStore(tmp_path), [url], config, transport=PublicTransport(private)) as exchange:
        return exchange.fetch_block(CID)


@pytest.mark.parametrize("host", ["127.0.0.1", "[::ffff:127.0.0.1]", "rebinds.example"])
def test_attack_W14_a_strangers_url_has_nothing_of_this_machine_asked(
    host: str, service: tuple[str, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, asked = service
    resolved(monkeypatch, ["127.0.0.1"])
    url = f"http://{host}:{place.rpartition(':')[2]}"
    with pytest.raises(BlockNotFound, match="private-address"):
        fetched(tmp_path, url)
    assert asked == []


def test_what_is_looked_at_is_what_is_connected_to(
    service: tuple[str, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that is public when it is looked at and this machine when it is connected to (rebinding)."""
    place, asked = service
    names = resolved(monkeypatch, ["192.88.99.1", "127.0.0.1"])
    tried: list[str] = []

    async def connect(_: object, host: str, *given: Any, **named: Any) -> Any:
        tried.append(host)
        raise httpx.ConnectError("nobody answers there")

    monkeypatch.setattr("httpcore.AnyIOBackend.connect_tcp", connect)
    transport = PublicTransport()

    async def ask() -> None:
        async with httpx.AsyncClient(transport=transport) as client:
            await client.get(f"http://rebinds.example:{place.rpartition(':')[2]}/")

    with pytest.raises(httpx.ConnectError):
        asyncio.run(ask())
    assert (names, tried, asked) == (["rebinds.example"], ["192.88.99.1"], [])


def test_on_a_local_chain_this_machine_is_asked(
    service: tuple[str, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, asked = service
    resolved(monkeypatch, ["127.0.0.1"])
    assert fetched(tmp_path / "literal", f"http://{place}", LOOPBACK) == DATA
    assert fetched(tmp_path / "named", f"http://n.example:{place.rpartition(':')[2]}", LOOPBACK) == DATA
    assert len(asked) == 2


def test_a_name_that_is_no_name_is_a_peers_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_such(*_: object, **__: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", no_such)
    with pytest.raises(BlockNotFound, match="peer-unreachable"):
        fetched(tmp_path, "http://nobody.example")
