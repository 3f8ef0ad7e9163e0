"""Random expressions of PyTorch, as programs and natively: values and gradients at the edges of the numbers.

Usage: python -m tests.property.expressions [--draws 100000] [--seed 0]

An expression is a small tree of operations that lower. It is drawn once for `ROWS` rows of `COLUMNS` numbers
each; a row is a draw. Numbers are those of `EDGES` and normal ones, with ties. A result is wrong where it is
further than `FAR` from PyTorch's in fp32 and from its float64's, or finite where these are not, while
PyTorch's own agree and stay within `FAR` when the inputs move by some units in the last place: elsewhere the
expression itself has no digits.

The last line counts draws, expressions, refusals, numbers compared and wrong ones, by the operations that
are in all wrong expressions.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional

from assay.program.execute import Executor, StepContext
from assay.program.lowering import lower_step
from assay.program.lowering.dataless import NO_RECORD
from assay.program.lowering.tracing import UnsupportedOperation, trace_step

ROWS, COLUMNS, INPUTS = 64, 5, 3
FAR = 1e-3
SMALL, TINY, NOISE = 1e-3, 1e-30, 1e-6
"""Tolerances: relative to a row's largest number, absolute, and of a gradient; a larger difference is a
fault."""
EDGES = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, 1e-8, -1e-8, 1e-4, -1e-4, 20.0, -20.0, 88.0, -88.0]
EDGES += [1.2e-38, -1.2e-38, 1e-45, 1e30, -1e30, 3.4e38, -3.4e38, float("inf"), -float("inf"), float("nan")]
EDGES += [1e7, -1e7, 16777217.0, 0.1, 0.3, 100.5, -100.5, 1000.0]
MILD = [
    x for x in EDGES if not (x == 0 and str(x)[0] == "-") and not (1e29 < abs(x) < 1e39 or 0 < abs(x) < 1e-44)
]
"""Those of trees: without the sign of a zero, sines of huge numbers and subnormals, where operations alone
are known to differ (docs/operations.md)."""
WHOLE = [
    0,
    1,
    -1,
    2,
    -2,
    3,
    7,
    255,
    256,
    -256,
    65535,
    2**24,
    2**24 + 1,
    -(2**24) - 1,
    2**30,
    -(2**30),
    2**31 - 1,
]

Form = Callable[..., Tensor]
UNARY: dict[str, Form] = {
    name: getattr(torch, name)
    for name in (
        *("neg", "abs", "exp", "log", "sqrt", "rsqrt", "reciprocal", "sin", "cos", "tan", "tanh", "sigmoid"),
        *("erf", "expm1", "log1p", "exp2", "log2", "floor", "ceil", "round", "trunc", "frac", "sign"),
        *("square", "atan", "asin", "acos", "asinh", "acosh", "atanh", "sinh", "cosh", "relu", "nan_to_num"),
    )
}
UNARY |= {
    name: getattr(functional, name)
    for name in (
        *("gelu", "silu", "softplus", "logsigmoid", "elu", "leaky_relu", "hardtanh", "softsign", "mish"),
        *("hardswish", "hardsigmoid", "relu6", "selu", "celu", "tanhshrink", "hardshrink", "softshrink"),
    )
}
UNARY |= {
    "cube": lambda x: x**3,
    "power_1.5": lambda x: x**1.5,
    "power_-2": lambda x: x**-2,
    "two_to": lambda x: 2.0**x,
    "times_0.1": lambda x: x * 0.1,
    "plus_1": lambda x: x + 1,
    "clamp": lambda x: x.clamp(-1, 1),
    "mod_0.1": lambda x: x % 0.1,
    "floor_0.3": lambda x: torch.div(x, 0.3, rounding_mode="floor"),
}
ROW: dict[str, Form] = {
    "softmax": lambda x: torch.softmax(x, 1),
    "log_softmax": lambda x: torch.log_softmax(x, 1),
    "cumsum": lambda x: x.cumsum(1),
    "cummax": lambda x: x.cummax(1)[0],
    "cummin": lambda x: x.cummin(1)[0],
    "logcumsumexp": lambda x: x.logcumsumexp(1),
    "sort": lambda x: x.sort(stable=True)[0],
    "sum": lambda x: x.sum(1, keepdim=True).expand(x.shape),
    "mean": lambda x: x.mean(1, keepdim=True).expand(x.shape),
    "amax": lambda x: x.amax(1, keepdim=True).expand(x.shape),
    "max": lambda x: x.max(1, keepdim=True)[0].expand(x.shape),
    "logsumexp": lambda x: x.logsumexp(1, keepdim=True).expand(x.shape),
    "norm": lambda x: x.norm(dim=1, keepdim=True).expand(x.shape),
    "std": lambda x: x.std(1, keepdim=True).expand(x.shape),
    "prod": lambda x: x.prod(1, keepdim=True).expand(x.shape),
    "cumprod": lambda x: x.cumprod(1),
    "layer_norm": lambda x: functional.layer_norm(x, (COLUMNS,)),
    "median": lambda x: x.contiguous().median(1, keepdim=True)[0].expand(x.shape),
}
BINARY: dict[str, Form] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "pow": torch.pow,
    "atan2": torch.atan2,
    "remainder": torch.remainder,
    "fmod": torch.fmod,
    "logaddexp": torch.logaddexp,
    "lerp": lambda x, y: torch.lerp(x, y, 0.3),
    "where_less": lambda x, y: torch.where(x < y, x, y * 2),
    "where_equal": lambda x, y: torch.where(x == y, x + 1, x - y),
    "floor_divide": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "trunc_divide": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "xlogy": torch.xlogy,
    "smooth_l1": lambda x, y: functional.smooth_l1_loss(x, y, reduction="none"),
    "huber": lambda x, y: functional.huber_loss(x, y, reduction="none"),
}
INTEGER: dict[str, Form] = {
    "i_add": lambda i, j: i + j,
    "i_sub": lambda i, j: i - j,
    "i_mul": lambda i, j: i * j,
    "i_floor": lambda i, j: i // torch.where(j == 0, 1, j),
    "i_mod": lambda i, j: i % torch.where(j == 0, 1, j),
    "i_and": lambda i, j: i & j,
    "i_or": lambda i, j: i | j,
    "i_xor": lambda i, j: i ^ j,
    "i_shift": lambda i, j: (i >> 3) + (j << 5),
    "i_abs": lambda i, j: i.abs() - j,
    "i_max": lambda i, j: torch.maximum(i, j),
    "i_amax": lambda i, j: i.amax(1, keepdim=True) + j,
    "i_sum": lambda i, j: i.sum(1, keepdim=True, dtype=torch.int32) + j,
    "i_where": lambda i, j: torch.where(i < j, i, j),
    "i_cummax": lambda i, j: i.cummax(1)[0] - j,
}


ALONE = [(name, 1, False) for name in UNARY | ROW] + [(n, 2, n in INTEGER) for n in BINARY | INTEGER]
"""Each operation: its name, its operands, and whether they are whole numbers."""


@dataclass(frozen=True)
class Tree:
    """An operation's name, or the number of an input, and what it is applied to."""

    name: str
    below: tuple[Tree, ...] = ()

    def names(self) -> Iterator[str]:
        """Of the operations in it."""
        if self.below:
            yield self.name
        for tree in self.below:
            yield from tree.names()

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.below))})" if self.below else self.name

    def of(self, inputs: list[Tensor]) -> Tensor:
        """Its value."""
        if not self.below:
            return inputs[int(self.name)]
        at = [tree.of(inputs) for tree in self.below]
        return (UNARY | ROW | BINARY | INTEGER)[self.name](*at)


def drawn(rng: random.Random, depth: int, whole: bool) -> Tree:
    """A tree of at most so many operations one above the other."""
    if depth == 0 or (depth < 3 and rng.random() < 0.2):
        return Tree(str(rng.randrange(INPUTS)))
    table = rng.choices((UNARY, ROW, BINARY), (5, 2, 3))[0] if not whole else INTEGER
    arity = 2 if table in (BINARY, INTEGER) else 1
    return Tree(rng.choice(list(table)), tuple(drawn(rng, depth - 1, whole) for _ in range(arity)))


def numbers(rng: random.Random, whole: bool, edges: Sequence[float] = EDGES) -> list[Tensor]:
    """The inputs of an expression."""

    def row() -> list[float]:
        kind = rng.random()
        if whole:
            return [
                rng.choice(WHOLE) if rng.random() < 0.7 else rng.randrange(-1000, 1000)
                for _ in range(COLUMNS)
            ]
        if kind < 0.5:
            return [rng.gauss(0, 1) for _ in range(COLUMNS)]
        if kind < 0.6:
            return [rng.choice((0.0, 1.0, -1.0)) for _ in range(COLUMNS)]
        return [rng.choice(edges) if rng.random() < 0.4 else rng.gauss(0, 2) for _ in range(COLUMNS)]

    dtype = torch.int32 if whole else torch.float32
    return [torch.tensor([row() for _ in range(ROWS)], dtype=dtype) for _ in range(INPUTS)]


def graded(tree: Tree, inputs: list[Tensor]) -> list[Tensor]:
    """The value, and of floats the gradient of its sum by each input."""
    if not inputs[0].is_floating_point():
        return [tree.of(inputs)]
    leaves = [x.detach().requires_grad_() for x in inputs]
    with torch.enable_grad():
        value = tree.of(leaves)
        if not value.requires_grad:
            return [value.detach()]
        weights = torch.arange(1, COLUMNS + 1).to(value.dtype)
        grads = torch.autograd.grad((value * weights).sum(), leaves, allow_unused=True)
    return [
        value.detach(),
        *(torch.zeros_like(x) if g is None else g for x, g in zip(leaves, grads, strict=True)),
    ]


def by_program(tree: Tree, inputs: list[Tensor]) -> list[Tensor]:
    """The same by a program. Raises UnsupportedOperation."""
    blank = [torch.zeros_like(x) for x in graded(tree, inputs)]

    def step(state: list[Tensor], _: Tensor) -> list[Tensor]:
        return [*state[:INPUTS], *graded(tree, state[:INPUTS])]

    program = lower_step(trace_step(step, [*inputs, *blank], NO_RECORD), params=1)
    return list(Executor(program).step([*inputs, *blank], StepContext(None, bytes(32), 0, 0))[INPUTS:])


def near(x: Tensor, y: Tensor, within: float) -> Tensor:
    """True where both are NaN, the same infinity, or close relative to the row's largest finite number."""
    size = torch.nan_to_num(y.abs(), nan=0.0, posinf=0.0)
    close = (x - y).abs() <= within * torch.maximum(size, SMALL * size.amax(1, keepdim=True)) + TINY
    return (x == y) | (torch.isnan(x) & torch.isnan(y)) | close


def moved(inputs: list[Tensor], by: float) -> list[Tensor]:
    """Each number by some units in the last place, its neighbour the other way."""
    signs = torch.tensor([1.0, -1.0, 0.5, -0.5, 0.25])[:COLUMNS]
    return [x * (1 + by * signs) for x in inputs]


@dataclass
class Found:
    """Number of comparisons, and their faults."""

    expressions: int = 0
    draws: int = 0
    compared: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    wrong: list[tuple[Tree, str]] = field(default_factory=list)

    def look(self, tree: Tree, inputs: list[Tensor]) -> None:
        """Compare an expression."""
        self.expressions += 1
        try:
            ours = by_program(tree, inputs)
        except UnsupportedOperation as error:
            self.refused[error.operation] += 1
            return
        self.draws += ROWS
        native = graded(tree, inputs)
        if not inputs[0].is_floating_point():
            self._note(tree, inputs, ours, native, [torch.ones_like(native[0], dtype=torch.bool)])
            return
        exact = graded(tree, [x.double() for x in inputs])
        others = [graded(tree, moved(inputs, by)) for by in (4e-7, -4e-7)]
        sound = [
            near(x.double(), y, FAR / 10) & near(a.double(), y, FAR) & near(b.double(), y, FAR)
            for x, y, a, b in zip(native, exact, *others, strict=True)
        ]
        told = torch.isfinite(native[0]).all(1, keepdim=True)  # elsewhere no gradient is worth a look
        self._note(tree, inputs, ours, native, [sound[0], *(told & good for good in sound[1:])])

    def _note(
        self, tree: Tree, inputs: list[Tensor], ours: list[Tensor], native: list[Tensor], sound: list[Tensor]
    ) -> None:
        for place, (x, y, good) in enumerate(zip(ours, native, sound, strict=True)):
            self.compared += int(good.sum())
            within = FAR if x.is_floating_point() else 0.0
            close = near(x, y, within) | ((place > 0) & ((x - y).abs() < NOISE))
            if len(bad := (good & ~close).nonzero()):
                row, column = bad[0].tolist()
                at = [z[row].tolist() for z in inputs]
                what = "value" if place == 0 else f"gradient {place - 1}"
                said = f"{what} {x[row, column].item():.6g} for {y[row, column].item():.6g} at {at}, {column}"
                self.wrong.append((tree, f"{len(bad)} of {int(good.sum())}: {said}"))
                return


def run(draws: int, seed: int) -> Found:
    """Every operation alone, then trees, until so many rows were drawn."""
    rng, found = random.Random(seed), Found()
    for name, arity, whole in ALONE:
        if found.draws < draws:
            found.look(Tree(name, tuple(Tree(str(i)) for i in range(arity))), numbers(rng, whole))
    while found.draws < draws:
        whole = rng.random() < 0.15
        found.look(drawn(rng, rng.choice((2, 2, 3)), whole), numbers(rng, whole, MILD))
    return found


def main() -> None:
    """Run and tell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    found = run(options.draws, options.seed)
    for tree, said in found.wrong:
        print(f"{tree}: {said}")
    print(f"refused: {dict(found.refused)}")
    print(
        f"{found.draws:,} draws of {found.expressions:,} expressions, {sum(found.refused.values())} refused;"
        f" {found.compared:,} numbers compared, wrong in {len(found.wrong)} expressions:"
        f" {dict(Counter(name for tree, _ in found.wrong for name in set(tree.names())).most_common(12))}"
    )


if __name__ == "__main__":
    main()
