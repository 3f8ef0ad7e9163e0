"""The root of the ``assay`` command."""

from __future__ import annotations

import os
import re
import sys
from functools import cache, partial
from typing import Annotated, Any, NoReturn

import typer
from typer.main import get_command

from assay.app.invocation import App, app_of
from assay.app.output import Exit, Output
from assay.app.settings import Flags, check_computing
from assay.cli.commands.dashboard import dashboard
from assay.cli.commands.deploy import deploy
from assay.cli.error_reports import bug, file_error, overwritten_install
from assay.cli.examples import START
from assay.cli.global_options import completed
from assay.cli.lazy import everywhere, with_lazy_groups
from assay.protocol.errors import AssayError, Stop

BEGIN, WORK, MONEY, MARKET = "To begin", "To work", "Accounts and money", "A market of your own"
ROOMS = {
    name: (f"assay.cli.commands.{name}", text, part)
    for part, rooms in (
        (
            BEGIN,
            (
                ("devnet", "A whole market on this machine."),
                ("job", "Post jobs, follow them, fetch the model."),
                ("market", "Who trains for others, and at which prices."),
            ),
        ),
        (
            WORK,
            (
                ("solver", "Train shards of jobs and be paid for it."),
                ("verifier", "Replay samples and attest them."),
                ("whistle", "Find faults and dispute them."),
                ("dispute", "Challenges and their games."),
                ("storage", "Block stores of this home's nodes."),
                ("crew", "Train one shard on several machines."),
            ),
        ),
        (
            MONEY,
            (
                ("account", "Keys and balances."),
                ("token", "The market's token."),
                ("stake", "Stakes."),
                ("operator", "Let one account work with another account's stake."),
                ("config", "Settings, and where each comes from."),
            ),
        ),
        (MARKET, (("guardian", "The emergency stop for new jobs and stakes."),)),
    )
    for name, text in rooms
}

DISTRIBUTION = "assay-market"
"""Name of the package on PyPI: docs/decisions/0029-layout.md."""

root = typer.Typer(
    name="assay",
    help="A market for training compute without trusted parties.",
    cls=with_lazy_groups(ROOMS),
    invoke_without_command=True,
    pretty_exceptions_enable=False,
)


def start_page() -> str:
    """The start page."""
    return "\n".join(
        (
            "Assay is a market for training compute in which nobody has to be trusted.",
            "",
            "A job on a market of your own, on this machine, with play money (minutes; no GPU):",
            *(f"  {line}" for line in START),
            "",
            "  To earn with a machine:       assay solver --help",
            "  To check what others compute: assay verifier --help, assay whistle --help",
            "  All commands and options:     assay --help",
            "  Is this machine ready?        assay doctor",
        )
    )


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import PackageNotFoundError, version

        try:
            print(f"assay {version(DISTRIBUTION)}")
        except PackageNotFoundError:
            print("assay, from a checkout that is not installed")
        raise typer.Exit


@root.callback()
def options(
    context: typer.Context,
    home: Annotated[
        str | None,
        typer.Option(
            help="Folder for keys, blocks and journals (ASSAY_HOME). Default: the nearest .assay here "
            "or above, or ~/.assay."
        ),
    ] = None,
    rpc_url: Annotated[
        list[str] | None,
        typer.Option(
            "-r",
            "--rpc-url",
            help="URL of a chain node (ETH_RPC_URL, comma-separated); repeatable. A second one takes "
            "over from the first and is compared with it.",
        ),
    ] = None,
    network: Annotated[
        str | None, typer.Option(help="Name of a network in assay.toml (ASSAY_NETWORK).")
    ] = None,
    account: Annotated[
        str | None,
        typer.Option(
            help="Account to act for (ETH_KEYSTORE_ACCOUNT). Default: the one set by `assay account use`."
        ),
    ] = None,
    password_file: Annotated[str | None, typer.Option(help="File with its password (ETH_PASSWORD).")] = None,
    keystore: Annotated[str | None, typer.Option(help="Folder of key files (ETH_KEYSTORE).")] = None,
    deployment: Annotated[str | None, typer.Option(help="File with the contracts' addresses.")] = None,
    device: Annotated[
        list[str] | None,
        typer.Option(
            help="auto, cpu, cuda or one GPU such as cuda:1; repeatable: a node has a worker on each."
        ),
    ] = None,
    executor: Annotated[
        str | None, typer.Option(help="auto, compiled, eager or reference; the bits are the same.")
    ] = None,
    threads: Annotated[str | None, typer.Option(help="CPU threads for training.")] = None,
    ipfs: Annotated[
        str | None, typer.Option(help="RPC of a Kubo daemon to publish to and fetch from (ASSAY_IPFS).")
    ] = None,
    private_peers: Annotated[
        str | None,
        typer.Option(
            help="Private networks in which other nodes may be contacted, such as 10.0.0.0/8,fd00::/8 "
            "(ASSAY_PRIVATE_PEERS). Default: public addresses only; on a local chain also this "
            "machine's."
        ),
    ] = None,
    max_fee: Annotated[
        str | None, typer.Option(help="Maximum fee per gas (ASSAY_MAX_FEE). Default: 500gwei.")
    ] = None,
    emergency_fee: Annotated[
        str | None,
        typer.Option(
            help="Maximum fee per gas of a move, vote or task near its deadline (ASSAY_EMERGENCY_FEE)."
            " Default: 2000gwei."
        ),
    ] = None,
    token_worth: Annotated[
        str | None,
        typer.Option(
            help="Value of a token, such as 0.002ether: then a call's gas never costs more than the "
            "stake it saves (ASSAY_TOKEN_WORTH)."
        ),
    ] = None,
    tip: Annotated[
        str | None, typer.Option(help="Priority fee per gas; auto: the node's proposal (ASSAY_TIP).")
    ] = None,
    fee_bump: Annotated[
        str | None,
        typer.Option(help="Percentage by which a stuck transaction's fee is raised (ASSAY_FEE_BUMP)."),
    ] = None,
    confirmations: Annotated[
        str | None,
        typer.Option(help="Further blocks before a transaction counts as done (ASSAY_CONFIRMATIONS)."),
    ] = None,
    finality: Annotated[
        str | None,
        typer.Option(help='Depth in blocks at which a block is final, or "finalized" (ASSAY_FINALITY).'),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Print no progress on stderr.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Send without asking.")] = False,
    dry_run: Annotated[bool, typer.Option(help="Check and show everything, send nothing.")] = False,
    max_spend: Annotated[
        str | None, typer.Option(help="Maximum ether to spend on gas, such as 0.1ether.")
    ] = None,
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_version, help="Print the version."),
    ] = False,
) -> None:
    """Options of every command, before or after its name."""
    urls, devices = ",".join(rpc_url or ()) or None, ",".join(device or ()) or None
    flags = Flags(
        *(home, urls, account, password_file, keystore, deployment, devices, executor, threads),
        *(ipfs, max_fee, emergency_fee, token_worth, tip, fee_bump, confirmations, finality),
        private_peers=private_peers,
        network=network,
    )
    for name, value in (("device", devices), ("executor", executor), ("threads", threads)):
        if value is not None:  # said before a command that computes nothing takes it in silence
            check_computing(name, value)
    app = App(flags, Output(as_json, quiet), yes, dry_run, max_spend)
    context.obj = app
    context.call_on_close(app.close)
    if context.invoked_subcommand is None:
        app.output.result("start", {"start": START}, start_page())


@root.command(rich_help_panel=BEGIN)
def doctor(
    context: typer.Context,
    role: Annotated[
        str, typer.Option(help="Role to check for: client, solver, verifier or whistleblower.")
    ] = "client",
) -> None:
    """Check that this machine, its keys and its chain are ready; each problem comes with its fix."""
    from assay.cli.doctor import doctor as look

    look(app_of(context), role)


root.command(rich_help_panel=BEGIN)(dashboard)
root.command(rich_help_panel=MARKET)(deploy)


# Typer carries its own copy of click, of which it shows only leaves: the base of all usage errors is theirs.
UsageProblem: type[Exception] = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)
_BELOW_ZERO = re.compile(r"-[.\d]")
"""A negative number such as -5tok, which looks like an option."""


def _misused(error: Exception, as_json: bool, program: str) -> NoReturn:
    """Reports an invalid command line and exits with status 2."""
    message = error.format_message().strip()  # type: ignore[attr-defined]
    if message:  # without one, Typer has printed the help that was wanted
        context, option = getattr(error, "ctx", None), getattr(error, "option_name", "")
        hint = f"`{context.command_path if context else program} --help` shows what it takes"
        if _BELOW_ZERO.match(option or ""):
            hint = f"what begins with a minus is an option: no amount or number here is below 0; {hint}"
        Output(as_json).report(Stop(message, hint=hint, code="usage"))
    raise SystemExit(int(Exit.USAGE))


@cache
def tree(commands: typer.Typer = root) -> Any:
    """Builds the click command of `commands`, once, as that is slow; its options may follow any command's
    name."""
    top = get_command(commands)
    everywhere(top, partial(completed, top.params), str(top.name))
    return top


def main(commands: typer.Typer = root, program: str = "assay") -> None:
    """Entry point of a program: an AssayError becomes a report and an exit status.

    Any other exception is a bug (status 1) and becomes a report with a log file.
    """
    as_json = "--json" in sys.argv
    # PyTorch's threads spin while one waits for another, which takes several times a step's processor time on
    # a machine that has other work; read once, when it is imported, also by a node's workers.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    if strange := overwritten_install():
        Output(as_json).fail(strange)
    try:
        status = tree(commands)(prog_name=program, standalone_mode=False)
    except AssayError as error:
        Output(as_json).fail(error)
    except typer.Abort as aborted:
        raise SystemExit(int(Exit.CONFIRM)) from aborted
    except UsageProblem as error:
        _misused(error, as_json, program)
    except BrokenPipeError:  # whoever read the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(int(Exit.OK)) from None
    except Exception as error:  # noqa: BLE001 - the top of every command: nobody is shown a bare traceback
        Output(as_json).fail(file_error(error) or bug(error, [program, *sys.argv[1:]]))
    # A command that ends by `typer.Exit` gives its status back here instead of raising it.
    raise SystemExit(status if isinstance(status, int) else int(Exit.OK))


if __name__ == "__main__":
    main()
