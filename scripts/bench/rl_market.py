"""GRPO through the market: actors and a learner as solvers' processes on a chain; and in one process.

The job file is `assay job init --template grpo`'s, with `MILLION`'s keys where it is not the small form. The
actors' solvers take tasks alone; the learner's is another one, which takes outer claims alone. Rewards before
and after are of rollouts that nobody learns from, by the actor's program with counters that no round has.
Bytes are those of the files that hold a task's wire. Usage: `scripts/bench/rl.py --market`.
"""

from __future__ import annotations

import re
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from assay.devnet.market import NodeSpec, default_nodes
from assay.job.build import build
from assay.job.parts import task_of
from assay.job.read import JobFile, parse_job_file
from assay.job.templates import LOCAL, stated
from assay.job.use_templates import grpo_template
from assay.job.wire import file_bytes
from assay.program.execute import Executor, StepContext
from assay.program.kernels import FAST
from assay.program.state import state_root
from assay.protocol.types import Address, Kind
from assay.training.actors import KNOWN, ROLLOUT
from assay.training.job import JobArtifacts
from assay.training.results import REWARD
from scripts.bench import market_jobs

LOOKS = 4
"""Rollouts of a batch each, before and after."""
UNUSED = 1_000_000
"""A round that no job reaches."""
WINDOW, RESERVED = "6s", "1s"
"""`RESERVED`: how long an outer claim waits for the actor whose turn it is; they leave it to the learner."""
A_ROUND_S = 90.0
"""The longest that a round is waited for, on the whole."""
LEARNER = "learner"
MILLION = {
    "model.width": "208",
    "optimiser.learning_rate": "0.0002",
    "grpo.warm_steps": "84",
    "grpo.warm_batch": "128",
    "grpo.warm_rate": "0.001",
}
"""What the form of a million parameters changes of the template."""


PLAYED = {"sorting": "digits = 3", "brackets": "depth = 3\nkinds = 3"}
"""By task that the template does not play: its own keys; both take `STEPS` a round."""
STEPS = 6


def job_file(rounds: int, changes: dict[str, str], weights: str = "", task: str = "addition") -> JobFile:
    """The template's job of so many rounds, with these keys changed ("section.key" to TOML); `weights`: a
    folder of a fetched model to go on from; `task`: what is played."""
    text = grpo_template(rounds, {**LOCAL, "window": WINDOW, "outer": RESERVED}, weights)
    if task in PLAYED:
        text = stated(stated(text, "grpo.task", f'"{task}"'), "training.steps_per_round", str(STEPS))
        text = re.sub(r"(?m)^digits = 1", PLAYED[task], text)
    for key, value in changes.items():
        text = stated(text, key, value)
    return parse_job_file(text, "the benchmark's job")


@dataclass
class Alone:
    """The same rounds in one process."""

    roots: list[bytes]
    """Of the outer claims' outputs, by round."""
    rewards: list[float]
    theta: list[Tensor]
    wire_bytes: int
    """Of the files of all wires: what a learner fetches."""
    seconds: float


class Actors:
    """A job's programs, run by hand."""

    def __init__(self, body: JobFile, files: JobArtifacts) -> None:
        assert body.grpo is not None
        self.files, self.shards, self.rounds = files, body.training.shards, body.training.rounds
        self.task, self.steps = task_of(body.grpo), body.training.steps_per_round
        self._actor = Executor(files.tasks[0], kernels=FAST)
        self._learners = [Executor(program, kernels=FAST) for program in files.outers]
        self._wire = [files.slot_names.index(name) for name in (ROLLOUT, KNOWN)]

    def rollout(self, theta: Sequence[Tensor], round_: int, shard: int) -> list[Tensor]:
        """The wire of an actor that plays with the outer state's parameters."""
        state = [*theta, *self.files.genesis[len(theta) :]]
        for step in range(self.steps):
            context = StepContext(None, bytes(32), shard, round_ * self.steps + step)
            state = list(self._actor.step(state, context))
        return [state[i] for i in self._wire]

    def reward(self, theta: Sequence[Tensor], first: int) -> float:
        """Mean reward of rollouts that nobody learns from."""
        played = [self.rollout(theta, UNUSED + first + i, 0)[0].float() for i in range(LOOKS)]
        return float(self.task.rewards(torch.cat(played)).mean())

    def alone(self) -> Alone:
        """All rounds."""
        began, params = time.perf_counter(), self.files.inner.params
        state, roots, rewards, wire_bytes = list(self.files.outer_genesis), [], [], 0
        there = [torch.tensor(True)] * self.shards
        for round_ in range(self.rounds):
            sent = [x for k in range(self.shards) for x in self.rollout(state[:params], round_, k)]
            state = [*state[: len(state) - 3 * self.shards], *sent, *there]
            wire_bytes += sum(file_bytes(x) for x in sent)
            for learner in self._learners:
                state = list(learner.step(state, StepContext(None, bytes(32), 0, round_)))
            roots.append(state_root(state))
            rewards.append(float(state[params - 1]))
            if round_ % 10 == 9:
                last = statistics.fmean(rewards[-10:])
                print(f"round {round_ + 1}: {last:.3f}", file=sys.stderr, flush=True)
        return Alone(roots, rewards, state[:params], wire_bytes, time.perf_counter() - began)


@dataclass
class Settled:
    """What the market gave."""

    roots: list[bytes]
    reward: float
    """The last round's."""
    theta: list[Tensor]
    seconds: float
    """From posting to the last settlement."""
    actors: frozenset[Address]
    """Who claimed the settled tasks."""
    learners: frozenset[Address]
    """Who claimed the settled outer steps."""


def cast(actors: int) -> list[NodeSpec]:
    """Solvers that take tasks alone, one a shard; a learner that takes outer claims alone; verifiers."""
    nodes = default_nodes(solvers=actors + 1, verifiers=3, whistleblowers=0)
    for i in range(actors):
        nodes[i] = replace(nodes[i], arguments=("--takes", "tasks", "--max-shards", "1"))
    nodes[actors] = replace(nodes[actors], name=LEARNER, arguments=("--takes", "outer"))
    return nodes


def through_market(body: JobFile, files: JobArtifacts, home: Path, limit_s: float) -> Settled:
    """The job on a devnet of processes in `home`. Raises SystemExit where it does not end in time."""
    closed = market_jobs.through_market(body, files, cast(body.training.shards), home, limit_s)
    claims = [view.claim for view in closed.settled]
    outer = {claim.round: claim.output_root for claim in claims if claim.kind == Kind.OUTER}
    actors, learners = (
        frozenset(claim.claimant for claim in claims if claim.kind == kind)
        for kind in (Kind.TASK, Kind.OUTER)
    )
    roots, params = [outer[r] for r in sorted(outer)], closed.params
    return Settled(roots, float(params[REWARD]), list(params.values()), closed.seconds, actors, learners)


def play(rounds: int, changes: dict[str, str], weights: str, task: str) -> dict[str, Any]:
    """Both runs, and what they came to."""
    body = job_file(rounds, changes, weights, task)
    files = build(body)
    actors = Actors(body, files)
    params = files.inner.params
    before = actors.reward(files.outer_genesis[:params], 0)
    print(f"reward before: {before:.3f}", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        market = through_market(body, files, Path(folder) / "home", 600.0 + rounds * A_ROUND_S)
    alone = actors.alone()
    rollouts = body.training.batch * body.training.shards * body.training.rounds
    return {
        "parameters": sum(x.numel() for x in files.genesis[: params - 1]),
        "rounds": len(market.roots),
        "reward_before": before,
        "reward_after": actors.reward(market.theta, LOOKS),
        "rewards": alone.rewards,
        "same_bits_as_in_process": market.roots == alone.roots and market.reward == alone.rewards[-1],
        "wire_bytes_a_rollout": alone.wire_bytes / rollouts,
        "toploc_bytes_a_rollout": 258 / 32 * actors.task.answer,
        "actors": len(market.actors),
        "learner_is_no_actor": len(market.learners) == 1 and not market.learners & market.actors,
        "seconds_market": market.seconds,
        "seconds_in_process": alone.seconds,
    }
