"""The key of a traced step: the same for the same work, another for whatever changes it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from assay.job import trace_key
from assay.job.templates import LOCAL, by_algorithm, own_template
from assay.job.trace_key import Unkeyed, key_of
from assay.training.job import TracedRound

MODEL = """
import os

import torch
from torch import nn
from torch.nn import functional as F

import beside
from assay.training.datasets import Dataset, LabelledLayout
from assay.training.optimisers import Sgd
from assay.training.recipe import Recipe

SCALE = 2.0


def scaled(x, by=3.0):
    return x * SCALE * by


def drawn(rate):
    def act(x):
        return F.dropout(x, rate)

    return act


class Net(nn.Module):
    slope = 0.25

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 6)
        self.second = nn.Linear(6, 3)
        self.register_buffer("shift", torch.tensor([0.5]))
        self.drop = nn.Dropout(0.0)
        self.gain = 1.5
        self.act = drawn(0.125)

    def forward(self, x):
        y = F.leaky_relu(self.first(x), self.slope)
        y = self.act(self.drop(beside.turned(y)))
        if os.environ.get("WIDE"):
            y = y * 2
        return scaled(self.second(y)) * self.gain + self.shift


def loss(outputs, targets):
    return F.cross_entropy(outputs, targets, label_smoothing=0.0)


def build():
    torch.manual_seed(1)
    data = bytes(range(1, 41)) + bytes(10)
    data = bytes(b % 3 if i % 5 == 4 else b for i, b in enumerate(data))
    return Recipe(Net(), loss, Dataset(LabelledLayout(4, 16.0), data[:40], data[40:]), Sgd(0.1))
"""
BESIDE = """
import json
from pathlib import Path

TURN = json.loads((Path(__file__).parent / "turn.json").read_text())["turn"]


def turned(x):
    return x + TURN
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "my_model.py").write_text(MODEL)
    (tmp_path / "beside.py").write_text(BESIDE)
    (tmp_path / "turn.json").write_text('{"turn": 0.25}')
    (tmp_path / "job.toml").write_text(own_template("my_model.py:build", batch=2, rounds=1, times=LOCAL))
    return tmp_path


NEVER = 1
"""A time of change that no other file has, in seconds."""


def build_arguments(folder: Path, changed: Callable[[str], str] = lambda text: text) -> tuple[Any, ...]:
    """Arguments that `job.build` passes to `keep`, with the options, for the job file with this change."""
    from assay.job.build import build
    from assay.job.read import read_job_file

    file = folder / "job.toml"
    file.write_text(changed(file.read_text()))
    caught: list[tuple[Any, ...]] = []

    class Caught(Exception):
        pass

    def keep(make: Callable[..., TracedRound], *arguments: Any, **options: Any) -> TracedRound:
        caught.append((make, arguments, options))
        raise Caught

    sys.modules.pop("beside", None)
    with pytest.raises(Caught):
        build(read_job_file(file), keep=keep)
    return caught[0]


def key(folder: Path, changed: Callable[[str], str] = lambda text: text) -> bytes:
    """The key of the folder's job."""
    make, arguments, options = build_arguments(folder, changed)
    return key_of(make, *arguments, files=[folder / "my_model.py"], **options)


def test_the_same_job_has_the_same_key_in_another_process(folder: Path) -> None:
    model = folder / "my_model.py"
    model.write_text(MODEL.replace('os.environ.get("WIDE")', "SCALE > 9"))  # hashes are seeded by a variable
    here = key(folder)
    assert key(folder) == here
    program = (
        "import sys; from pathlib import Path; from tests.unit.job.test_trace_key import key;"
        " sys.stdout.write(key(Path(sys.argv[1])).hex())"
    )
    root = Path(__file__).resolve().parents[3]
    found = set()
    for seed in ("1", "2"):  # of Python's hashes: the order of a set says nothing
        environment = {**os.environ, "PYTHONPATH": str(root), "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", program, str(folder)]
        found.add(subprocess.check_output(command, env=environment, text=True, cwd=folder))
    assert len(found) == 1, "though other modules are loaded here"


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("my_model.py", "SCALE = 2.0", "SCALE = 4.0"),
        ("my_model.py", "by=3.0", "by=5.0"),
        ("my_model.py", "drawn(0.125)", "drawn(0.25)"),
        ("my_model.py", "slope = 0.25", "slope = 0.5"),
        ("my_model.py", "nn.Dropout(0.0)", "nn.Dropout(0.5)"),
        ("my_model.py", "self.gain = 1.5", "self.gain = 2.5"),
        ("my_model.py", "torch.tensor([0.5])", "torch.tensor([0.25])"),
        ("my_model.py", "y * 2", "y * 3"),
        ("my_model.py", "label_smoothing=0.0", "label_smoothing=0.1"),
        ("my_model.py", "F.leaky_relu(self.first(x), self.slope)", "F.leaky_relu(self.first(x))"),
        ("my_model.py", "manual_seed(1)", "manual_seed(2)"),
        ("my_model.py", "range(1, 41)", "range(2, 42)"),
        ("my_model.py", "+ bytes(10)", "+ bytes(5) + b'aaaaa'"),
        ("my_model.py", "LabelledLayout(4, 16.0)", "LabelledLayout(4, 8.0)"),
        ("my_model.py", "Sgd(0.1)", "Sgd(0.1, momentum=0.5)"),
        ("my_model.py", "\nimport os\n", "\n\nimport os\n"),  # lines are named by what is traced
        ("beside.py", "x + TURN", "x - TURN"),
        ("beside.py", "\n\n\n", "\n\n\n\n"),
        ("turn.json", "0.25", "0.5"),
    ],
)
@pytest.mark.parametrize("sources", [True, False], ids=["sources", "values alone"])
def test_any_changed_file_gives_another_key(
    folder: Path, file: str, old: str, new: str, sources: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the files, and without looking at them: by what was made of them."""
    if not sources:
        monkeypatch.setattr(trace_key, "own_sources", list)

    def found() -> bytes:
        make, arguments, options = build_arguments(folder)
        return key_of(make, *arguments, files=[folder / "my_model.py"] if sources else [], **options)

    before = found()
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new))
    os.utime(
        folder / file, (NEVER, NEVER)
    )  # else a source of the same second and size is read from __pycache__
    assert found() != before


@pytest.mark.parametrize(
    "changed",
    [
        lambda text: text.replace("batch = 2", "batch = 4"),
        lambda text: text.replace("accumulate = 1", "accumulate = 2"),
        lambda text: text.replace("seed = 1", "seed = 2"),
        lambda text: text.replace("\nshards = 2", "\nshards = 3"),
        lambda text: text.replace("micro_steps = 1", "micro_steps = 2"),
        lambda text: text.replace('products = "auto"', 'products = "split"'),
        lambda text: text.replace("[precision.at]", '[precision.at]\n"my_model.py" = "split"'),
        lambda text: by_algorithm(text, "diloco-4bit"),
        lambda text: text.replace("[outer]", "[outer]\nslices = 2"),
        lambda text: text.replace("[outer]", "[held_out]\nrecords = 1\n\n[outer]"),
        lambda text: by_algorithm(text, "sparseloco"),
    ],
)
def test_any_option_of_a_job_file_that_makes_another_program_gives_another_key(
    folder: Path, changed: Callable[[str], str]
) -> None:
    text = (folder / "job.toml").read_text()
    assert changed(text) != text
    before = key(folder)
    assert key(folder, changed) != before


@pytest.mark.parametrize(
    ("old", "new"),
    [("learning_rate = 0.7", "learning_rate = 0.5"), ("momentum = 0.9", "momentum = 0.8")],
)
def test_so_do_the_outer_rate_and_momentum(folder: Path, old: str, new: str) -> None:
    before = key(folder)
    text = (folder / "job.toml").read_text()
    assert old in text
    assert key(folder, lambda text: text.replace(old, new)) != before


def test_prices_and_times_do_not(folder: Path) -> None:
    before = key(folder)
    changed = (folder / "job.toml").read_text().replace('task = "120s"', 'task = "300s"')
    assert 'task = "300s"' in changed
    assert key(folder, lambda _: changed) == before


def test_the_environment_counts_where_code_asks_for_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = key(folder)
    monkeypatch.setenv("WIDE", "1")
    assert key(folder) != before


@pytest.mark.parametrize("what", ["torch", "git", "numpy", "python", "package", "installed", "dtype"])
def test_any_version_gives_another_key(folder: Path, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = key(folder)
    if what == "torch":
        monkeypatch.setattr(torch, "__version__", "2.99.0")
    elif what == "git":
        monkeypatch.setattr(torch.version, "git_version", "0" * 40)
    elif what == "numpy":
        monkeypatch.setattr(trace_key.np, "__version__", "9.9")
    elif what == "python":
        monkeypatch.setattr(sys, "version", "3.99")
    elif what == "package":
        monkeypatch.setattr(trace_key, "_package", lambda: b"another")
    elif what == "installed":
        (folder / "packages" / "einops-0.8.dist-info").mkdir(parents=True)
        monkeypatch.syspath_prepend(str(folder / "packages"))
    else:
        torch.set_default_dtype(torch.float64)
    try:
        assert key(folder) != before
    finally:
        torch.set_default_dtype(torch.float32)


def test_every_file_of_the_package_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "room").mkdir()
    (tmp_path / "room" / "kernel.c").write_text("int x;")
    monkeypatch.setattr(trace_key, "PACKAGE", tmp_path)
    plain: Callable[[], bytes] = trace_key._package.__wrapped__
    before = plain()
    (tmp_path / "room" / "kernel.c").write_text("int y;")
    changed = plain()
    (tmp_path / "room" / "more.py").write_text("")
    assert len({before, changed, plain()}) == 3


def test_the_links_of_a_checkout_are_followed() -> None:
    assert trace_key.is_known("assay.chain.eth.rpc") and trace_key.is_known("torch.nn")
    assert trace_key.is_known("json") and trace_key.is_known("builtins") and trace_key.is_known("numpy")
    assert not trace_key.is_known(__name__) and not trace_key.is_known("__main__")
    assert Path(__file__) in trace_key.own_sources()


def alone(x: Any) -> bytes:
    return key_of(alone, x)


class Holder:
    def __init__(self, **held: Any) -> None:
        self.__dict__.update(held)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True),
        (1, 1.0),
        (0.0, -0.0),
        ("a", b"a"),
        ([1, 2], (1, 2)),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({1, 2}, {1, 3}),
        (["ab", "c"], ["a", "bc"]),
        (torch.zeros(2), torch.zeros(2, dtype=torch.int32)),
        (torch.zeros(2), torch.zeros(1, 2)),
        (torch.zeros(2), -torch.zeros(2)),
        (nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(2), requires_grad=False)),
        (Holder(a=1), Holder(a=2)),
        (Holder(a=1), Holder(b=1)),
        (nn.Linear, nn.Conv1d),
        (partial(max, 1), partial(max, 2)),
        (partial(max, 1), partial(min, 1)),
        (lambda x: x + 1, lambda x: x + 2),
        (torch.float32, torch.float64),
    ],
)
def test_what_differs_is_told_apart(one: Any, other: Any) -> None:
    assert alone(one) == alone(one)
    assert alone(one) != alone(other)


def test_tensors_that_are_one_are_not_two_that_are_equal() -> None:
    """Tied weights are one parameter."""
    x = torch.ones(2)
    assert alone([x, x]) != alone([torch.ones(2), torch.ones(2)])


def test_a_cycle_ends() -> None:
    one, other = Holder(), Holder()
    one.other, other.other = other, one  # type: ignore[attr-defined]
    assert alone(one) == alone(one)


@pytest.mark.parametrize(
    "made",
    [
        lambda: (i for i in range(2)),
        lambda: threading.Lock(),
        lambda: torch.zeros(2).to_sparse(),
    ],
    ids=["generator", "lock", "sparse"],
)
def test_what_cannot_be_told_apart_has_no_key(made: Callable[[], Any]) -> None:
    with pytest.raises(Unkeyed):
        alone(Holder(held=made()))
