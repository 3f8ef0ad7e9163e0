"""What is deployed is what these sources compile to.

    python scripts/prove/bytecode.py (--local | --deployment FILE --rpc-url URL)     (make bytecode)

The contracts are compiled anew, past the cache, and have to come out as they did before, byte for byte. Then
the code at each address of the deployment is compared with them: all of it but the places of immutable
values, which the constructor writes and the compiler names; `--foreign-token` leaves out a Token that was
there before. `--local` deploys to an Anvil of its own, compares, and sees that one changed byte is found in
each contract. Exits 1 where anything differs.

Not guaranteed: that the immutable values are the right ones (`assay deploy` writes what an explorer needs to
see that), or that the node tells the truth.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from assay.chain.contracts.compile import _run, compile_contracts, read_sources, settings_of
from assay.chain.contracts.deploy import deploy, parse
from assay.chain.contracts.plan import Delays, market_plan, registry_of
from assay.chain.eth.anvil import Anvil, dev_account
from assay.chain.eth.journal import Journal
from assay.chain.eth.rpc import HttpRpc, Rpc
from assay.chain.eth.sender import Sender
from assay.chain.folders import CONTRACTS_DIR
from assay.protocol.types import ZERO_ADDRESS, Bounds, Seconds, Wei
from tests.fakes.classes import WIDE

Runtime = tuple[bytes, tuple[range, ...]]
"""A contract's code, and where in it the constructor writes."""


def plan(deployer: str, bounds: Bounds = WIDE) -> Any:
    delays = Delays(unbond_s=Seconds(1), unbind_s=Seconds(1), weight_epoch=1)
    return market_plan(deployer, token_supply=Wei(1), delays=delays, bounds=bounds)


def compiled() -> tuple[dict[str, str], dict[str, Runtime]]:
    """Creation code and runtime code by contract, compiled now."""
    settings = settings_of()
    wanted = [
        "evm.bytecode.object",
        "evm.deployedBytecode.object",
        "evm.deployedBytecode.immutableReferences",
    ]
    settings["outputSelection"] = {"*": {"*": wanted}}
    output = _run(CONTRACTS_DIR, read_sources(CONTRACTS_DIR), settings)["contracts"]
    creation, runtime = {}, {}
    for named in output.values():
        for name, made in named.items():
            code = made["evm"]["deployedBytecode"]
            places = code.get("immutableReferences", {}).values()
            written = tuple(
                range(p["start"], p["start"] + p["length"]) for several in places for p in several
            )
            creation[name] = made["evm"]["bytecode"]["object"]
            runtime[name] = bytes.fromhex(code["object"]), written
    return creation, runtime


def changed(creation: dict[str, str]) -> Iterator[str]:
    """Contracts that came out otherwise than the last time."""
    artifacts = compile_contracts()
    for name, artifact in artifacts.items():
        if artifact.bytecode and creation.get(name) != artifact.bytecode:
            yield f"{name} does not compile to the same code twice"


def differing(rpc: Rpc, addresses: dict[str, str], runtime: dict[str, Runtime]) -> Iterator[str]:
    """Contracts whose code on chain is not what was compiled."""
    artifacts = {planned.name: planned.artifact for planned in plan(ZERO_ADDRESS)}
    for name, address in addresses.items():
        found = bytearray.fromhex(rpc.request("eth_getCode", [address, "latest"])[2:])
        code, written = runtime[artifacts[name]]
        if len(found) == len(code):
            for place in written:
                found[place.start : place.stop] = code[place.start : place.stop]
        if bytes(found) != code:
            yield f"{name} at {address} is not what {artifacts[name]} compiles to"


def tried(runtime: dict[str, Runtime]) -> Iterator[str]:
    """Deploy, compare, and change a byte of each contract in turn."""
    with Anvil() as chain, tempfile.TemporaryDirectory() as folder:
        rpc, artifacts = HttpRpc(chain.url), compile_contracts()
        sender = Sender(rpc, dev_account(9), Journal(Path(folder, "journal.db")), registry_of(artifacts))
        addresses = deploy(sender, artifacts, plan(sender.address)).addresses
        yield from differing(rpc, addresses, runtime)
        for name, address in addresses.items():
            code = bytearray.fromhex(rpc.request("eth_getCode", [address, "latest"])[2:])
            code[0] ^= 1
            rpc.request("anvil_setCode", [address, "0x" + code.hex()])
            if not any(fault.startswith(f"{name} at") for fault in differing(rpc, {name: address}, runtime)):
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
    creation, runtime = compiled()
    faults = list(changed(creation))
    if options.local:
        faults += tried(runtime)
    else:
        addresses = dict(parse(options.deployment).addresses)
        if options.foreign_token:
            del addresses["Token"]
        faults += differing(HttpRpc(options.rpc_url), addresses, runtime)
        print(f"{len(addresses)} contracts compared")
    for fault in faults:
        print(fault)
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
