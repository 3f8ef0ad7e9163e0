"""Compares deployed contracts with the code that these sources compile to.

    python scripts/prove/bytecode.py (--local | --deployment FILE --rpc-url URL)     (make bytecode)

The code at each address of the deployment is compared with the committed artifacts, which `make bytecode`
first compares with a fresh compilation (scripts/generate/artifacts.py --check): everything but immutable
values, which the constructor writes and the compiler names. `--foreign-token` leaves out an existing Token.
`--local` deploys to its own Anvil, compares, and checks that one changed byte is detected in each contract.
Exits 1 if anything differs.

Not guaranteed: that the immutable values are right (`assay deploy` writes what an explorer needs to see
that), or that the node tells the truth.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from assay.chain.contracts.artifacts import Artifacts, load_artifacts
from assay.chain.contracts.code_check import differing
from assay.chain.contracts.deploy import deploy, parse
from assay.chain.contracts.plan import Delays, market_plan, registry_of
from assay.chain.eth.anvil import Anvil, dev_account
from assay.chain.eth.journal import Journal
from assay.chain.eth.rpc import HttpRpc, Rpc
from assay.chain.eth.sender import Sender
from assay.protocol.types import Bounds, Seconds, Wei
from tests.fakes.classes import WIDE


def plan(deployer: str, bounds: Bounds = WIDE) -> Any:
    delays = Delays(unbond_s=Seconds(1), unbind_s=Seconds(1), weight_epoch=1)
    return market_plan(deployer, token_supply=Wei(1), delays=delays, bounds=bounds)


def faults_of(rpc: Rpc, addresses: Mapping[str, str], artifacts: Artifacts) -> Iterator[str]:
    """Differences of the code on chain."""
    for name in differing(rpc, addresses, artifacts):
        yield f"{name} at {addresses[name]} is not what these sources compile to"


def tried(artifacts: Artifacts) -> Iterator[str]:
    """Deploys, compares, and changes a byte of each contract in turn."""
    with Anvil() as chain, tempfile.TemporaryDirectory() as folder:
        rpc = HttpRpc(chain.url)
        sender = Sender(rpc, dev_account(9), Journal(Path(folder, "journal.db")), registry_of(artifacts))
        addresses = deploy(sender, artifacts, plan(sender.address)).addresses
        yield from faults_of(rpc, addresses, artifacts)
        for name, address in addresses.items():
            code = bytearray.fromhex(rpc.request("eth_getCode", [address, "latest"])[2:])
            code[0] ^= 1
            rpc.request("anvil_setCode", [address, "0x" + code.hex()])
            if list(differing(rpc, {name: address}, artifacts)) != [name]:
                yield f"{name}: a changed byte was not seen"
        print(f"{len(addresses)} contracts deployed and compared, a changed byte in each")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--deployment", type=Path)
    parser.add_argument("--rpc-url")
    parser.add_argument("--foreign-token", action="store_true")
    parser.add_argument("--local", action="store_true")
    options = parser.parse_args()
    if options.local == bool(options.deployment and options.rpc_url):
        parser.error("give --deployment and --rpc-url, or --local")
    artifacts = load_artifacts()
    if options.local:
        faults = list(tried(artifacts))
    else:
        addresses = dict(parse(options.deployment).addresses)
        if options.foreign_token:
            del addresses["Token"]
        faults = list(faults_of(HttpRpc(options.rpc_url), addresses, artifacts))
        print(f"{len(addresses)} contracts compared")
    for fault in faults:
        print(fault)
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
