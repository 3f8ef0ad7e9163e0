"""Tasks and its extension together are what ITasks promises, on one storage."""

from __future__ import annotations

import re

from assay.chain.contracts.artifacts import Artifacts, load_artifacts
from assay.chain.eth.abi import selector
from assay.chain.folders import CONTRACTS_DIR

STATE = re.compile(
    r"^    (?:mapping\(|\w[\w\[\]]* (?:private|internal|public) (?!constant|immutable|pure|view)\w+[;=])"
)


def functions(artifacts: Artifacts, name: str) -> dict[bytes, str]:
    """Selectors of a contract's functions, with their names."""
    return {selector(e): e["name"] for e in artifacts[name].abi if e["type"] == "function"}


def test_every_entry_point_of_tasks_stands_in_exactly_one_of_its_two_parts() -> None:
    artifacts = load_artifacts()
    own, extension = functions(artifacts, "Tasks"), functions(artifacts, "TasksExtension")
    assert not own.keys() & extension.keys()
    promised = functions(artifacts, "ITasks")
    assert promised.keys() <= own.keys() | extension.keys()
    extra = {**own, **extension}.items() - promised.items()
    assert {name for _, name in extra} <= {"EXTENSION", "CHALLENGES", "AVAILABILITY"}


def test_all_storage_of_tasks_is_declared_in_one_place() -> None:
    """Else the extension would work on other slots than Tasks."""
    market = CONTRACTS_DIR / "src" / "market"
    declared = {}
    for name in ("Claims", "Attestations", "Tasks", "Shards", "Convictions", "TasksExtension"):
        lines = (market / f"{name}.sol").read_text().splitlines()
        declared[name] = [line for line in lines if STATE.match(line)]
    assert len(declared.pop("Claims")) >= 5
    assert not any(declared.values()), declared
