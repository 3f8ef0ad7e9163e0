"""Sends HTTP POST requests with one timeout for the whole exchange and a size limit for the answer.

Contract: `post` returns the status and the unpacked body, or raises one of FAILURES. Every connection
attempt, write and read (of a proxy's answer, headers, interim answers, the body) gets only the time that is
left. It starts no thread, follows no redirect, repeats nothing, and closes a connection that timed out.
Thread-safe. Not guaranteed: the duration of name resolution; SOCKS proxies. Source: httpcore, on which httpx
is built, and its network backends. `requests`, `httpx` and web3's HTTP provider give every read of the socket
the whole timeout, so that a slow drip of bytes holds them for ever.
"""

from __future__ import annotations

import base64
import socket
import ssl
import time
import zlib
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import httpcore

FAILURES = (
    *(httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError, httpcore.ProxyError),
    *(httpcore.UnsupportedProtocol, httpcore.ConnectionNotAvailable, zlib.error, OSError, ValueError),
)
_PART = 1 << 14
"""Bytes per write: one TLS record."""


class TooLarge(Exception):
    """An answer exceeds the size limit."""


def _left_s(end: float | None) -> float:
    """Seconds until `end`, the deadline passed in place of httpcore's timeouts. Raises TimeoutException if it
    is over."""
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
        self, host: str, port: int, timeout: float | None = None, *given: Any, **named: Any
    ) -> httpcore.NetworkStream:
        """Connects to the first address of the host that answers. (`socket.create_connection` gives each the
        whole timeout.)"""
        failure: Exception = OSError("the host has no address")
        for *_, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            try:
                return _Stream(super().connect_tcp(str(address[0]), port, _left_s(timeout), *given, **named))
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure


_Made = tuple[httpcore.ConnectionPool, httpcore.URL, dict[str | bytes, str | bytes]]


class Http:
    """Client of one URL. Proxies and certificates are read from the environment once."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._made: _Made | None = None

    def post(self, body: bytes, timeout_s: float, most_bytes: int) -> tuple[int, bytes]:
        """Returns the answer's status and body; no body unless the status is 200. Raises TooLarge,
        FAILURES."""
        pool, url, headers = self._made = self._made or self._prepared()
        end = time.monotonic() + timeout_s
        within = {"timeout": {"connect": end, "read": end, "write": end}}
        with pool.stream("POST", url, headers=headers, content=body, extensions=within) as answer:
            return answer.status, _body(answer, most_bytes) if answer.status == 200 else b""

    def _prepared(self) -> _Made:
        parts = urlsplit(self._url)
        account, _, place = parts.netloc.rpartition("@")
        headers: dict[str | bytes, str | bytes] = {
            "Host": place,
            "Content-Type": "application/json",
            "Accept-Encoding": "gzip",
        }
        if account:
            word = base64.b64encode(unquote(account).encode()).decode()
            headers["Authorization"] = f"Basic {word}"
        proxies = {} if proxy_bypass(parts.hostname or "") else getproxies()
        proxy = proxies.get(parts.scheme, proxies.get("all"))
        trusted = None
        if parts.scheme == "https":
            import httpx

            trusted = httpx.create_ssl_context()
        pool = httpcore.ConnectionPool(
            trusted,
            httpcore.Proxy(proxy) if proxy else None,
            max_connections=None,
            network_backend=_Backend(),
        )
        bare = parts._replace(netloc=place, path=parts.path or "/", fragment="")
        return pool, httpcore.URL(bare.geturl()), headers


def _body(answer: httpcore.Response, most_bytes: int) -> bytes:
    """Reads the unpacked body. Raises TooLarge before it is in memory."""
    parts, size = [], 0
    for part in answer.iter_stream():
        parts.append(part)
        size += len(part)
        if size > most_bytes:
            raise TooLarge
    body = b"".join(parts)
    packed = [value for name, value in answer.headers if name.lower() == b"content-encoding"]
    if packed in ([], [b"identity"]):
        return body
    unpack = zlib.decompressobj(16 + zlib.MAX_WBITS)  # gzip, or an error
    body = unpack.decompress(body, most_bytes + 1)
    if len(body) > most_bytes:
        raise TooLarge
    if not unpack.eof:
        raise ValueError("the answer ended early")
    return body
