"""The root of the ``assay`` command."""

from __future__ import annotations

import sys
from typing import Annotated, NoReturn

import typer

from assay.app.invocation import App
from assay.app.output import Exit, Output
from assay.app.settings import Flags
from assay.cli.commands import (
    account,
    demands,
    devnet,
    dispute,
    forced_errors,
    guardian,
    job,
    operator,
    scenario,
    solver,
    stake,
    token,
    verifier,
    whistle,
)
from assay.protocol.errors import AssayError, Stop

root = typer.Typer(
    name="assay",
    help="A market for training compute in which nobody has to be trusted.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
for name, commands in (
    ("devnet", devnet.commands),
    ("account", account.commands),
    ("token", token.commands),
    ("stake", stake.commands),
    ("operator", operator.commands),
    ("guardian", guardian.commands),
    ("job", job.commands),
    ("solver", solver.commands),
    ("verifier", verifier.commands),
    ("whistle", whistle.commands),
    ("dispute", dispute.commands),
):
    root.add_typer(commands, name=name)


devnet.commands.add_typer(scenario.commands, name="scenario")
job.commands.add_typer(forced_errors.commands, name="forced-error")
dispute.commands.add_typer(demands.commands, name="demand")


@root.callback()
def options(
    context: typer.Context,
    home: Annotated[
        str | None, typer.Option(help="Folder for keys, blocks and journals (ASSAY_HOME).")
    ] = None,
    rpc_url: Annotated[
        list[str] | None,
        typer.Option(
            "-r",
            "--rpc-url",
            help="Chain node (ETH_RPC_URL, comma-separated). A second one takes over from the first, and is"
            " compared with it.",
        ),
    ] = None,
    account: Annotated[str | None, typer.Option(help="Account to act for (ETH_KEYSTORE_ACCOUNT).")] = None,
    password_file: Annotated[str | None, typer.Option(help="File with its password (ETH_PASSWORD).")] = None,
    keystore: Annotated[str | None, typer.Option(help="Folder of key files (ETH_KEYSTORE).")] = None,
    deployment: Annotated[str | None, typer.Option(help="File with the contracts' addresses.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda or one GPU, as cuda:1.")] = None,
    executor: Annotated[
        str | None, typer.Option(help="auto, compiled, eager or reference; the bits are the same.")
    ] = None,
    threads: Annotated[str | None, typer.Option(help="Processor threads for training.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="No progress on stderr.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Send without asking.")] = False,
    dry_run: Annotated[bool, typer.Option(help="Check and show, send nothing.")] = False,
    max_spend: Annotated[
        str | None, typer.Option(help="Most ether to spend on gas, such as 0.1ether.")
    ] = None,
) -> None:
    """Options that every command takes, before its name."""
    urls = ",".join(rpc_url or ()) or None
    flags = Flags(home, urls, account, password_file, keystore, deployment, device, executor, threads)
    app = App(flags, Output(as_json, quiet), yes, dry_run, max_spend)
    context.obj = app
    context.call_on_close(app.close)


@root.command("config")
def config(context: typer.Context) -> None:
    """Every setting, and where it comes from."""
    from assay.app.invocation import app_of
    from assay.app.output import table

    app = app_of(context)
    settings = app.settings.describe()
    rows = table("settings", "name", "value", "origin")
    for name, setting in settings.items():
        rows.add_row(name, setting.value or "-", setting.origin)
    app.output.result("config", settings, rows)


# Typer carries its own copy of click, of which it shows only leaves: the base of all usage errors is theirs.
UsageProblem: type[Exception] = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)
ROOT_OPTIONS = frozenset(
    {"-r", "--rpc-url", "--home", "--account", "--password-file", "--keystore", "--deployment"}
    | {"--device", "--executor", "--threads"}
    | {"--json", "-q", "--quiet", "-y", "--yes", "--dry-run", "--max-spend"}
)


def _misused(error: Exception, as_json: bool) -> NoReturn:
    """Report a command line that cannot be understood, and end with status 2."""
    message = error.format_message().strip()  # type: ignore[attr-defined]
    if message:  # without one, Typer has printed the help that was wanted
        context, option = getattr(error, "ctx", None), getattr(error, "option_name", "")
        hint = f"`{context.command_path if context else 'assay'} --help` shows what it takes"
        if option in ROOT_OPTIONS:
            hint = f"put it before the command's name: assay {option} ..."
        Output(as_json).report(Stop(message, hint=hint, code="usage"))
    raise SystemExit(int(Exit.USAGE))


def main() -> None:
    """Entry point: every AssayError becomes a report and an exit status, everything else is a bug (1)."""
    as_json = "--json" in sys.argv
    try:
        status = root(standalone_mode=False)
    except AssayError as error:
        Output(as_json).fail(error)
    except typer.Abort as aborted:
        raise SystemExit(int(Exit.CONFIRM)) from aborted
    except UsageProblem as error:
        _misused(error, as_json)
    # A command that ends by `typer.Exit` gives its status back here instead of raising it.
    raise SystemExit(status if isinstance(status, int) else int(Exit.OK))


if __name__ == "__main__":
    main()
