"""Deploys a market from the command line: checks, costs and files.

Contract: everything that can be refused is refused before the first transaction: an invalid profile or token,
an addresses file of another market, an account that cannot pay. Costs are the node's gas estimates at present
fees; a rollup's fee for data on another chain is not included.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from assay.app.times import show_span
from assay.app.units import show_amount
from assay.chain.contracts.artifacts import load_artifacts
from assay.chain.contracts.deploy import Deployment, Prepared, parse
from assay.chain.contracts.plan import PROFILES, Delays, Profile
from assay.chain.eth.contract import Contract
from assay.chain.eth.fees import fees
from assay.chain.eth.journal import Call
from assay.chain.eth.rpc import Rpc, RpcFailed
from assay.chain.eth.transactions import transaction_of
from assay.protocol.errors import Ask, InsufficientFunds, Retry, Reverted, RpcUnreachable
from assay.protocol.types import Bounds, Seconds

if TYPE_CHECKING:
    from assay.chain.eth.sender import Sender

DECIMALS = 18


@dataclass(frozen=True)
class Costs:
    """Gas of each contract still to be created, and its price in wei per gas: now, and at most."""

    gas: dict[str, int]
    price_wei: int
    most_wei: int

    @property
    def total_gas(self) -> int:
        return sum(self.gas.values())

    @property
    def ether(self) -> str:
        """Total cost, now and at most, as text."""
        now = show_amount(self.total_gas * self.price_wei, "ether")
        return f"{self.total_gas:,} gas, {now} at present fees"


def profile_of(name: str) -> Profile:
    """Profile by name. Raises Ask for an unknown one."""
    if name not in PROFILES:
        told = "; ".join(f"{n}: {p.about}" for n, p in PROFILES.items())
        raise Ask(
            f"there is no profile {name!r}; nothing was deployed"
            if name
            else "a deployment needs a profile, which sets its bounds; nothing was deployed",
            hint=f"--profile {'|'.join(PROFILES)} ({told}). Bounds cannot change after the deployment",
            code="bad-profile",
        )
    return PROFILES[name]


def bounds_of(profile: Profile, lag: int | None, block_s: int | None) -> Bounds:
    """The profile's bounds with the operator's values for the chain's blocks. Raises Ask for invalid ones."""
    base = profile.bounds
    made = replace(
        base,
        clock_lag=base.clock_lag if lag is None else lag,
        block_time=base.block_time if block_s is None else Seconds(block_s),
    )
    if made.clock_lag < 1 or made.block_time < 1:
        raise Ask(
            f"the clock's lag is {made.clock_lag} blocks of {made.block_time} s, and neither can be 0;"
            " nothing was deployed",
            hint="see --clock-lag and --block-time",
            code="bad-bounds",
        )
    return made


def delays_of(profile: Profile, unbond_s: int | None, unbind_s: int | None, epoch: int | None) -> Delays:
    """The profile's delays with the operator's values. Raises Ask for invalid ones."""
    base = profile.delays
    made = replace(
        base,
        unbond_s=base.unbond_s if unbond_s is None else Seconds(unbond_s),
        unbind_s=base.unbind_s if unbind_s is None else Seconds(unbind_s),
        weight_epoch=base.weight_epoch if epoch is None else epoch,
    )
    if not 0 < made.unbond_s < made.unbind_s or made.weight_epoch < 1:
        raise Ask(
            f"unbonding a stake takes {made.unbond_s} s and unbinding an owner {made.unbind_s} s, in epochs"
            f" of {made.weight_epoch} blocks; unbinding has to take longer, and none of them can be 0;"
            " nothing was deployed",
            hint="see --unbond, --unbind and --weight-epoch",
            code="bad-delays",
        )
    if made.unbond_s < (window := profile.bounds.least_window):
        raise Ask(
            f"unbonding a stake takes {show_span(made.unbond_s)}, less than the shortest challenge window,"
            f" {show_span(window)}: a cheat could withdraw its stake before it is convicted; nothing was"
            " deployed",
            hint=f"leave --unbond out, which gives {show_span(base.unbond_s)}, or give more than the window",
            code="bad-delays",
        )
    return made


def check_token(rpc: Rpc, address: str) -> None:
    """Raises Ask unless the address is an ERC-20 token that this market can use."""
    token = Contract(rpc, "the token", address, load_artifacts()["AssayToken"].abi)
    try:
        decimals, _ = token.read("decimals"), token.read("totalSupply")
    except RpcUnreachable:
        raise
    except (Retry, Reverted) as error:
        raise Ask(
            f"{address} does not answer as an ERC-20 token: {error.message}; nothing was deployed",
            hint="check the address and the chain (--rpc-url)",
            code="bad-token",
        ) from error
    if decimals != DECIMALS:
        raise Ask(
            f"the token at {address} has {decimals} decimals; bounds, stakes and amounts are in units of"
            f" 10^-{DECIMALS}; nothing was deployed",
            hint="use a token with 18 decimals, or wrap this one",
            code="bad-token",
        )


def costs(sender: Sender, prepared: Prepared) -> Costs:
    """Remaining costs. Raises RpcUnreachable, Ask (gas is too dear)."""
    gas = {}
    for name in prepared.missing:
        create = transaction_of(sender.address, Call(None, prepared.code[name], name))
        try:
            gas[name] = sender.rpc.eth.estimate_gas(create, "latest")
        except RpcFailed as failure:
            raise Ask(
                f"the node would not create {name}: {failure.text}; nothing was deployed",
                hint="the chain may lack Prague's rules, or be limited below a block of 30 million gas",
                code="not-deployable",
            ) from failure
    most_wei, tip_wei = fees(sender.rpc, sender.policy, "deploy")
    return Costs(gas, max((most_wei + tip_wei) // 2, tip_wei), most_wei)


def check_funds(sender: Sender, found: Costs) -> None:
    """Raises InsufficientFunds unless the account can pay at present fees."""
    have, need = sender.balance_wei(), found.total_gas * found.price_wei
    if have < need:
        raise InsufficientFunds(
            f"the deployment needs about {show_amount(need, 'ether')}, and {sender.address} has"
            f" {show_amount(have, 'ether')}; nothing was sent",
            hint=f"send it {show_amount(need - have, 'ether')} more, and some to spare, then repeat it",
        )


def check_file(path: Path, prepared: Prepared, chain: str) -> None:
    """Raises Ask if the addresses file is another market's, which is not overwritten."""
    if not path.exists():
        return
    there: Deployment = parse(path)
    if there.chain != chain or there.addresses != prepared.addresses:
        raise Ask(
            f"{path} holds the addresses of another market; nothing was deployed",
            hint="name another file with --deployment, or another market with --label",
            code="deployment-exists",
        )
