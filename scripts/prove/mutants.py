"""Mutation testing of the market's and the Court's contracts: every small fault planted in them fails a test.

    python scripts/prove/mutants.py [GROUP ...] [--list] [--only WORD ...] [--sample N] [--out FILE]

A mutant is one fault at one place: a comparison with its neighbour, a guard that never refuses, a statement
left out, two arguments exchanged, a constant one larger. All mutants are compiled at once, without the
optimiser, into copies of the sources (`mutant_sources.py`) that ask `block.coinbase`, which nothing else
reads, which of them is planted; so each costs a run of the tests and no compilation. The tests that killed
others of its file run before all. A mutant that survives is a test that is missing, or stands in
`contracts/test/mutants.toml` with the reason why nobody could tell.

Contract: the same sources give the same mutants and the same sample. Not planted: faults in assembly, and
those that the compiler refuses. Exits 1 if one survives without a reason.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from scripts.prove.mutant_sources import Mutant, instrumented, mutants_of

CONTRACTS = Path(__file__).resolve().parents[2] / "contracts"
COPY = CONTRACTS / "cache" / "mutants"
REASONS = CONTRACTS / "test" / "mutants.toml"
GROUPS = {
    "market": (("src/market/*.sol", "src/dispute/Chunks.sol"), ("test/market/*.t.sol",)),
    "dispute": (("src/dispute/*.sol",), ("test/dispute/*.t.sol",)),
    "crew": (("src/crew/*.sol",), ("test/crew/*.t.sol",)),
}
"""Sources to mutate, without those of an earlier group, and the tests that must fail."""
OTHER_BUILD = re.compile("Gas|Layouts")
"""Test files about cost or artifacts, which the copy does not have."""
FIRST_COINBASE = 1 << 32
COMPILE_S, TEST_S = 1800.0, 300.0
LIKELY = 24
"""Tests that run before all others, of those that have killed mutants of the same file."""


def compiled(group: str, mutants: list[Mutant]) -> list[Mutant]:
    """Writes and compiles the copy; returns mutants that the compiler accepts. RuntimeError: it refuses
    more."""
    tests = dict(quick_tests(GROUPS[group][1]))
    while True:
        texts = instrumented(CONTRACTS, mutants) | tests
        write(texts)
        done = forge("build")
        if done.returncode == 0:
            return mutants
        refused = set(refusals(done.stdout + done.stderr, texts))
        if not refused:
            raise RuntimeError(
                f"the copy does not compile, so nothing was tested:\n{done.stdout}{done.stderr}"
            )
        mutants = [m for m in mutants if m.number not in refused]


def sources(group: str) -> list[str]:
    """Names of the files to mutate, sorted."""
    before = list(GROUPS)[: list(GROUPS).index(group)]
    return sorted(
        set(names(GROUPS[group][0])) - {name for other in before for name in names(GROUPS[other][0])}
    )


def names(patterns: Iterable[str]) -> list[str]:
    return [file.relative_to(CONTRACTS).as_posix() for p in patterns for file in CONTRACTS.glob(p)]


def quick_tests(patterns: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Test files by name, without gas tests and bounds on gas."""
    for name in names(patterns):
        if not OTHER_BUILD.search(Path(name).name):
            text = re.sub(r"(?m)^ *assertLt\(.*[gG]as.*\);$", "", (CONTRACTS / name).read_text())
            yield name, re.sub(r"function test(\w*[gG]as\w*\()", r"function measures\1", text)


def write(texts: Mapping[str, str]) -> None:
    """Writes exactly these files; unchanged ones are not compiled again."""
    for old in COPY.glob("*/**/*.sol"):
        if old.is_file() and old.relative_to(COPY).as_posix() not in texts and "out" not in old.parts:
            old.unlink()
    for name, text in texts.items():
        path = COPY / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def refusals(output: str, texts: Mapping[str, str]) -> Iterator[int]:
    """Mutants that the compiler's errors are about: the last one at or before each place."""
    for error in re.split(r"\n\n|\n(?=Error)", output):
        place = re.search(r"--> cache/mutants/(src/\S+?):(\d+):(\d+):", error)
        if error.lstrip().startswith("Error") and place:
            line = texts[place[1]].split("\n")[int(place[2]) - 1]
            begun = [m for m in re.finditer(r"\(?mutant\((\d+)\)", line) if m.start() < int(place[3])]
            yield from (int(m[1]) for m in begun[-1:])


def forge(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "FOUNDRY_PROFILE": "mutants", "FOUNDRY_DISABLE_NIGHTLY_WARNING": "1"}
    command = ["bin/foundry", "forge", *arguments]
    return subprocess.run(
        command,
        cwd=CONTRACTS,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TEST_S if arguments[0] == "test" else COMPILE_S,
    )


def killer(number: int, likely: Iterable[str] = ()) -> str:
    """The first test that fails with the mutant (0: none), `likely` ones first; empty if all pass."""
    chosen = "|".join(likely)
    by = _first_failing(number, "--match-test", f"^({chosen})\\b") if chosen else ""
    return by or _first_failing(number)


def _first_failing(number: int, *chosen: str) -> str:
    coinbase = f"0x{FIRST_COINBASE + number:040x}"
    try:
        done = forge("test", "--fail-fast", "--block-coinbase", coinbase, *chosen)
    except subprocess.TimeoutExpired:
        return "no end"
    found = re.search(r"\[FAIL.*\] (\w+)\(", done.stdout)
    if done.returncode < 0:
        return "no end"  # it took more memory than there is
    if done.returncode != 0 and found is None:
        raise RuntimeError(f"the tests did not run, so nothing was tested:\n{done.stdout}{done.stderr}")
    return found.group(1) if found else ""


def killed_before(out: Path | None) -> dict[str, str]:
    """Changes that an earlier run has killed, with the test that killed each."""
    lines = out.read_text().splitlines() if out and out.exists() else []
    return {said["change"]: said["by"] for said in map(json.loads, lines) if said["result"] == "killed"}


def reasons() -> dict[str, str]:
    """Reason by change why a surviving mutant is accepted."""
    return tomllib.loads(REASONS.read_text())["equivalent"] if REASONS.exists() else {}


def sampled(mutants: list[Mutant], count: int) -> list[Mutant]:
    """A deterministic sample of `count` mutants that depends on the sources."""
    return sorted(mutants, key=lambda m: hashlib.sha256(m.digest.encode() + m.id.encode()).digest())[:count]


def run(mutants: Iterable[Mutant], out: Path | None) -> list[Mutant]:
    """Survivors without a reason. Each result is printed, and appended to `out`."""
    if by := killer(0):
        raise RuntimeError(f"{by} fails with no mutant planted, so nothing was tested")
    known, survivors, counts = reasons(), [], Counter[str]()
    killers: dict[str, Counter[str]] = defaultdict(Counter)
    for change, by in killed_before(out).items():
        killers[change.split()[0]].update([by] if by.startswith("test") else ())
    for mutant in mutants:
        began, killed = time.monotonic(), killers[Path(mutant.file).name]
        by = killer(mutant.number, (name for name, _ in killed.most_common(LIKELY)))
        if by.startswith("test"):  # no setUp, and no end
            killed[by] += 1
        result = "killed" if by else "equivalent" if mutant.change in known else "survived"
        counts[result] += 1
        if result == "survived":
            survivors.append(mutant)
        print(f"{result:10} {mutant.id}: {mutant.change} {by} {time.monotonic() - began:.1f} s", flush=True)
        if out:
            with out.open("a") as file:
                line = {"id": mutant.id, "change": mutant.change, "result": result, "by": by}
                file.write(json.dumps(line) + "\n")
    print(", ".join(f"{count} {result}" for result, count in sorted(counts.items())))
    return survivors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("groups", nargs="*", default=list(GROUPS), help=f"of {', '.join(GROUPS)}; all")
    parser.add_argument("--list", action="store_true", help="print the mutants and run nothing")
    parser.add_argument("--only", nargs="*", help="those whose id or change has one of these words")
    parser.add_argument("--sample", type=int, help="as many of each group, chosen by its sources")
    parser.add_argument(
        "--out", type=Path, help="results, one JSON line each; what it says is killed is left out"
    )
    chosen = parser.parse_args()
    wrong = False
    for group in chosen.groups:
        mutants = mutants_of(CONTRACTS, sources(group))
        if chosen.only:
            mutants = [m for m in mutants if any(word in f"{m.id} {m.change}" for word in chosen.only)]
        if chosen.sample is not None:
            mutants = sampled(mutants, chosen.sample)
        before = killed_before(chosen.out)
        mutants = [m for m in mutants if m.change not in before]
        if chosen.list:
            print("\n".join(f"{m.id}: {m.change}" for m in mutants))
        else:
            wrong |= bool(run(compiled(group, mutants), chosen.out))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
