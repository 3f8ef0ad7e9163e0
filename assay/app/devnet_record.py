"""Record of a devnet: its chain's address, its processes and how to start them.

Contract: a record (``disk.record``). A devnet without its chain process is not running (`read_devnet`); its
record tells how to resume (`read_stopped`) and which of its nodes may still run (`recorded`). A process only
belongs to the devnet if its command line says so (`runs`), because process ids are reused.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from assay.disk import record

DEVNET_FILE = "devnet.json"
STATE_FILE = "chain.state"
"""State file of the local chain, which it writes and is started from."""
_KIND = "assay/devnet/1"


@dataclass(frozen=True)
class NodeRecord:
    """One node process of the devnet."""

    name: str
    role: str
    pid: int
    """Process id; 0 if stopped."""
    url: str
    arguments: tuple[str, ...] = ()
    """Arguments of its `run` command."""
    package: str = "assay"
    """Package of its command line."""
    devices: str = ""
    """Value of `--device`; empty: the default of whoever starts it."""


@dataclass(frozen=True)
class Devnet:
    """A devnet, running or stopped."""

    rpc_url: str
    chain_pid: int
    nodes: tuple[NodeRecord, ...]
    block_time_s: float = 1.0
    genesis_s: int = 0
    """Timestamp of the chain's first block, which a restart must repeat."""

    def stopped(self) -> Devnet:
        """A copy without processes."""
        return replace(self, chain_pid=0, nodes=tuple(replace(node, pid=0) for node in self.nodes))


def process_alive(pid: int) -> bool:
    """True if the process exists and is not a zombie."""
    if pid <= 0:
        return False
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


def runs(pid: int, *words: str) -> bool:
    """True if the process exists and has these words on its command line (if the system shows it)."""
    if not process_alive(pid):
        return False
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return True
    return all(word in line for word in words)


def write_devnet(home: Path, devnet: Devnet) -> None:
    """Writes the record in the devnet's home folder."""
    record.write(home / DEVNET_FILE, _KIND, asdict(devnet))


def read_devnet(home: Path) -> Devnet | None:
    """The running devnet of a home folder, or None."""
    devnet = recorded(home)
    return devnet if devnet is not None and process_alive(devnet.chain_pid) else None


def read_stopped(home: Path) -> Devnet | None:
    """The stopped devnet of a home folder that can be resumed, or None."""
    devnet = recorded(home)
    if devnet is None or process_alive(devnet.chain_pid) or not devnet.genesis_s:
        return None
    return devnet.stopped()


def recorded(home: Path) -> Devnet | None:
    """The recorded devnet, running or not, or None."""
    path = home / DEVNET_FILE
    hint = (
        "end what is left of the devnet by hand (its processes are named anvil and assay), remove"
        f" {path}, and start another: assay devnet up"
    )
    body = record.read(path, _KIND, hint=hint)
    if body is None:
        return None
    nodes = (NodeRecord(**{**node, "arguments": tuple(node["arguments"])}) for node in body["nodes"])
    return Devnet(**{**body, "nodes": tuple(nodes)})


def remove_devnet(home: Path) -> None:
    """Deletes the record."""
    (home / DEVNET_FILE).unlink(missing_ok=True)
