"""The record of a running devnet: where its chain listens and which processes belong to it.

Contract: written atomically; a record whose chain process is gone is reported as absent, never acted upon.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

DEVNET_FILE = "devnet.json"


@dataclass(frozen=True)
class NodeRecord:
    """One node process of the devnet."""

    name: str
    role: str
    pid: int
    url: str


@dataclass(frozen=True)
class Devnet:
    """A running devnet."""

    rpc_url: str
    chain_pid: int
    nodes: tuple[NodeRecord, ...]


def process_alive(pid: int) -> bool:
    """Whether the process exists and is not a zombie."""
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except ProcessLookupError:
        return False
    except (FileNotFoundError, IndexError):
        return Path("/proc").exists() is False
    except PermissionError:
        return True
    return state != "Z"


def write_devnet(home: Path, devnet: Devnet) -> None:
    """Record the devnet in its home folder."""
    home.mkdir(parents=True, exist_ok=True)
    temporary = home / (DEVNET_FILE + ".new")
    temporary.write_text(json.dumps(asdict(devnet), indent=2))
    temporary.replace(home / DEVNET_FILE)


def read_devnet(home: Path) -> Devnet | None:
    """The running devnet of a home folder, or None."""
    path = home / DEVNET_FILE
    if not path.exists():
        return None
    body = json.loads(path.read_text())
    nodes = tuple(NodeRecord(**node) for node in body["nodes"])
    devnet = Devnet(body["rpc_url"], body["chain_pid"], nodes)
    return devnet if process_alive(devnet.chain_pid) else None


def remove_devnet(home: Path) -> None:
    """Forget the devnet."""
    (home / DEVNET_FILE).unlink(missing_ok=True)
