"""`assay doctor` on a market: whether its contracts are what these sources compile to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from eth_utils.crypto import keccak

from assay.app.devnet_record import read_devnet
from assay.app.settings import DEPLOYMENT_FILE
from assay.chain.contracts.deploy import SCHEMA
from assay.chain.eth.rpc import HttpRpc
from assay.disk import record
from tests.integration.cli.conftest import Assay


def bytecode(assay: Assay) -> dict[str, Any]:
    checks = json.loads(assay("doctor").out)["data"]["checks"]
    (line,) = [line for line in checks if line["check"] == "bytecode"]
    return dict(line)


def forged(home: Path, rpc: HttpRpc, name: str) -> None:
    """Other code for a contract, and a deployment file that names it, as a false market's would."""
    body = record.read(home / DEPLOYMENT_FILE, SCHEMA, hint="")
    assert body is not None
    place = body["contracts"][name]
    code = bytearray.fromhex(rpc.request("eth_getCode", [place["address"], "latest"])[2:])
    code[-1] ^= 1
    rpc.request("anvil_setCode", [place["address"], "0x" + code.hex()])
    place["codeHash"] = "0x" + keccak(bytes(code)).hex()
    record.write(home / DEPLOYMENT_FILE, SCHEMA, body)


def test_code_that_these_sources_do_not_compile_to_is_told(assay: Assay, home: Path) -> None:
    devnet = read_devnet(home)
    assert devnet is not None
    rpc = HttpRpc(devnet.rpc_url)
    assert bytecode(assay)["state"] == "ok", "whatever constructors have written"

    forged(home, rpc, "Token")
    line = bytecode(assay)
    assert line["state"] == "note" and "token" in line["found"] and line["fix"], "it may be another's"

    forged(home, rpc, "Stakes")
    line = bytecode(assay)
    assert line["state"] == "bad" and line["found"].startswith("Stakes: ") and line["fix"]
    assert assay("job", "ls").status == 0, "the file alone does not give it away"
