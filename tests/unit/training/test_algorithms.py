"""Each algorithm's programs against its paper's equations in float64: sign, momentum, first step, error
feedback, an absent shard; on a quadratic and on a small GPT."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from assay.program.execute import Executor, StepContext
from assay.program.isa import DType
from assay.training import algorithms, models
from assay.training.algorithms import Algorithm, CentredClip, MedianNorm, OuterSgd, Trimmed
from assay.training.catalogue import RECIPES
from assay.training.codings import E3M0, Bins, Integers, Largest, LowRank
from assay.training.rounds import programs

CONTEXT = StepContext(None, bytes(32), 0, 0)
SHARDS = 4
Array = np.ndarray
TYPES = {DType.F32: torch.float32, DType.I32: torch.int32, DType.BOOL: torch.bool}

# -- the reference: NumPy in float64, from the papers


def wave_table(n: int) -> Array:
    k, i = np.arange(n)[:, None], np.arange(n)[None]
    made = np.sqrt(2 / n) * np.cos(np.pi * (2 * i + 1) * k / (2 * n))
    made[0] = np.sqrt(1 / n)
    return made


def rows_of(x: Array, size: int) -> Array:
    flat = x.ravel()
    return np.concatenate([flat, np.zeros(-flat.size % size)]).reshape(-1, size)


def back(rows: Array, x: Array) -> Array:
    return rows.ravel()[: x.size].reshape(x.shape)


def e3m0(x: Array, block: int) -> Array:
    rows = rows_of(x, block)
    scale = np.abs(rows).max(1, keepdims=True)
    levels = np.array([0.0] + [2.0**-k for k in range(6, -1, -1)])
    nearest = np.abs(np.abs(rows / np.where(scale > 0, scale, 1))[..., None] - levels).argmin(-1)
    return back(np.sign(rows) * levels[nearest] * scale, x)


def integers(x: Array, width: int, block: int) -> Array:
    rows = rows_of(x, block)
    scale = np.abs(rows).max(1, keepdims=True)
    levels = np.arange(-(2 ** (width - 1)) + 1, 2 ** (width - 1)) / (2 ** (width - 1) - 1)
    nearest = np.abs((rows / np.where(scale > 0, scale, 1))[..., None] - levels).argmin(-1)
    return back(levels[nearest] * scale, x)


def low_rank(x: Array, coding: LowRank) -> Array:
    """P̂ P̂ᵀ x with the paper's power iteration, made orthonormal by Householder; x where it is short."""
    matrix = x.reshape(x.shape[0], -1) if x.ndim > 1 else x[None]
    rank = min(coding.rank, *matrix.shape)
    if x.ndim < 2 or rank * sum(matrix.shape) >= matrix.size:
        return x
    at, k = np.arange(matrix.shape[1])[:, None], np.arange(rank)[None]
    right = np.cos(at * (k + 1) * np.pi * (3 - np.sqrt(5)) + k)
    for _ in range(coding.turns):
        left = np.linalg.qr(matrix @ right)[0]
        right = matrix.T @ left
    return (left @ right.T).reshape(x.shape)


def bins(x: Array, width: int, block: int) -> Array:
    count = 2**width
    rows = rows_of(x, block if x.size > block else x.size)
    out = np.zeros_like(rows)
    for r, row in enumerate(rows):
        step = 6 * row.std() / count or 1.0
        code = np.clip(np.floor((row - row.mean()) / step) + count / 2, 0, count - 1)
        for c in np.unique(code):
            out[r, code == c] = row[code == c].mean()
    return back(out, x)


def largest(x: Array, coding: Largest) -> tuple[Array, Array]:
    """What is decoded, and 1 where something was sent."""
    side = coding.side
    chunk = side * side if coding.cosine else min(side * side, x.size)
    rows = rows_of(x, chunk)
    turn = wave_table(side)
    if coding.cosine:
        rows = (turn @ rows.reshape(-1, side, side) @ turn.T).reshape(rows.shape)
    k = min(coding.k, chunk)
    places = np.argsort(-np.abs(rows), axis=1, kind="stable")[:, :k]
    values = np.take_along_axis(rows, places, 1)
    if isinstance(coding.values, Bins):
        values = bins(values, coding.values.width, coding.values.block)
    kept, mask = np.zeros_like(rows), np.zeros_like(rows)
    np.put_along_axis(kept, places, values, 1)
    np.put_along_axis(mask, places, 1.0, 1)
    if coding.cosine:
        kept = (turn.T @ kept.reshape(-1, side, side) @ turn).reshape(rows.shape)
        return back(kept, x), np.ones_like(x)
    return back(kept, x), back(mask, x)


def decoded(algorithm: Algorithm, x: Array) -> tuple[Array, Array]:
    coding = algorithm.coding
    if isinstance(coding, E3M0):
        return e3m0(x, coding.block), np.ones_like(x)
    if isinstance(coding, Bins):
        return bins(x, coding.width, coding.block), np.ones_like(x)
    if isinstance(coding, Integers):
        return integers(x, coding.width, coding.block), np.ones_like(x)
    if isinstance(coding, LowRank):
        return low_rank(x, coding), np.ones_like(x)
    return largest(x, coding) if isinstance(coding, Largest) else (x, np.ones_like(x))


def mean_of(algorithm: Algorithm, deltas: list[Array], masks: list[Array]) -> Array:
    """Of those present only."""
    rule = algorithm.mean
    if isinstance(rule, Trimmed):
        ordered = np.sort(np.stack(deltas), 0)
        return ordered[rule.cut : len(deltas) - rule.cut].mean(0)
    if isinstance(rule, CentredClip):
        centre = np.zeros_like(deltas[0])
        for _ in range(rule.steps):
            sizes = [np.linalg.norm(d - centre) for d in deltas]
            tau = rule.radius * sorted(sizes)[(len(sizes) - 1) // 2]
            centre = centre + np.mean(
                [(d - centre) * min(1, tau / s) for d, s in zip(deltas, sizes, strict=True)], 0
            )
        return centre
    if isinstance(rule, MedianNorm):
        sizes = [np.linalg.norm(d) for d in deltas]
        middle = sorted(sizes)[(len(sizes) - 1) // 2]
        deltas = [d * min(1.0, middle / s) for d, s in zip(deltas, sizes, strict=True)]
    return np.sum(deltas, 0) / np.maximum(np.sum(masks, 0), 1)


def outer_step(
    algorithm: Algorithm, theta: Array, change: Array, state: list[Array]
) -> tuple[Array, list[Array]]:
    rule = algorithm.rule
    if isinstance(rule, algorithms.Nesterov):
        moment = rule.momentum * state[0] + change
        return theta - rule.lr * (change + rule.momentum * moment), [moment]
    if isinstance(rule, algorithms.DelayedNesterov):
        m, buffer, done = state[0], state[1] + change, state[2] + 1
        theta = theta - rule.lr * change / rule.every
        if done % rule.every == 0:
            m = rule.momentum * m + buffer / rule.every
            theta, buffer = theta - rule.lr * rule.momentum * m, np.zeros_like(buffer)
        return theta, [m, buffer, done]
    if isinstance(rule, algorithms.OuterAdam):
        m = rule.beta1 * state[0] + (1 - rule.beta1) * change
        v = rule.beta2 * state[1] + (1 - rule.beta2) * change**2
        return theta - rule.lr * m / (np.sqrt(v) + rule.eps), [m, v]
    if isinstance(rule, algorithms.Sign):
        return theta - rule.lr * np.sign(change), []
    assert isinstance(rule, OuterSgd)
    return theta - rule.lr * change, []


# -- a run of both


@dataclass
class Run:
    """An algorithm's programs between rounds."""

    algorithm: Algorithm
    theta: list[Tensor]

    def __post_init__(self) -> None:
        made = programs(self.algorithm, [tuple(p.shape) for p in self.theta], SHARDS)
        self.compress, self.outer = Executor(made.compress), Executor(made.outer)
        self.wires = [t for wire in made.wires for t in wire]
        self.state = [x for p in self.theta for x in self.algorithm.rule.start(p)]
        fed = self.algorithm.feedback is not None
        self.residuals = [[torch.zeros_like(p) for p in self.theta] if fed else [] for _ in range(SHARDS)]

    def round(self, local: Sequence[Sequence[Tensor]], present: Sequence[bool]) -> None:
        """One round: what every shard made of θ, and who is there. An absent one's wire is spoiled."""
        sent: list[Tensor] = []
        for k, params in enumerate(local):
            if not present[k]:
                spoil = [torch.full_like(t, float("nan")) if t.is_floating_point() else t for t in self.wires]
                sent += spoil
                continue
            given = [*self.theta, *params, *self.residuals[k], *self.wires]
            after = self.compress.step(given, CONTEXT)[2 * len(self.theta) :]
            self.residuals[k] = after[: len(self.residuals[k])]
            sent += after[len(self.residuals[k]) :]
        here = [torch.tensor(p) for p in present]
        made = self.outer.step([*self.theta, *self.state, *sent, *here], CONTEXT)
        count = len(self.theta)
        self.theta, self.state = made[:count], made[count : count + len(self.state)]


def wide(tensors: Sequence[Tensor]) -> list[Array]:
    return [t.double().numpy() for t in tensors]


def close(x: Array, y: Array, what: str, relative: float = 2e-4) -> None:
    """Products in the cosine transform keep 14 bits; all else is f32."""
    assert np.linalg.norm(x - y) <= relative * np.linalg.norm(y) + 1e-9, what


def follows(run: Run, local: Sequence[Sequence[Tensor]], present: Sequence[bool]) -> None:
    """One round of the programs is one step of the equations from the same state."""
    a = run.algorithm
    theta, state, residuals = wide(run.theta), wide(run.state), [wide(e) for e in run.residuals]
    before = [list(e) for e in run.residuals]
    run.round(local, present)
    for k in np.flatnonzero(np.logical_not(present)).tolist():
        same = (torch.equal(x, y) for x, y in zip(run.residuals[k], before[k], strict=True))
        assert all(same), f"absent shard {k} lost or gained a residual"
    for i, base in enumerate(theta):
        deltas, masks = [], []
        for k in np.flatnonzero(present).tolist():
            change = a.gain * (base - local[k][i].double().numpy())
            if a.feedback is not None:
                change = a.feedback * residuals[k][i] + change
            sent, mask = decoded(a, change)
            deltas.append(sent)
            masks.append(mask)
            if a.feedback is not None:
                left, scale = run.residuals[k][i].double().numpy(), np.linalg.norm(change)
                assert np.linalg.norm(left - (change - sent)) <= 1e-3 * scale + 1e-9, f"residual {k}.{i}"
        slots = a.rule.slots
        want, kept = outer_step(a, base, mean_of(a, deltas, masks), state[i * slots : (i + 1) * slots])
        moved, step = run.theta[i].double().numpy() - base, want - base
        if isinstance(a.rule, algorithms.Sign):
            unlike = np.sign(moved) != np.sign(step)
            assert unlike.mean() <= 0.01, "signs"
            continue
        close(moved, step, f"theta {i}", 2e-3)
        for got, wanted in zip(run.state[i * slots : (i + 1) * slots], kept, strict=True):
            close(got.double().numpy(), wanted, f"state of {i}", 2e-3)


SHAPES = [(6, 20), (9,)]


def quadratic(seed: int = 3) -> tuple[list[Tensor], Callable[[Sequence[Tensor], int], list[Tensor]], Tensor]:
    """Genesis; what shard k makes of θ in four steps towards its own optimum; the mean of all optima."""
    generator = torch.Generator().manual_seed(seed)
    optimum = [torch.randn(s, generator=generator) for s in SHAPES]
    own = [[o + 0.1 * torch.randn(o.shape, generator=generator) for o in optimum] for _ in range(SHARDS)]

    def trained(theta: Sequence[Tensor], k: int) -> list[Tensor]:
        made = [t.clone() for t in theta]
        for _ in range(4):
            made = [p - 0.05 * (p - o) for p, o in zip(made, own[k], strict=True)]
        return made

    middle = torch.cat([torch.stack([o[i] for o in own]).mean(0).flatten() for i in range(len(SHAPES))])
    return [torch.zeros(s) for s in SHAPES], trained, middle


QUICK = ("diloco-4bit", "sparseloco")
SLOWLY = [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in RECIPES]


@pytest.mark.parametrize("name", SLOWLY)
def test_rounds_on_a_quadratic_follow_the_papers_equations(name: str) -> None:
    """Four rounds, in the third of which a shard is absent; θ ends nearer to the optimum than it began."""
    algorithm = RECIPES[name]
    if isinstance(algorithm.coding, Largest):
        algorithm = replace(algorithm, coding=replace(algorithm.coding, side=8, k=12))
    theta, trained, middle = quadratic()
    run = Run(algorithm, theta)
    begin = middle.norm()
    for at in range(4):
        present = [True, at != 2, True, True]
        follows(run, [trained(run.theta, k) for k in range(SHARDS)], present)
    assert (torch.cat([t.flatten() for t in run.theta]) - middle).norm() < begin, "uphill"


class Written(Run):
    """An algorithm as its recipe is written, without programs: every recipe in a moment."""

    def __post_init__(self) -> None:
        self.state = [x for p in self.theta for x in self.algorithm.rule.start(p)]
        fed = self.algorithm.feedback is not None
        self.residuals = [[torch.zeros_like(p) for p in self.theta] if fed else [] for _ in range(SHARDS)]

    def round(self, local: Sequence[Sequence[Tensor]], present: Sequence[bool]) -> None:
        a, slots, wires = self.algorithm, self.algorithm.rule.slots, []
        for k, params in enumerate(local):
            held: list[Tensor | None] = [*self.residuals[k]] or [None] * len(params)
            made = [a.compress(b, p, e) for b, p, e in zip(self.theta, params, held, strict=True)]
            wires.append([wire for wire, _ in made])
            if present[k]:
                self.residuals[k] = [e for _, e in made if e is not None]
        here, theta, state = [torch.tensor(p) for p in present], [], []
        for i, base in enumerate(self.theta):
            own = self.state[i * slots : (i + 1) * slots]
            new, left = a.outer(base, own, [wire[i] for wire in wires], here)
            theta.append(new)
            state += left
        self.theta, self.state = theta, state


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_as_written_follows_the_papers_equations(name: str) -> None:
    """Sign, first step, momentum, error feedback and an absent shard of each, five rounds on a quadratic; the
    first round's step is against the mean change, and what an algorithm keeps is not zero after it."""
    algorithm = RECIPES[name]
    if isinstance(algorithm.coding, Largest):
        algorithm = replace(algorithm, coding=replace(algorithm.coding, side=8, k=12))
    theta, trained, middle = quadratic()
    run = Written(algorithm, theta)
    for at in range(5):
        base = [t.clone() for t in run.theta]
        local = [trained(run.theta, k) for k in range(SHARDS)]
        follows(run, local, [True, at != 2, True, at != 3])
        if at == 0:
            change = sum(
                (b - p).flatten() @ (n - b).flatten()
                for b, p, n in zip(base, local[0], run.theta, strict=True)
            )
            kept = run.state[1::3] if isinstance(algorithm.rule, algorithms.DelayedNesterov) else run.state
            assert change < 0 and all(s.any() for s in kept), "against the change, and remembered"
            kept = [e.any() for e in run.residuals[0]]
            assert len(kept) == (0 if algorithm.feedback is None else len(theta))
    assert (torch.cat([t.flatten() for t in run.theta]) - middle).norm() < middle.norm(), "uphill"


def test_the_first_step_and_the_first_momentum() -> None:
    """DiLoCo's first m is Δ, and θ moves by lr·(1 + µ)·Δ against θ − θ_k."""
    run = Run(RECIPES["diloco"], [torch.zeros(3)])
    run.round([[torch.tensor([1.0, -2.0, 0.0])]] * SHARDS, [True] * SHARDS)
    assert run.state[0].tolist() == [-1.0, 2.0, 0.0]
    assert torch.allclose(run.theta[0], 0.7 * 1.9 * torch.tensor([1.0, -2.0, 0.0]))


@pytest.mark.parametrize("name", ["diloco-u8", "diloco-4bit", "diloco-int4", "diloco-2bit", "powersgd"])
def test_error_feedback_loses_nothing(name: str) -> None:
    """What was sent and what is held back add up to all changes."""
    algorithm = replace(RECIPES[name], rule=OuterSgd(1.0))
    run = Run(algorithm, [torch.zeros(10, 20)])
    generator = torch.Generator().manual_seed(1)
    total = torch.zeros(10, 20)
    for _ in range(5):
        change = torch.randn(10, 20, generator=generator)
        total += change
        run.round([[run.theta[0] - change]] * SHARDS, [True] * SHARDS)
    assert torch.allclose(-run.theta[0] + run.residuals[0][0], total, atol=1e-4)
    assert run.residuals[0][0].norm() > 0.01, "something was held back"


@pytest.mark.long
def test_an_absent_shard_keeps_its_residual_and_moves_nothing() -> None:
    run, other = (Run(RECIPES["diloco-4bit"], [torch.zeros(64)]) for _ in range(2))
    local = [[torch.linspace(-1, 1, 64) * (k + 1)] for k in range(SHARDS)]
    run.round(local, [True, False, True, True])
    spoiled = [local[0], [torch.full((64,), 7.0)], *local[2:]]
    other.round(spoiled, [True, False, True, True])
    assert torch.equal(run.theta[0], other.theta[0]) and run.theta[0].isfinite().all()
    assert not run.residuals[1][0].any()
    before = [t.clone() for t in run.theta]
    run.round(local, [False] * SHARDS)
    assert torch.equal(run.state[0] * 0 + before[0], before[0]), "no division by nobody"


@pytest.mark.parametrize(
    "name",
    [
        "diloco-trimmed",
        "diloco-median",
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("sparseloco", "diloco-centred")),
    ],
)
def test_a_byzantine_shard_does_not_carry_the_mean_away(name: str) -> None:
    """One of four sends a change ten thousand times as large."""
    algorithm = RECIPES[name]
    if isinstance(algorithm.coding, Largest):
        algorithm = replace(algorithm, coding=replace(algorithm.coding, side=8, k=12))
    theta, trained, middle = quadratic()
    honest, attacked = Run(algorithm, theta), Run(algorithm, theta)
    local = [trained(theta, k) for k in range(SHARDS)]
    honest.round(local, [True] * SHARDS)
    evil = [[1e4 * (t + 1) for t in local[0]], *local[1:]]
    attacked.round(evil, [True] * SHARDS)
    size = [torch.cat([t.flatten() for t in r.theta]).norm() for r in (honest, attacked)]
    assert size[1] < 5 * size[0] + 2 * middle.norm()


def test_sparse_wires_are_divided_by_those_who_sent_the_place() -> None:
    algorithm = Algorithm(OuterSgd(1.0), Largest(1, 2, cosine=False))
    run = Run(algorithm, [torch.zeros(4)])
    local = [[-torch.tensor(v)] for v in ([8.0, 1, 1, 1], [4.0, 1, 1, 1], [1.0, 1, 6, 1], [1.0, 1, 1, 0])]
    run.round(local, [True] * SHARDS)
    assert torch.allclose(run.theta[0], torch.tensor([-13 / 3, 0.0, -6.0, 0.0]))


def test_bits_on_the_wire() -> None:
    n = 1 << 20
    sent = {name: recipe.coding.bits((1024, 1024)) for name, recipe in RECIPES.items()}
    assert sent["diloco"] == 32 * n and sent["diloco-4bit"] == sent["diloco-int4"]
    assert 7 < 32 * n / sent["diloco-4bit"] < 8
    assert sent["sparseloco"] < n // 4
    assert sent["powersgd"] == 32 * 4 * 2048
    assert RECIPES["powersgd"].coding.bits((n,)) == 32 * n, "a vector as it is"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["diloco-4bit", "demo", "sparseloco", "delayed-nesterov"])
def test_rounds_of_a_small_gpt(name: str) -> None:
    """Two rounds of shards that take three steps of their own on text, the last one a single step where the
    momentum is delayed; the loss goes down."""
    algorithm = RECIPES[name]
    if slow := isinstance(algorithm.rule, algorithms.DelayedNesterov):
        algorithm = replace(algorithm, rule=replace(algorithm.rule, every=2))
    torch.manual_seed(0)
    net = models.build(models.GptConfig(1, 2, 16, 8), 0)
    names = [n for n, _ in net.named_parameters()]
    text = torch.tensor(list(b"a program is what everybody can run again, bit by bit; " * 8))
    batches = text[: 9 * 40].view(40, 9).long()

    def loss_of(theta: Sequence[Tensor], rows: Tensor) -> Tensor:
        out = torch.func.functional_call(net, dict(zip(names, theta, strict=True)), (rows[:, :-1],))
        return nn.functional.cross_entropy(out.flatten(0, 1), rows[:, 1:].flatten())

    def trained(theta: Sequence[Tensor], k: int) -> list[Tensor]:
        made = [t.clone() for t in theta]
        for _ in range(1 if slow and k == SHARDS - 1 else 3):
            leaves = [t.requires_grad_() for t in made]
            grads = torch.autograd.grad(loss_of(leaves, batches[k::SHARDS]), leaves)
            made = [(p - 0.3 * g).detach() for p, g in zip(leaves, grads, strict=True)]
        return made

    run = Run(algorithm, [p.detach().clone() for p in net.parameters()])
    begin = loss_of(run.theta, batches).item()
    for _ in range(2):
        follows(run, [trained(run.theta, k) for k in range(SHARDS)], [True] * SHARDS)
    assert loss_of(run.theta, batches).item() < begin


@pytest.mark.parametrize("mean", [MedianNorm(), Trimmed(2), CentredClip()])
@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3])
def test_a_third_that_lies_turns_no_parameter_round(mean: algorithms.Mean, size: float) -> None:
    """Ten times the change, the wrong way: a plain mean follows them, whatever a change's size."""
    generator = torch.Generator().manual_seed(1)
    way = torch.randn(64, generator=generator) * size
    honest = [way + torch.randn(64, generator=generator) * size / 4 for _ in range(4)]
    deltas, here = [*honest, -10 * way, -10 * way], [torch.tensor(True)] * 6
    assert algorithms.Average()(deltas, here, [None] * 6) @ way < 0
    found = mean(deltas, here, [None] * 6)
    assert (found @ way) / (way @ way) > 0.2
