"""Outer algorithms in NumPy's float64, from their papers' equations, on a small GPT that trains in part.

Contract: `Paper` keeps θ, the outer rule's state, and each shard's training, residual and own θ, and trains
by itself. From a program's round it takes codes, places, and the signs of means about 0, since a number near
an edge may fall on either side of it in f32. Each code is compared with the nearest, each place with the
largest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor, nn

from assay.training import algorithms, models
from assay.training.algorithms import Algorithm, MedianNorm, OuterSgd
from assay.training.catalogue import CATALOGUE, WHOLE, algorithm_of
from assay.training.codings import E3M0, Bins, Integers, Largest
from assay.training.optimisers import AdamW, Muon, Optimiser, Sgd
from assay.training.outer import DiLoCo, Overlap
from assay.training.streaming import streaming_of
from tests.fakes.jobs import RULES

Array = np.ndarray

# -- training: a GPT of which some tensors of each sort move

NET = models.build(models.GptConfig(1, 2, 16, 8), 0)
MOVING = ("blocks.0.attention.qkv.weight", "norm.weight", "head.weight")
GENESIS = [p.detach().clone() for n, p in NET.named_parameters() if n in MOVING]
FROZEN = {n: p.detach().clone() for n, p in NET.named_parameters() if n not in MOVING}
TEXT = torch.tensor(list(b"a program is what everybody can run again, bit by bit; " * 8))
ROWS = TEXT[: 9 * 48].view(48, 9).long()


def loss_of(theta: Sequence[Tensor], rows: Tensor) -> Tensor:
    frozen = {n: p.to(theta[0].dtype) for n, p in FROZEN.items()}
    out = torch.func.functional_call(
        NET, {**frozen, **dict(zip(MOVING, theta, strict=True))}, (rows[:, :-1],)
    )
    return nn.functional.cross_entropy(out.flatten(0, 1), rows[:, 1:].flatten())


def gradients(theta: Sequence[Tensor], rows: Tensor) -> list[Tensor]:
    leaves = [t.detach().clone().requires_grad_() for t in theta]
    return list(torch.autograd.grad(loss_of(leaves, rows), leaves))


def batch(at: int, shard: int, step: int) -> Tensor:
    """Six rows that no other shard reads in this step."""
    first = 6 * shard + 24 * ((at + step) % 2)
    return ROWS[first : first + 6]


def optimiser_of(name: str) -> Optimiser:
    if name == "muloco":
        return Muon(0.02, others=AdamW(1e-2, eps=1e-3, weight_decay=0.0))
    return Sgd(0.5 if CATALOGUE[name].one_step else 0.2, 0.0 if CATALOGUE[name].one_step else 0.8)


def steps_of(name: str) -> int:
    return 1 if CATALOGUE[name].one_step else 2


class Inner64:
    """A shard's training in float64: SGD with momentum, or Muon with Adam, from the equations."""

    def __init__(self, rule: Optimiser) -> None:
        self.rule, self.t = rule, 0
        self.m = [np.zeros(p.shape) for p in GENESIS]
        self.v = [np.zeros(p.shape) for p in GENESIS]

    def step(self, theta: list[Array], rows: Tensor) -> list[Array]:
        grads = [g.numpy() for g in gradients([torch.tensor(x) for x in theta], rows)]
        self.t += 1
        return [self._moved(i, x, g) for i, (x, g) in enumerate(zip(theta, grads, strict=True))]

    def _moved(self, i: int, x: Array, g: Array) -> Array:
        rule = self.rule
        if isinstance(rule, Sgd):
            self.m[i] = rule.momentum * self.m[i] + g
            return x - rule.lr * self.m[i]
        assert isinstance(rule, Muon)
        if MOVING[i].startswith("blocks") and x.ndim > 1:
            self.m[i] = 0.95 * self.m[i] + g
            return x - 0.02 * muon64(g + 0.95 * self.m[i])
        b1, b2, t = rule.others.beta1, rule.others.beta2, self.t
        self.m[i], self.v[i] = b1 * self.m[i] + (1 - b1) * g, b2 * self.v[i] + (1 - b2) * g * g
        mean, square = self.m[i] / (1 - b1**t), self.v[i] / (1 - b2**t)
        return x - rule.others.lr * mean / (np.sqrt(square) + rule.others.eps)


def muon64(x: Array) -> Array:
    """Newton and Schulz's five steps by the polynomial that they apply to x's singular values; times
    √max(1, rows ÷ columns)."""
    u, s, v = np.linalg.svd(x, full_matrices=False)
    s = s / np.linalg.norm(s)
    for _ in range(5):
        s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
    return (u * s) @ v * max(1.0, x.shape[0] / x.shape[1]) ** 0.5


# -- codings in float64, codes given


def wave_table(n: int) -> Array:
    k, i = np.arange(n)[:, None], np.arange(n)[None]
    made = np.sqrt(2 / n) * np.cos(np.pi * (2 * i + 1) * k / (2 * n))
    made[0] = np.sqrt(1 / n)
    return made


def rows_of(x: Array, size: int) -> Array:
    flat = x.ravel()
    return np.concatenate([flat, np.zeros(-flat.size % size)]).reshape(-1, size)


def nearest(rows: Array, values: Array, levels: Array, scale: Array) -> None:
    """Each value is one of the levels times the scale, and none is nearer to its number."""
    best = np.abs(rows[..., None] - (levels * scale)[:, None, :]).min(-1)
    assert (np.abs(rows - values) <= best + 1e-3 * scale).all(), "another level is nearer"


def with_table(rows: Array, code: Array, width: int) -> Array:
    """Bins over µ ± 3σ of a row, each as the mean of what fell into it."""
    step = 6 * rows.std(1, keepdims=True) / 2**width
    place = (rows - rows.mean(1, keepdims=True)) / np.where(step > 0, step, 1) + 2 ** (width - 1)
    inside = np.clip(place, 0.5, 2**width - 0.5)
    assert (np.abs(inside - code - 0.5) <= 0.5 + 1e-3).all(), "another bin has it"
    out = np.zeros_like(rows)
    for r, row in enumerate(rows):
        for c in np.unique(code[r]):
            out[r, code[r] == c] = row[code[r] == c].mean()
    return out


def decoded(a: Algorithm, x: Array, wire: Sequence[Tensor]) -> tuple[Array, Array]:
    """Values that a receiver decodes of x, and 1 where something was sent."""
    coding, all_sent = a.coding, np.ones_like(x)
    if isinstance(coding, Largest):
        return _largest(coding, x, [t.numpy() for t in wire])
    if not isinstance(coding, E3M0 | Integers | Bins):
        return x, all_sent
    rows, code = rows_of(x, min(coding.block, x.size)), wire[0].numpy()
    if isinstance(coding, Bins):
        return with_table(rows, code, coding.width).ravel().reshape(x.shape), all_sent
    scale = np.abs(rows).max(1, keepdims=True)
    if isinstance(coding, E3M0):
        sizes = np.array([0.0] + [2.0**-k for k in range(6, -1, -1)])
        values, levels = np.sign(code) * sizes[np.abs(code)], np.concatenate([-sizes, sizes])
    else:
        top = 2 ** (coding.width - 1) - 1
        values, levels = code / top, np.arange(-top, top + 1) / top
    nearest(rows, values * scale, levels, scale)
    return (values * scale).reshape(x.shape), all_sent


def _largest(coding: Largest, x: Array, wire: Sequence[Array]) -> tuple[Array, Array]:
    side, turn = coding.side, wave_table(coding.side)
    rows = rows_of(x, side * side if coding.cosine else min(side * side, x.size))
    if coding.cosine:
        rows = (turn @ rows.reshape(-1, side, side) @ turn.T).reshape(rows.shape)
    kept, mask = np.zeros_like(rows), np.zeros_like(rows)
    np.put_along_axis(mask, wire[0].astype(np.int64), 1.0, 1)
    values = np.take_along_axis(rows, wire[0].astype(np.int64), 1)
    assert (mask.sum(1) == min(coding.k, rows.shape[1])).all(), "as many places as are sent"
    least, beyond = np.abs(values).min(1), np.where(mask, 0, np.abs(rows)).max(1)
    assert (least >= beyond * (1 - 1e-2)).all(), "a larger number stays behind"
    if isinstance(coding.values, Bins):
        flat = values.reshape(-1, min(coding.values.block, values.size))
        values = with_table(flat, wire[1], coding.values.width).reshape(values.shape)
    np.put_along_axis(kept, wire[0].astype(np.int64), values, 1)
    if coding.cosine:
        kept, mask = (turn.T @ kept.reshape(-1, side, side) @ turn).reshape(rows.shape), np.ones_like(rows)
    kept, mask = (y.ravel()[: x.size].reshape(x.shape) for y in (kept, mask))
    return kept, mask


# -- the algorithms in float64


def mean_of(algorithm: Algorithm, deltas: list[Array], masks: list[Array]) -> Array:
    """Of those present only."""
    rule = algorithm.mean
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


def rule_of(name: str) -> DiLoCo:
    """The outer rate and momentum that an algorithm is run with here."""
    if CATALOGUE[name].one_step:
        return DiLoCo(0.01 if name == "demo" else 1.0, 0.0)
    return replace(RULES.get(name, DiLoCo(0.7, 0.6)), every=2, overlap=Overlap(alpha=0.25))


@dataclass
class Paper:
    """θ after every round, the outer rule's state of each parameter, and what each shard keeps."""

    name: str
    shards: int
    past: list[list[Array]] = field(default_factory=lambda: [[p.double().numpy() for p in GENESIS]])

    def __post_init__(self) -> None:
        self.algorithm = a = self._algorithm()
        zeros = [np.zeros(p.shape) for p in GENESIS]
        self.state: list[list[Array]] = [[np.zeros(x.shape) for x in a.rule.start(p)] for p in GENESIS]
        self.residuals = [list(zeros) for _ in range(self.shards)]
        self.inner = [Inner64(optimiser_of(self.name)) for _ in range(self.shards)]
        self.own = [list(self.past[0]) for _ in range(self.shards)]
        self.changes = [list(zeros) for _ in range(self.shards)]
        self.here: Sequence[int] = range(self.shards)

    def _algorithm(self) -> Algorithm:
        rule = rule_of(self.name)
        if self.name == "streaming":
            return Algorithm(algorithms.Nesterov(rule.lr, rule.momentum), E3M0())
        return algorithm_of(self.name, rule.lr, rule.momentum, rule.every)

    def turns(self, at: int) -> list[int]:
        """Parameters whose outer step comes in this round."""
        if self.name != "streaming":
            return list(range(len(GENESIS)))
        found = streaming_of([tuple(p.shape) for p in GENESIS]).fragments
        return list(found[(at + 1) % len(found)])

    def begin(self, at: int, k: int) -> tuple[list[Array], list[Array]]:
        """Parameters from which a shard starts, and against which its change is taken."""
        came_back = k not in self.here and at > 0
        if self.name == "streaming":  # τ = 1, and α is the share of its own parameters that a shard keeps
            base = self.past[max(at - 1, 0)]
            mixed = self.turns(at - 2) if at > 1 else []
            if came_back:
                return base, base
            own = [
                0.25 * x + 0.75 * y if i in mixed else x
                for i, (x, y) in enumerate(zip(self.own[k], base, strict=True))
            ]
            return own, base
        start = self.past[max(at - self.algorithm.late, 0)]
        return start, start

    def send(self, at: int, k: int, wire: Sequence[Tensor]) -> list[tuple[Array, Array]]:
        """Train, and what is received of the change, with 1 where something was."""
        a, made, first = self.algorithm, [], 0
        begun, base = self.begin(at, k)
        local = begun
        for step in range(steps_of(self.name)):
            local = self.inner[k].step(local, batch(at, k, step))
        for i, p in enumerate(GENESIS):
            width = len(a.coding.encode(p))
            change = a.gain * (base[i] - local[i])
            if a.feedback is not None:
                change = a.feedback * self.residuals[k][i] + change
            self.changes[k][i] = change
            if i in self.turns(at):
                made.append(decoded(a, change, wire[first : first + width]))
                self.residuals[k][i] = change - made[-1][0]
            else:
                made.append((np.zeros(p.shape), np.zeros(p.shape)))
            first += width
        self.own[k] = local
        return made

    def round(self, at: int, here: Sequence[int], wires: dict[int, list[Tensor]], moved: list[Array]) -> None:
        """One round; `moved`: the programs' step, from which a sign is taken where the mean is about 0."""
        sent = [self.send(at, k, wires[k]) for k in here]
        self.here, a = here, self.algorithm
        now = list(self.past[-1])
        for i in self.turns(at):
            change = mean_of(a, [s[i][0] for s in sent], [s[i][1] for s in sent])
            if self.name == WHOLE:  # an absent shard counts as unchanged
                change = change * len(here) / self.shards
            now[i], self.state[i] = outer_step(a, now[i], change, self.state[i])
            if isinstance(a.rule, algorithms.Sign):
                unsure = np.abs(change) < 2e-3 * np.abs(change).max()
                now[i] = np.where(unsure, self.past[-1][i] + a.rule.lr * np.sign(moved[i]), now[i])
        self.past.append(now)
