"""``assay dashboard``: the market in a browser, read-only."""

from __future__ import annotations

import signal
import threading
import webbrowser
from typing import Annotated

import typer

from assay.app.invocation import app_of
from assay.app.settings import is_http
from assay.protocol.words import masked_url


def dashboard(
    context: typer.Context,
    host: Annotated[str, typer.Option(help="Address to serve on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0: any free one.")] = 8440,
    every: Annotated[float, typer.Option(min=0.2, help="Seconds between polls of the chain.")] = 1.0,
    node: Annotated[
        list[str] | None, typer.Option(help="URL of one of your nodes, to show its health; repeatable.")
    ] = None,
    losses: Annotated[
        bool, typer.Option(help="Fetch committed states of viewed jobs, for their losses.")
    ] = True,
    open_it: Annotated[bool, typer.Option("--open", help="Open it in a browser.")] = False,
) -> None:
    """Show the market in a browser: jobs, coverage, disputes, earnings, stakes, nodes. Sends nothing."""
    for url in node or ():
        if not is_http(url):
            raise typer.BadParameter(f"--node: {url!r} is no URL, such as http://127.0.0.1:4001")
    app = app_of(context)
    app.output.say(f"looking at the market of {', '.join(map(masked_url, app.settings.rpc_urls))}")
    app.end_dry_run(f"serve the market's pages on {host}, port {port}")
    from assay.dashboard.server import serving

    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    with serving(app, host, port, every_s=every, node_urls=node or (), losses=losses) as url:
        app.output.result("dashboard", {"url": url}, f"the market is at {url}; stop with Ctrl-C")
        if open_it:
            webbrowser.open(url)
        stopped.wait()
