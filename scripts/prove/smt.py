"""An SMT solver for halmos (scripts/prove/symbolic.sh): yices, for products and quotients integers, then z3.

Usage: smt.py QUERY.smt2. Prints what the solver that answered said: `unsat` (proven), or `sat` and a model.
ASSAY_SYMBOLIC names the folder of the solvers' executables and of the Python that has their packages.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

QUICK_S = 0.5
INTEGERS_S = 90.0
LONG_S = 60.0


def ask(command: list[str], seconds: float) -> str:
    """Output of the solver; empty if it is not done in time."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=seconds).stdout
    except subprocess.TimeoutExpired:
        return ""


def main(query: str) -> None:
    """Asks one solver after the other."""
    tools = os.environ["ASSAY_SYMBOLIC"]
    yices = [f"{tools}/yices-smt2", "--smt2-model-format", query]
    integers = [f"{tools}/python", str(Path(__file__).with_name("smt_integers.py")), query]
    for command, seconds in ((yices, QUICK_S), (integers, INTEGERS_S), (yices, LONG_S)):
        answer = ask(command, seconds)
        if answer.startswith(("sat", "unsat")):
            sys.stdout.write(answer)
            return
    os.execv(f"{tools}/z3", ["z3", query])


if __name__ == "__main__":
    main(sys.argv[1])
