"""Runs the chain of a devnet: starts Anvil, deploys the market, funds accounts.

Contract: for local chains only: the deployer is Anvil's first prefunded account, whose key is public.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import time
from pathlib import Path

from assay.app.devnet_record import STATE_FILE
from assay.app.settings import Settings
from assay.chain.contracts.artifacts import load_artifacts
from assay.chain.contracts.code_check import differing
from assay.chain.contracts.deploy import Deployment, deploy, parse
from assay.chain.contracts.plan import PROFILES, market_plan, registry_of
from assay.chain.eth.anvil import Anvil, AnvilFailed, AnvilOptions, dev_account
from assay.chain.eth.contract import Contract
from assay.chain.eth.errors import Registry
from assay.chain.eth.journal import Call, Journal
from assay.chain.eth.rpc import HttpRpc
from assay.chain.eth.sender import Sender
from assay.devnet.folder import DAMAGED_STATE, DEPLOYER, PREVIOUS_STATE
from assay.protocol.errors import Ask, Retry
from assay.protocol.types import Address, Wei

log = logging.getLogger(__name__)

TOKEN_SUPPLY = Wei(1_000_000_000 * 10**18)
GAS_ETHER_WEI = 10 * 10**18
"""Ether for gas that an account gets with its tokens."""


STATE_EVERY_S = 10
FORGOTTEN = 129
"""Blocks after which a seed needs no header (docs/protocol.md, 4.5)."""
QUIET_S = 0.1
"""Seconds without a block after which none is being mined."""


def start_chain(home: Path, block_time_s: float, genesis_s: int, port: int = 0) -> Anvil:
    """Starts a local chain that mines each transaction at once, and an empty block every `block_time_s`. Port
    0: any free one.

    It resumes this folder's stopped chain, if there was one. A killed chain resumes from its last written
    state, about `STATE_EVERY_S` before; if that is only half written, from the one before. To its nodes that
    is a reorganisation.
    """
    home.mkdir(parents=True, exist_ok=True)
    state, previous = home / STATE_FILE, home / PREVIOUS_STATE
    try:
        chain = _start(home, block_time_s, genesis_s, port)
    except AnvilFailed as error:
        if not previous.exists() or "in use" in error.message:
            raise
        log.warning("%s cannot be read; the chain goes on from %s", state, previous)
        state.replace(home / DAMAGED_STATE)
        shutil.copy(previous, state)
        return _start(home, block_time_s, genesis_s, port)
    if state.exists():
        shutil.copy(state, previous)
    return chain


def _start(home: Path, block_time_s: float, genesis_s: int, port: int) -> Anvil:
    return Anvil(
        AnvilOptions(
            port=port,
            block_time_s=block_time_s,
            state_file=home / STATE_FILE,
            state_interval_s=STATE_EVERY_S,
            genesis_time_s=genesis_s,
            log_file=home / "logs" / "chain.log",
            extra=("--mixed-mining",),
        )
    )


def stop_mining(rpc_url: str, patience_s: float = 5.0) -> None:
    """Stops mining, and waits for the block that is being mined.

    Anvil writes accounts and blocks one after the other. A block that is mined in between changes the
    accounts, and is not among the blocks that it resumes with.
    """
    rpc = HttpRpc(rpc_url)
    deadline = time.monotonic() + patience_s
    with contextlib.suppress(Retry):  # the chain is gone, or does not answer
        rpc.request("evm_setIntervalMining", [0])
        last, now = -1, rpc.eth.block_number
        while now != last and time.monotonic() < deadline:
            time.sleep(QUIET_S)
            last, now = now, rpc.eth.block_number


def go_on_in_time(rpc_url: str) -> None:
    """Sets a resumed chain's time to its last block's, so that no deadline passed while it was down, and
    mines `FORGOTTEN` blocks at that time.

    Anvil would restart at the time of its first block. And its BLOCKHASH gives other hashes of the blocks
    before, so that no header of theirs can be shown for a claim's seed.
    """
    rpc = HttpRpc(rpc_url)
    last = rpc.eth.get_block("latest")["timestamp"]
    rpc.request("evm_setTime", [(last + 1) * 1000])
    rpc.request("anvil_mine", [FORGOTTEN, 0])


def check_contracts(home: Path, deployment: Path, rpc_url: str) -> None:
    """Raises Ask if the devnet's contracts are not those of this version."""
    addresses = parse(deployment).addresses
    other = sorted(differing(HttpRpc(rpc_url), addresses, load_artifacts()))
    if other:
        raise Ask(
            f"another version made the devnet in {home}: its contracts {', '.join(other)} are not"
            " those of this version; nothing was changed",
            hint="use the version that made it, or remove it with `assay devnet down --wipe`",
            code="devnet-of-another-version",
        )


def deployer(home: Path, rpc_url: str, registry: Registry) -> Sender:
    """Sender of the devnet's deployer account."""
    folder = home / "nodes" / DEPLOYER
    folder.mkdir(parents=True, exist_ok=True)
    return Sender(HttpRpc(rpc_url), dev_account(0), Journal(folder / "journal.db"), registry)


def deploy_market(settings: Settings) -> Deployment:
    """Deploys every contract and writes the deployment file."""
    artifacts = load_artifacts()
    sender = deployer(settings.home, settings.rpc_url, registry_of(artifacts))
    deployment = deploy(
        sender,
        artifacts,
        market_plan(
            sender.address,
            token_supply=TOKEN_SUPPLY,
            delays=PROFILES["devnet"].delays,
            bounds=PROFILES["devnet"].bounds,
        ),
    )
    deployment.save(settings.deployment)
    return deployment


def fund(settings: Settings, address: Address, amount: Wei) -> None:
    """Gives an account tokens, and ether for gas."""
    artifacts = load_artifacts()
    rpc = HttpRpc(settings.rpc_url)
    deployment = Deployment.load(settings.deployment, rpc)
    registry = registry_of(artifacts)
    sender = deployer(settings.home, settings.rpc_url, registry)
    token = Contract(rpc, "Token", deployment.addresses["Token"], artifacts["AssayToken"].abi, registry)
    count = sender.next_nonce()
    sender.send(f"fund/{address}/ether/{count}", Call(address, b"", "ether for gas", GAS_ETHER_WEI))
    sender.send(f"fund/{address}/token/{count}", token.call("transfer", address, int(amount), purpose="fund"))
