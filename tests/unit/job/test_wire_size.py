"""Bytes that a shard sends in a round, as ``job validate`` and ``job estimate`` show them."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

import pytest
import torch

from assay.app.units import show_bytes
from assay.blocks.blockstore import BlockStore
from assay.job.build import build
from assay.job.estimate import drafted
from assay.job.job_warnings import cautions
from assay.job.read import JobFile, parse_job_file
from assay.job.templates import LOCAL, by_algorithm, stated, template
from assay.job.wire_size import Wire, file_bytes, nothing_saved, parameters_of, wire_of
from assay.node.slots import store_state
from assay.training.job import JobArtifacts
from tests.unit.cli.test_command_line import assay

PARAMETERS = 8 * 64 + 8 + 10 * 8 + 10


def job(algorithm: str, **changes: str) -> JobFile:
    """A small MLP by an outer algorithm; `changes`: of [training]."""
    return parse_job_file(job_text(algorithm, **changes), "a job")


def job_text(algorithm: str, **changes: str) -> str:
    """The same, as it is written."""
    text = by_algorithm(template("mlp", source="digits", rounds=4, times=LOCAL), algorithm)
    text = stated(stated(text, "model.hidden", "8"), "model.layers", "1")
    for key, value in changes.items():
        text = stated(text, f"training.{key}", value)
    return text


@cache
def files_of(algorithm: str) -> JobArtifacts:
    return build(job(algorithm))


def found(body: JobFile) -> Wire:
    files = files_of(body.outer.algorithm)
    assert parameters_of(files) == PARAMETERS
    wire = wire_of(body, files, drafted(body, files), PARAMETERS)
    assert wire is not None
    return wire


def test_whole_parameters_are_f32_and_data_parallel_sends_them_every_step() -> None:
    assert found(job("diloco")) == Wire(4 * PARAMETERS, 64 * 4 * PARAMETERS, 4 * PARAMETERS)
    of_four = found(job("diloco", micro_steps="4"))
    assert of_four.data_parallel == 16 * 4 * PARAMETERS, "one gradient a step of the optimiser"
    of_many = found(job("diloco", micro_steps="128"))
    assert of_many.data_parallel == 4 * PARAMETERS // 2


@pytest.mark.parametrize(
    ("algorithm", "number"),
    [("diloco-4bit", "block_size = 1")],
)
def test_numbers_that_save_nothing_are_told(algorithm: str, number: str) -> None:
    key = number.split(" ")[0]
    text = re.sub(rf"\n{key} *=.*", f"\n{number}", job_text(algorithm))
    assert f"\n{number}\n" in text
    body = parse_job_file(text, "a job")
    files = build(body)
    wire = wire_of(body, files, drafted(body, files), PARAMETERS)
    assert wire is not None and wire.task >= 4 * PARAMETERS
    (line,) = nothing_saved(body, wire)
    assert line.startswith(f"by {algorithm} with this ") and key in line
    assert line in cautions(body, files, drafted(body, files), wire)


@pytest.mark.parametrize("algorithm", ["diloco", "diloco-4bit"])
def test_a_recipes_own_numbers_save(algorithm: str) -> None:
    assert nothing_saved(job(algorithm), found(job(algorithm))) == []


def test_codes_are_packed_to_their_bits() -> None:
    """4 bits a number and 4 bytes where the packing begins, and a scale of f32 a block of 64, the last of
    which is filled up."""
    blocks = ((8, 64), (1, 8), (2, 64), (1, 10))
    codes = sum(4 + rows * numbers * 4 // 8 for rows, numbers in blocks)
    scales = sum(4 * rows for rows, _ in blocks)
    assert found(job("diloco-4bit")).task == codes + scales


def test_codes_that_are_as_at_genesis_are_sent_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """So coarse a coding sends zeros, in fewer bits, and no ratio divides by nothing."""
    usual = found(job("diloco-4bit"))
    monkeypatch.setattr("assay.job.wire_size.CHANGE", 0.0)
    zeros = found(job("diloco-4bit"))
    assert 0 < zeros.task < usual.task and zeros.fewer > usual.fewer


@pytest.mark.long
def test_streaming_sends_a_fragment() -> None:
    whole, part = found(job("diloco-4bit")), found(job("streaming"))
    assert 0 < part.task < whole.task and part.data_parallel == whole.data_parallel


@pytest.mark.parametrize("values", [[0, 3, 15], [0, 1 << 20], [-7, 8]])
def test_a_slots_file_is_counted_as_it_is_stored(tmp_path: Path, values: list[int]) -> None:
    tensor = torch.tensor(values, dtype=torch.int32)
    blocks = BlockStore(tmp_path)
    (slot,) = store_state(blocks, [tensor]).slots
    assert file_bytes(tensor) == len(blocks.read_file(slot.cid, 1 << 20))


@pytest.mark.parametrize("command", ["validate", "estimate"])
def test_a_command_says_what_a_shard_sends(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("assay.job.build.build", lambda body, **_: files_of(body.outer.algorithm))
    (tmp_path / "job.toml").write_text(job_text("diloco-4bit"))
    status, out, _ = assay("--json", "job", command, "job.toml")
    wire = json.loads(out)["data"]["wire"]
    assert status == 0 and wire["fewer"] == wire["dataParallel"] / wire["task"] > 64 * 5
    status, out, _ = assay("job", command, "job.toml")
    said = f"sent by each shard {show_bytes(wire['task'])} a round (data parallel training:"
    assert f"{said} {show_bytes(wire['dataParallel'])})" in " ".join(out.split())
