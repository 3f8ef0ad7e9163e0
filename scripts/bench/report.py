"""What every benchmark prints: the machine, the commit, a table, and the same as JSON.

Contract: nothing here measures anything. Not guaranteed: that the working tree is what the commit holds;
a tree with changes is named so.
"""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def machine() -> dict[str, str | int]:
    """Processor, its count, vector capability, operating system and versions."""
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


def report(results: dict[str, Any], text: str, destination: str | None) -> None:
    """Print the text; with a destination write the results there as JSON ("-": print JSON instead)."""
    whole = {**results, "machine": machine(), "commit": commit()}
    if destination == "-":
        print(json.dumps(whole, indent=1))
        return
    here = ", ".join(f"{key} {value}" for key, value in machine().items())
    print(f"{text}\n\n{here}; commit {commit()}")
    if destination is not None:
        Path(destination).write_text(json.dumps(whole, indent=1) + "\n")
