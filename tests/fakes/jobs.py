"""A job small enough to train, verify and dispute in milliseconds: one vector drawn to the mean of its
data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import sha256
from typing import Any

import torch

from assay.node.artifacts import Published
from assay.node.limits import ResourceLimits
from assay.program.build import ProgramBuilder
from assay.program.execute import Records
from assay.program.isa import DType, Program
from assay.program.lowering import lower_step
from assay.program.lowering.tracing import StepFunction, trace_step
from assay.protocol.loops import diloco_links
from assay.protocol.types import Address, Link, Terms, Wei
from assay.training.catalogue import CATALOGUE
from assay.training.job import LOSS_SLOT, JobArtifacts, made_round
from assay.training.outer import DiLoCo, Overlap, outer_genesis, outer_program
from assay.training.slicing import PARAMETERS, blocks_of
from tests.fakes.classes import of_its_class
from tests.fakes.terms import some_terms

WIDTH = 8
ROWS = 2

RESOURCE_LIMITS = ResourceLimits(
    dataset_bytes=1 << 20,
    state_bytes=1 << 20,
    step_bytes=1 << 24,
    step_operations=1 << 24,
    memory_bytes=1 << 24,
)


def account(name: str) -> Address:
    """An address that is easy to tell from others in a failing test."""
    return Address("0x" + sha256(name.encode()).hexdigest()[:40])


@dataclass(frozen=True)
class TinyFiles:
    """Files that ``node.artifacts.publish_job`` stores: one loop on each side."""

    inner: Program
    outer: Program
    records: Records | None
    genesis: list[torch.Tensor]
    outer_genesis: list[torch.Tensor]
    slot_names: list[str]
    model: dict[str, Any] = field(default_factory=lambda: {"template": "tiny"})
    main: int = 0
    slices: int = 1
    unsettled: tuple[str, ...] = ()
    idle: tuple[str, ...] = ()

    @property
    def tasks(self) -> tuple[Program, ...]:
        return (self.inner,)

    @property
    def outers(self) -> tuple[Program, ...]:
        return (self.outer,)

    @property
    def links(self) -> tuple[Link, ...]:
        return self._both[0]

    @property
    def outer_links(self) -> tuple[Link, ...]:
        return self._both[1]

    @property
    def _both(self) -> tuple[tuple[Link, ...], tuple[Link, ...]]:
        params = self.inner.params
        return diloco_links(self.inner.slots, params, self.outer.slots // params - 2)


def inner_program(rate: float = 0.25) -> Program:
    """State w [8], momentum [8], loss []: w moves towards the rows' mean with momentum. It diverges with a
    `rate` far above 1."""
    b = ProgramBuilder(record_size=WIDTH)
    w, momentum, _ = (b.state(DType.F32, s) for s in ((WIDTH,), (WIDTH,), ()))
    rows = b.convert(b.convert(b.data(ROWS, WIDTH), DType.I32), DType.F32)
    mean = b.mul(b.sum(b.transpose(rows)), b.const(1 / (255 * ROWS), DType.F32))
    grad = b.sub(w, mean)
    moved = b.add(b.mul(momentum, b.const(0.5, DType.F32)), grad)
    after = b.sub(w, b.mul(moved, b.const(rate, DType.F32)))
    return b.finish([after, moved, b.sum(b.mul(grad, grad))], params=1)


def tiny_files(shards: int = 2, rate: float = 0.25) -> TinyFiles:
    start = [torch.linspace(-1, 1, WIDTH)]
    data = bytes((7 * i) % 256 for i in range(16 * WIDTH))
    return TinyFiles(
        inner_program(rate),
        outer_program([(WIDTH,)], shards, DiLoCo()),
        Records(data, WIDTH),
        [start[0], torch.zeros(WIDTH), torch.tensor(float("nan"))],
        outer_genesis(start, shards),
        ["w", "momentum.w", LOSS_SLOT],
    )


_PROGRAMS: dict[str, Program] = {}


def _traced(name: str, trace: Callable[[], Program]) -> Program:
    """A step's program, traced once in a process: it is the same each time, and nothing changes a program."""
    if name not in _PROGRAMS:
        _PROGRAMS[name] = trace()
    return _PROGRAMS[name]


def traced_step(step: StepFunction, state: list[torch.Tensor], params: int) -> Program:
    """The program of a step on the tiny job's rows."""
    return lower_step(trace_step(step, state, torch.zeros((ROWS, WIDTH), dtype=torch.uint8)), params=params)


def three_files(shards: int = 2) -> TinyFiles:
    """The tiny job with its vector in three parameters, each of which moves to its own data's mean."""

    def step(state: list[torch.Tensor], batch: torch.Tensor) -> list[torch.Tensor]:
        w, v, u, _, momentum = state
        mean = batch.float().mean(0) / 255
        grad = torch.cat([w, v, u]) - mean
        moved = momentum * 0.5 + grad
        after = [x - 0.25 * m for x, m in zip((w, v, u), torch.split(moved, [4, 2, 2]), strict=True)]
        return [*after, (grad * grad).sum(), moved]

    tiny, start = tiny_files(shards), list(torch.split(torch.linspace(-1, 1, WIDTH), [4, 2, 2]))
    state = [*start, torch.tensor(float("nan")), torch.zeros(WIDTH)]
    inner = _traced("three", lambda: traced_step(step, state, 3))
    return replace(tiny, inner=inner, genesis=state, slot_names=["w", "v", "u", LOSS_SLOT, "momentum"])


def recipe_files(
    name: str, shards: int = 2, slices: int | None = None, overlap: Overlap | None = None
) -> JobArtifacts:
    """As `made_files`, traced once per process, with fresh tensors."""
    made = made_files(name, shards, slices, overlap)
    genesis, outer = ([x.clone() for x in tensors] for tensors in (made.genesis, made.outer_genesis))
    return replace(made, genesis=genesis, outer_genesis=outer)


@cache
def made_files(name: str, shards: int, slices: int | None, overlap: Overlap | None) -> JobArtifacts:
    """The tiny job under an algorithm of ``training.catalogue``; with three parameters where those go in
    parts, or the outer step in `slices`. `overlap`: streaming's own numbers."""
    parts = name == "streaming" or slices is not None
    tiny = three_files(shards) if parts else tiny_files(shards)
    assert tiny.records is not None
    train = tiny.inner
    start, names, model = tiny.genesis, tiny.slot_names, dict(tiny.model)
    if slices is not None:
        count = train.params
        blocks = blocks_of(names[:count], [node.shape for node in train.state[:count]], slices)
        train, _ = blocks.program(train)
        start = [*blocks.joined(start[:count]), *start[count:]]
        names, model = [*blocks.block_names, *names[count:]], {**model, PARAMETERS: blocks.described}
    rule = replace(RULES.get(name, DiLoCo()), overlap=overlap or Overlap())
    made = made_round(name, train, start, names, shards, rule, slices or 1)
    return JobArtifacts(**vars(made), records=tiny.records, held_out=b"", model=model)


RULES = {
    name: DiLoCo(0.7, 0.0)
    for name, entry in CATALOGUE.items()
    if not hasattr(entry.algorithm.rule, "momentum")
}
RULES["delayed-nesterov"] = DiLoCo(0.7, 0.9, 2)
"""Of algorithms without an outer momentum, or whose momentum is late."""


def tiny_terms(published: Published, client: Address, **changes: Any) -> Terms:
    """Terms of two rounds of eight steps in segments of two."""
    shape = {"steps_per_round": 8, "segment_steps": 2, "samples": 1, "slow": (0, 1)}
    steps, segment_steps, samples, slow = (changes.pop(name, shape[name]) for name in shape)
    terms = some_terms(
        published.shape(steps, segment_steps, samples, slow),
        client=client,
        dataset_root=published.dataset_root,
        genesis_root=published.genesis_root,
        outer_genesis_root=published.outer_genesis_root,
        manifest=published.manifest,
        seed=sha256(b"tiny").digest(),
        records=published.records,
        record_size=published.record_size,
        max_unsettled=2,
        state_bytes=published.sizes.state_bytes,
        step_bytes=published.sizes.step_bytes,
        step_operations=published.sizes.step_operations,
        price_cap=Wei(12),
        verifier_fee=Wei(1),
        outer_fee=Wei(4),
        solver_stake=Wei(100),
        verifier_stake=Wei(50),
        challenge_bond=Wei(40),
        miss_penalty=Wei(7),
    )
    return of_its_class(replace(terms, **changes))
