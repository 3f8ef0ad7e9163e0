"""Batch inference as a job: what a GPT writes, row by row, and a byte that it did not write."""

from __future__ import annotations

import json
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.client import results
from assay.client.verifying import verify
from assay.node.checkpoints import read_checkpoints
from assay.node.findings import WrongSegment
from assay.node.slot_index import MAX_INDEX_BYTES, decode_index
from assay.program.execute import Executor, StepContext
from assay.program.isa import Op
from assay.program.validate import validate
from assay.protocol.errors import Stop
from assay.protocol.types import JobId, Kind
from assay.training.inference import RESULT, TOKENS, Asked, check_turns, inference_job, prompt_records
from assay.training.job import JobArtifacts
from assay.training.models import Gpt, GptConfig, build
from drills.orders import WeightPlan
from drills.solvers import FaultySolver
from tests.fakes.jobs import RESOURCE_LIMITS
from tests.fakes.market_day import MarketDay
from tests.fakes.staged import convicted, staffed

BATCH, SHARDS, ROUNDS, STEPS = 2, 2, 2, 8
GREEDY, WARM = Asked(5, 4), Asked(5, 4, 0.8)
PROMPTS = [b"abc", b"x", b"hello", b"de", b"zz", b"q=1", b"4"]


def net() -> Gpt:
    made = build(GptConfig(n_layer=1, n_head=2, d_model=16, context=12), seed=3)
    assert isinstance(made, Gpt)
    with torch.no_grad():  # bytes that are far from equally likely
        for parameter in made.parameters():
            parameter.mul_(4.0)
    return made


@cache
def files(asked: Asked) -> JobArtifacts:
    return inference_job(net(), PROMPTS, asked, batch=BATCH, shards=SHARDS, rounds=ROUNDS, seed=5)


def written_natively(prompt: bytes, count: int) -> list[int]:
    """By PyTorch and without a cache: the likeliest byte after the whole row, `count` times."""
    row, model = list(prompt), net()
    with torch.inference_mode():
        for _ in range(count):
            row.append(int(model(torch.tensor([row]))[0, -1].argmax()))
    return row


@cache
def alone(asked: Asked) -> torch.Tensor:
    """i32 [rows, length]: the task's program run by hand, without a market."""
    made = files(asked)
    run, found = Executor(made.inner), []
    for round_ in range(ROUNDS):
        for shard in range(SHARDS):
            state = list(made.genesis)
            state[made.slot_names.index("inference.round")] = torch.tensor(round_, dtype=torch.int32)
            for step in range(STEPS):
                context = StepContext(made.records, bytes(32), shard, round_ * STEPS + step)
                state = list(run.step(state, context))
            found.append(state[made.slot_names.index(TOKENS)])
    return torch.cat(found)


def test_greedy_rows_are_those_of_the_whole_model() -> None:
    made = files(GREEDY)
    limits = RESOURCE_LIMITS
    validate(made.inner, 7, max_bytes=limits.step_bytes, max_operations=limits.step_operations)
    assert Op.RECORD in {node.op for node in made.inner.nodes}
    rows = alone(GREEDY)
    assert rows.shape == (BATCH * SHARDS * ROUNDS, GREEDY.length)
    for prompt, row in zip(PROMPTS, rows.tolist(), strict=False):
        whole = written_natively(prompt, GREEDY.new_bytes)
        assert row == whole + [-1] * (GREEDY.length - len(whole))
    assert rows[-1].tolist() == rows[-2].tolist(), "rows beyond the last prompt repeat it"


@pytest.mark.long
def test_drawn_rows_differ_by_row_shard_and_round_and_not_by_run() -> None:
    rows = alone(WARM)
    assert torch.equal(rows, alone.__wrapped__(WARM)) and not torch.equal(rows, alone(GREEDY))
    assert rows[-1].tolist() != rows[-2].tolist(), "the same prompt, drawn twice"
    hot = alone(Asked(5, 4, 50.0))
    ends = [tuple(row[row >= 0][-4:].tolist()) for row in hot]
    assert len(set(ends)) == len(ends), "no two rows draw alike"


def test_prompts_of_a_shard_that_is_away_are_not_answered() -> None:
    made = files(GREEDY)
    outer, state = Executor(made.outer), list(made.outer_genesis)
    sent = [torch.full((BATCH, GREEDY.length), 65 + k, dtype=torch.int32) for k in range(SHARDS)]
    for there in ((True, False), (False, True)):
        state = [*state[:2], *sent, *(torch.tensor(here) for here in there)]
        state = list(outer.step(state, StepContext(None, bytes(32), 0, 0)))
    assert state[1] == ROUNDS, "the round is counted in the state"
    found = results.rows({RESULT: state[0]})
    a, b = b"A" * GREEDY.length, b"B" * GREEDY.length
    assert found == [a, a, None, None, None, None, b, b]


def post(day: MarketDay, asked: Asked) -> JobId:
    return day.post(files(asked), steps_per_round=STEPS, segment_steps=2, rounds=ROUNDS)


@pytest.mark.long
def test_the_market_gives_the_rows_of_every_prompt(tmp_path: Path) -> None:
    day = MarketDay(tmp_path / "day")
    job_id = post(day, WARM)
    staffed(day)
    assert day.run(day.closed(job_id)), day.events[-3:]
    told = [*day.named("trained"), *day.named("committed")]
    assert told and not any("loss" in event for event in told), "it is no training, and has none"
    found = day.fetch(job_id, tmp_path / "result")
    assert list(found) == [RESULT] and torch.equal(found[RESULT], alone(WARM))
    size = day.markets["client"].job(job_id).terms.record_size
    assert results.write_rows(tmp_path, found, len(PROMPTS), size) == len(PROMPTS)
    lines = [json.loads(line) for line in (tmp_path / results.WRITTEN).read_text().splitlines()]
    assert [line["prompt"].encode() for line in lines] == PROMPTS
    assert {len(line["answer"]) for line in lines} == {WARM.new_bytes}
    assert all(line["text"] == line["prompt"] + line["answer"] for line in lines)
    assert results.numbers(found) == {} and results.named(found) == [RESULT]
    assert verify(tmp_path / "result").rounds == ROUNDS
    assert results.file_of(day.blocks(), found[RESULT]) in _published(day, job_id)


def _published(day: MarketDay, job_id: JobId) -> list[str]:
    """CIDs of the files of the last settled outer claim's output."""
    market = day.markets["client"]
    view = market.current(job_id, Kind.OUTER, ROUNDS - 1, 0)
    blocks, terms = day.blocks(), market.job(job_id).terms
    assert view is not None
    (*_, last) = read_checkpoints(blocks, view.claim.manifest, view.roots)
    index = blocks.read_file(last.cid, MAX_INDEX_BYTES)
    return [slot.cid for slot in decode_index(index, terms.outer_slots)]


@pytest.mark.long
def test_a_byte_that_the_policy_did_not_draw_is_convicted(tmp_path: Path) -> None:
    day = MarketDay(tmp_path / "day")
    job_id = post(day, WARM)
    made = files(WARM)
    at = 5  # a byte that row 0 of either shard writes
    plan = WeightPlan(0, at - 1, made.slot_names.index(TOKENS), at)
    finding, view = convicted(day, job_id, partial(FaultySolver, plan=plan))
    assert isinstance(finding, WrongSegment) and finding.segment == (at - 1) // 2
    assert (view.claim.kind, view.claim.round) == (Kind.TASK, 0)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"context": 8}, "exceed the model's context"),
        ({"steps": 7}, "needs 8 steps"),
        ({"rounds": 3}, "3 rounds of 4 rows"),
        ({"prompts": 9}, "hold 5 to 8 prompts, and there are 9"),
        ({"asked": Asked(5, 4, -1.0)}, "below 0"),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, Any], why: str) -> None:
    given: dict[str, Any] = {"asked": GREEDY, "context": 12, "prompts": 7, "rows": 4, "rounds": 2, "steps": 8}
    check_turns(**given)
    with pytest.raises(Stop, match=why):
        check_turns(**{**given, **changes})


@pytest.mark.parametrize("prompts", [[], [b""], [b"sixsix"]])
def test_prompts_that_no_record_holds_are_refused(prompts: list[bytes]) -> None:
    with pytest.raises(Stop, match="prompt"):
        prompt_records(prompts, GREEDY)
