"""The outer program: how the shards' parameters become the next global parameters.

Contract: the outer state is [θ (P), m (P), w_0 (P), ..., w_{K−1} (P)] (docs/protocol.md, 4.1). The program
maps it to [θ', m', w_0, ...] with Δ = ((θ − w_0) + (θ − w_1) + ...) / K added in the order of the shards,
m' = momentum·m + Δ, θ' = θ − lr·(Δ + momentum·m'). FedAvg is lr = 1, momentum = 0. It reads no data.

Source: DiLoCo, Douillard et al. 2023 (Nesterov momentum outside).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from assay.program.build import ProgramBuilder
from assay.program.isa import DType, Input, Program, Shape
from assay.protocol.errors import Stop


@dataclass(frozen=True)
class Overlap:
    """What Streaming DiLoCo has beside them: into how many fragments the parameters are cut (None: 4, or as
    many as there are), how many rounds after its outer step a fragment is mixed in, the paper's τ, and how
    much of its own a worker keeps then, the paper's α."""

    fragments: int | None = None
    delay: int = 1
    alpha: float = 0.5


@dataclass(frozen=True)
class DiLoCo:
    """Outer learning rate and momentum; after how many rounds the momentum of delayed Nesterov moves;
    Streaming DiLoCo's own numbers; and `numbers`, those that an algorithm's coding or mean has in the place
    of its own: a key of ``training.catalogue.NUMBERS`` with each."""

    lr: float = 0.7
    momentum: float = 0.9
    every: int = 4
    overlap: Overlap = field(default_factory=Overlap)
    numbers: tuple[tuple[str, int], ...] = ()


def _next(
    b: ProgramBuilder, rule: DiLoCo, theta: Input, moment: Input, shards: Sequence[Input]
) -> tuple[Input, Input]:
    delta = b.sub(theta, shards[0])
    for shard in shards[1:]:
        delta = b.add(delta, b.sub(theta, shard))
    if len(shards) > 1:
        delta = b.div(delta, b.const(float(len(shards)), DType.F32))
    momentum = b.const(rule.momentum, DType.F32)
    moment = b.add(b.mul(moment, momentum), delta)
    move = b.add(delta, b.mul(moment, momentum))
    return b.sub(theta, b.mul(move, b.const(rule.lr, DType.F32))), moment


def outer_program(shapes: Sequence[Shape], shards: int, rule: DiLoCo) -> Program:
    """The outer program for f32 parameters of these shapes. Raises Stop without parameters or shards."""
    if not shapes or shards < 1:
        raise Stop(
            "an outer program needs parameters and shards",
            hint="give the model parameters, and 1 or more shards",
        )
    b = ProgramBuilder()
    slots = [b.state(DType.F32, tuple(shape)) for _ in range(2 + shards) for shape in shapes]
    count = len(shapes)
    thetas, moments = [], []
    for i in range(count):
        held = [slots[(2 + k) * count + i] for k in range(shards)]
        theta, moment = _next(b, rule, slots[i], slots[count + i], held)
        thetas.append(theta)
        moments.append(moment)
    return b.finish([*thetas, *moments, *slots[2 * count :]], params=count)


def outer_genesis(params: Sequence[Tensor], shards: int) -> list[Tensor]:
    """θ = params, m = 0, every w_k = params."""
    start = [p.detach().clone() for p in params]
    zeros = [torch.zeros_like(p) for p in start]
    return [*start, *zeros, *(p.clone() for _ in range(shards) for p in start)]
