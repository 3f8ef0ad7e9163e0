"""How long each command of `assay` takes until it says its first word, with a usual argument and a wrong one.

Usage: first_output.py FOLDER [--only WORDS] [--turns 1] [--json [NAME]] [--record]. FOLDER has a running
devnet in which the account `client` has posted the one job of `job.toml` there, to have something to look at;
a game and a fetched `model` beside them are looked at too if they are there. Commands that would send are
given `--dry-run`, and each is killed once it has said something; but the nodes that are started announce
where they serve, so take a devnet that nobody needs any more.

What counts is the processor time until then, which other load on the machine changes little; the clock is
shown beside it. Goals: 1.5 s, and half a second for `--help`. Not guaranteed: that the first word is a useful
one; it is printed.
"""

from __future__ import annotations

import argparse
import os
import select
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from scripts.bench import report

ASSAY = (sys.executable, "-c", "from assay.cli.main import main; main()")
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
GOAL_S, HELP_GOAL_S, LIMIT_S = 1.5, 0.5, 60.0
SHOWN = 8
"""Of the slowest, in the table; `--json` has all."""
NO_JOB = "0123456789abcdef"
CLIENT = "--account client --yes --dry-run"
SOLVER, VERIFIER = "--account solver-1 --yes --dry-run", "--account verifier-1 --yes --dry-run"
AWAY, ROLE = "--home {empty}", "--role solver"

CASES: dict[str, tuple[str, ...]] = {
    "": ("--help", "--home", "no-such-command"),
    "doctor": ("{c}", "--account nobody {c} --role solver", "{c} --role none"),
    "dashboard": ("{c} --port 0", f"{AWAY} {{c}}"),
    "deploy": (f"{CLIENT} {{c}}", "--account nobody {c}"),
    "devnet up": ("{c}", "{c} --solvers none"),
    "devnet down": (f"{AWAY} {{c}}",),
    "devnet restart": ("{c} nobody", f"{AWAY} {{c}} chain"),
    "devnet status": ("{c}", f"{AWAY} {{c}}"),
    "devnet logs": ("{c} solver-1", "{c} nobody"),
    "devnet snapshot": (f"{AWAY} {{c}} one",),
    "devnet restore": ("{c} none", f"{AWAY} {{c}} none"),
    "devnet snapshots": ("{c}", f"{AWAY} {{c}}"),
    "devnet warp": (f"{AWAY} {{c}} 1s", "{c} never"),
    "account new": (f"{AWAY} {{c}} one", "{c} client"),
    "account import": (f"{AWAY} {{c}} one", "{c} client"),
    "account ls": ("{c}", f"{AWAY} {{c}}"),
    "account balance": ("{c} client", "{c} nobody"),
    "token balance": ("{c} client", "{c} nobody"),
    "token deposit": (f"{CLIENT} {{c}} 1tok", f"{CLIENT} {{c}} much"),
    "token withdraw": (f"{CLIENT} {{c}} 1tok", f"{CLIENT} {{c}} 1000000000tok"),
    "token faucet": (f"{CLIENT} {{c}} client 1tok", "{c} nobody 1tok"),
    "stake deposit": (f"{SOLVER} {{c}} 1tok {ROLE}", f"{SOLVER} {{c}} 1000000000tok {ROLE}"),
    "stake ls": ("{c} solver-1", "{c} nobody"),
    "stake unbond": (f"{SOLVER} {{c}} 1tok {ROLE}", f"{SOLVER} {{c}} 1000000000tok {ROLE}"),
    "stake withdraw": (f"{SOLVER} {{c}} {ROLE}", f"{SOLVER} {{c}} {ROLE} --index 99"),
    "operator consent": ("--account solver-1 {c} client", "--account nobody {c} client"),
    "operator bind": (f"{CLIENT} {{c}} solver-1 --expiry 1 --consent 0x{'00' * 65}", "{c} x"),
    "operator unbind": (f"{CLIENT} {{c}} solver-1", "--account nobody {c} solver-1"),
    "operator cap": (
        f"{CLIENT} {{c}} solver-1 {ROLE} --all 2tok --others 1tok",
        f"--account nobody {{c}} solver-1 {ROLE} --all 2tok --others 1tok",
    ),
    "operator cap-client": (
        f"{CLIENT} {{c}} solver-1 client 1tok {ROLE}",
        f"--account nobody {{c}} solver-1 client 1tok {ROLE}",
    ),
    "operator allow": (f"{CLIENT} {{c}} solver-1 1tok", "--account nobody {c} solver-1 1tok"),
    "operator revoke": (f"{CLIENT} {{c}}", "--account nobody {c}"),
    "operator show": ("{c} solver-1", "{c} nobody"),
    "guardian pause": (f"{CLIENT} {{c}} jobs", "--account nobody {c} jobs", f"{CLIENT} {{c}} all"),
    "guardian unpause": (f"{CLIENT} {{c}} jobs", "--account nobody {c} jobs"),
    "guardian hand-over": (f"{CLIENT} {{c}} solver-1", "--account nobody {c} solver-1"),
    "guardian show": ("{c}", f"{AWAY} {{c}}"),
    "job init": ("{c} {empty}/new.toml", "{c} job.toml"),
    "job validate": ("{c} job.toml", "{c} no-such-file"),
    "job estimate": ("{c} job.toml", "{c} no-such-file"),
    "job post": (f"{CLIENT} {{c}} job.toml --budget 400tok", f"{CLIENT} {{c}} none.toml --budget 1tok"),
    "job serve": ("--account client {c}", "--account nobody {c}"),
    "job ls": ("{c}", f"{AWAY} {{c}}"),
    "job show": ("{c} latest", f"{{c}} {NO_JOB}"),
    "job watch": ("{c} latest", f"{{c}} {NO_JOB}"),
    "job fund": (f"{CLIENT} {{c}} latest 1tok", f"{CLIENT} {{c}} {NO_JOB} 1tok"),
    "job halt": (f"{CLIENT} {{c}} latest", f"{CLIENT} {{c}} {NO_JOB}"),
    "job fetch": ("{c} latest --out {empty}/model", f"{{c}} {NO_JOB}"),
    "job verify": ("{c} model", "{c} no-such-folder"),
    "job export": ("{c} model --out {empty}/export", "{c} no-such-folder"),
    "job eval": ("{c} model job.toml", "{c} no-such-folder job.toml"),
    "job sample": ("{c} model", "{c} no-such-folder"),
    "solver run": ("--account solver-1 {c}", "--account nobody {c}", "{c} --accept no-such-file"),
    "solver terms": ("{c} {empty}/terms.toml", "{c} job.toml"),
    "solver bench": ("{c}", "--device none {c}"),
    "solver status": ("{c} solver-1", "{c} nobody"),
    "solver earnings": ("{c} solver-1", "{c} nobody"),
    "solver why": ("--account solver-1 {c} latest", f"--account solver-1 {{c}} {NO_JOB}"),
    "solver release": (f"{SOLVER} {{c}} latest", f"{SOLVER} {{c}} {NO_JOB}"),
    "verifier run": ("--account verifier-1 {c}", "--account nobody {c}"),
    "verifier classes": ("{c}", f"{AWAY} {{c}}"),
    "verifier subscribe": (f"{VERIFIER} {{c}} 0", f"{VERIFIER} {{c}} {NO_JOB}"),
    "verifier status": ("{c} verifier-1", "{c} nobody"),
    "verifier earnings": ("{c} verifier-1", "{c} nobody"),
    "verifier replay": ("{c} latest --round 0", f"{{c}} {NO_JOB} --round 0", "{c} latest --round 99"),
    "verifier coverage": ("{c} latest", f"{{c}} {NO_JOB}"),
    "whistle run": ("--account verifier-1 {c}", "--account nobody {c}", "{c} --auto none"),
    "whistle status": ("{c} verifier-1", "{c} nobody"),
    "whistle earnings": ("{c} verifier-1", "{c} nobody"),
    "whistle scan": ("{c} latest", f"{{c}} {NO_JOB}"),
    "dispute ls": ("{c}", f"{{c}} --job {NO_JOB}"),
    "dispute show": ("{c} 1", "{c} 99"),
    "dispute tree": ("{c} 1", "{c} 99"),
    "dispute explain": ("{c} 1", "{c} 99"),
    "dispute open": (f"{VERIFIER} {{c}} latest", f"{VERIFIER} {{c}} {NO_JOB}"),
    "dispute move": (f"{VERIFIER} {{c}} 1", f"{VERIFIER} {{c}} 99"),
    "dispute play": (f"{VERIFIER} {{c}} 1", f"{VERIFIER} {{c}} 99"),
    "dispute prove": (f"{VERIFIER} {{c}} 1", f"{VERIFIER} {{c}} 99"),
    "dispute demand ls": ("{c}", f"{AWAY} {{c}}"),
    "dispute demand make": (f"{VERIFIER} {{c}} {NO_JOB} --end 0", f"{VERIFIER} {{c}} x --end 0"),
    "dispute demand expire": (f"{VERIFIER} {{c}} 99",),
    "dispute demand supply": (f"{VERIFIER} {{c}} 99",),
    "storage ls": ("{c}", "{c} nobody"),
    "storage gc": ("{c} nobody", f"{AWAY} {{c}}"),
    "storage check": ("{c} solver-1", "{c} nobody"),
    "config show": ("{c}", "--rpc-url none {c}"),
}
"""Of each command the lines to try, the usual one first; `{c}` is the command, `{empty}` an empty folder."""


@dataclass(frozen=True)
class Heard:
    """The first word of one command line."""

    line: str
    """With `{empty}` where an empty folder was."""
    processor_s: float
    clock_s: float
    said: str


def hear(line: str, folder: Path, empty: str) -> Heard:
    """Run a command line in `folder` until it says something or ends."""
    begun = time.perf_counter()
    child = subprocess.Popen(
        [*ASSAY, *line.replace("{empty}", empty).split()],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert child.stdout is not None and child.stderr is not None
    try:
        ready, _, _ = select.select([child.stdout, child.stderr], [], [], LIMIT_S)
        clock_s, processor_s = time.perf_counter() - begun, _processor_s(child.pid)
        said = os.read(ready[0].fileno(), 4096).decode(errors="replace").strip() if ready else ""
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
        child.stderr.close()
    return Heard(line, processor_s, clock_s, said.splitlines()[0] if said else "(nothing)")


def _processor_s(pid: int) -> float:
    """What a process has had of the processor, itself and the children that it has waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return sum(map(int, fields[11:15])) * TICK_S


def measure(folder: Path, only: str, turns: int) -> list[Heard]:
    """Every line of CASES that begins with these words, the quickest of its turns."""
    found = []
    for command, lines in CASES.items():
        if not command.startswith(only):
            continue
        for line in lines:
            heard = []
            for _ in range(turns):
                with tempfile.TemporaryDirectory() as empty:
                    heard.append(hear(line.replace("{c}", command), folder, empty))
            found.append(min(heard, key=lambda one: one.processor_s))
            print(f"{found[-1].processor_s:5.2f} {found[-1].clock_s:5.2f} {found[-1].line}", file=sys.stderr)
    return found


def goal(heard: Heard) -> float:
    """Seconds within which this line should say something."""
    return HELP_GOAL_S if heard.line == "--help" else GOAL_S


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="commands that begin so")
    parser.add_argument("--turns", type=int, default=1)
    report.add_options(parser, "first-output")
    options = parser.parse_args()
    report.refuse_partial(parser, options, "only")
    found = measure(options.folder, options.only, options.turns)
    late = sum(heard.processor_s > goal(heard) for heard in found)
    slowest = sorted(found, key=lambda heard: -heard.processor_s)
    shown = [*slowest[:SHOWN], *(heard for heard in slowest[SHOWN:] if heard.line == "--help")]
    rows = [
        (
            f"`assay {_short(heard.line, 60)}`",
            f"{heard.processor_s:.2f}",
            f"{heard.clock_s:.2f}",
            _short(heard.said, 40),
        )
        for heard in shown
    ]
    text = f"{late} of {len(found)} lines speak later than they should; the slowest, and `--help`:\n\n"
    text += report.table(("command", "processor, s", "clock, s", "its first words"), rows)
    report.report({"heard": [asdict(heard) for heard in found]}, text, options.json, options.record)


if __name__ == "__main__":
    main()
