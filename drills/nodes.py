"""``python -m drills solver|verifier|whistle run``: the node commands of ``assay``, with options to cheat.

Contract: nothing is sent unless the chain is the home folder's devnet (``drills.devnet_only``).
"""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from assay.app.accounts import resolve
from assay.app.invocation import App
from assay.cli.command_factory import NodeKind, command_of
from assay.cli.commands import solver as honest_solver
from assay.cli.commands import verifier as honest_verifier
from assay.cli.commands import whistle as honest_whistle
from drills.cheats import ACCUSE_HELP, CHEAT_HELP, FAULT_HELP, solver_kind, whistleblower_kind
from drills.devnet_only import require_devnet

solver = typer.Typer(no_args_is_help=True, help="Solvers that cheat.")
verifier = typer.Typer(no_args_is_help=True, help="Verifiers that cheat.")
whistle = typer.Typer(no_args_is_help=True, help="Whistleblowers that accuse the innocent.")


def cheating_solver(
    app: App,
    *,
    fault: Annotated[str | None, typer.Option(help=FAULT_HELP)] = None,
    cheat: Annotated[str | None, typer.Option(help=CHEAT_HELP)] = None,
    withhold: Annotated[bool, typer.Option("--withhold", help="Serve no block to anybody.")] = False,
    waits: Annotated[
        bool,
        typer.Option("--waits", help="Honest, and takes no shard before its price has risen by a fifth."),
    ] = False,
) -> NodeKind:
    """A cheating solver's kind. Raises Ask unless the chain is a devnet's, Stop for a bad text."""
    require_devnet(app)
    return NodeKind(solver_kind(fault, cheat, waits), serves=not withhold)


def cheating_verifier(
    app: App,
    *,
    collude_with: Annotated[
        str | None, typer.Option(help="Attest whatever these accounts claim (comma-separated).")
    ] = None,
    lazy: Annotated[bool, typer.Option("--lazy", help="Attest without replaying.")] = False,
    copy_from: Annotated[str | None, typer.Option(help="Attest with this account's traces.")] = None,
    silent: Annotated[bool, typer.Option("--silent", help="Send no vote.")] = False,
) -> NodeKind:
    """A cheating verifier's kind. Raises Ask unless the chain is a devnet's, and for an unknown account."""
    require_devnet(app)
    from assay.verifier.service import VerifierService
    from drills import verifiers

    if collude_with:
        accomplices = frozenset(resolve(app, name) for name in collude_with.split(","))
        return NodeKind(partial(verifiers.ColludingVerifier, accomplices=accomplices))
    if copy_from:
        return NodeKind(partial(verifiers.CopyingVerifier, source=resolve(app, copy_from)))
    if silent:
        return NodeKind(verifiers.SilentVerifier)
    return NodeKind(verifiers.LazyVerifier if lazy else VerifierService)


def cheating_whistleblower(
    app: App,
    *,
    accuse: Annotated[str | None, typer.Option(help=ACCUSE_HELP)] = None,
    late: Annotated[
        bool, typer.Option("--late", help="Challenge what is false in the last seconds of its window.")
    ] = False,
) -> NodeKind:
    """A cheating whistleblower's kind. Raises Ask unless the chain is a devnet's, Stop for a bad text."""
    require_devnet(app)
    return NodeKind(whistleblower_kind(accuse, partial(resolve, app), late=late))


solver.command()(command_of(honest_solver.run, cheating_solver))
verifier.command()(command_of(honest_verifier.run, cheating_verifier))
whistle.command()(command_of(honest_whistle.run, cheating_whistleblower))


@solver.callback()
@verifier.callback()
@whistle.callback()
def _group() -> None:
    """A group of one command is a group."""
