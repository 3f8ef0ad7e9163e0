"""Checks a GPU in eight minutes: bits, speed, and a market; results as JSON and a table.

Contract: needs Python 3.11 or newer with PyTorch for CUDA, a C compiler, and either a checkout after `make
setup` or the archive of `make gpu-bundle`; no network. Each part is a process with its own time limit and
writes its result when ready (``scripts/gpu_parts.py``); summary.json and summary.txt are rewritten after
each. Timed parts run alone; compilation runs before, in parallel with the comparison of bits and the market.
Exit status 0: all parts ended and every bit is right; 1: a wrong bit; 2: a part is missing, or something was
slower than the machine could do it. Standard library only, so that it can report that PyTorch cannot be
imported.

Usage: `scripts/gpu_check.sh [--device cuda:0] [--out FOLDER] [--layers 12] [--parts bits,step]`. `--device
cpu` uses the CPU instead, with small sizes.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BEGAN = "ASSAY_PART_BEGAN"
PACKAGES, BINARIES, COMMIT = ROOT / "packages", ROOT / "bin", ROOT / "commit"
LIMIT_S = 460
"""Total time limit in seconds."""
GRACE_S = 10
"""Seconds for a part that is out of time to stop its children."""
RIGHT, WRONG, NONE, LATE, FAILED = "right", "wrong", "none", "out of time", "failed"


@dataclass(frozen=True)
class Part:
    """One process with its time limit."""

    name: str
    limit_s: float
    yields: bool = False
    """True if the parts that compile come first where processors are short."""


BEHIND = (
    Part("compile", 290),
    Part("natives", 290),
    Part("bits", 290, yields=True),
    Part("compiled", 290, yields=True),
)
"""Parts that run in parallel with `BESIDE` and with each other."""
BESIDE = (
    Part("machine", 25),
    Part("kernels", 60),
    Part("decay", 95, yields=True),
    Part("market", 110, yields=True),
)
ALONE = (Part("step", 120), Part("products", 30))
"""Parts that run one by one after all others."""
ORDER = (
    "machine",
    "kernels",
    "bits",
    "decay",
    "compiled",
    "compile",
    "natives",
    "step",
    "products",
    "market",
)


@dataclass
class Check:
    """One run of the parts, with their results."""

    folder: Path
    options: list[str]
    chosen: list[str]
    stretch: float
    began: float = field(default_factory=time.monotonic)
    ends: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By part: how its process ended, and its seconds."""
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def left(self) -> float:
        """Seconds left in total."""
        return LIMIT_S * self.stretch - (time.monotonic() - self.began)

    def run(self, part: Part) -> None:
        """Runs one part to its end or limit; then writes the summary."""
        if part.name not in self.chosen:
            return
        started, limit = time.monotonic(), min(part.limit_s * self.stretch, self.left())
        if limit > 0:
            how = self._process(part, limit)
        else:
            how = LATE
        with self.lock:
            self.ends[part.name] = {"ended": how, "seconds": round(time.monotonic() - started, 1)}
            line = self.write()["parts"][part.name]
            print(
                f"{part.name}: {line['state']} after {line['seconds']} s: {line['line']}",
                file=sys.stderr,
                flush=True,
            )

    def _process(self, part: Part, limit: float) -> str:
        name = part.name
        command = [
            *(("nice", "-n", "10") if part.yields else ()),
            sys.executable,
            str(ROOT / "scripts" / "gpu_parts.py"),
            name,
            str(self.folder),
            *self.options,
        ]
        with (self.folder / f"{name}.log").open("wb") as log:
            self.running[name] = process = subprocess.Popen(
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**environment(self.folder), **self._threads(name), BEGAN: str(time.time())},
                start_new_session=True,
            )
        try:
            return "" if process.wait(limit) == 0 else FAILED
        except subprocess.TimeoutExpired:
            stop(process)
            return LATE
        finally:
            del self.running[name]

    def _threads(self, name: str) -> dict[str, str]:
        """PyTorch's threads of a part; those that run together would slow each other down with more."""
        share = max(1, (os.cpu_count() or 1) // (2 * len(BEHIND) + 2))
        return {} if name in {part.name for part in ALONE} else {"OMP_NUM_THREADS": str(share)}

    def stop(self) -> None:
        """End every part that runs."""
        for process in list(self.running.values()):
            stop(process)

    def write(self) -> dict[str, Any]:
        """The summary, on disk too."""
        parts = {name: self._part(name) for name in self.ends}
        verdict, status = judge(self.chosen, parts)
        made = {
            "verdict": verdict,
            "status": status,
            "seconds": round(time.monotonic() - self.began, 1),
            "commit": commit(),
            "parts": parts,
        }
        (self.folder / "summary.json").write_text(json.dumps(made, indent=1) + "\n")
        (self.folder / "summary.txt").write_text(text_of(made) + "\n")
        return made

    def _part(self, name: str) -> dict[str, Any]:
        path, end = self.folder / f"{name}.json", self.ends[name]
        found = json.loads(path.read_text()) if path.exists() else {}
        state, line = found.pop("state", ""), found.pop("line", "")
        if state != WRONG and end["ended"]:
            state = end["ended"]
        state, line = state or FAILED, line or f"nothing was found: {name}.log says why"
        return {"state": state, "seconds": end["seconds"], "line": line, "found": found}


def judge(chosen: Iterable[str], parts: dict[str, dict[str, Any]]) -> tuple[str, int]:
    """Verdict in one line, and the exit status."""
    states = {name: parts[name]["state"] if name in parts else "not run" for name in chosen}
    wrong = [name for name, state in states.items() if state == WRONG]
    missing = [f"{name} ({state})" for name, state in states.items() if state not in (RIGHT, WRONG, NONE)]
    times = parts.get("step", {}).get("found", {}).get("step_ms", {})
    own = next((ms for name, ms in times.items() if name.startswith("order-free")), 0)
    against = [f"{own / ms:.2f} x {name.removeprefix('native ')}" for name, ms in times.items() if ms != own]
    speed = f"; a step takes {own:.1f} ms, {', '.join(against)}" if own and against else ""
    if wrong:
        return f"WRONG: {', '.join(wrong)}: do not stake on this machine{speed}", 1
    if missing:
        return f"INCOMPLETE: no wrong bit, but nothing is known of {', '.join(missing)}{speed}", 2
    if slow := [name for name in states if parts[name]["found"].get("slower")]:
        return f"SLOW: every bit is right, but see `slower` in {', '.join(slow)}{speed}", 2
    return f"RIGHT: every bit that was compared is right{speed}", 0


def text_of(made: dict[str, Any]) -> str:
    """The summary as text."""
    known = sorted(made["parts"], key=ORDER.index)
    lines = [f"{'part':<10} {'result':<12} {'s':>6}  what was found"]
    for name in known:
        part = made["parts"][name]
        lines.append(f"{name:<10} {part['state']:<12} {part['seconds']:>6}  {part['line']}")
    for form, seen in made["parts"].get("step", {}).get("found", {}).get("profile", {}).items():
        lines.append(f"\n{form}: {seen['device_ms']} ms in {seen['launches']} launches")
        lines += [f"{ms:9.3f} ms {count:5} x {kernel}" for ms, count, kernel in seen["kernels"][:25]]
    for product, ms in made["parts"].get("products", {}).get("found", {}).get("product_ms", {}).items():
        lines.append(f"{product:<26} " + ", ".join(f"{form} {least:.3f} ms" for form, least in ms.items()))
    for matrix, seen in made["parts"].get("products", {}).get("found", {}).get("operands", {}).items():
        lines.append(f"operands of {matrix:<26} {seen['ms']:.3f} ms, {seen['TBps']:.2f} TB/s")
    lines.append(f"\ncommit {made['commit']}, {made['seconds']} s\n{made['verdict']}")
    return "\n".join(lines)


def environment(folder: Path) -> dict[str, str]:
    """Environment of a part: project and packages of the archive before the machine's own, and empty
    caches."""
    version = f"cp{sys.version_info.major}{sys.version_info.minor}"
    paths = [ROOT, *(PACKAGES / part for part in (version, "any") if (PACKAGES / part).is_dir())]
    given = {"PATH": os.defpath, **os.environ}
    return {
        **given,
        "PYTHONPATH": os.pathsep.join(filter(None, [*map(str, paths), given.get("PYTHONPATH", "")])),
        "PATH": f"{BINARIES}{os.pathsep}{given['PATH']}" if BINARIES.is_dir() else given["PATH"],
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "TRITON_CACHE_DIR": str(folder / "triton"),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "PYTHONUNBUFFERED": "1",
    }


def commit() -> str:
    """Commit of these sources."""
    if COMMIT.exists():
        return COMMIT.read_text().strip()
    asked = ["git", "describe", "--always", "--dirty=+changes"]
    try:
        return subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ends a part and its children: first gently, so that a market stops its nodes, then by force."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        until = time.monotonic() + GRACE_S
        try:
            os.killpg(process.pid, how)
            while time.monotonic() < until:
                process.poll()  # a process that has ended is one of its group until somebody has asked for it
                os.killpg(process.pid, 0)
                time.sleep(0.1)
        except ProcessLookupError:
            return


def obstacle(folder: Path) -> str:
    """Why nothing can run; empty if it can."""
    carried = sorted(path.name for path in PACKAGES.glob("cp*"))
    version = f"cp{sys.version_info.major}{sys.version_info.minor}"
    if carried and version not in carried:
        had = ", ".join(carried)
        return f"this archive has packages for {had}, not for {version}: name a Python, PYTHON=python3.12"
    tried = [sys.executable, "-c", "import torch, assay.program.execute"]
    done = subprocess.run(tried, env=environment(folder), capture_output=True, text=True)
    if done.returncode:
        return f"PyTorch and the project cannot be imported: {done.stderr.strip().splitlines()[-1]}"
    return ""


def arguments() -> argparse.Namespace:
    """The command line."""
    every = [part.name for part in (*BEHIND, *BESIDE, *ALONE)]
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cuda:0", help="cuda:0, or cpu, which stands in with small sizes")
    parser.add_argument(
        "--out", type=Path, default=Path("gpu-check"), help="folder for results; emptied first"
    )
    parser.add_argument("--layers", type=int, default=12, help="of the large step")
    parser.add_argument("--small", action="store_true", help="small sizes on a GPU, too")
    parser.add_argument("--parts", default=",".join(every), help="only these, such as machine,bits")
    parser.add_argument("--stretch", type=float, default=1.0, help="time limits times this")
    chosen = parser.parse_args()
    chosen.parts = chosen.parts.split(",")
    if unknown := set(chosen.parts) - set(every):
        parser.error(f"there is no part {', '.join(sorted(unknown))}; there are {', '.join(every)}")
    return chosen


def main() -> None:
    """Runs the parts and exits with the verdict."""
    chosen = arguments()
    folder = chosen.out.resolve()
    if folder.exists() and any(folder.iterdir()) and not (folder / "summary.json").exists():
        raise SystemExit(
            f"{folder} holds something else than results of this check: name another folder, --out"
        )
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if reason := obstacle(folder):
        raise SystemExit(reason)
    options = ["--device", chosen.device, "--layers", str(chosen.layers)]
    options += ["--small"] if chosen.small or chosen.device == "cpu" else []
    check = Check(folder, options, chosen.parts, chosen.stretch)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))  # parts are stopped below
    behind = [threading.Thread(target=check.run, args=(part,), daemon=True) for part in BEHIND]
    try:
        for thread in behind:
            thread.start()
        for part in BESIDE:
            check.run(part)
        for thread in behind:
            thread.join()
        for part in ALONE:
            check.run(part)
    finally:
        check.stop()
        made = check.write()
    print((folder / "summary.txt").read_text(), end="")
    raise SystemExit(made["status"])


if __name__ == "__main__":
    main()
