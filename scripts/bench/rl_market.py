"""GRPO through the market: actors and learner as solvers' processes on a chain; and in one process.

The job file is `assay job init --template grpo`'s. Rewards before and after are of rollouts that nobody
learns from, by the actor's program with counters that no round has. Bytes are those of the files of a task's
wire, as published. Usage: `scripts/bench/rl.py --market`.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from assay.app.invocation import App
from assay.app.machine import RESOURCE_LIMITS
from assay.app.output import Output
from assay.app.settings import Flags
from assay.app.units import parse_amount
from assay.app.web import serve_blocks
from assay.app.wiring import Connection, NodeStorage
from assay.client.fetching import fetch
from assay.client.results import by_round
from assay.client.verifying import verify
from assay.devnet.market import bring_up, default_nodes, fund_account, take_down
from assay.jobfile.build import build
from assay.jobfile.post import publish_and_post
from assay.jobfile.read import JobFile, parse_job_file
from assay.jobfile.templates import LOCAL, stated
from assay.jobfile.terms import conditions_of
from assay.jobfile.use_templates import grpo_template
from assay.node.artifacts import load_job
from assay.node.checkpoints import Published
from assay.node.slots import SlotReader
from assay.numerics import FAST
from assay.program.execute import Executor, StepContext
from assay.program.state import state_root
from assay.protocol.types import JobId, Kind, Phase
from assay.training.actors import KNOWN, ROLLOUT
from assay.training.grpo import Addition
from assay.training.job import JobArtifacts

LOOKS = 4
"""Rollouts of a batch each, before and after."""
UNUSED = 1_000_000
"""A round that no job reaches."""
BLOCK_TIME_S, WINDOW = 0.5, "6s"


def job_file(rounds: int, changes: dict[str, str]) -> JobFile:
    """The template's job of so many rounds, with these keys changed ("section.key" to TOML)."""
    text = grpo_template(rounds, {**LOCAL, "window": WINDOW})
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
    seconds: float


class Actors:
    """A job's programs, run by hand."""

    def __init__(self, body: JobFile, files: JobArtifacts) -> None:
        assert body.grpo is not None
        self.files, self.shards, self.rounds = files, body.training.shards, body.training.rounds
        self.task, self.steps = Addition(body.grpo.digits), body.training.steps_per_round
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
        state, roots, rewards = list(self.files.outer_genesis), [], []
        there = [torch.tensor(True)] * self.shards
        for round_ in range(self.rounds):
            sent = [x for k in range(self.shards) for x in self.rollout(state[:params], round_, k)]
            state = [*state[: len(state) - 3 * self.shards], *sent, *there]
            for learner in self._learners:
                state = list(learner.step(state, StepContext(None, bytes(32), 0, round_)))
            roots.append(state_root(state))
            rewards.append(float(state[params - 1]))
            if round_ % 10 == 9:
                last = statistics.fmean(rewards[-10:])
                print(f"round {round_ + 1}: {last:.3f}", file=sys.stderr, flush=True)
        return Alone(roots, rewards, state[:params], time.perf_counter() - began)


@dataclass
class Settled:
    """What the market gave."""

    roots: list[bytes]
    rewards: list[float]
    theta: list[Tensor]
    wire_bytes: list[int]
    """Of each settled task's files."""
    seconds: float
    """From posting to the last settlement."""


def _wire_bytes(storage: NodeStorage, connection: Connection, job_id: JobId) -> list[int]:
    """Bytes of the files of the wire of every settled task."""
    market = connection.market
    files = load_job(storage.blocks, market.job(job_id).terms, RESOURCE_LIMITS)
    published, program = Published(storage.blocks, SlotReader(storage.blocks, 1 << 20)), files.inner
    wire = [files.slot_names.index(name) for name in (ROLLOUT, KNOWN)]
    found = []
    for view in market.claims(job_id):
        if view.claim.kind == Kind.TASK and view.status.phase == Phase.SETTLED:
            slots = published.slots(view, len(view.roots) - 1, program)
            assert slots is not None, "a settled task is published"
            found.append(sum(slots[i].file_bytes(program.state[i]) for i in wire))
    return found


def through_market(body: JobFile, files: JobArtifacts, home: Path, limit_s: float) -> Settled:
    """The job on a devnet of processes in `home`. Raises SystemExit where it does not end in time."""
    app = App(Flags(home=str(home)), Output(as_json=False, quiet=True), True, False, None)
    try:
        specs = default_nodes(solvers=body.training.shards, verifiers=3, whistleblowers=0)
        bring_up(app, specs, BLOCK_TIME_S, conditions_of(body))
        fund_account(app, "client", parse_amount("100000tok"))
        connection, storage = app.connect("client"), app.storage("client")
        with serve_blocks("client", connection, storage):
            budget = parse_amount(f"{body.training.rounds * 60}tok")
            began = time.perf_counter()
            job_id = publish_and_post(app, connection, storage, body, files, budget)
            _wait(connection, job_id, began + limit_s)
            seconds = time.perf_counter() - began
            market = connection.market
            storage.follow(market)
            loaded = load_job(storage.blocks, market.job(job_id).terms, RESOURCE_LIMITS)
            numbers = by_round(market, storage.blocks, job_id, loaded)
            place = connection.chain, market.block
            params = fetch(market, storage.blocks, job_id, home / "model", RESOURCE_LIMITS, *place)
            verify(home / "model")
            outer = {
                view.claim.round: view.claim.output_root
                for view in market.claims(job_id)
                if view.claim.kind == Kind.OUTER and view.status.phase == Phase.SETTLED
            }
            roots, rewards = [outer[r] for r in sorted(outer)], [n.value for n in numbers]
            wires = _wire_bytes(storage, connection, job_id)
            return Settled(roots, rewards, list(params.values()), wires, seconds)
    finally:
        take_down(home)
        app.close()


def _wait(connection: Connection, job_id: JobId, until: float) -> None:
    """Until the job is closed."""
    while True:
        connection.market.refresh()
        progress = connection.market.job(job_id).progress
        if progress.closed:
            return
        if time.perf_counter() > until:
            raise SystemExit(f"the job is in round {progress.round} and did not end in time")
        time.sleep(0.5)


def play(rounds: int, changes: dict[str, str], limit_s: float = 1_500.0) -> dict[str, object]:
    """Both runs, and what they came to."""
    body = job_file(rounds, changes)
    files = build(body)
    actors = Actors(body, files)
    params = files.inner.params
    alone = actors.alone()
    with tempfile.TemporaryDirectory() as folder:
        market = through_market(body, files, Path(folder) / "home", limit_s)
    rollouts = body.training.batch
    return {
        "parameters": sum(x.numel() for x in files.genesis[: params - 1]),
        "rounds": len(market.roots),
        "reward_before": actors.reward(files.outer_genesis[:params], 0),
        "reward_after": actors.reward(market.theta, LOOKS),
        "rewards": market.rewards,
        "same_bits_as_in_process": market.roots == alone.roots and market.rewards == alone.rewards,
        "wire_bytes_a_rollout": statistics.fmean(market.wire_bytes) / rollouts,
        "toploc_bytes_a_rollout": 258 / 32 * Addition(body.grpo.digits if body.grpo else 1).answer,
        "seconds_market": market.seconds,
        "seconds_in_process": alone.seconds,
    }
