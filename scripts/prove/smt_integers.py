"""Translates a bit-vector query of halmos to integers, for products and quotients of unknowns.

Bit-vector solvers expand a product of two unknowns of 96 bits and never finish; over integers the same
question is a step or two of algebra (z3 and cvc5). Run by scripts/prove/smt.py.

Contract: `contradicts(path)` is True only if the query has no model. Every integer assertion follows from the
query's own, with fresh unknowns defined by what they stand for; untranslated parts (storage, hashes) are left
out, which only admits more models. Where a sum or product may overflow, the number of wraps is an unknown;
whether it can wrap at all is first asked of the linear part alone, so most wraps are gone before a product is
considered. Not guaranteed: that a contradiction is found.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import cvc5
import z3

ASK_MS = 300
QUICK_MS = 3_000
LONG_MS = 30_000
QUOTIENTS = (z3.Z3_OP_BUDIV, z3.Z3_OP_BUDIV_I)
REMAINDERS = (z3.Z3_OP_BUREM, z3.Z3_OP_BUREM_I)


class Untold(Exception):
    """An untranslated expression; its assertion is left out."""


@dataclass(frozen=True)
class Number:
    """An integer expression with its minimum and maximum."""

    value: z3.ArithRef
    least: int
    most: int


class Integers:
    """Translations so far, with facts about their unknowns."""

    def __init__(self, bounds: dict[str, int]) -> None:
        self._bounds = bounds
        self._numbers: dict[int, Number] = {}
        self._kept: list[z3.ExprRef] = []  # so that no id is given twice
        self._count = 0
        self.all = z3.SolverFor("QF_NIA")
        self._linear = z3.Solver()
        self._linear.set("timeout", ASK_MS)
        self._products: dict[tuple[int, int], z3.ArithRef] = {}

    def add(self, fact: z3.BoolRef, linear: bool = True) -> None:
        """Adds a fact; one that is not `linear` is left out of quick queries."""
        self.all.add(fact)
        if linear:
            self._linear.add(fact)

    def number(self, e: z3.ExprRef) -> Number:
        """The bit vector's value as a natural number."""
        known = self._numbers.get(e.get_id())
        if known is None:
            known = self._translate(e)
            self._numbers[e.get_id()] = known
            self._kept.append(e)
        return known

    def truth(self, e: z3.ExprRef) -> z3.BoolRef:
        """The Boolean expression over integers."""
        kind = e.decl().kind()
        if z3.is_true(e) or z3.is_false(e):
            return z3.BoolVal(z3.is_true(e))
        if kind in (z3.Z3_OP_AND, z3.Z3_OP_OR):
            parts = [self.truth(c) for c in e.children()]
            return z3.And(parts) if kind == z3.Z3_OP_AND else z3.Or(parts)
        if kind == z3.Z3_OP_NOT:
            return z3.Not(self.truth(e.arg(0)))
        if kind == z3.Z3_OP_IMPLIES:
            return z3.Implies(self.truth(e.arg(0)), self.truth(e.arg(1)))
        if kind in (z3.Z3_OP_EQ, z3.Z3_OP_IFF) and z3.is_bool(e.arg(0)):
            return self.truth(e.arg(0)) == self.truth(e.arg(1))
        if kind not in (z3.Z3_OP_EQ, z3.Z3_OP_ULEQ, z3.Z3_OP_UGEQ, z3.Z3_OP_ULT, z3.Z3_OP_UGT):
            raise Untold(e.decl().name())
        if not z3.is_bv(e.arg(0)):
            raise Untold("not a number")
        a, b = (self.number(c).value for c in e.children())
        if kind == z3.Z3_OP_EQ:
            return a == b
        if kind == z3.Z3_OP_ULEQ:
            return a <= b
        if kind == z3.Z3_OP_UGEQ:
            return a >= b
        return a < b if kind == z3.Z3_OP_ULT else a > b

    def _translate(self, e: z3.ExprRef) -> Number:
        kind, width = e.decl().kind(), e.size()
        if z3.is_bv_value(e):
            return Number(z3.IntVal(e.as_long()), e.as_long(), e.as_long())
        if kind == z3.Z3_OP_UNINTERPRETED and e.num_args() == 0:
            return self._unknown(self._bounds.get(e.decl().name(), 2**width - 1))
        if kind == z3.Z3_OP_CONCAT:
            whole = Number(z3.IntVal(0), 0, 0)
            for child in e.children():
                part, size = self.number(child), 2 ** child.size()
                whole = Number(
                    whole.value * size + part.value,
                    whole.least * size + part.least,
                    whole.most * size + part.most,
                )
            return whole
        if kind == z3.Z3_OP_ZERO_EXT:
            return self.number(e.arg(0))
        if kind == z3.Z3_OP_EXTRACT:
            high, low = e.params()
            above, _ = self._divided(self.number(e.arg(0)), _constant(2**low))
            return self._divided(above, _constant(2 ** (high - low + 1)))[1]
        if kind == z3.Z3_OP_BADD:
            return self._within(_sum([self._signed(c, width) for c in e.children()]), width)
        if kind == z3.Z3_OP_BMUL:
            return self._within(self._signed(e, width), width)
        if kind == z3.Z3_OP_ITE:
            return self._either(e)
        raise Untold(e.decl().name())

    def _either(self, e: z3.ExprRef) -> Number:
        division = _division(e)
        if division is not None:
            a, b = (self.number(c) for c in division.children())
            return self._divided(a, b)[0 if division.decl().kind() in QUOTIENTS else 1]
        test = self.truth(e.arg(0))
        for sure, chosen in ((z3.Not(test), 1), (test, 2)):
            self._linear.push()
            self._linear.add(sure)
            decided = self._linear.check() == z3.unsat
            self._linear.pop()
            if decided:
                return self.number(e.arg(chosen))
        a, b = self.number(e.arg(1)), self.number(e.arg(2))
        return Number(z3.If(test, a.value, b.value), min(a.least, b.least), max(a.most, b.most))

    def _unknown(self, most: int, least: int = 0) -> Number:
        self._count += 1
        value = z3.Int(f"n{self._count}")
        self.add(z3.And(least <= value, value <= most))
        return Number(value, least, most)

    def _signed(self, e: z3.ExprRef, width: int) -> Number:
        """The term of a sum, which may be negative: a factor of 2^width - c stands for -c."""
        if e.decl().kind() != z3.Z3_OP_BMUL:
            return self.number(e)
        product = _constant(1)
        for child in e.children():
            factor = self.number(child)
            if z3.is_bv_value(child) and child.as_long() >> (width - 1):
                factor = _constant(child.as_long() - 2**width)
            product = self._multiplied(product, factor)
        return product

    def _multiplied(self, a: Number, b: Number) -> Number:
        ends = [x * y for x in (a.least, a.most) for y in (b.least, b.most)]
        if a.least == a.most or b.least == b.most:
            return Number(a.value * b.value, min(ends), max(ends))
        # The product of two unknowns is one more unknown to the linear part, which knows its bounds alone.
        key = (min(a.value.get_id(), b.value.get_id()), max(a.value.get_id(), b.value.get_id()))
        if key not in self._products:
            self._products[key] = self._unknown(max(ends), min(ends)).value
            self.add(self._products[key] == a.value * b.value, linear=False)
            self._kept += [a.value, b.value]
        return Number(self._products[key], min(ends), max(ends))

    def _within(self, n: Number, width: int) -> Number:
        """The number reduced to this many bits."""
        size = 2**width
        if n.least >= 0 and n.most < size:
            return n
        self._linear.push()
        self._linear.add(z3.Or(n.value < 0, n.value >= size))
        fits = self._linear.check() == z3.unsat
        self._linear.pop()
        if fits:
            self.add(z3.And(n.value >= 0, n.value < size))
            return Number(n.value, max(0, n.least), min(size - 1, n.most))
        wraps = self._unknown(-(n.least // size), -(n.most // size))
        kept = n.value + size * wraps.value
        self.add(z3.And(kept >= 0, kept < size))
        return Number(kept, 0, size - 1)

    def _divided(self, a: Number, b: Number) -> tuple[Number, Number]:
        """Quotient and remainder as the EVM has them: 0 where the divisor is."""
        if b.least == 1 == b.most:
            return a, _constant(0)
        if a.most < b.least:
            return _constant(0), a
        quotient, rest = self._unknown(a.most // max(1, b.least)), self._unknown(max(0, b.most - 1))
        product = self._multiplied(quotient, b)
        self.add(
            z3.Implies(b.value != 0, z3.And(a.value == product.value + rest.value, rest.value < b.value))
        )
        self.add(z3.Implies(b.value == 0, z3.And(quotient.value == 0, rest.value == 0)))
        return quotient, rest


def _division(e: z3.ExprRef) -> z3.ExprRef | None:
    """Quotient or remainder in halmos's `ite(b == 0, 0, a / b)`."""
    test, zero, division = e.children()
    if (
        division.decl().kind() not in QUOTIENTS + REMAINDERS
        or not z3.is_bv_value(zero)
        or zero.as_long() != 0
    ):
        return None
    if test.decl().kind() != z3.Z3_OP_EQ or not test.arg(0).eq(division.arg(1)) or not test.arg(1).eq(zero):
        return None
    return division


def _constant(n: int) -> Number:
    return Number(z3.IntVal(n), n, n)


def _sum(parts: list[Number]) -> Number:
    return Number(z3.Sum([p.value for p in parts]), sum(p.least for p in parts), sum(p.most for p in parts))


def _bound(e: z3.ExprRef) -> tuple[str, int] | None:
    """Name and bound of a parameter in halmos's `x == concat(0, extract(k, 0, x))`."""
    if e.decl().kind() != z3.Z3_OP_EQ or not z3.is_bv(e.arg(0)):
        return None
    x, same = e.children()
    if same.decl().kind() != z3.Z3_OP_CONCAT or same.num_args() != 2 or x.num_args() != 0:
        return None
    zeros, part = same.children()
    if not (z3.is_bv_value(zeros) and zeros.as_long() == 0 and part.decl().kind() == z3.Z3_OP_EXTRACT):
        return None
    return (x.decl().name(), 2 ** part.size() - 1) if part.params()[1] == 0 and part.arg(0).eq(x) else None


def contradicts(path: Path) -> bool:
    """True if the query is found to have no model."""
    given = z3.parse_smt2_file(str(path))
    integers = Integers(dict(found for e in given if (found := _bound(e)) is not None))
    for e in sorted(given, key=_difficulty):
        try:
            integers.add(integers.truth(e))
        except Untold:
            continue
    query = integers.all.to_smt2()
    return _z3(integers.all, QUICK_MS) or _cvc5(query) or _z3(integers.all, LONG_MS)


def _difficulty(e: z3.ExprRef) -> int:
    """Short assertions first: what they bound is known when the long ones are translated."""
    return len(e.sexpr())


def _z3(solver: z3.Solver, milliseconds: int) -> bool:
    solver.set("timeout", milliseconds)
    return bool(solver.check() == z3.unsat)


def _cvc5(query: str) -> bool:
    manager = cvc5.TermManager()
    solver = cvc5.Solver(manager)
    solver.setOption("tlimit-per", str(LONG_MS))
    symbols = cvc5.SymbolManager(manager)
    parser = cvc5.InputParser(solver, symbols)
    solver.setLogic("QF_NIA")
    parser.setStringInput(cvc5.InputLanguage.SMT_LIB_2_6, query, "query")
    said = ""
    while not (command := parser.nextCommand()).isNull():
        said += str(command.invoke(solver, symbols))
    return said.strip() == "unsat"


if __name__ == "__main__":
    print("unsat" if contradicts(Path(sys.argv[1])) else "unknown")
