"""Batch inference as a job: the market generates a GPT's continuation of many prompts.

Contract: a record is a prompt: its length in two bytes, little-endian, then its bytes, then zeros. Row b of
shard k in round r is prompt (r·K + k)·B + b. A step advances all rows one position, with the KV cache in the
task's state; a row reads its prompt, then its own output. The job's one parameter, `RESULT`, is i32 [prompts,
length]: each prompt with its continuation, −1 behind them, and −1 everywhere if the round closed without the
row's shard. Bytes are the likeliest, or sampled with random numbers of the row, the position and the job's
seed: everybody computes the same. Not guaranteed: that the text makes sense.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from assay.program.execute import Records
from assay.program.isa import DType, Program
from assay.program.lowering import Choose, Lowered, lower
from assay.program.lowering.dataless import lowered
from assay.program.lowering.tracing import trace_step
from assay.protocol.errors import Stop
from assay.protocol.loops import own_link
from assay.protocol.types import NO_SLOT, Kind, Link, Origin
from assay.training.job import JobArtifacts
from assay.training.models import Block, Gpt
from assay.training.ordered_records import Computed, ordered, own_counter
from assay.training.precision import Precisions, chosen
from assay.training.results import NOTHING
from assay.training.results import TOKENS as RESULT
from assay.training.rounds import Round

ROUND, TOKENS, POSITION = "inference.round", "inference.rows", "inference.position"
LENGTH_BYTES = 2


def empty_cache(net: Gpt, batch: int, length: int) -> list[Tensor]:
    """f32 [batch, heads, length, width/heads]: keys and values of every block."""
    heads = net.config.n_head
    shape = (batch, heads, length, net.config.d_model // heads)
    return [torch.zeros(shape) for _ in range(2 * net.config.n_layer)]


def next_logits(net: Gpt, tokens: Tensor, at: Tensor, cache: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """f32 [B, 256] logits after i64 [B] tokens at position `at` (f32 scalar), and the updated cache.

    They equal `Gpt`'s on the whole row up to rounding. A cache may hold anything beyond `at`.
    """
    place = torch.arange(cache[0].shape[2]).float()
    here = (place == at).unsqueeze(1)
    x = (net.embedding(tokens) + net.position(at.long().reshape(1))).unsqueeze(1)
    kept: list[Tensor] = []
    for number, block in enumerate(net.blocks):
        assert isinstance(block, Block)
        attention = block.attention
        batch, heads, width = x.shape[0], attention.heads, x.shape[2]
        parts = attention.qkv(block.norm_1(x)).view(batch, 1, 3, heads, width // heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        keys = torch.where(here, key, cache[2 * number])
        values = torch.where(here, value, cache[2 * number + 1])
        kept += [keys, values]
        scores = (query / math.sqrt(width // heads)) @ keys.transpose(-2, -1)
        scores = torch.where(place <= at, scores, -torch.inf)
        mixed = torch.softmax(scores, -1) @ values
        x = x + attention.out(mixed.transpose(1, 2).reshape(batch, 1, width))
        x = x + block.down(block.activation(block.up(block.norm_2(x))))
    x = net.norm(x)[:, 0]
    logits = torch.nn.functional.linear(x, net.embedding.weight) if net.head is None else net.head(x)
    return logits, kept


def drawn(logits: Tensor, temperature: float) -> Tensor:
    """[B] indices of the greatest of f32 [B, V]; with a temperature above 0 sampled from the softmax of
    logits/temperature, by Gumbel's trick and the program's random numbers."""
    if temperature > 0:
        noise = -torch.log(-torch.log(torch.rand(logits.shape).clamp(min=1e-7)))
        logits = logits / temperature + noise
    return logits.argmax(-1)


@dataclass(frozen=True)
class Asked:
    """Maximum prompt length, bytes to generate, and temperature: 0 takes the likeliest."""

    prompt_bytes: int
    new_bytes: int
    temperature: float = 0.0

    @property
    def length(self) -> int:
        """Positions per row."""
        return self.prompt_bytes + self.new_bytes

    @property
    def steps(self) -> int:
        """Steps of a round; the last position needs none."""
        return self.length - 1


def prompt_records(prompts: Sequence[bytes], asked: Asked) -> Records:
    """The job's records. Raises Stop for no prompt, an empty one, or one that is too long."""
    if not prompts:
        raise Stop("the job has no prompt", hint="write one prompt a line")
    for number, prompt in enumerate(prompts, 1):
        if not 1 <= len(prompt) <= min(asked.prompt_bytes, 0xFFFF):
            raise Stop(
                f"prompt {number} has {len(prompt)} bytes, and may have 1 to {asked.prompt_bytes}",
                hint="change it, or prompt_bytes",
            )
    rows = (len(p).to_bytes(LENGTH_BYTES, "little") + p.ljust(asked.prompt_bytes, b"\0") for p in prompts)
    return Records(b"".join(rows), LENGTH_BYTES + asked.prompt_bytes)


def check_turns(asked: Asked, context: int, prompts: int, rows: int, rounds: int, steps: int) -> None:
    """Raises Stop unless these rounds, steps and rows over all shards answer every prompt without idle
    rows."""
    if asked.length > context:
        raise Stop(
            f"{asked.prompt_bytes} bytes of prompt and {asked.new_bytes} new ones exceed the model's context"
            f" of {context}",
            hint="lower prompt_bytes or new_bytes",
        )
    if steps < asked.steps:
        raise Stop(
            f"a row of {asked.length} bytes needs {asked.steps} steps, and steps_per_round is {steps}",
            hint=f"write steps_per_round = {asked.steps}, or a little more for whole segments",
        )
    if not (rounds - 1) * rows < prompts <= rounds * rows:
        raise Stop(
            f"{rounds} rounds of {rows} rows in all shards hold {(rounds - 1) * rows + 1} to {rounds * rows}"
            f" prompts, and there are {prompts}",
            hint="change rounds, batch or shards",
        )
    if asked.temperature < 0:
        raise Stop(
            f"the temperature is {asked.temperature}, and it cannot be below 0",
            hint="0 takes the likeliest byte",
        )


class _Calling(nn.Module):
    """The net's `next_logits` as a module, for `functional_call`."""

    def __init__(self, net: Gpt) -> None:
        super().__init__()
        self.net = net

    def forward(self, *given: Any) -> Any:
        return next_logits(self.net, *given)


def _step(net: Gpt, names: Sequence[str], asked: Asked) -> Callable[[list[Tensor], Tensor], list[Tensor]]:
    calling, count = _Calling(net), len(names)

    def step(state: list[Tensor], batch: Tensor) -> list[Tensor]:
        result, *held, round_, tokens, at = state[: count + 4]
        place = torch.arange(asked.length).float()
        size = (batch[:, 0].float() + 256.0 * batch[:, 1].float()).unsqueeze(1)
        beyond = torch.zeros((batch.shape[0], asked.new_bytes))
        prompt = torch.cat([batch[:, LENGTH_BYTES:].float(), beyond], 1)
        rows = torch.where(at == 0, torch.where(place < size, prompt, float(NOTHING)), tokens.float())
        now = torch.where(place == at, rows, 0.0).sum(1).clamp(min=0.0).long()
        params = {f"net.{n}": p for n, p in zip(names, held, strict=True)}
        with torch.no_grad():
            logits, cache = functional_call(calling, params, (now, at, state[count + 4 :]))
            new = drawn(logits, asked.temperature).float().unsqueeze(1)
        writes = (place == at + 1) & (place >= size) & (place < size + asked.new_bytes)
        rows = torch.where(writes, new, rows)
        return [result, *held, round_, rows.to(torch.int32), at + 1, *cache]

    return step


def _outer(rounds: int, shards: int, batch: int, length: int) -> Program:
    """[tokens of all prompts, round, rows of each shard, present (K)] → the first two renewed."""

    def step(state: list[Tensor], record: Tensor) -> list[Tensor]:
        result, round_, *rest = state
        rows = [
            torch.where(here, sent, torch.full_like(sent, NOTHING))
            for sent, here in zip(rest[:shards], rest[shards:], strict=True)
        ]
        turn = (torch.arange(rounds) == round_).reshape(rounds, 1, 1)
        whole = torch.where(turn, torch.cat(rows), result.reshape(rounds, shards * batch, length))
        return [whole.reshape(result.shape), round_ + 1, *rest]

    state = _outer_start(rounds, shards, batch, length)
    return lowered(step, state, 1)


def _outer_start(rounds: int, shards: int, batch: int, length: int) -> list[Tensor]:
    empty = torch.full((rounds * shards * batch, length), NOTHING, dtype=torch.int32)
    rows = [torch.full((batch, length), NOTHING, dtype=torch.int32) for _ in range(shards)]
    absent = [torch.zeros((), dtype=torch.bool) for _ in range(shards)]
    return [empty, torch.zeros((), dtype=torch.int32), *rows, *absent]


def _own_prompts(slot: int, batch: int, shards: int) -> Computed:
    """Index of a shard's first prompt in the round that a slot counts."""
    return lambda b, slots: b.imul(
        b.iadd(b.imul(slots[slot], b.const(shards, DType.I32)), b.shard()), b.const(batch, DType.I32)
    )


def inference_job(
    net: Gpt,
    prompts: Sequence[bytes],
    asked: Asked,
    *,
    batch: int,
    shards: int,
    rounds: int,
    seed: int = 0,
    precisions: Precisions | None = None,
) -> JobArtifacts:
    """Builds a job whose result is the continuation of each prompt by `net`. Raises Stop for prompts that do
    not fit."""
    records = prompt_records(prompts, asked)
    held = {n: p.detach().clone() for n, p in net.named_parameters()}
    outer_start = _outer_start(rounds, shards, batch, asked.length)
    rows = torch.full((batch, asked.length), NOTHING, dtype=torch.int32)
    round_, at, cache = (
        torch.zeros((), dtype=torch.int32),
        torch.zeros(()),
        empty_cache(net, batch, asked.length),
    )
    state = [outer_start[0].clone(), *held.values(), round_, rows, at, *cache]
    example = torch.zeros((batch, records.record_size), dtype=torch.uint8)
    graph = trace_step(_step(net, list(held), asked), state, example)

    def lowered_with(choose: Choose) -> Lowered:
        return lower(graph, params=1, seed=seed, choose=choose)

    made, products = chosen(lowered_with, precisions or Precisions(), state, records)
    counted = 1 + len(held)  # the round's slot
    program, places = ordered(made.program, _own_prompts(counted, batch, shards), own_counter(shards))
    links = (
        Link(Origin.GENESIS, Kind.TASK, 0, 1 + len(held), 1, 0, 0, 0),
        Link(Origin.OUT, Kind.OUTER, 1, 1, 1, 1, 0, NO_SLOT),
        Link(Origin.GENESIS, Kind.TASK, 0, 2 + len(cache), 1, 0, 0, 0),
    )
    outer_links = (
        own_link(2),
        Link(Origin.OUT, Kind.TASK, 0, 1, shards, counted + 1, 0, NO_SLOT),
        Link(Origin.PRESENT, Kind.TASK, 0, 1, shards, 0, 0, 0),
    )
    outer = _outer(rounds, shards, batch, asked.length)
    names = [RESULT, *held, ROUND, TOKENS, POSITION, *(f"inference.cache.{i}" for i in range(len(cache)))]
    return JobArtifacts(
        **vars(Round((program,), (outer,), 0, links, outer_links, state, outer_start, names)),
        records=records,
        held_out=b"",
        model={"kind": "own", "name": "inference", "prompts": len(prompts)},
        sites=tuple((site, how, tuple(places[node] for node in nodes)) for site, how, nodes in made.sites),
        chosen=products,
    )
