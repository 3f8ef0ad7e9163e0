"""A client's own model: from a file to a job, and every way in which the file can be wrong."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from assay.job.build import build
from assay.job.parts import recipe_of
from assay.job.read import BadJobFile, OwnModel, read_job_file
from assay.job.templates import LOCAL, own_template, template
from assay.program.lowering.tracing import UnsupportedOperation
from assay.protocol.errors import Stop
from assay.training import recipe
from assay.training.recipe import BadRecipe

NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(64, 4)
        self.outer = nn.Linear(4, 10)

    def forward(self, x):
        return self.outer(torch.{function}(self.inner(x)))
"""
FILE = """
import torch
from net import Net
from assay.training.datasets import digits
from assay.training.losses import cross_entropy
from assay.training.optimisers import Sgd
from assay.training.recipe import Recipe

def build():
    torch.manual_seed(0)
    return Recipe(Net(), cross_entropy, digits(), Sgd(lr=0.1))

def other():
    return Net()

def crooked():
    return Recipe(Net(), "cross_entropy", digits(), Sgd())

constant = 3
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "net.py").write_text(NET.format(function="tanh"))
    (tmp_path / "my_model.py").write_text(FILE)
    yield tmp_path
    sys.modules.pop("net", None)


def _job_file(folder: Path, source: str = "../my_model.py:build") -> Path:
    (folder / "jobs").mkdir(exist_ok=True)
    path = folder / "jobs" / "job.toml"
    path.write_text(own_template(source, batch=4, rounds=2, times=LOCAL))
    return path


def test_a_model_from_a_file_becomes_a_job(folder: Path) -> None:
    file = read_job_file(_job_file(folder))
    assert isinstance(file.model, OwnModel) and Path(file.model.source).is_absolute()
    made = build(file)
    assert made.slot_names[:2] == ["inner.weight", "inner.bias"]
    assert made.model == {"kind": "own", "name": "my_model.py:build"}
    assert made.records is not None and len(made.records) == 1438
    assert recipe_of(file).dataset.held_out == made.held_out
    assert made.inner.root == build(file).inner.root
    assert str(folder) not in sys.path


def test_what_a_program_cannot_do_names_the_line_of_the_client(folder: Path) -> None:
    (folder / "net.py").write_text(NET.format(function="special.i0e"))
    with pytest.raises(UnsupportedOperation) as caught:
        build(read_job_file(_job_file(folder)))
    assert caught.value.operation == "aten.special_i0e.default"
    assert caught.value.source.endswith("net.py:12")


def test_a_parameter_that_is_not_used_is_named_and_frozen(folder: Path) -> None:
    unused = "super().__init__(); self.x = nn.Linear(2, 2)"
    (folder / "net.py").write_text(NET.format(function="tanh").replace("super().__init__()", unused))
    made = build(read_job_file(_job_file(folder)))
    assert made.idle == ("x.weight", "x.bias") and "x.weight" not in made.slot_names[: made.inner.params]


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("my_model.py", "names no function"),
        ("my_model:build", "names no function"),
        ("missing.py:build", "no file"),
        ("my_model.py:missing", "no function missing"),
        ("my_model.py:constant", "no function constant"),
        ("my_model.py:other", "returned a Net"),
        ("my_model.py:crooked", "loss is a str"),
    ],
)
def test_a_file_that_gives_no_recipe_is_refused(folder: Path, source: str, says: str) -> None:
    with pytest.raises(BadRecipe, match=says):
        recipe.load(source, folder)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda text: text.replace("from =", "form ="), "model_kind|template = "),
        (lambda text: text + '[data]\nsource = "digits"\nmax_bytes = 5\n', "no place beside"),
        (lambda text: text.replace("[outer]", "[inner]"), "outer"),
    ],
)
def test_a_job_file_that_contradicts_itself_is_refused(
    folder: Path, change: Callable[[str], str], says: str
) -> None:
    path = _job_file(folder)
    path.write_text(change(path.read_text()))
    with pytest.raises(BadJobFile, match=says):
        read_job_file(path)


@pytest.mark.parametrize("section", ["data", "optimiser", "schedule"])
def test_a_template_needs_its_sections(tmp_path: Path, section: str) -> None:
    text = template("mlp", source="digits", rounds=2, times=LOCAL)
    start = text.index(f"[{section}]")
    cut = text[:start] + text[text.index("\n[", start) + 1 :]
    (tmp_path / "job.toml").write_text(cut)
    with pytest.raises(BadJobFile, match=section):
        read_job_file(tmp_path / "job.toml")


@pytest.mark.long
def test_the_template_of_a_residual_network_is_a_job(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    text = template("cnn", source="digits", rounds=2, times=LOCAL, optimiser="lion")
    path.write_text(text.replace("width = 16", "width = 4").replace("batch = 32", "batch = 2"))
    made = build(read_job_file(path))
    assert made.model == {"kind": "cnn", "side": 8, "width": 4, "classes": 10}
    assert "exp_avg.blocks.0.first.weight" in made.slot_names
    path.write_text(text.replace('"digits"', '"stdlib"'))
    with pytest.raises(Stop, match="the cnn template trains on digits"):
        build(read_job_file(path))
