"""Relays TCP connections as if each sender had a slow uplink and all were far away: there is no netem here.

Contract: bytes arrive unchanged and in order. What one sender sends leaves at its uplink's rate, shared by
its connections, and arrives `delay_s` later. What goes back on a connection is delayed alone.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import partial

PIECE = 1 << 14
AHEAD_S = 0.05
"""Seconds that an uplink's buffer holds, so that a late timer leaves it idle no sooner."""


class SlowLinks:
    """Relays in a thread until this process ends. `routes`: by sender and receiver, a socket that listens for
    the sender, and the receiver's port on this machine."""

    def __init__(
        self, routes: Mapping[tuple[int, int], tuple[socket.socket, int]], bits_s: float, delay_s: float
    ) -> None:
        self._routes, self._byte_s, self._delay_s = routes, 8 / bits_s, delay_s
        self._free_s: dict[int, float] = {}
        """When a sender's uplink has sent all that it was given."""
        threading.Thread(target=asyncio.run, args=(self._serve(),), daemon=True).start()

    async def _serve(self) -> None:
        servers = [
            await asyncio.start_server(partial(self._relay, sender, port), sock=listener)
            for (sender, _), (listener, port) in self._routes.items()
        ]
        await asyncio.gather(*(server.serve_forever() for server in servers))

    async def _relay(
        self, sender: int, port: int, near: asyncio.StreamReader, back: asyncio.StreamWriter
    ) -> None:
        try:
            far, out = await asyncio.open_connection("127.0.0.1", port)
        except OSError:  # it does not listen yet
            back.close()
            return
        await asyncio.gather(self._carry(near, out, sender), self._carry(far, back, None))

    async def _carry(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, sender: int | None
    ) -> None:
        pieces, now = asyncio.Queue[tuple[float, bytes]](), asyncio.get_running_loop().time

        async def deliver() -> None:
            while True:
                at_s, data = await pieces.get()
                await asyncio.sleep(at_s - now())
                if not data:
                    break
                sink.write(data)
                await sink.drain()
            sink.close()

        delivering, data = asyncio.create_task(deliver()), b"-"
        while data:
            try:
                data = await source.read(PIECE)
            except OSError:
                data = b""
            gone_s = now()
            if sender is not None:
                gone_s = max(self._free_s.get(sender, 0.0), gone_s) + len(data) * self._byte_s
                self._free_s[sender] = gone_s
            pieces.put_nowait((gone_s + self._delay_s, data))
            await asyncio.sleep(gone_s - AHEAD_S - now())
        with suppress(OSError):
            await delivering
