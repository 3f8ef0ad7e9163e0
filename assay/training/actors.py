"""GRPO as a job: tasks are actors, the outer claim is the learner.

Contract: a task reads θ of the previous round and plays a batch of problems position by position, with its KV
cache in the state. Its wire has the tokens and the log-probabilities of drawn tokens. The outer claim's loops
are `epochs` equal learner steps on the rollouts of all present shards; it computes rewards and advantages
itself, from the problems in the tokens. Problems and draws come from random numbers of the shard's own
counter, so that everybody computes the same rollout. Its last parameter, `REWARD`, is the mean reward of the
rollouts played with the previous θ. The bits are those of the same programs run in one process. Not
guaranteed: that a policy learns.

Source: GRPO, Shao and others 2024; the wider upper clip, and no KL penalty, DAPO, Yu and others 2025.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from assay.program.isa import Program
from assay.program.lowering import lower_step
from assay.program.lowering.dataless import NO_RECORD, lowered
from assay.program.lowering.tracing import trace_step
from assay.protocol.errors import Stop
from assay.protocol.loops import own_link
from assay.protocol.params import MAX_LOOPS
from assay.protocol.types import NO_SLOT, Kind, Link, Origin
from assay.training.grpo import Shape, advantages, answers_known, clipped_loss, decoded
from assay.training.job import JobArtifacts
from assay.training.optimisers import Named, Optimiser
from assay.training.ordered_records import ordered, own_counter
from assay.training.policy import Policy
from assay.training.results import REWARD
from assay.training.rounds import Round
from assay.training.verifiable import Verifiable

ROLLOUT, KNOWN, POSITION = "grpo.tokens", "grpo.known", "grpo.position"


@dataclass(frozen=True)
class Play:
    """Settings of GRPO: `rows` rollouts per actor, `group` per problem, `epochs` learner steps, and clip
    bounds."""

    task: Verifiable
    shape: Shape
    rows: int
    group: int
    epochs: int
    optimiser: Optimiser
    low: float = 0.2
    high: float = 0.28

    @property
    def steps(self) -> int:
        """Steps of a round: positions after which a token is drawn or read."""
        return self.task.length - 1


def check_play(play: Play, steps: int) -> None:
    """Raises Stop unless these settings make a job with rounds of this many steps."""
    for wrong, what, hint in (
        (play.rows % play.group, f"{play.rows} rollouts are no whole groups of {play.group}", "change batch"),
        (play.group < 2, "a group of one has no advantage over itself", "write group = 2 or more"),
        (play.epochs > MAX_LOOPS, f"{play.epochs} epochs are more than {MAX_LOOPS} loops", "lower epochs"),
        (play.shape.width % play.shape.heads, "the width does not divide into the heads", "change width"),
        (play.task.refused[0], *play.task.refused),
        (
            steps != play.steps,
            f"a rollout takes {play.steps} steps, and steps_per_round is {steps}",
            f"write steps_per_round = {play.steps}",
        ),
        (
            not (0 < play.low < 1 and play.high > 0),
            "the ratio is clipped between 1 - clip_low and 1 + clip_high",
            "write 0 < clip_low < 1 and clip_high > 0",
        ),
    ):
        if wrong:
            raise Stop(what, hint=hint)


def _rollouts(play: Play) -> list[Tensor]:
    """An empty wire: i32 [rows, length] tokens, f32 [rows, answer] log-probabilities."""
    task = play.task
    return [torch.zeros((play.rows, task.length), dtype=torch.int32), torch.zeros((play.rows, task.answer))]


def _actor_start(policy: Policy, play: Play, theta: list[Tensor]) -> list[Tensor]:
    zero = torch.zeros(())
    return [*theta, zero, *_rollouts(play), zero.clone(), *policy.net.cache(play.rows)]


def actor_program(policy: Policy, play: Play, shards: int, seed: int) -> Program:
    """[θ, reward, tokens, log-probabilities, position, cache] → the same, one position further."""
    task, count = play.task, len(policy.names)

    def step(state: list[Tensor], batch: Tensor) -> list[Tensor]:
        reward, tokens, known, at, *cache = state[count:]
        whole = torch.cat([torch.zeros((play.rows, task.prompt)), known], 1)
        with torch.no_grad():
            rows, whole, at, cache = policy.called(
                policy.named(state[:count]), decoded, task, play.group, tokens.float(), whole, at, cache
            )
        return [*state[:count], reward, rows.to(torch.int32), whole[:, task.prompt :], at, *cache]

    start = _actor_start(policy, play, list(policy.params.values()))
    traced = trace_step(step, start, NO_RECORD)
    return ordered(lower_step(traced, params=count + 1, seed=seed), counter=own_counter(shards))[0]


def _learner_start(policy: Policy, play: Play, shards: int, theta: list[Tensor]) -> list[Tensor]:
    rest = list(play.optimiser.genesis(policy.params).values())
    absent = [torch.zeros((), dtype=torch.bool) for _ in range(shards)]
    wires = [x for _ in range(shards) for x in _rollouts(play)]
    return [*theta, torch.zeros(()), *rest, torch.zeros(()), *wires, *absent]


def learner_program(policy: Policy, play: Play, shards: int) -> Program:
    """[θ, reward, optimiser, loss, (tokens, log-probabilities) of each actor, present (K)] → the same, after
    a step on the rollouts of present actors."""
    task, count = play.task, len(policy.names)
    held = count + 1 + len(play.optimiser.genesis(policy.params))

    def step(state: list[Tensor], batch: Tensor) -> list[Tensor]:
        sent, present = state[held + 1 : held + 1 + 2 * shards], state[held + 1 + 2 * shards :]
        tokens, known = torch.cat(sent[::2]).float(), torch.cat(sent[1::2])
        here = torch.cat([torch.where(p, torch.ones(play.rows), 0.0) for p in present])
        there = here.sum().clamp(min=1.0)
        rewards = task.rewards(tokens) * here
        advantage = advantages(rewards, play.group) * here

        def loss_of(params: Named) -> Tensor:
            now = policy.called(params, answers_known, task, tokens)
            return clipped_loss(now, known, advantage, play.low, play.high) * (len(here) / there)

        made, loss = policy.stepped(play.optimiser, [*state[:count], *state[count + 1 : held]], loss_of)
        return [*made[:count], rewards.sum() / there, *made[count:], loss, *sent, *present]

    start = _learner_start(policy, play, shards, list(policy.params.values()))
    return lowered(step, start, count + 1)


def grpo_job(policy: Policy, play: Play, theta: list[Tensor], *, shards: int, seed: int = 0) -> JobArtifacts:
    """Builds a job in which `shards` actors play, starting from θ, and the outer claim learns."""
    params = len(theta) + 1
    actor = actor_program(policy, play, shards, seed)
    learner = learner_program(policy, play, shards)
    start, outer_start = _actor_start(policy, play, theta), _learner_start(policy, play, shards, theta)
    links = (
        Link(Origin.OUT, Kind.OUTER, 1, params, 1, 0, 0, NO_SLOT),
        Link(Origin.GENESIS, Kind.TASK, 0, len(start) - params, 1, 0, 0, 0),
    )
    outer_links = (
        own_link(len(outer_start) - 3 * shards),
        Link(Origin.OUT, Kind.TASK, 0, 2, shards, params, 0, NO_SLOT),
        Link(Origin.PRESENT, Kind.TASK, 0, 1, shards, 0, 0, 0),
    )
    cache = [f"grpo.cache.{i}" for i in range(len(start) - params - 3)]
    names = [*policy.names, REWARD, ROLLOUT, KNOWN, POSITION, *cache]
    return JobArtifacts(
        **vars(Round((actor,), (learner,) * play.epochs, 0, links, outer_links, start, outer_start, names)),
        records=None,
        held_out=b"",
        model={"kind": "own", "name": "grpo"},
    )
