"""GRPO: actors decode, rewards are computed in the program, a learner takes clipped steps.

Three programs of the instruction set: a supervised step for the warm-up; one position of a rollout, with the
cache of keys and values in the state; the learner's step over the rollouts of all actors, which computes
rewards and advantages itself. Sampling is counter-based: two runs give the same bits. Every actor's counter
is its own, since `torch.rand` knows the step and not the shard. The task is addition, or what `--task` says;
the reward is 1 for an exactly right answer. In process: nobody claims, proves or pays. `--market` plays so
many rounds of a job of a million parameters, with `--small` of the template's hundred thousand, through the
market instead (``scripts.bench.rl_market``), and in one process, whose bits must be equal.

Usage: `scripts/bench/rl.py [--quick | --small] [--market ROUNDS [--weights FOLDER]] [--task NAME] [--twice]
[--json [FILE]] [--record]`. Keys `reward_before`, `reward_after`, `parameters`, `wire_bytes_a_rollout`; with
--twice `equal_digests`, with --market `same_bits_as_in_process`.
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from assay.numerics.encoding import to_bytes
from assay.program.execute import StepContext
from assay.program.isa import Program
from assay.program.lowering.recordless import lowered
from assay.training.grpo import Shape, advantages, answers_known, clipped_loss, decoded
from assay.training.optimisers import AdamW, Named
from assay.training.policy import Policy
from assay.training.verifiable import Addition, Brackets, Sorting, Verifiable
from scripts.bench.cluster import ready_for
from scripts.bench.report import ROOT, add_options, refuse_partial, report, table

TOPLOC = 258 / 32
"""Bytes a token that TOPLOC publishes of an inference to be checked."""
UNDER, OVER = 0.40, 0.80


@dataclass(frozen=True)
class Setting:
    """Sizes and rates; `group` samples of each of `rows`/`group` problems an actor."""

    task: Verifiable = field(default_factory=Addition)
    layers: int = 5
    heads: int = 4
    width: int = 128
    actors: int = 2
    rows: int = 128
    group: int = 8
    warm_rows: int = 256
    warm: AdamW = field(default_factory=lambda: AdamW(lr=1e-3, weight_decay=0.0, clip_norm=1.0))
    enough: float = 0.25
    """Reward at which the warm-up ends; it is looked at every 10 steps."""
    most_warm: int = 3000
    learn: AdamW = field(default_factory=lambda: AdamW(lr=1e-4, weight_decay=0.0, clip_norm=1.0))
    epochs: int = 2
    """Steps of the learner on the same rollouts."""
    most_rounds: int = 400
    goal: float = 0.9
    """Mean reward of the last five rounds at which it ends."""
    compiled: bool = True


FULL = Setting()
SMALL = Setting(
    task=Addition(1),
    layers=2,
    width=64,
    group=16,
    warm_rows=64,
    warm=AdamW(lr=3e-3, weight_decay=0.0, clip_norm=1.0),
    learn=AdamW(lr=5e-4, weight_decay=0.0, clip_norm=1.0),
    most_warm=400,
    compiled=False,
)
QUICK = replace(SMALL, width=16, rows=32, warm_rows=16, most_warm=20, most_rounds=4)
TASKS: dict[str, tuple[Verifiable, Verifiable]] = {
    "addition": (FULL.task, SMALL.task),
    "sorting": (Sorting(5), Sorting(3)),
    "brackets": (Brackets(6, 3), Brackets(3, 3)),
}
"""By name: of the whole benchmark, and of its small forms."""


@dataclass(frozen=True)
class Programs:
    """What is executed, and what must hold it: every step maps a state to the next of the same shapes."""

    warm: Program
    """[θ, optimiser, loss] → the same."""
    decode: Program
    """[θ, tokens, log-probabilities, position, cache] → the same, one position further."""
    learn: Program
    """[θ, optimiser, (tokens, log-probabilities) of every actor, mean reward, loss] → the same."""


class Game:
    """The programs of a setting and a run of them."""

    def __init__(self, setting: Setting, seed: int = 0, cache: Path | None = None) -> None:
        self.setting, self.seed = setting, seed
        task = setting.task
        shape = Shape(setting.layers, setting.heads, setting.width, task.length)
        self.policy = Policy(task, shape, seed)
        self.params, self.names = self.policy.params, self.policy.names
        self.slots = list(setting.learn.genesis(self.params))
        self.programs = self._traced()
        folder = cache if setting.compiled else None
        self._warm, self._decode, self._learn = (
            ready_for(p, folder) for p in (self.programs.warm, self.programs.decode, self.programs.learn)
        )
        self.digest = hashlib.sha256()
        self.rollouts = self.wire_bytes = 0

    def _empty(self) -> list[Tensor]:
        s, length = self.setting, self.setting.task.length
        return [torch.zeros(s.rows, length), torch.zeros(s.rows, length)]

    def _traced(self) -> Programs:
        s, task, count = self.setting, self.setting.task, len(self.names)
        held = count + len(self.slots)

        def decode(state: list[Tensor], batch: Tensor) -> list[Tensor]:
            params = self.policy.named(state[:count])
            tokens, known, at, *cache = state[count:]
            made = self.policy.called(params, decoded, task, s.group, tokens, known, at, cache)
            return [*state[:count], *made[:3], *made[3]]

        def learn(state: list[Tensor], batch: Tensor) -> list[Tensor]:
            rollouts = state[held:-2]
            tokens, known = torch.cat(rollouts[::2]), torch.cat(rollouts[1::2])[:, task.prompt :]
            rewards = task.rewards(tokens)
            advantage = advantages(rewards, s.group)

            def loss_of(params: Named) -> Tensor:
                return clipped_loss(self.policy.called(params, answers_known, task, tokens), known, advantage)

            made, loss = self.policy.stepped(s.learn, state[:held], loss_of)
            return [*made, *rollouts, rewards.mean(), loss]

        zero, cache = torch.zeros(()), self.policy.net.cache(s.rows)
        played = [*self.params.values(), *self._empty(), zero, *cache]
        taught = [*self.policy.start(s.learn), *(self._empty() * s.actors), zero, zero]
        return Programs(
            self.policy.warm_program(s.warm, s.warm_rows),
            lowered(decode, played, count),
            lowered(learn, taught, count),
        )

    def _context(self, step: int) -> StepContext:
        return StepContext(None, bytes(32), 0, step)

    def rollout(self, theta: Sequence[Tensor], number: int) -> list[Tensor]:
        """[tokens, log-probabilities] of the number-th rollout of all, and their bytes counted."""
        task, rows = self.setting.task, self.setting.rows
        state = [*theta, *self._empty(), torch.zeros(()), *self.policy.net.cache(rows)]
        for at in range(task.length - 1):
            state = self._decode.step(state, self._context(number * task.length + at))
        tokens, known = state[len(theta) : len(theta) + 2]
        wire = tokens.to(torch.uint8).numpy().tobytes() + to_bytes(known[:, task.prompt :].contiguous())
        self.digest.update(wire)
        self.rollouts += rows
        self.wire_bytes += len(wire)
        return [tokens, known]

    def reward(self, theta: Sequence[Tensor], number: int) -> float:
        """Mean reward of one rollout that nobody learns from."""
        return self.setting.task.rewards(self.rollout(theta, number)[0]).mean().item()

    def warmed(self) -> tuple[list[Tensor], list[float]]:
        """θ after the supervised steps, and the rewards that were seen on the way."""
        s, count = self.setting, len(self.names)
        state = [*self.policy.start(s.warm), torch.zeros(())]
        seen = [self.reward(state[:count], 0)]
        for step in range(s.most_warm):
            if step and step % 10 == 0:
                looks = [self.reward(state[:count], 2 * step + i) for i in range(2)]
                seen.append(statistics.fmean(looks))
                if seen[-1] >= s.enough:
                    break
            state = self._warm.step(state, self._context(step))
        return list(state[:count]), seen

    def taught(self, theta: Sequence[Tensor]) -> tuple[list[Tensor], list[float]]:
        """θ after the rounds of actors and learner, and each round's mean reward."""
        s, count = self.setting, len(self.names)
        held = count + len(self.slots)
        fresh = s.learn.genesis(self.params).values()
        state = [*theta, *fresh]
        rewards: list[float] = []
        for at in range(s.most_rounds):
            first = 2 * s.most_warm + at * s.actors
            rollouts = [t for k in range(s.actors) for t in self.rollout(state[:count], first + k)]
            for epoch in range(s.epochs):
                given = [*state, *rollouts, torch.zeros(()), torch.zeros(())]
                made = self._learn.step(given, self._context(at * s.epochs + epoch))
                state = made[:held]
            rewards.append(made[-2].item())
            if at % 10 == 9:
                print(f"round {at + 1}: {statistics.fmean(rewards[-10:]):.3f}", file=sys.stderr, flush=True)
            if len(rewards) >= 5 and statistics.fmean(rewards[-5:]) >= s.goal:
                break
        return list(state[:count]), rewards


@dataclass
class Played:
    """One whole run."""

    parameters: int
    reward_before: float
    reward_after: float
    rewards: list[float]
    warm_steps: int
    wire_bytes_a_rollout: float
    digest: str
    """Of every rollout's wire and the last parameters."""
    seconds: float


def play(setting: Setting, seed: int, cache: Path | None) -> Played:
    """Warm up, measure, learn, measure: the rewards of four rollouts that nobody learns from, each."""
    started, game = time.perf_counter(), Game(setting, seed, cache)
    theta, seen = game.warmed()
    unused = 2 * setting.most_warm + setting.actors * setting.most_rounds
    before = statistics.fmean(game.reward(theta, unused + i) for i in range(4))
    theta, rewards = game.taught(theta)
    after = statistics.fmean(game.reward(theta, unused + 4 + i) for i in range(4))
    for t in theta:
        game.digest.update(to_bytes(t))
    return Played(
        sum(p.numel() for p in theta),
        before,
        after,
        rewards,
        10 * (len(seen) - 1),
        game.wire_bytes / game.rollouts,
        game.digest.hexdigest(),
        time.perf_counter() - started,
    )


def through_market(
    rounds: int, small: bool, task: str, weights: str, destination: str | None, record: str | None
) -> None:
    """Play through the market, and report."""
    from scripts.bench.rl_market import MILLION
    from scripts.bench.rl_market import play as play_market

    changes = {} if small else dict(MILLION)
    if weights:
        changes["training.seed"] = "2"  # other problems than those of the job before
    made = play_market(rounds, changes, weights, task)
    row = [
        f"{made['parameters']:,}",
        f"{made['rounds']}",
        f"{100 * made['reward_before']:.1f} %",
        f"{100 * made['reward_after']:.1f} %",
        f"{made['wire_bytes_a_rollout']:.1f}",
        f"{made['toploc_bytes_a_rollout']:.0f}",
        str(made["same_bits_as_in_process"]),
        str(made["learner_is_no_actor"]),
        f"{made['seconds_market']:.0f} s, {made['seconds_in_process']:.0f} s",
    ]
    head = ["parameters", "rounds", "reward before", "after", "bytes a rollout", "TOPLOC's"]
    report(
        made,
        table([*head, "bits as in process", "learner apart", "market, in process"], [row]),
        destination,
        record,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a few rounds of a tiny model")
    parser.add_argument("--small", action="store_true", help="a small model, numbers of one digit")
    parser.add_argument("--task", choices=TASKS, help="what is played; addition if nobody says")
    parser.add_argument("--twice", action="store_true", help="a second run, whose digest must be equal")
    parser.add_argument("--cache", type=Path, default=ROOT / ".assay" / "forms")
    parser.add_argument("--market", type=int, metavar="ROUNDS", help="through a devnet of processes")
    parser.add_argument(
        "--weights", default="", help="with --market: a folder of a fetched model to go on from"
    )
    add_options(parser, "rl")
    chosen = parser.parse_args()
    refuse_partial(parser, chosen, "quick", "task")
    if chosen.market and (chosen.quick or chosen.twice):
        parser.error("--quick and --twice are of play in process, so not with --market")
    torch.set_num_threads(1)
    if chosen.market:
        section = "rl-market-small" if chosen.small else "rl-market"
        section += "-on" if chosen.weights else ""
        record = section if chosen.record else None
        through_market(
            chosen.market, chosen.small, chosen.task or "addition", chosen.weights, chosen.json, record
        )
        return
    setting = QUICK if chosen.quick else SMALL if chosen.small else FULL
    if chosen.task:
        setting = replace(setting, task=TASKS[chosen.task][setting is not FULL])
    made = play(setting, 0, chosen.cache)
    results: dict[str, Any] = {
        **vars(made),
        "goal_met": made.reward_before < UNDER and made.reward_after > OVER,
    }
    if chosen.twice:
        results["equal_digests"] = play(setting, 0, chosen.cache).digest == made.digest
    tokens = setting.task.answer
    row = [
        f"{made.parameters:,}",
        f"{100 * made.reward_before:.1f} %",
        f"{100 * made.reward_after:.1f} %",
        f"{made.warm_steps}",
        f"{len(made.rewards)}",
        f"{made.wire_bytes_a_rollout:.0f}",
        f"{TOPLOC * tokens:.0f}",
        str(results.get("equal_digests", "")),
    ]
    head = ["parameters", "reward before", "after", "warm-up steps", "rounds", "bytes a rollout", "TOPLOC's"]
    report(results, table([*head, "same bits twice"], [row]), chosen.json, chosen.record)


if __name__ == "__main__":
    main()
