"""Options of every command that runs a node, as one value (``cli.command_factory.command_of``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

Host = Annotated[
    str | None,
    typer.Option(help="Address to serve blocks and status on (ASSAY_HOST). Default: 127.0.0.1."),
]
AnnounceUrl = Annotated[
    str | None,
    typer.Option(
        help="Base URL to announce for its blocks (ASSAY_ANNOUNCE_URL): of a reverse proxy, a "
        "forwarded port or an IPFS gateway; auto: where it listens; none."
    ),
]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port; 0: any free one.")]
Poll = Annotated[float, typer.Option(min=0.05, help="Seconds between polls of the market.")]
Width = Annotated[
    int,
    typer.Option(
        min=1,
        max=256,
        help="Segments replayed in parallel, in processes of this machine with one thread each.",
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        help="Address of a Ray cluster that replays instead, or `local`; needs this package's extra `ray`."
    ),
]
Webhook = Annotated[
    str | None,
    typer.Option(
        help="Webhook URL: gets a POST for losses and questions, and when half and a tenth of a deadline's "
        "time are left."
    ),
]
Notify = Annotated[bool, typer.Option(help="Also show these alerts on the desktop, by notify-send.")]
TakeOver = Annotated[
    bool,
    typer.Option(
        "--take-over",
        help="Take over an account whose node ran in another home and is stopped for good.",
    ),
]
HoursOf = Annotated[
    list[str] | None,
    typer.Option(
        "--hours",
        metavar="FROM-BEFORE",
        help="Working hours in local time, such as 22-06 or 22:30-06:15; repeatable. Outside them "
        "the node drains.",
    ),
]
MaxLoad = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        help="Take no new work while the machine's one-minute load average is above this. All "
        "processes count, this node's workers too.",
    ),
]
OnBattery = Annotated[
    bool,
    typer.Option("--pause-on-battery", help="Take no new work while the machine runs on battery (Linux)."),
]
Memory = Annotated[
    str | None,
    typer.Option(
        help="Maximum memory of a job's step, such as 16GB. Default: two thirds of this machine's,"
        " divided among its CPU workers."
    ),
]


@dataclass(frozen=True)
class NodeOptions:
    """Options of a node: addresses, alerts, working hours, and limits of a step."""

    host: Host = None
    announce_url: AnnounceUrl = None
    port: Port = 0
    webhook: Webhook = None
    notify: Notify = False
    take_over: TakeOver = False
    hours: HoursOf = None
    max_load: MaxLoad = None
    pause_on_battery: OnBattery = False
    poll: Poll = 0.5
    memory: Memory = None


@dataclass(frozen=True)
class ReplayOptions(NodeOptions):
    """Also the number and place of parallel replays."""

    replays: Width = 1
    ray: Cluster = None
