"""Prints and records benchmark results: a table with machine, commit and date, or JSON.

Contract: measures nothing. `--record` replaces the text between a benchmark's two markers in
docs/measurements.md. Not guaranteed: that the working tree equals the commit; a tree with changes is marked.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
MEASUREMENTS = ROOT / "docs" / "measurements.md"


def machine() -> dict[str, str | int]:
    """CPU, CPU count, vector capability, operating system and versions."""
    import torch

    return {
        "processor": _processor(),
        "cpus": torch.multiprocessing.cpu_count(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if not info.exists():
        return platform.processor() or "unknown"
    names = [
        line.split(":", 1)[1].strip()
        for line in info.read_text().splitlines()
        if line.startswith("model name")
    ]
    return names[0] if names else "unknown"


def commit() -> str:
    """Short hash of the commit, with "+changes" where tracked files differ from it."""
    try:
        head = _git("rev-parse", "--short", "HEAD")
        return f"{head}+changes" if _git("status", "--porcelain", "--untracked-files=no") else head
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table with aligned columns."""
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    lines = [
        "| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |"
        for row in (head, *rows)
    ]
    return "\n".join([lines[0], "|" + "|".join("-" * (w + 2) for w in widths) + "|", *lines[1:]])


def add_options(parser: argparse.ArgumentParser, section: str) -> None:
    """Adds the options `--json` and `--record`."""
    parser.add_argument(
        "--json", nargs="?", const="-", help="write results as JSON; without a name, to stdout"
    )
    parser.add_argument(
        "--record",
        action="store_const",
        const=section,
        help="replace this benchmark's section of docs/measurements.md",
    )


def refuse_partial(parser: argparse.ArgumentParser, chosen: argparse.Namespace, *names: str) -> None:
    """Exits with a usage error if one of these is given with `--record`, which covers the whole benchmark."""
    given = [f"--{name}" for name in names if getattr(chosen, name)]
    if chosen.record and given:
        parser.error(f"--record is of the whole benchmark, so not with {', '.join(given)}")


def report(results: dict[str, Any], text: str, destination: str | None, record: str | None = None) -> None:
    """Prints the text; with a destination writes JSON there ("-": prints JSON); with a section's name records
    the text."""
    known, at = machine(), commit()
    if record is not None:
        made_on = datetime.date.today().isoformat()
        new = recorded(MEASUREMENTS.read_text(), record, text, provenance(known, at, made_on))
        MEASUREMENTS.write_text(new)
    whole = {**results, "machine": known, "commit": at}
    if destination == "-":
        print(json.dumps(whole, indent=1))
        return
    here = ", ".join(f"{key} {value}" for key, value in known.items())
    print(f"{text}\n\n{here}; commit {at}")
    if destination is not None:
        Path(destination).write_text(json.dumps(whole, indent=1) + "\n")


def provenance(known: dict[str, str | int], at: str, made_on: str) -> str:
    """Machine, commit and date in a line."""
    return (
        f"{known['cpus']} × {known['processor']} ({known['capability']}), "
        f"PyTorch {known['torch']}; commit {at}; {made_on}."
    )


def recorded(document: str, section: str, text: str, where: str) -> str:
    """The document with the text between a section's markers replaced, its provenance above it.

    Raises ValueError unless each of the section's two markers stands once, in order.
    """
    begin, end = f"<!-- {section}: begin -->\n", f"<!-- {section}: end -->\n"
    if document.count(begin) != 1 or document.count(end) != 1:
        raise ValueError(f"no section {section}, or more than one")
    before, rest = document.split(begin)
    if end not in rest:
        raise ValueError(f"the end of section {section} stands before its beginning")
    return f"{before}{begin}{where}\n\n{text}\n{end}{rest.split(end)[1]}"
