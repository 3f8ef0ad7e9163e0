"""Options of every command that runs a node, as one value (``cli.hooks.command_of``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

Host = Annotated[
    str | None,
    typer.Option(help="Address to serve blocks and status on (ASSAY_HOST); 127.0.0.1 unless told otherwise."),
]
AnnounceUrl = Annotated[
    str | None,
    typer.Option(
        help="Base URL at which others fetch its blocks (ASSAY_ANNOUNCE_URL): a reverse proxy's, a forwarded"
        " port's, an IPFS gateway's; auto: where it listens; none."
    ),
]
Port = Annotated[int, typer.Option(min=0, max=65535, help="0: any free one.")]
Poll = Annotated[float, typer.Option(min=0.05, help="Seconds between looks at the market.")]
Width = Annotated[
    int,
    typer.Option(
        min=1,
        max=256,
        help="Segments replayed at the same time, in processes of this machine, one thread each.",
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        help="Address of a Ray cluster that replays instead, or local; needs this package's extra `ray`."
    ),
]
Webhook = Annotated[
    str | None, typer.Option(help="URL that is told, by POST, of a clock that has half or a tenth left.")
]
Notify = Annotated[bool, typer.Option(help="Show the same on the desktop, by notify-send.")]
TakeOver = Annotated[
    bool,
    typer.Option(
        "--take-over",
        help="Go on for an account whose node has run in another home, and is stopped for good.",
    ),
]
HoursOf = Annotated[
    list[str] | None,
    typer.Option(
        "--hours",
        metavar="FROM-BEFORE",
        help="When it works, in local time, such as 22-06 or 22:30-06:15; several may be given. Outside of"
        " them it is as drained.",
    ),
]
MaxLoad = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        help="Take nothing new while the machine's load average of one minute is above this. All processes of"
        " the machine count, this node's workers too.",
    ),
]
OnBattery = Annotated[
    bool,
    typer.Option("--pause-on-battery", help="Take nothing new while the machine runs on battery (Linux)."),
]
Memory = Annotated[
    str | None,
    typer.Option(
        help="Most for a step of a job, such as 16GB; by default two thirds of this machine's, shared by"
        " its CPU workers."
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
