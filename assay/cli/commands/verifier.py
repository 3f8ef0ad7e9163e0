"""``assay verifier``: attest other people's work by replaying samples of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from assay.app.ids import class_id_of
from assay.app.invocation import App, app_of
from assay.app.output import table
from assay.app.units import parse_amount, parse_bytes, parse_duration, round_amount, show_amount, show_count
from assay.cli.command_factory import NodeKind, command_of
from assay.cli.node.options import ReplayOptions
from assay.cli.node.role_commands import add_verbs
from assay.cli.node.startup import say_start, tells
from assay.node.roles import NODE_ROLES

commands = typer.Typer(no_args_is_help=True, help="Replay samples and attest them.")


def run(
    kind_of: Callable[[App], NodeKind],
    context: typer.Context,
    node: ReplayOptions,
    patience: Annotated[
        str, typer.Option(help="Time that others have to make their own calls before this node makes them.")
    ] = "5s",
    bond_budget: Annotated[
        str, typer.Option(help="Maximum total of bonds in its own challenges.")
    ] = "100tok",
    seed_age: Annotated[
        str,
        typer.Option(help="Minimum age of a seed before voting, for example the chain's time to finality."),
    ] = "0s",
    join: Annotated[
        bool, typer.Option(help="Choose and subscribe to classes of conditions within the limits below.")
    ] = False,
    most_stake: Annotated[str, typer.Option(help="With --join: maximum stake of a seat.")] = "200tok",
    least_fee: Annotated[str, typer.Option(help="With --join: minimum fee of a vote.")] = "1tok",
    least_vote: Annotated[str, typer.Option(help="With --join: minimum time to vote.")] = "5s",
    least_rate: Annotated[
        str, typer.Option(help="With --join: minimum fee of a vote per 10^12 replayed operations.")
    ] = "0tok",
    trial: Annotated[
        str, typer.Option(help="With --join: time after which a class that has paid nothing is left.")
    ] = "24h",
    disk: Annotated[
        str | None,
        typer.Option(
            help="Disk budget for states that defend votes and games; without room for one, the seat "
            "is given up. Default: no limit."
        ),
    ] = None,
) -> None:
    """Run a verifier until stopped."""
    app = app_of(context)
    wishes = say_start(app, node, "verifier")
    from assay.app.earnings import Fees
    from assay.app.resource_limits import RESOURCE_LIMITS, limits_of
    from assay.app.workers import sharing, workers_of
    from assay.cli.node.run import NodeParts, run_node
    from assay.node.pausing import Drained, Rest
    from assay.node.role import Node
    from assay.verifier.class_choice import ClassLimits
    from assay.verifier.policy import Limits

    kind = kind_of(app)
    tell = tells(app, node, "verifier")
    most = (
        RESOURCE_LIMITS if node.memory is None else limits_of(node.memory)
    )  # a class names the most, not what comes
    accepted = ClassLimits(
        parse_amount(most_stake),
        parse_amount(least_fee),
        parse_duration(least_vote),
        most.dataset_bytes,
        most.state_bytes,
        most.step_bytes,
        most.step_operations,
        parse_amount(least_rate),
        parse_duration(trial),
    )
    limits = Limits(
        parse_duration(patience),
        parse_amount(bond_budget),
        parse_duration(seed_age),
        accepted if join else None,
        None if disk is None else parse_bytes(disk),
    )

    def make(parts: NodeParts) -> Node:
        workers = workers_of(app.settings, parts.storage.store.root, replays=node.replays, ray=node.ray)
        common = (
            parts.connection.writer,
            parts.storage.blocks,
            parts.clock,
            parts.home,
            parts.connection.secret,
            limits,
            limits_of(node.memory, sharing(app.settings, node.replays, node.ray), parts.home),
        )
        fees = Fees(parts.connection.market, parts.connection.market.me)
        service: Node = kind.service(
            *common,
            weight_epoch=parts.connection.market.weight_epoch,
            fees=fees,
            rest=Rest(Drained(parts.home, "verifier"), wishes),
            emit=parts.emit,
            pool=workers,
            poll_s=node.poll,
        )
        return service

    run_node(app, node.port, make, tell=tell, serve=kind.serves, take_over=node.take_over)


def _honest(_: App) -> NodeKind:
    from assay.verifier.service import VerifierService

    return NodeKind(VerifierService)


commands.command()(command_of(run, _honest))


@commands.command()
def classes(context: typer.Context) -> None:
    """List classes of conditions: what each requires of a verifier, and its subscribed stake."""
    market = app_of(context).view().market
    columns = ("class", "#seats", "#samples", "vote", "#stake", "#fee", "#subscribed")
    rows = table("classes of conditions", *columns)
    found = {}
    for class_id, c in market.classes().items():
        weight = market.class_weight(class_id)
        found[class_id.hex()] = {"conditions": c, "weight": weight}
        times = f"{c.vote_time} s"
        amounts = (round_amount(a) for a in (c.verifier_stake, c.verifier_fee, weight))
        rows.add_row(class_id.hex(), str(c.verifiers), str(c.samples), times, *amounts)
    app_of(context).output.result("classes", found, rows)


@commands.command()
def subscribe(
    context: typer.Context,
    class_id: Annotated[
        str,
        typer.Argument(metavar="CLASS", help="Its id, or the first 8 digits or more; 0 ends a subscription."),
    ],
    operator: Annotated[str | None, typer.Option("--for", help="An operator that this account owns.")] = None,
) -> None:
    """Subscribe to a class of conditions: after two epochs the stake is drawn for its jobs, and no others."""
    from assay.app.accounts import resolve

    app = app_of(context)
    connection = app.connect()
    known = connection.writer.classes()
    chosen = bytes(32) if class_id == "0" else class_id_of(known, class_id)
    if any(chosen):
        stake = show_amount(known[chosen].verifier_stake)
        app.announce(f"subscribe to class {chosen.hex()[:16]}: each draw locks {stake}")
    else:
        app.announce("end the subscription: from two epochs on the stake is drawn for no job")
    intent = connection.intent("subscribe", chosen, *([operator] if operator else []))
    call = ("subscribe",) if operator is None else ("subscribeFor", resolve(app, operator))
    result = connection.writer.do(intent, "Stakes", *call, chosen)
    app.output.result("transaction", result, f"subscribed; transaction {result.tx_hash}")


add_verbs(commands, NODE_ROLES["verifier"])


@commands.command()
def coverage(context: typer.Context, job: str) -> None:
    """Show how much of a job's tasks drawn verifiers attest, and the chance that their samples miss a
    fault."""
    from assay.dashboard.views import job_view

    app = app_of(context)
    connection = app.view()
    market = connection.market
    view = job_view(market, app.job_id(market, job), int(connection.clock.now()), {}, {}, None)
    found, tasks = view["coverage"], [line for line in view["work"] if line["kind"] == "task"]
    rows = table("segments: ✓ attested, ? disputed, ✗ convicted, · unchecked", "task", "state", "segments")
    marks = {"attested": "✓", "disputed": "?", "convicted": "✗", "unchecked": "·"}
    for task in tasks:
        shown = "".join(marks[state] for state in task["segments"])
        rows.add_row(f"{task['round']}/{task['unit']}", task["state"], shown)
    rows.caption, rows.caption_justify = _chances(found, view), "left"
    kept = ("claim", "round", "state", "segments")
    data = {**found, "tasks": [{"shard": task["unit"], **{k: task[k] for k in kept}} for task in tasks]}
    app.output.result("coverage", data, rows)


def _chances(found: dict[str, Any], view: dict[str, Any]) -> str:
    """Chances that the samples miss a fault, as text."""
    drawn, samples = (
        show_count(view["verifiers"], "honest verifier"),
        show_count(view["samples"], "sample"),
    )
    before = (
        f"before the draw of a task, with {drawn} of {samples} each, one wrong segment escapes with chance"
        f" {found['escapesDraw']:.0%}"
    )
    if not found["segments"]:
        return f"no task stands yet; {before}"
    return (
        f"vouched for: {found['attested']} of {found['segments']} segments of the tasks that stand; one wrong"
        f" segment put anywhere among them would have escaped with chance {found['escaped']:.0%}; {before}. A"
        " whistleblower who replays everything misses nothing: `assay whistle scan`"
    )
