"""Limits what strangers can use of a node's web server: connections, time and bytes.

Contract:
- Connections are accepted at `accepts_per_s`; the others wait.
- At most `connections` are open, a part of the process's descriptor limit. Beyond it the one that has
  waited longest for its own request is closed; never one that is being answered.
- A request must be complete `request_s` after its connection was opened or last answered. An answer that
  nobody reads for `stall_s`, and a connection that does not close, are cut off.
- One address has at most `per_address` connections, and gets `bytes_per_s` after a burst. Loopback is
  exempt, as all clients of a local proxy have its address.
- Bodies are sent in pieces of PIECE_BYTES, so that a slow reader holds at most two in memory.

Not guaranteed: anything against many addresses with much bandwidth; that needs a proxy in front. uvicorn has
no such limits (`limit_concurrency` counts complete headers only, and answers 503), so its server and protocol
are subclassed.
"""

from __future__ import annotations

import asyncio
import ipaddress
import resource
import socket
import sys
from collections import Counter, OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

import uvicorn
from uvicorn.main import STARTUP_FAILURE
from uvicorn.protocols.http.h11_impl import H11Protocol

from assay.blocks.traffic import AsgiApp, Message, Receive, Send

PIECE_BYTES = 64 * 1024
QUEUE = 512
"""Length of the kernel's queue of unaccepted connections."""
ACCEPT_AGAIN_S = 0.1
REFUSAL_COST = 0.05
"""Cost of closing a connection at once, as a share of accepting one."""
BBR = b"bbr"
_ADDRESSES = 65_536


@dataclass(frozen=True)
class WebLimits:
    """Limits; times in seconds. `connections` is lowered to a quarter of the process's descriptors."""

    connections: int = 512
    per_address: int = 64
    request_s: float = 15.0
    stall_s: float = 15.0
    bytes_per_s: float = 32e6
    burst_bytes: int = 256 << 20
    exempt_loopback: bool = True
    accepts_per_s: float = 400.0
    sweep_s: float = 1.0


@lru_cache(_ADDRESSES)
def network_of(address: str, exempt_loopback: bool = True) -> str:
    """Key of an address for limits: one IPv4 address, or 64 bits of IPv6; empty if exempt."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    if found.is_loopback and exempt_loopback:
        return ""
    if isinstance(found, ipaddress.IPv6Address):
        return str(ipaddress.IPv6Network((int(found) >> 64 << 64, 64)))
    return str(found)


class Connections:
    """Open connections of one server. Runs on the server's event loop; `clock` returns its time in
    seconds."""

    def __init__(self, limits: WebLimits, clock: Callable[[], float]) -> None:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        share = soft // 4 if soft != resource.RLIM_INFINITY else limits.connections
        self.most = max(1, min(limits.connections, share))
        self.limits, self.clock = limits, clock
        self.cut = 0
        """Number of connections that were cut off."""
        self._waiting: OrderedDict[BoundedProtocol, float] = OrderedDict()
        """Connections with an incomplete request, oldest first, with their start time."""
        self._open: dict[BoundedProtocol, str] = {}
        self._of: Counter[str] = Counter()

    def admits(self, address: str) -> bool:
        """Counts a new connection of this address; False if it is refused."""
        name = network_of(address, self.limits.exempt_loopback)
        if name and self._of[name] >= self.limits.per_address:
            self.cut += 1
            return False
        self._of[name] += 1
        return True

    def left(self, address: str) -> None:
        """Uncounts a closed connection."""
        name = network_of(address, self.limits.exempt_loopback)
        self._of[name] -= 1
        if self._of[name] <= 0:
            del self._of[name]

    def opened(self, connection: BoundedProtocol, address: str) -> None:
        """Registers an admitted connection; may cut off another one, or this one."""
        self._open[connection] = address
        self.waits(connection)
        if len(self._open) > self.most:
            self._cut(next(iter(self._waiting)))

    def waits(self, connection: BoundedProtocol) -> None:
        """Starts the request timeout: the connection was opened, or its last request answered."""
        self._waiting[connection] = self.clock()
        self._waiting.move_to_end(connection)

    def asked(self, connection: BoundedProtocol) -> None:
        """Stops the request timeout: the request is complete."""
        self._waiting.pop(connection, None)

    def closed(self, connection: BoundedProtocol) -> None:
        """Unregisters a connection."""
        self._waiting.pop(connection, None)
        address = self._open.pop(connection, None)
        if address is not None:
            self.left(address)

    def sweep(self) -> None:
        """Cuts off connections that exceed their timeouts."""
        now = self.clock()
        late = [c for c, since in self._waiting.items() if now - since > self.limits.request_s]
        stuck = [c for c in self._open if c.stuck_for(now) > self.limits.stall_s]
        for connection in {*late, *stuck}:
            self._cut(connection)

    def _cut(self, connection: BoundedProtocol) -> None:
        self.cut += 1
        self.closed(connection)
        connection.transport.abort()


class BoundedProtocol(H11Protocol):
    """uvicorn's protocol with counted, time-limited connections."""

    bounds: Connections

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport), "HTTP runs over streams"
        self._stuck_since: float | None = None
        super().connection_made(transport)
        self.bounds.opened(self, transport.get_extra_info("peername")[0])

    def connection_lost(self, exc: Exception | None) -> None:
        self.bounds.closed(self)
        super().connection_lost(exc)

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.cycle is not before and not self.cycle.response_complete:
            self.bounds.asked(self)

    def on_response_complete(self) -> None:
        self.bounds.waits(self)
        super().on_response_complete()

    def pause_writing(self) -> None:
        self._stuck_since = self.bounds.clock()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._stuck_since = None
        super().resume_writing()

    def stuck_for(self, now: float) -> float:
        """Seconds for which an answer was not read, or the connection has been closing."""
        if self._stuck_since is None and self.transport.is_closing():
            self._stuck_since = now
        return 0.0 if self._stuck_since is None else now - self._stuck_since


def bounded_protocol(bounds: Connections) -> type[BoundedProtocol]:
    """Protocol class for one server."""
    return type("BoundedProtocol", (BoundedProtocol,), {"bounds": bounds})


class Allowance:
    """Token bucket of bytes for each address."""

    def __init__(self, limits: WebLimits, clock: Callable[[], float]) -> None:
        self._limits, self._clock = limits, clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def pause_s(self, address: str, count: int) -> float:
        """Takes bytes for an address; returns the seconds they must wait."""
        name = network_of(address, self._limits.exempt_loopback)
        if not name:
            return 0.0
        now, rate = self._clock(), self._limits.bytes_per_s
        left, since = self._buckets.pop(name, (float(self._limits.burst_bytes), now))
        left = min(self._limits.burst_bytes, left + (now - since) * rate) - count
        self._buckets[name] = left, now
        if len(self._buckets) > _ADDRESSES:
            self._buckets.popitem(last=False)
        return max(0.0, -left / rate)


class PacedApp:
    """ASGI application that sends bodies in pieces at each address's rate."""

    def __init__(self, app: AsgiApp, allowance: Allowance) -> None:
        self._app, self._allowance = app, allowance

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        address = (scope.get("client") or ("",))[0]

        async def paced(message: Message) -> None:
            if message["type"] != "http.response.body":
                await send(message)
                return
            body, more = memoryview(message.get("body", b"")), message.get("more_body", False)
            for at in range(0, max(1, len(body)), PIECE_BYTES):
                piece = bytes(body[at : at + PIECE_BYTES])
                if pause_s := self._allowance.pause_s(address, len(piece)):
                    await asyncio.sleep(pause_s)
                last = at + PIECE_BYTES >= len(body)
                await send({**message, "body": piece, "more_body": more or not last})

        await self._app(scope, receive, paced)


def prefer_bbr(listening: socket.socket) -> None:
    """Selects BBR congestion control for this socket if the system allows it.

    CUBIC takes each lost packet for congestion: with 1 % loss it uses a fortieth of 100 Mbit/s at a round
    trip of 100 ms. Source: Cardwell et al., BBR: congestion-based congestion control, 2016.
    """
    if sys.platform == "linux":
        with suppress(OSError):
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, BBR)


class BoundedServer(uvicorn.Server):
    """uvicorn's server with a limited accept rate; further connections wait in the kernel's queue.

    Accepting and refusing one costs as much as serving it, and the machine has training to do.
    """

    def __init__(self, config: uvicorn.Config, bounds: Connections) -> None:
        super().__init__(config)
        self.port = 0
        """Listening port, once `started`."""
        self._bounds = bounds
        self._protocol = bounded_protocol(bounds)
        self._work: list[asyncio.Task[None]] = []
        self._clients: set[asyncio.Task[None]] = set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Starts listening. Ends the thread if the port is taken."""
        config, self.servers = self.config, []
        try:
            family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
            listening = socket.create_server((config.host, config.port), family=family, backlog=QUEUE)
        except OSError:
            sys.exit(STARTUP_FAILURE)
        prefer_bbr(listening)
        listening.setblocking(False)
        self.port = listening.getsockname()[1]
        self._work = [asyncio.create_task(self._accept(listening)), asyncio.create_task(self._sweep())]
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stops listening, then shuts down as uvicorn does."""
        for work in self._work:
            work.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)
        await super().shutdown(sockets)

    async def _accept(self, listening: socket.socket) -> None:
        loop, rate = asyncio.get_running_loop(), self._bounds.limits.accepts_per_s
        left, since = float(self._bounds.most), loop.time()
        with listening:
            while True:
                now = loop.time()
                left, since = min(self._bounds.most, left + (now - since) * rate) - 1, now
                if left < 0:
                    await asyncio.sleep(-left / rate)
                try:
                    client, address = await loop.sock_accept(listening)
                except OSError:  # no descriptor is left, or the client has gone
                    await asyncio.sleep(ACCEPT_AGAIN_S)
                    continue
                if not self._bounds.admits(address[0]):
                    client.close()
                    left += 1 - REFUSAL_COST
                    continue
                made = asyncio.create_task(self._take(client, address[0]))
                self._clients.add(made)
                made.add_done_callback(self._clients.discard)

    async def _take(self, client: socket.socket, address: str) -> None:
        def protocol() -> asyncio.Protocol:
            return self._protocol(config=self.config, server_state=self.server_state, app_state={})

        try:
            await asyncio.get_running_loop().connect_accepted_socket(protocol, client)
        except OSError:
            self._bounds.left(address)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self._bounds.limits.sweep_s)
            self._bounds.sweep()
