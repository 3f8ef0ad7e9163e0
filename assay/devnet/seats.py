"""Subscribes a devnet's verifiers to a job's class before the job is posted.

Contract: a verifier subscribes to a class when a job of it is open, and its stake counts two epochs later. By
then a small job's first tasks are committed without a draw. So the devnet's own verifiers subscribe first,
unless their class has an open job. No effect on other markets.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from assay.app.devnet_record import read_devnet
from assay.app.invocation import App
from assay.protocol.ports import Market
from assay.protocol.types import Conditions, Role, Wei

WAIT_S = 60.0
"""Maximum wait in seconds; two epochs of a devnet are eight blocks."""
LOOK_S = 1.0


def seat_verifiers(
    app: App, market: Market, conditions: Conditions, wait: Callable[[float], object] = time.sleep
) -> None:
    """Subscribes the idle verifiers of this home's devnet to the job's class, and waits until their stake
    counts in it.

    Does nothing on another chain. Reports the wait, and a timeout. Raises errors of sending.
    """
    from assay.client.posting import open_class

    devnet = read_devnet(app.settings.home)
    if devnet is None or devnet.rpc_url not in app.settings.rpc_urls:
        return
    names = [node.name for node in devnet.nodes if node.role == "verifier"]
    if not names:
        return
    class_id = open_class(market, conditions)
    wanted = sum(_seated(app, name, class_id) for name in names)
    if market.class_weight(class_id) < wanted:
        app.output.say(f"waiting until the devnet's verifiers can be drawn, {WAIT_S:.0f} s at most")
    until = time.monotonic() + WAIT_S
    while wanted and market.class_weight(class_id) < wanted and time.monotonic() < until:
        wait(LOOK_S)
    if market.class_weight(class_id) < max(wanted, 1):
        app.output.say(
            "WARNING: no verifier of the devnet can be drawn yet: the first tasks may stay unchecked"
        )


def _seated(app: App, name: str, class_id: bytes) -> Wei:
    """Stake that a verifier will have in the class; subscribes it if it is idle."""
    connection = app.connect(name)
    try:
        market = connection.writer
        own = market.subscription(market.me)
        busy = {job.terms.class_id for job in market.jobs() if not job.progress.closed}
        if own not in (class_id, *busy):
            market.subscribe(connection.intent("subscribe", class_id), class_id)
            own = class_id
        return market.stake(market.me, Role.VERIFIER).active if own == class_id else Wei(0)
    finally:
        connection.close()
