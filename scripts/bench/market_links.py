"""A job led over links: solvers whose way to everybody else has a rate, a round trip and a loss.

Contract: every solver is a host of its own (``scripts.prove.wide_net``) with such a link; verifiers, the
chain and the client are hosts with links without limit, so that a round trip between a solver and any of them
is the link's, and between two solvers twice that. Packets have 1,500 bytes, of which a link holds a thousand
(Linux's usual queue); each is lost with the link's probability each way, drawn by its number. Linux and
root."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from assay.app.devnet_record import NodeRecord
from assay.app.invocation import App
from assay.devnet.market import node_command
from assay.job.read import JobFile
from scripts.bench.market_devnet import Led, lead
from scripts.prove.rpc_recorder import RecordingGateway
from scripts.prove.second_chain import node, on_chain
from scripts.prove.wide_market import client_on
from scripts.prove.wide_net import Link, Network

MBIT = 1_000_000
MTU = 1_500
QUEUE_PACKETS = 1_000
HERE = "here"


@dataclass(frozen=True)
class Line:
    """A solver's link."""

    mbit_per_s: int
    round_trip_ms: int
    loss_percent: float

    @staticmethod
    def parse(text: str) -> Line:
        """Of "100:100:1". Raises ValueError."""
        mbit, delay, loss = text.split(":")
        return Line(int(mbit), int(delay), float(loss))

    def link(self, name: str, number: int) -> Link:
        """A host's way out, with half of the round trip each way."""
        rate, delay, loss = self.mbit_per_s * MBIT, self.round_trip_ms / 2_000, self.loss_percent / 100
        queue_s = QUEUE_PACKETS * MTU * 8 / rate
        return Link(name, number, bits_per_s=rate, delay_s=delay, loss=loss, queue_s=queue_s)


GRID = tuple(
    Line(rate, delay, loss) for loss in (0.0, 1.0) for rate in (100, 10, 1_000) for delay in (100, 10, 300)
)


def hosts(line: Line, solvers: int, verifiers: int) -> list[Link]:
    """Who is where."""
    ways = [line.link(f"solver-{i + 1}", 11 + i) for i in range(solvers)]
    return [Link(HERE, 1), *ways, *(Link(f"verifier-{i + 1}", 101 + i) for i in range(verifiers))]


@dataclass(frozen=True)
class Carried:
    """What the links and the chain's node saw."""

    packets_lost: int
    """Or dropped, where a link was full."""
    chain_requests: int
    """Of the solvers."""


def lead_over(line: Line, body: JobFile, forms: Path, verifiers: int = 2) -> tuple[Led, Carried]:
    """The job over such links until its last tasks are committed; what the market gave, and what was
    carried."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        there = hosts(line, body.training.shards, verifiers)
        network = stack.enter_context(Network(there, MTU))
        url = stack.enter_context(node("anvil", Path(folder)))
        gateway = stack.enter_context(RecordingGateway(url, network.links[HERE].address))
        stack.enter_context(on_chain(gateway.url))
        stack.enter_context(client_on(network))

        def command(app: App, spec: NodeRecord) -> list[str]:
            words = [*node_command(app, spec), "--host", network.links[spec.name].address]
            return network.command(spec.name, words)

        led = lead(
            body,
            Path(folder) / "home",
            forms,
            verifiers=verifiers,
            command=command,
            helpers_apart=True,
            to_end=False,
        )
        solvers = [host.address for host in network.links.values() if host.name.startswith("solver")]
        return led, Carried(network.dropped.total(), sum(gateway.requests[a] for a in solvers))
