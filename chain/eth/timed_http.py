"""HTTP in which the time limit of an exchange is that of all of it, however slowly the other end goes on.

Contract: what is sent through a `TimedAdapter` ends within its time limit, or raises what `requests` raises
for time-outs and lost connections: each address that is tried, each part that is written and each read of the
socket (of a proxy's answer, of headers, of interim answers, of the body) has only the time that is left. An
answer's body has to be read by the thread that has sent the request. No thread is started; a connection that
ran out of time is closed.
Not guaranteed: how long the system looks for a host's name; TLS within a proxy's TLS; proxies that speak
SOCKS. `requests` and `urllib3` themselves give every read of the socket the whole limit anew, so that a byte
now and then holds them for good.
"""

from __future__ import annotations

import http.client
import io
import socket
import threading
import time
from typing import Any

from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import ConnectTimeoutError, NewConnectionError
from urllib3.util.connection import allowed_gai_family, create_connection

_PART = 1 << 14
"""Bytes written at a time: a record of TLS."""
_EXCHANGE = threading.local()
"""`end`: when this thread's exchange has to be over."""


def _left_s() -> float:
    """Seconds that this thread's exchange has left. Raises TimeoutError when there are none."""
    left = float(_EXCHANGE.end - time.monotonic())
    if left <= 0:
        raise TimeoutError("timed out")
    return left


class _TimedReads(io.RawIOBase):
    """A socket's file, of which each read has the time that is left."""

    def __init__(self, sock: socket.socket, file: Any) -> None:
        self._sock, self._file = sock, file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._sock.settimeout(_left_s())
        read: int | None = self._file.readinto(buffer)
        return read

    def close(self) -> None:
        self._file.close()
        super().close()


class _Answer(http.client.HTTPResponse):
    """An answer that is read within the exchange's time."""

    def __init__(self, sock: socket.socket, *given: Any, **named: Any) -> None:
        super().__init__(sock, *given, **named)
        self.fp = io.BufferedReader(_TimedReads(sock, self.fp.detach()))


class _Timed(HTTPConnection):
    """A connection that is made, and written to, within the exchange's time."""

    response_class = _Answer

    def _new_conn(self) -> socket.socket:
        """The first of the host's addresses that answers. (`urllib3` gives each the whole limit.)"""
        failure: OSError = OSError("the host has no address")
        family = allowed_gai_family()
        try:
            for *_, address in socket.getaddrinfo(self._dns_host, self.port, family, socket.SOCK_STREAM):
                place = str(address[0]), self.port
                try:
                    return create_connection(place, _left_s(), self.source_address, self.socket_options)
                except OSError as error:
                    failure = error
            raise failure
        except TimeoutError as error:
            raise ConnectTimeoutError(self, "timed out") from error
        except OSError as error:
            raise NewConnectionError(self, f"no connection: {error}") from error

    def send(self, data: Any) -> None:
        if self.sock is None:
            self.connect()
        for begin in range(0, len(data), _PART):
            self.sock.settimeout(_left_s())
            super().send(data[begin : begin + _PART])


class _TimedTLS(_Timed, HTTPSConnection):
    """The same under TLS, whose handshake has the time that was left when the connection or the tunnel was
    begun."""


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Timed


class _PoolTLS(HTTPSConnectionPool):
    ConnectionCls = _TimedTLS


_POOLS = {"http": _Pool, "https": _PoolTLS}


class TimedAdapter(HTTPAdapter):
    """For a session's `mount`. Each request needs a `timeout`, a number of seconds."""

    def init_poolmanager(self, *given: Any, **named: Any) -> None:
        super().init_poolmanager(*given, **named)
        self.poolmanager.pool_classes_by_scheme = _POOLS

    def proxy_manager_for(self, proxy: str, **named: Any) -> Any:
        manager = super().proxy_manager_for(proxy, **named)
        if not proxy.lower().startswith("socks"):
            manager.pool_classes_by_scheme = _POOLS
        return manager

    def send(self, request: Any, *given: Any, **named: Any) -> Any:
        _EXCHANGE.end = time.monotonic() + named["timeout"]
        return super().send(request, *given, **named)
