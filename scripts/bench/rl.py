"""Runs GRPO in the market, with actors and a learner as solver processes, and in one process.

The job is `assay job init --template grpo`'s, with a model of a million parameters (`MILLION`). The actors'
solvers take tasks only; the learner is a solver that takes outer claims only. Rewards before and after are
measured on rollouts that nobody learns from, by the actor's program with counters that no round uses. Bytes
are those of the files of a task's wire. The outer claims' roots must be those of one process.

Usage: `scripts/bench/rl.py [--small] [--rounds N] [--json [FILE]] [--record]`. Keys `reward_before`,
`reward_after`, `wire_bytes_a_rollout`, `same_bits_as_in_process`.
"""

from __future__ import annotations

import argparse
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

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from assay.devnet.market import NodeSpec, default_nodes
from assay.job.build import build
from assay.job.parts import task_of
from assay.job.read import JobFile, parse_job_file
from assay.job.templates import LOCAL, stated
from assay.job.use_templates import grpo_template
from assay.job.wire_size import file_bytes
from assay.program.execute import Executor, StepContext
from assay.program.kernels import FAST
from assay.program.state import state_root
from assay.protocol.types import Kind
from assay.training.actors import KNOWN, ROLLOUT
from assay.training.job import JobArtifacts
from assay.training.results import REWARD
from scripts.bench.devnet import lead
from scripts.bench.report import add_options, refuse_partial, report, table

TOPLOC = 258 / 32
"""Bytes per token that TOPLOC publishes for checking an inference."""
LOOKS = 4
"""Number of rollout batches, before and after."""
UNUSED = 1_000_000
"""A round that no job reaches."""
WINDOW, RESERVED = "6s", "1s"
"""`RESERVED`: how long an outer claim waits for the actor whose turn it is; actors leave it to the
learner."""
A_ROUND_S = 90.0
"""Average time limit per round in seconds."""
LEARNER = "learner"
MILLION = {
    "model.width": "208",
    "optimiser.learning_rate": "0.0002",
    "grpo.warm_steps": "84",
    "grpo.warm_batch": "128",
    "grpo.warm_rate": "0.001",
}
"""Changes of the template for a million parameters."""


def job_file(rounds: int, changes: dict[str, str]) -> JobFile:
    """The template's job with this many rounds and these changed keys ("section.key" to TOML)."""
    text = grpo_template(rounds, {**LOCAL, "window": WINDOW, "outer": RESERVED}, "")
    for key, value in changes.items():
        text = stated(text, key, value)
    return parse_job_file(text, "the benchmark's job")


@dataclass
class Alone:
    """The same rounds in one process."""

    roots: list[bytes]
    """Roots of the outer claims' outputs, by round."""
    rewards: list[float]
    theta: list[Tensor]
    wire_bytes: int
    """Bytes of all wires' files: what a learner fetches."""
    seconds: float


class Actors:
    """A job's programs, run directly."""

    def __init__(self, body: JobFile, files: JobArtifacts) -> None:
        assert body.grpo is not None
        self.files, self.shards, self.rounds = files, body.training.shards, body.training.rounds
        self.task, self.steps = task_of(body.grpo), body.training.steps_per_round
        self._actor = Executor(files.tasks[0], kernels=FAST)
        self._learners = [Executor(program, kernels=FAST) for program in files.outers]
        self._wire = [files.slot_names.index(name) for name in (ROLLOUT, KNOWN)]

    def rollout(self, theta: Sequence[Tensor], round_: int, shard: int) -> list[Tensor]:
        """Wire of an actor that plays with the outer state's parameters."""
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
        """Runs all rounds."""
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


def cast(actors: int) -> list[NodeSpec]:
    """One task-only solver per shard; a learner that takes outer claims only; verifiers."""
    nodes = default_nodes(solvers=actors + 1, verifiers=3, whistleblowers=0)
    for i in range(actors):
        nodes[i] = replace(nodes[i], arguments=("--takes", "tasks", "--max-shards", "1"))
    nodes[actors] = replace(nodes[actors], name=LEARNER, arguments=("--takes", "outer"))
    return nodes


def play(rounds: int, changes: dict[str, str]) -> dict[str, Any]:
    """Runs both and returns the figures."""
    body = job_file(rounds, changes)
    files = build(body)
    actors = Actors(body, files)
    params = files.inner.params
    before = actors.reward(files.outer_genesis[:params], 0)
    print(f"reward before: {before:.3f}", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        home, limit_s = Path(folder) / "home", 600.0 + rounds * A_ROUND_S
        led = lead(body, cast(actors.shards), home, limit_s, files=files)
    alone = actors.alone()
    claims = [view.claim for view in led.settled]
    outer = {claim.round: claim.output_root for claim in claims if claim.kind == Kind.OUTER}
    acted, learnt = ({c.claimant for c in claims if c.kind == kind} for kind in (Kind.TASK, Kind.OUTER))
    roots = [outer[round_] for round_ in sorted(outer)]
    theta = list(led.params.values())
    same = roots == alone.roots and float(led.params[REWARD]) == alone.rewards[-1]
    return {
        "parameters": sum(x.numel() for x in files.genesis[: params - 1]),
        "rounds": len(roots),
        "reward_before": before,
        "reward_after": actors.reward(theta, LOOKS),
        "rewards": alone.rewards,
        "same_bits_as_in_process": same,
        "wire_bytes_a_rollout": alone.wire_bytes / (body.training.batch * actors.shards * rounds),
        "toploc_bytes_a_rollout": TOPLOC * actors.task.answer,
        "learner_is_no_actor": len(learnt) == 1 and not learnt & acted,
        "seconds_market": led.seconds,
        "seconds_in_process": alone.seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--small", action="store_true", help="the template's model of 100,000 parameters")
    parser.add_argument("--rounds", type=int, default=120)
    add_options(parser, "rl")
    chosen = parser.parse_args()
    refuse_partial(parser, chosen, "small")
    torch.set_num_threads(1)
    made = play(chosen.rounds, {} if chosen.small else MILLION)
    row = [f"{made['parameters']:,}", str(made["rounds"])]
    row += [f"{100 * made[key]:.1f} %" for key in ("reward_before", "reward_after")]
    row += [f"{made['wire_bytes_a_rollout']:.1f}", f"{made['toploc_bytes_a_rollout']:.0f}"]
    row += [str(made["same_bits_as_in_process"]), str(made["learner_is_no_actor"])]
    row += [f"{made['seconds_market']:.0f} s, {made['seconds_in_process']:.0f} s"]
    head = ["parameters", "rounds", "reward before", "after", "bytes a rollout", "TOPLOC's"]
    head += ["bits as in process", "learner apart", "market, in process"]
    report(made, table(head, [row]), chosen.json, chosen.record)
    if not made["same_bits_as_in_process"]:
        raise SystemExit("the market's bits are not those of one process")


if __name__ == "__main__":
    main()
