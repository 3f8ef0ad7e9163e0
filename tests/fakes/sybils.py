"""Many false peers in one process: each is an endpoint of its own that costs who asks it something.

Run as a process: `python -m tests.fakes.sybils COUNT STORE`; prints the URLs as one JSON line, then serves
until its input ends. STORE is a block store from which turncoats serve right blocks, until they stop.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from itertools import cycle, islice
from pathlib import Path

from assay.blocks.blockstore import BlockStore

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter, str], Awaitable[None]]
BLOCK_BYTES = 256 * 1024
HONEST_BLOCKS = 2
HEAD = "HTTP/1.1 200 OK\r\nContent-Type: application/vnd.ipld.raw\r\nContent-Length: {}\r\n\r\n"


async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str) -> None:
    """Right length, one byte a second."""
    writer.write(HEAD.format(BLOCK_BYTES).encode())
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(1.0)


async def drip_header(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str) -> None:
    """A header that never ends."""
    writer.write(b"HTTP/1.1 200 OK\r\nX-Long: ")
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.5)


async def wrong(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str) -> None:
    """Other bytes of the right length."""
    writer.write(HEAD.format(BLOCK_BYTES).encode() + bytes(BLOCK_BYTES))
    await writer.drain()


async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str) -> None:
    """Bytes without end."""
    writer.write(HEAD.format(1 << 40).encode())
    while True:
        writer.write(bytes(65536))
        await writer.drain()


async def stall(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str) -> None:
    """Listens and says nothing."""
    await asyncio.sleep(86_400)


async def absent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str) -> None:
    """Says that it has nothing."""
    writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
    await writer.drain()


async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str) -> None:
    """Ends the connection."""


KINDS: dict[str, Answer | None] = {
    "drip": drip,
    "wrong": wrong,
    "stall": stall,
    "absent": absent,
    "drip-header": drip_header,
    "flood": flood,
    "hang-up": hang_up,
    "turncoat": None,
}
TURNCOAT_EVERY = 50
"""One in so many is a turncoat: these alone have to hold what they serve."""


def turncoat(store: BlockStore) -> Answer:
    """Serves a few right blocks, to be trusted, and then stalls."""
    served = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str) -> None:
        nonlocal served
        if served >= HONEST_BLOCKS:
            await stall(reader, writer, path)
        served += 1
        data = store.get(path.split("/ipfs/")[1].split("?")[0])
        writer.write(HEAD.format(len(data)).encode() + data)
        await writer.drain()

    return answer


async def listen(answer: Answer, asked: list[int], place: int) -> str:
    """Serve one false peer on a port of its own; its URL."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await reader.readuntil(b"\r\n\r\n")
            asked[place] += 1
            await answer(reader, writer, request.split(b" ")[1].decode())
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=16)
    return f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def main(count: int, store: BlockStore) -> None:
    names = list(islice(cycle(name for name, answer in KINDS.items() if answer), count))
    names[::TURNCOAT_EVERY] = ["turncoat"] * len(names[::TURNCOAT_EVERY])
    asked = [0] * count
    urls = [await listen(KINDS[name] or turncoat(store), asked, i) for i, name in enumerate(names)]
    print(json.dumps(urls), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    told = dict.fromkeys(KINDS, 0)
    for name, times in zip(names, asked, strict=True):
        told[name] += times
    print(json.dumps(told), flush=True)
    os._exit(0)  # without waiting for those that are held up


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), BlockStore(Path(sys.argv[2]))))
