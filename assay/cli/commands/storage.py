"""``assay storage``: inspect and clean the block stores of this home's nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from assay.app.invocation import App, app_of
from assay.app.output import Exit, table
from assay.blocks.blockstore import GRACE_S, BlockStore
from assay.protocol.errors import Stop
from assay.protocol.types import JobId

if TYPE_CHECKING:
    from assay.node.retention import Unclaimed

commands = typer.Typer(no_args_is_help=True, help="Block stores of this home's nodes.")
NodeName = Annotated[str | None, typer.Argument(help="Account of a node. Default: all nodes of this home.")]
STORE = "store"


def stores(app: App, name: str | None) -> dict[str, BlockStore]:
    """Block stores of this home, or of this account. Raises Stop if there is none."""
    nodes = app.settings.home / "nodes"
    found = {
        path.parent.name: BlockStore(path, sweep=not app.dry_run) for path in sorted(nodes.glob(f"*/{STORE}"))
    }
    if name is not None and name not in found:
        raise Stop(
            f"no node {name!r} keeps blocks in {nodes}",
            hint=f"there are: {', '.join(found) or 'none'}",
            code="not-found",
        )
    return found if name is None else {name: found[name]}


@commands.command("ls")
def list_stores(context: typer.Context, node: NodeName = None) -> None:
    """Show the blocks and bytes of each node, and what is pinned or was set aside as damaged."""
    app = app_of(context)
    rows = table("blocks", "node", "#blocks", "#MB", "#pinned", "#damaged")
    told = {}
    for name, store in stores(app, node).items():
        usage, pinned, damaged = store.usage(), store.pins(), store.quarantined()
        told[name] = {
            "blocks": usage.blocks,
            "bytes": usage.total_bytes,
            "pinned": len(pinned),
            "damaged": len(damaged),
        }
        size = f"{usage.total_bytes / 1e6:,.1f}"
        rows.add_row(name, f"{usage.blocks:,}", size, str(len(pinned)), str(len(damaged)))
    app.output.result("storage", told, rows)


@commands.command()
def gc(
    context: typer.Context,
    node: NodeName = None,
    models: Annotated[bool, typer.Option("--models", help="Also delete models of closed jobs.")] = False,
) -> None:
    """Delete files of settled work, and unnamed files older than an hour; nodes may be running."""
    app = app_of(context)
    found = stores(app, node)
    app.end_dry_run(f"delete what is settled from the blocks of {', '.join(found) or 'no node'}")
    market, told = app.view().market, {}
    rows = table("freed", "node", "#blocks", "#MB")
    app.output.say(f"looking through the blocks of {', '.join(found) or 'no node'}")
    from assay.node.retention import Retention
    from assay.solver.progress import TaskProgress

    for name, store in found.items():
        progress = TaskProgress(app.node_home(name) / "tasks")

        def unclaimed(
            job_id: JobId, progress: TaskProgress = progress, store: BlockStore = store
        ) -> Unclaimed:
            return progress.indices(job_id, market.job(job_id).progress.settled_rounds, store.has)

        with market.snapshot():
            before = store.usage()
            retention = Retention(market, store, unclaimed, models=not models)
            retention()
            store.gc(GRACE_S, retention.kept)
        left = store.usage()
        blocks, freed = before.blocks - left.blocks, before.total_bytes - left.total_bytes
        told[name] = {"blocks": blocks, "bytes": freed, "left": left.total_bytes}
        rows.add_row(name, f"{blocks:,}", f"{freed / 1e6:,.1f}")
    app.output.result("storage-gc", told, rows)


@commands.command()
def check(context: typer.Context, node: NodeName = None) -> None:
    """Compare every block with its CID; damaged ones are set aside, to be fetched or recomputed. Exit status
    1 if there was one."""
    from assay.protocol.errors import BlockNotFound, CorruptBlock

    app = app_of(context)
    told: dict[str, list[str]] = {}
    found = stores(app, node)
    app.end_dry_run(f"read every block of {', '.join(found) or 'no node'}, and set damaged ones aside")
    for name, store in found.items():
        told[name] = []
        for cid in sorted(store.cids()):
            try:
                store.get(cid)
            except CorruptBlock:
                told[name].append(cid)
            except BlockNotFound:
                continue
    lines = [f"{name}: {', '.join(bad) or 'every block is what its name says'}" for name, bad in told.items()]
    app.output.result("storage-check", told, "\n".join(lines))
    if any(told.values()):
        raise typer.Exit(int(Exit.BUG))
