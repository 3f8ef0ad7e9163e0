"""Every attack of docs/threats.md, run: what it was, what it paid, what the honest side kept.

    python scripts/prove/attacks.py [--short] [--only N ...]     (make attacks)

The tests are those that docs/threats.md names: on the contracts themselves (forge), and with the nodes' own
code, on Anvil and with processes where those matter (pytest). What each has cost whom is read afterwards:
from the Vault's and the Stakes' events of the test's own market, or, where nodes play on the contracts' twin,
from its ledger. `--short` takes the contracts' tests only. Exits 1 where a test fails, is not found, or its
money does not add up.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.adversaries.ledger import Money, money_of

ROOT = Path(__file__).resolve().parents[2]
UNIT = 10**18
WIDTH = 110


@dataclass
class Attack:
    """A row of docs/threats.md."""

    number: str
    what: str
    tests: list[tuple[str, str]]
    passed: int = 0
    faults: list[str] = field(default_factory=list)
    money: list[tuple[str, Money]] = field(default_factory=list)


def attacks_of(text: str) -> list[Attack]:
    """The numbered rows, those of R1 to R13, and those beyond the list as they come."""
    found = []
    for line in text.splitlines():
        tests = re.findall(r"`((?:tests|contracts)/[^`]*?)::(\w+)`", line)
        if not line.startswith("| ") or not tests:
            continue
        cells = [cell.strip() for cell in line.strip("| ").split(" | ")]
        numbered = re.fullmatch(r"\d+|R\d+", cells[0])
        named = re.match(r"(R\d+): (.*)", cells[0])
        if numbered:
            number, what = cells[0], cells[1]
        elif named:
            number, what = named.groups()
        else:
            number, what = "-", cells[0]
        found.append(Attack(number, what, tests))
    return found


def forge(names: set[str]) -> dict[str, tuple[str, Money | None]]:
    """Run the contracts' tests of these names; each one's outcome and money."""
    pattern = f"^({'|'.join(sorted(names))})\\("
    command = ["bin/foundry", "forge", "test", "--match-test", pattern, "--json", "-vv"]
    done = subprocess.run(command, cwd=ROOT / "contracts", capture_output=True, text=True)
    try:
        suites = json.loads(done.stdout)
    except json.JSONDecodeError:
        sys.exit(f"forge could not run the attacks:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    found = {}
    for suite in suites.values():
        for test, result in suite["test_results"].items():
            name = test.partition("(")[0]
            outcome = "passed" if result["status"] == "Success" else "failed"
            found[name] = (outcome, logged(result["logs"], result["labeled_addresses"]))
    return found


def logged(logs: list[dict[str, Any]], labels: dict[str, str]) -> Money | None:
    """The money of a test by the logs that its market's contracts made."""
    from assay.chain.contracts.artifacts import load_artifacts
    from assay.chain.eth import abi

    artifacts = load_artifacts()
    entries = [e for name in ("IVault", "IStakes") for e in artifacts[name].abi if e["type"] == "event"]
    known = {abi.topic(entry): entry for entry in entries}
    events = []
    for log in logs:
        topics = [bytes.fromhex(topic[2:]) for topic in log["topics"]]
        entry = known.get(topics[0]) if topics else None
        if entry is not None and len(topics) == 1 + sum(p["indexed"] for p in entry["inputs"]):
            data = bytes.fromhex(log["data"][2:])
            events.append((log["address"], entry["name"], abi.decode_log(entry, topics, data)))
    backed = {  # tests of the draw alone have Stakes without a vault, whose slashes move nothing
        place
        for (place, name, a), (_, after, b) in pairwise(events)
        if (name, after) == ("Staked", "Transfer") and a["amount"] == b["amount"]
    }
    events = [(name, a) for place, name, a in events if name != "Slashed" or place in backed]
    return money_of(events, {k.lower(): v for k, v in labels.items()}) if events else None


def pytest(tests: set[tuple[str, str]]) -> dict[str, tuple[str, list[Money]]]:
    """Run Python tests; by name each one's worst outcome and its cases' money."""
    path = ROOT / ".assay/attacks.jsonl"
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    nodes = [f"{file}::{name}" for file, name in sorted(tests)]
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not gpu", "-p", "tests.adversaries.ledger"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run([*command, "--ledger", str(path), *nodes], cwd=ROOT, env=environment, check=False)
    found: dict[str, tuple[str, list[Money]]] = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        told = json.loads(line)
        name = re.sub(r"\[.*", "", told["test"].rpartition("::")[2].partition("[")[0])
        outcome, money = found.get(name, ("passed", []))
        worst = told["outcome"] if told["outcome"] != "passed" else outcome
        found[name] = (worst, money + (told["money"] or []))
    return found


def amount(value: int, unit: int) -> str:
    return f"{value / unit:,.4f}".rstrip("0").rstrip(".")


def sentence(place: str, money: Money) -> str:
    """What one test has cost whom."""
    unit = UNIT if place == "contracts" else 1
    moved = sorted(money["change"].items(), key=lambda item: item[1])
    lost = ", ".join(f"{who} {amount(-n, unit)}" for who, n in moved if n < 0)
    got = ", ".join(f"{who} {amount(n, unit)}" for who, n in reversed(moved) if n > 0)
    parts = [f"paid: {lost or 'nobody'}", f"got: {got or 'nobody'}"]
    parts += [f"burnt: {amount(money['burnt'], unit)}"] if money["burnt"] else []
    parts += [f"still held: {amount(money['held'], unit)}"] if money["held"] else []
    return f"{place}: {'; '.join(parts)}; all others kept everything"


def settle(attacks: list[Attack], short: bool) -> None:
    """Run the tests, and put down with each attack what came of them."""
    on_chain = {name for attack in attacks for file, name in attack.tests if file.endswith(".sol")}
    of_nodes = {test for attack in attacks for test in attack.tests if test[0].endswith(".py")}
    forged = forge(on_chain) if on_chain else {}
    played = pytest(of_nodes) if of_nodes and not short else {}
    for attack in attacks:
        for file, name in attack.tests:
            solidity = file.endswith(".sol")
            if short and not solidity:
                continue
            outcome, money = (forged if solidity else played).get(name, ("not run", None))
            attack.passed += outcome == "passed"
            attack.faults += [f"{name}: {outcome}"] * (outcome != "passed")
            for each in money if isinstance(money, list) else [money] if money else []:
                attack.faults += [f"{name}: money does not add up"] * (not each["adds_up"])
                if each["change"] or each["burnt"]:
                    attack.money.append(("contracts" if solidity else "nodes", each))


def show(attack: Attack) -> None:
    """Print an attack, and the costliest test of each kind."""
    print(f"{attack.number:>4}  {attack.what}"[:WIDTH])
    by_place: dict[str, list[Money]] = defaultdict(list)
    for place, money in attack.money:
        by_place[place].append(money)
    for place, several in by_place.items():
        most = max(several, key=lambda money: money["burnt"] + sum(abs(n) for n in money["change"].values()))
        print(f"      {sentence(place, most)}")
    if not attack.money:
        print("      no money moved: it was refused, or changed nothing")
    print(f"      {attack.passed} tests hold it" + "".join(f"; {fault}" for fault in attack.faults))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--short", action="store_true", help="the contracts' tests only")
    parser.add_argument("--only", nargs="+", help="numbers of attacks, such as 19 or R6")
    options = parser.parse_args()
    attacks = attacks_of((ROOT / "docs/threats.md").read_text())
    attacks = [attack for attack in attacks if not options.only or attack.number in options.only]
    settle(attacks, options.short)
    for attack in attacks:
        show(attack)
    held = sum(not attack.faults for attack in attacks)
    print(f"{held} of {len(attacks)} attacks held, by {sum(attack.passed for attack in attacks)} tests")
    sys.exit(held < len(attacks))


if __name__ == "__main__":
    main()
