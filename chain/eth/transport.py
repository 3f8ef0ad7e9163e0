"""HTTP POST with one time limit for the whole exchange and one size limit for the answer.

Contract: `post` returns the status and the unpacked body, or raises one of FAILURES. Each address that is
tried, each part that is written and each read of the socket (a proxy's answer, headers, interim answers, the
body) has only the time that is left. No thread is started, no redirect is followed, nothing is repeated, and
a connection that ran out of time is closed. Safe to share between threads.
Not guaranteed: how long the system looks for a host's name; proxies that speak SOCKS.
Source: httpcore, on which httpx is built, and its network backends. `requests`, `httpx` and web3's own HTTP
provider give every read of the socket the whole limit anew, so a byte now and then holds them for good.
"""

from __future__ import annotations

import base64
import netrc
import os
import socket
import ssl
import time
import zlib
from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import httpcore

FAILURES = (
    *(httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError, httpcore.ProxyError),
    *(httpcore.UnsupportedProtocol, httpcore.ConnectionNotAvailable, zlib.error, OSError, ValueError),
)
_PART = 1 << 14
"""Bytes written at a time: a record of TLS."""
_UNPACKED = 1 << 16
"""Bytes that are unpacked at a time."""


class TooLarge(Exception):
    """An answer is larger than was allowed."""


def _left_s(end: float | None) -> float:
    """Seconds until `end`. Raises TimeoutException when there are none.

    Each of httpcore's time limits is given as the moment at which the exchange has to be over."""
    left = (end or 0.0) - time.monotonic()
    if left <= 0:
        raise httpcore.TimeoutException("timed out")
    return left


class _Stream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, _left_s(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for begin in range(0, len(buffer), _PART):
            self._stream.write(buffer[begin : begin + _PART], _left_s(timeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, _left_s(timeout)))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _Backend(httpcore.SyncBackend):
    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        """The first of the host's addresses that answers. (`socket.create_connection` gives each the whole
        limit.)"""
        failure: Exception = OSError("the host has no address")
        for *_, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            try:
                place, left_s = str(address[0]), _left_s(timeout)
                return _Stream(super().connect_tcp(place, port, left_s, local_address, socket_options))
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure


class Http:
    """One URL. What the environment says of proxies, certificates and .netrc is looked up once."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._made: tuple[httpcore.ConnectionPool, httpcore.URL, list[tuple[str, str]]] | None = None

    def post(self, body: bytes, timeout_s: float, most_bytes: int) -> tuple[int, bytes]:
        """The answer's status and body; of another status than 200 no body. Raises TooLarge, FAILURES."""
        pool, url, headers = self._made = self._made or self._prepared()
        limits = dict.fromkeys(("connect", "read", "write"), time.monotonic() + timeout_s)
        with pool.stream(
            "POST", url, headers=headers, content=body, extensions={"timeout": limits}
        ) as answer:
            return answer.status, _body(answer, most_bytes) if answer.status == 200 else b""

    def _prepared(self) -> tuple[httpcore.ConnectionPool, httpcore.URL, list[tuple[str, str]]]:
        parts = urlsplit(self._url)
        host = parts.hostname or ""
        bare = parts._replace(netloc=parts.netloc.rpartition("@")[2], path=parts.path or "/", fragment="")
        url = httpcore.URL(bare.geturl())
        account = (unquote(parts.username), unquote(parts.password or "")) if parts.username else _netrc(host)
        headers = [
            ("Host", bare.netloc),
            *(("Content-Type", "application/json"), ("Accept-Encoding", "gzip"), ("User-Agent", "assay")),
        ]
        if account is not None:
            word = base64.b64encode(":".join(account).encode()).decode()
            headers.append(("Authorization", f"Basic {word}"))
        proxies = {} if proxy_bypass(host) else getproxies()
        proxy = proxies.get(parts.scheme, proxies.get("all"))
        pool = httpcore.ConnectionPool(
            _trusted() if parts.scheme == "https" else None,
            httpcore.Proxy(proxy) if proxy else None,
            max_connections=None,
            network_backend=_Backend(),
        )
        return pool, url, headers


def _trusted() -> ssl.SSLContext:
    """Whom httpx trusts: certifi's authorities, or those of SSL_CERT_FILE and SSL_CERT_DIR."""
    import httpx

    return httpx.create_ssl_context()


def _netrc(host: str) -> tuple[str, str] | None:
    """The account that .netrc names for a host."""
    try:
        found = netrc.netrc(os.environ.get("NETRC")).authenticators(host)
    except (OSError, netrc.NetrcParseError):
        return None
    return None if found is None else (found[0], found[2] or "")


def _body(answer: httpcore.Response, most_bytes: int) -> bytes:
    """The unpacked body. Raises TooLarge as soon as it is, however small it came."""
    headers = {name.lower(): value for name, value in answer.headers}
    packed = headers.get(b"content-encoding", b"identity").lower()
    if packed not in (b"identity", b"gzip"):
        raise ValueError("a content encoding that was not asked for")
    unpack, parts, size = zlib.decompressobj(31) if packed == b"gzip" else None, [], 0
    for part in answer.iter_stream():
        rest = part
        while rest and not (unpack is not None and unpack.eof):
            if unpack is None:
                piece, rest = rest, b""
            else:
                piece = unpack.decompress(rest, _UNPACKED)
                rest = unpack.unconsumed_tail
            parts.append(piece)
            size += len(piece)
            if size > most_bytes:
                raise TooLarge
        if unpack is not None and unpack.eof:
            break
    if unpack is not None:
        parts.append(unpack.flush())
        if not unpack.eof:
            raise ValueError("the answer ended early")
    return b"".join(parts)
