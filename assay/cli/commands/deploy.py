"""``assay deploy``: deploy a market on any Ethereum-style chain."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.app.invocation import App, app_of
from assay.app.output import Exit, table
from assay.app.units import parse_amount, parse_duration, show_amount

if TYPE_CHECKING:
    from assay.app.deployment import Costs
    from assay.chain.contracts.deploy import Prepared


def deploy(
    context: typer.Context,
    profile: Annotated[
        str,
        typer.Option(
            help="devnet, l2 or l1: the limits of every job in this market. They cannot be changed later."
        ),
    ] = "",
    token: Annotated[
        str | None,
        typer.Option(help="Address of an existing ERC-20 token. Without it a new token is deployed."),
    ] = None,
    supply: Annotated[
        str,
        typer.Option(help="Initial supply of the new token, minted to the deployer (ignored with --token)."),
    ] = "1000000000tok",
    unbond: Annotated[
        str | None,
        typer.Option(
            help="Time between asking for a stake back and getting it, such as 28d. Default: the profile's."
        ),
    ] = None,
    unbind: Annotated[
        str | None,
        typer.Option(
            help="How long an owner still owns an operator account after `operator unbind`, such as 56d;"
            " longer than --unbond. Default: the profile's."
        ),
    ] = None,
    weight_epoch: Annotated[
        int | None,
        typer.Option(
            help="Blocks in an epoch: verifiers are drawn by their stakes of an earlier one. Default: the"
            " profile's."
        ),
    ] = None,
    clock_lag: Annotated[
        int | None,
        typer.Option(
            help="Blocks that whoever owes something has for it at the least after a halt of the chain."
            " Default: the profile's."
        ),
    ] = None,
    block_time: Annotated[
        str | None,
        typer.Option(
            help="Longest time between two blocks, such as 12s: jobs that close rounds without stragglers"
            " leave time for the blocks of their votes. Default: the profile's."
        ),
    ] = None,
    label: Annotated[
        str,
        typer.Option(help="Name of this market; the same account deploys another one under another name."),
    ] = "market",
    verification: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the files by which a block explorer verifies the source code. Default: beside"
            " the deployment file."
        ),
    ] = None,
) -> None:
    """Deploy a market with --account, and write its addresses to --deployment.

    If interrupted, repeat the command to resume. `--dry-run` shows every contract with its gas and cost.
    """
    from assay.app.accounts import resolve
    from assay.app.deployment import (
        bounds_of,
        check_file,
        check_funds,
        check_token,
        costs,
        delays_of,
        profile_of,
    )
    from assay.app.wiring import open_sender
    from assay.chain.contracts.artifacts import load_artifacts
    from assay.chain.contracts.deploy import deploy as create
    from assay.chain.contracts.deploy import prepare
    from assay.chain.contracts.plan import market_plan
    from assay.chain.contracts.verification import write_verification

    app = app_of(context)
    chosen = profile_of(profile)
    delays = delays_of(chosen, _seconds(unbond), _seconds(unbind), weight_epoch)
    bounds = bounds_of(chosen, clock_lag, _seconds(block_time))
    artifacts = load_artifacts()
    name = app.settings.account
    home, most, sends = app.node_home(name), app.max_spend, not app.dry_run
    with open_sender(app.settings, name, home, max_spend=most, sends=sends) as sender:
        for intent in sender.resume():
            sender.wait(intent.key)
        existing = {"Token": str(resolve(app, token))} if token else {}
        if existing:
            check_token(sender.rpc, existing["Token"])
        plan = market_plan(
            sender.address,
            token_supply=None if existing else parse_amount(supply),
            delays=delays,
            bounds=bounds,
        )
        prepared = prepare(sender, artifacts, plan, label, existing)
        path = app.settings.deployment
        check_file(path, prepared, sender.identity)
        found = costs(sender, prepared)
        if app.dry_run:
            _show(app, prepared, found, sender.chain_id)
        check_funds(sender, found)
        app.announce(
            f"deploy a market ({profile} bounds) to chain {sender.chain_id}: {len(prepared.missing)}"
            f" contracts, {found.ether}"
        )
        spent: dict[str, Any] = {}

        def told(name: str, receipt: Any) -> None:
            spent[name] = receipt
            app.output.say(f"{name} at {receipt.contract}, {receipt.gas_used:,} gas")

        deployment = create(sender, artifacts, plan, label, existing, told)
        deployment.save(path)
        folder = verification or path.with_name(f"{path.stem}-verification")
        write_verification(folder, artifacts, prepared)
    gas = sum(receipt.gas_used for receipt in spent.values())
    cost = sum(receipt.gas_used * receipt.gas_price_wei for receipt in spent.values())
    data = {
        "chain": deployment.chain_id,
        "deployment": str(path),
        "verification": str(folder),
        "addresses": deployment.addresses,
        "gas": gas,
        "cost": str(cost),
    }
    said = f"deployed {len(spent)} contracts for {gas:,} gas, {show_amount(cost, 'ether')}"
    app.output.result("deploy", data, f"{said}; addresses in {path}; for a block explorer: {folder}")


def _seconds(text: str | None) -> int | None:
    return None if text is None else parse_duration(text)


def _show(app: App, prepared: Prepared, found: Costs, chain_id: int) -> None:
    """Prints every contract with its cost; ends a dry run."""
    rows = table(f"a market on chain {chain_id}", "contract", "address", "#bytes", "#gas", "#cost")
    contracts = {}
    for name, address in prepared.addresses.items():
        gas, size = found.gas.get(name, 0), len(prepared.code.get(name, b""))
        rows.add_row(
            name,
            address,
            f"{size:,}" if size else "there",
            f"{gas:,}" if gas else "done",
            show_amount(gas * found.price_wei, "ether"),
        )
        contracts[name] = {"address": address, "bytes": size, "gas": gas}
    rows.caption = f"{found.ether}; at most {show_amount(found.total_gas * found.most_wei, 'ether')}"
    data = {
        "chain": chain_id,
        "contracts": contracts,
        "gas": found.total_gas,
        "price": str(found.price_wei),
        "cost": str(found.total_gas * found.price_wei),
        "most": str(found.total_gas * found.most_wei),
    }
    app.output.result("deploy-dry-run", data, rows)
    raise typer.Exit(int(Exit.OK))
