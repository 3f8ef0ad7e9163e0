"""Random small queries: whatever smt_integers.py calls a contradiction, z3's bits must call one too.

Usage, with the Python of scripts/prove/symbolic.sh: check_smt_integers.py [QUERIES] [SEED]. Fails if one is
wrong.
"""

from __future__ import annotations

import random
import sys
import tempfile
from pathlib import Path

import smt_integers
import z3

WIDTH = 8
EDGES = (0, 1, 2, 3, 127, 128, 254, 255)
ZERO = z3.BitVecVal(0, WIDTH)


def number(rng: random.Random, depth: int, unknowns: list[z3.BitVecRef]) -> z3.BitVecRef:
    """An expression of the kinds that halmos writes."""
    if depth == 0 or rng.random() < 0.15:
        return rng.choice(unknowns) if rng.random() < 0.75 else z3.BitVecVal(rng.choice(EDGES), WIDTH)
    a, b = number(rng, depth - 1, unknowns), number(rng, depth - 1, unknowns)
    high = rng.randrange(1, WIDTH - 1)
    low = rng.randrange(high)
    kinds = (
        a + b,
        a - b,
        a * b,
        a + z3.BitVecVal(255, WIDTH) * b,
        z3.If(b == ZERO, ZERO, z3.UDiv(a, b)),
        z3.If(b == ZERO, ZERO, z3.URem(a, b)),
        z3.If(truth(rng, depth - 1, unknowns), a, b),
        z3.Concat(z3.BitVecVal(0, WIDTH - (high - low + 1)), z3.Extract(high, low, a)),
        z3.Extract(WIDTH - 1, 0, z3.ZeroExt(WIDTH, a) * z3.ZeroExt(WIDTH, b)),
    )
    return rng.choice(kinds)


def truth(rng: random.Random, depth: int, unknowns: list[z3.BitVecRef]) -> z3.BoolRef:
    """A comparison of two of them."""
    a, b = number(rng, depth, unknowns), number(rng, depth, unknowns)
    return rng.choice((z3.ULE(a, b), z3.ULT(a, b), z3.UGE(a, b), z3.UGT(a, b), a == b, z3.Not(z3.ULE(a, b))))


def main(queries: int, seed: int) -> int:
    """Ask both; how many were wrong."""
    smt_integers.QUICK_MS = smt_integers.LONG_MS = 300
    rng = random.Random(seed)
    contradictory = found = wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "query.smt2"
        for _ in range(queries):
            unknowns = [z3.BitVec(name, WIDTH) for name in "xyz"]
            solver = z3.Solver()
            for x in unknowns:
                bits = rng.randrange(2, WIDTH - 2)
                if rng.random() < 0.5:  # the bound of a parameter
                    solver.add(x == z3.Concat(z3.BitVecVal(0, WIDTH - bits), z3.Extract(bits - 1, 0, x)))
            solver.add([truth(rng, rng.randrange(1, 3), unknowns) for _ in range(rng.randrange(2, 7))])
            path.write_text(solver.to_smt2())
            said, so = smt_integers.contradicts(path), solver.check() == z3.unsat
            contradictory, found, wrong = contradictory + so, found + said, wrong + (said and not so)
            if said and not so:
                print(f"has a model, but is called a contradiction:\n{path.read_text()}")
    print(f"{queries} queries, {contradictory} contradictory, {found} of them found, {wrong} wrong")
    return wrong


if __name__ == "__main__":
    numbers = [int(argument) for argument in sys.argv[1:]]
    sys.exit(1 if main(*(numbers + [300, 1][len(numbers) :])) else 0)
