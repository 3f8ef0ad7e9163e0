"""The outer program of DiLoCo: updates the global parameters from the shards' parameters.

Contract: the outer state is [θ (P), m (P), w_0 (P), ..., w_{K−1} (P)] (docs/protocol.md, 4.1). The program
maps it to [θ', m', w_0, ...] with Δ = ((θ − w_0) + (θ − w_1) + ...) / K added in shard order, m' = momentum·m
+ Δ, θ' = θ − lr·(Δ + momentum·m'). FedAvg is lr = 1, momentum = 0. It reads no data.

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
    """Settings of Streaming DiLoCo.

    Number of fragments (None: 4, or as many as there are parameters); the paper's τ, rounds from a fragment's
    outer step until it is mixed in; and the paper's α, the share of its own value that a worker keeps then.
    """

    fragments: int | None = None
    delay: int = 1
    alpha: float = 0.5


@dataclass(frozen=True)
class DiLoCo:
    """Outer learning rate and momentum, and settings of other algorithms.

    `every`: rounds per move of delayed Nesterov's momentum; Streaming DiLoCo's settings; and `numbers`:
    values of ``training.catalogue.NUMBERS`` by key.
    """

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
