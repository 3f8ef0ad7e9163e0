"""The cache of traced rounds: a read gives exactly what was traced, or the round is traced again."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.blocks.cid_only import CidOnlyBlocks
from assay.job import trace_cache
from assay.job.build import build
from assay.job.read import read_job_file
from assay.job.templates import LOCAL, by_algorithm, own_template
from assay.job.trace_cache import SUFFIX, Traces, decode, encode, traces
from assay.node.artifacts import publish_job
from assay.training.job import JobArtifacts, TracedRound
from tests.unit.job.test_trace_key import BESIDE, MODEL

KEY = bytes(32)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "my_model.py").write_text(MODEL)
    (tmp_path / "beside.py").write_text(BESIDE)
    (tmp_path / "turn.json").write_text('{"turn": 0.25}')
    return tmp_path


def counted(*arguments: Any, **options: Any) -> TracedRound:
    """Makes a round. How often it did stands in a module that is known by its name: else it were another
    call each time."""
    vars(trace_cache)["calls"] += 1
    for argument in arguments:
        if callable(argument):
            argument()
    return small()


def calls() -> int:
    return int(vars(trace_cache)["calls"])


@pytest.fixture(autouse=True)
def _none_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_cache, "calls", 0, raising=False)


def small(*arguments: Any) -> TracedRound:
    """A round of a real job, without its programs."""
    return TracedRound(
        (),
        (),
        0,
        (),
        (),
        [torch.arange(3.0), torch.zeros(2, 2)],
        [torch.zeros(3)],
        ["a", "b"],
        comparable=True,
    )


def job(folder: Path, algorithm: str, keep: Any = None, more: str = "") -> JobArtifacts:
    text = by_algorithm(own_template("my_model.py:build", batch=2, rounds=1, times=LOCAL), algorithm)
    (folder / "job.toml").write_text(text + more)
    sys.modules.pop("beside", None)
    body = read_job_file(folder / "job.toml")
    return build(body, keep=keep) if keep else build(body)


@pytest.mark.parametrize(
    ("algorithm", "more"),
    [("diloco", ""), ("diloco-4bit", "\n[held_out]\nrecords = 1\n"), ("sparseloco", "")],
)
def test_what_is_read_is_published_as_what_was_traced(folder: Path, algorithm: str, more: str) -> None:
    plain = job(folder, algorithm, more=more)
    made: list[TracedRound] = []

    def keep(make: Callable[..., TracedRound], *arguments: Any, **options: Any) -> TracedRound:
        made.append(make(*arguments, **options))
        return decode(encode(made[0], KEY), KEY)

    again = job(folder, algorithm, keep, more)
    one, other = (publish_job(CidOnlyBlocks(), files) for files in (plain, again))
    assert one == other
    for field in fields(TracedRound):
        before, after = getattr(plain, field.name), getattr(again, field.name)
        if field.name in ("genesis", "outer_genesis"):
            before, after = ([(x.dtype, x.shape, bits(x)) for x in state] for state in (before, after))
        assert before == after, field.name
    assert (again.native_loss is None) == (plain.native_loss is None)


def bits(x: Tensor) -> bytes:
    return x.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def test_bits_that_only_look_like_zeros_are_kept() -> None:
    odd = [torch.tensor([-0.0]), torch.tensor([float("nan")]), torch.tensor([[True, False]]), torch.zeros(0)]
    made = TracedRound((), (), 0, (), (), odd, [], ["a", "b", "c", "d"])
    assert [bits(x) for x in decode(encode(made, KEY), KEY).genesis] == [bits(x) for x in odd]


def test_a_step_is_traced_once(folder: Path) -> None:
    home = folder / "traces"
    first = job(folder, "diloco", Traces(home).keep)
    (file,) = home.glob(f"*{SUFFIX}")

    def never(*arguments: Any, **options: Any) -> TracedRound:
        raise AssertionError("traced again")

    class Read(Traces):
        def keep(self, make: Any, *arguments: Any, **options: Any) -> TracedRound:
            never.__module__, never.__qualname__ = make.__module__, make.__qualname__  # the same key
            found = super().keep(never, *arguments, **options)
            return found

    again = job(folder, "diloco", Read(home).keep)
    assert again.inner.root == first.inner.root and file.exists()


def test_whoever_asks_again_gets_what_was_made(tmp_path: Path) -> None:
    for number in (1, 2, 1, 2):
        Traces(tmp_path).keep(counted, number)
    assert calls() == 2


def test_a_damaged_file_is_not_used(tmp_path: Path) -> None:
    Traces(tmp_path).keep(counted, 1)
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    for at in range(0, len(whole), max(1, len(whole) // 50)):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        before = calls()
        Traces(tmp_path).keep(counted, 1)
        assert calls() == before + 1, f"byte {at}"
    file.write_bytes(whole[:-1])
    Traces(tmp_path).keep(counted, 1)
    assert calls() == before + 2


def test_another_calls_file_is_not_used(tmp_path: Path) -> None:
    Traces(tmp_path).keep(counted, 1)
    (file,) = tmp_path.iterdir()
    Traces(tmp_path).keep(counted, 2)
    (other,) = {*tmp_path.iterdir()} - {file}
    other.write_bytes(file.read_bytes())
    Traces(tmp_path).keep(counted, 2)
    assert calls() == 3


@pytest.mark.parametrize("reads", ["a file", "a module"])
def test_what_is_read_while_it_is_traced_counts(
    tmp_path: Path, reads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its key was made before."""
    home, data = tmp_path / "traces", tmp_path / "late.txt"
    (tmp_path / "late_one.py").write_text("RATE = 1\n")
    data.write_text("1")
    monkeypatch.syspath_prepend(str(tmp_path))

    work = partial(data.read_text) if reads == "a file" else partial(__import__, "late_one")
    Traces(home).keep(counted, work)
    monkeypatch.delitem(sys.modules, "late_one", raising=False)
    Traces(home).keep(counted, work)
    assert calls() == 1
    (data if reads == "a file" else tmp_path / "late_one.py").write_text("RATE = 22\n")
    monkeypatch.delitem(sys.modules, "late_one", raising=False)
    Traces(home).keep(counted, work)
    assert calls() == 2


def test_what_has_no_key_is_traced_each_time(tmp_path: Path) -> None:
    for _ in range(2):
        Traces(tmp_path / "traces").keep(counted, (i for i in range(2)))
    assert calls() == 2 and not (tmp_path / "traces").exists()


def test_the_model_files_digest_is_part_of_the_key(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("one")
    Traces(tmp_path / "traces", [file]).keep(counted, 1)
    file.write_text("two")
    Traces(tmp_path / "traces", [file]).keep(counted, 1)
    assert calls() == 2


def test_a_dry_run_reads_and_adds_nothing(tmp_path: Path) -> None:
    app: Any = SimpleNamespace(settings=SimpleNamespace(home=tmp_path), dry_run=True)
    traces(app).keep(counted, 1)
    assert not (tmp_path / trace_cache.FOLDER).exists()
    app.dry_run = False
    traces(app).keep(counted, 1)
    app.dry_run = True
    traces(app).keep(counted, 1)
    assert calls() == 2


def test_a_folder_that_cannot_be_written_costs_nothing_but_time(tmp_path: Path) -> None:
    (tmp_path / "traces").write_text("a file")
    Traces(tmp_path / "traces").keep(counted, 1)
    assert calls() == 1


def test_what_was_not_used_for_longest_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in (1, 2, 3):
        Traces(tmp_path).keep(counted, number)
    size = next(tmp_path.iterdir()).stat().st_size
    for at, path in enumerate(sorted(tmp_path.iterdir(), key=lambda path: path.stat().st_mtime_ns)):
        os.utime(path, (at, at))
    Traces(tmp_path).keep(counted, 1)  # used now
    monkeypatch.setattr(trace_cache, "MAX_BYTES", 3 * size)
    Traces(tmp_path).keep(counted, 4)
    before = calls()
    for number in (1, 3, 4):
        Traces(tmp_path).keep(counted, number)
    assert calls() == before
    Traces(tmp_path).keep(counted, 2)
    assert calls() == before + 1


def test_a_model_of_a_notebook_is_known_by_its_code(tmp_path: Path) -> None:
    """Its classes stand in no file."""
    for constant in ("1.0", "2.0", "1.0"):
        space: dict[str, Any] = {"nn": nn, "__name__": "__main__"}
        code = f"class Net(nn.Module):\n    def forward(self, x):\n        return x * {constant}\n"
        exec(code, space)
        Traces(tmp_path).keep(counted, [space["Net"]()])
    assert calls() == 2
