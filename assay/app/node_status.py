"""Fetches and prints a node's status from the URL that it announced on chain.

Contract: the answer is a stranger's: its size is bounded, and it is shown as text. No answer, or a malformed
one, is a PeerUnreachable that names the address.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.app.crew_activity import activities, in_lines
from assay.app.ids import SHORT
from assay.app.invocation import App
from assay.app.network_addresses import private_peers
from assay.app.node_problems import troubles
from assay.app.output import table, visible
from assay.app.times import show_span
from assay.app.units import show_bytes
from assay.app.worker_status import in_words, listed
from assay.blocks.traffic import FILE, read_totals
from assay.protocol import bounded_json
from assay.protocol.errors import Ask, PeerUnreachable
from assay.protocol.types import Address

if TYPE_CHECKING:
    from assay.blocks.public_net import Network

_WORDS = {"sleep": "may sleep", "at_risk": "at risk"}
_COUNTED = {
    "abstentions": "seats given up",
    "audits": "claims rechecked",
    "bytes_in_proof": "received to check with",
    "bytes_in_training": "received to train with",
    "bytes_out_proof": "sent to who checks",
    "bytes_out_training": "sent to who trains",
    "claims": "claims committed",
    "clock_percent": "of its closest deadline is gone",
    "computing_percent": "of the time computing",
    "findings": "faults found",
    "lost_races": "calls that others made first",
    "moves": "moves in disputes",
    "record_seed": "draws made",
    "replays": "claims replayed",
    "retries": "tries after a failure",
    "seconds_computing": "computing so far",
    "segments": "segments trained",
    "segments_ahead": "segments trained ahead",
    "settle": "claims settled",
    "tally": "votes closed",
    "votes": "votes cast",
}
"""Counters whose names do not say it."""
WAIT_S = 5.0
MOST_BYTES = 1 << 18


def show_status(app: App, address: Address, command: str) -> None:
    """Fetches and prints a status. `command`: starts such a node. Raises Ask, PeerUnreachable,
    RpcUnreachable."""
    url = app.view().market.endpoints().get(address)
    if not url:
        raise Ask(
            f"{address} announces no node on this chain",
            hint=f"start it with `{app.command(command)}`; `assay account ls` lists your accounts",
            code="not-found",
        )
    body = answer_of(url, networks_of(app, address))
    rows = table(f"{address} at {printable(url)}", "what", "value")
    for name in ("role", "name", "action"):
        if body.get(name) or name == "action":
            rows.add_row(name, printable(body.get(name)))
    for trouble in troubles(body):
        rows.add_row(trouble.kind, printable(trouble.text))
    for what, value in details(body):
        rows.add_row(what, value)
    app.output.result("node-status", {"address": address, "url": url, "status": body}, rows)


def details(body: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """A node's work, workers and counters as printable names and values."""
    for name in ("sleep", "at_risk", "job", "round", "step", "loss"):
        if (value := body.get(name)) not in (None, "", 0):
            shown = f"{value:.4f}" if isinstance(value, float) else printable(value)
            shown = shown[:SHORT] if name == "job" else shown
            yield _WORDS.get(name, name), shown
    for worker in listed(body):
        yield f"worker {printable(worker.get('device', ''))}", printable(in_words(worker))
    for activity in activities(body):
        for name, value in in_lines(activity):
            yield f"crew: {printable(name)}", printable(value)
    told = body.get("counters")
    for name, value in sorted(told.items()) if isinstance(told, dict) else ():
        if value != 0:
            yield _counted(printable(name), value)


def networks_of(app: App, address: Address) -> Sequence[Network]:
    """Networks in which the node may be asked: any if its key is in this home, since its address is then the
    operator's own."""
    from assay.blocks.public_net import EVERYWHERE
    from assay.chain.eth.keystore import Keystore

    own = {stored.address for stored in Keystore(app.settings.keystore).list()}
    return EVERYWHERE if address in own else private_peers(app.settings)


def _counted(name: str, value: object) -> tuple[str, str]:
    """A counter's name in words, and its value with its unit."""
    words = _COUNTED.get(name, name.replace("_", " "))
    if isinstance(value, int) and name.startswith("bytes_"):
        return words, show_bytes(value)
    if isinstance(value, int) and name.startswith("seconds_"):
        return words, show_span(value)
    return words, f"{printable(value)} %" if name.endswith("_percent") else printable(value)


def answer_of(url: str, private: Sequence[Network], within_s: float = WAIT_S) -> dict[str, Any]:
    """The node's /status. `private`: allowed networks beside the public one. Raises PeerUnreachable."""
    import httpx

    def unreachable(why: str) -> PeerUnreachable:
        hint = "see whether its process runs; from elsewhere, whether its port can be reached"
        return PeerUnreachable(f"the node at {url} gives no status: {why}", hint=hint)

    try:
        body = bounded_json.loads(whole_answer(url.rstrip("/") + "/status", private, within_s, MOST_BYTES))
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        refused = isinstance(error, httpx.ConnectError)
        why = "nothing answers there" if refused else f"{type(error).__name__}: {error}"
        raise unreachable(why) from error
    if not isinstance(body, dict):
        raise unreachable("its answer is no object")
    return body


def whole_answer(url: str, private: Sequence[Network], within_s: float, most_bytes: int) -> bytes:
    """Fetches a stranger's URL within one timeout for the whole exchange; httpx gives each read the whole
    timeout.

    Raises PrivateAddress, httpx.HTTPError, httpx.InvalidURL, and ValueError if it is too long. Do not call it
    on an event loop.
    """
    import asyncio

    import httpx

    from assay.blocks.public_net import PublicTransport

    async def ask() -> bytes:
        data = bytearray()
        async with (
            asyncio.timeout(within_s),
            httpx.AsyncClient(transport=PublicTransport(private), timeout=within_s) as client,
            client.stream("GET", url, headers={"Accept-Encoding": "identity"}) as response,
        ):
            response.raise_for_status()
            async for part in response.aiter_raw():
                data += part
                if len(data) > most_bytes:
                    raise ValueError(f"its answer is longer than {most_bytes} bytes")
        return bytes(data)

    try:
        return asyncio.run(ask())
    except TimeoutError as error:
        raise httpx.ReadTimeout(f"its answer was not whole after {within_s:g} s") from error


def printable(value: object) -> str:
    """Formats a stranger's value as one line of text; tables are printed without markup."""
    return visible(str(value)[:300]).replace("\n", " ")


def totals_by_node(home: Path) -> dict[str, dict[str, int]]:
    """Bytes by direction and purpose (``blocks.traffic``), by the node's name."""
    return {path.parent.name: read_totals(path) for path in sorted((home / "nodes").glob(f"*/{FILE}"))}


def traffic_words(home: Path) -> str:
    """Total over all nodes in one line; empty if nothing was recorded."""
    nodes = totals_by_node(home).values()
    summed = {name: sum(node[name] for node in nodes) for name in next(iter(nodes), {})}
    if not any(summed.values()):
        return ""
    told = [f"{name.replace('_', ' for ')} {count / 1e6:,.1f} MB" for name, count in summed.items()]
    return f"blocks of the nodes in {home}, all jobs: {', '.join(told)}"
