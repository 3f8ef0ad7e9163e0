"""A crew of processes on this machine."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path

from assay.app.crews import new_key
from assay.compute.peers import Crew, Peer

PATIENCE_S = 20.0


def free_ports(count: int) -> list[int]:
    """Ports of this machine on which nobody listens."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports


def crew_of(folder: Path, members: int, patience_s: float = PATIENCE_S) -> Sequence[Crew]:
    """Each member's view of a crew, with keys in `folder`."""
    keys = [folder / f"{i}.pem" for i in range(members)]
    certificates = [new_key(key).read_text() for i, key in enumerate(keys)]
    peers = tuple(
        Peer("127.0.0.1", port, text) for port, text in zip(free_ports(members), certificates, strict=True)
    )
    return [Crew(peers, i, str(key), patience_s) for i, key in enumerate(keys)]
