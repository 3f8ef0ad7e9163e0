"""The pieces that the `Blocks` suite is assembled from: a served store and an adapter with its publisher."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import uvicorn
from starlette.applications import Starlette

from assay.blocks.blockstore import BlockStore
from assay.blocks.gateway import gateway_route


@contextmanager
def gateway(store: BlockStore) -> Iterator[str]:
    """Serve a store on a free loopback port; the socket listens before the server thread starts."""
    app = Starlette(routes=[gateway_route(store)])
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def overwrite(store: BlockStore, cid: str, data: bytes) -> None:
    """Change a stored block behind the store's back."""
    next((store.root / "blocks").glob(f"*/{cid}")).write_bytes(data)


@dataclass
class Rig:
    """One adapter under test: where blocks are read, where they are published and can be damaged."""

    reader: Any
    publisher: Any
    remote: bool
    damage: Callable[[str, bytes], None]
