"""The relay with which a crew is measured over slow links."""

from __future__ import annotations

import socket
import threading
import time

from scripts.bench.slow_links import SlowLinks

SIZE, BITS_S, DELAY_S = 100_000, 8e6, 0.2


def _all_of(listener: socket.socket, found: list[tuple[bytes, float]]) -> None:
    line, _ = listener.accept()
    data = b""
    while part := line.recv(1 << 16):
        data += part
    found.append((data, time.monotonic()))
    line.close()


def test_bytes_arrive_unchanged_and_share_their_senders_uplink() -> None:
    far, near = ([socket.create_server(("127.0.0.1", 0)) for _ in range(2)] for _ in range(2))
    routes = {(0, i): (near[i - 1], far[i - 1].getsockname()[1]) for i in (1, 2)}
    SlowLinks(routes, BITS_S, DELAY_S)
    found: list[tuple[bytes, float]] = []
    threads = [threading.Thread(target=_all_of, args=(each, found)) for each in far]
    for thread in threads:
        thread.start()
    data = bytes(range(250)) * (SIZE // 250)
    begun_s = time.monotonic()
    for each in near:
        with socket.create_connection(each.getsockname()) as line:
            line.sendall(data)
    for thread in threads:
        thread.join(30.0)
    alone_s = 8 * SIZE / BITS_S
    first_s, last_s = sorted(at - begun_s for _, at in found)
    assert [body for body, _ in found] == [data, data]
    assert first_s >= alone_s + DELAY_S - 0.01 and last_s >= 2 * alone_s + DELAY_S - 0.01
