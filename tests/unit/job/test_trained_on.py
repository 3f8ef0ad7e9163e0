"""``assay job init --template eval``: on the data that the model was trained on, or with a warning."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from safetensors.torch import save_file

from assay.client.receipt import read_receipt
from assay.job import weights
from assay.job.build import build
from assay.job.estimate import drafted
from assay.job.parts import recipe_of
from assay.job.read import parse_job_file, read_job_file
from assay.job.templates import LOCAL, stated, template
from assay.protocol.types import Terms
from assay.training import models
from assay.training.datasets import Dataset
from tests.fakes.command import run

WORDS = b"".join(b"%d men went to mow, " % n for n in range(9_000))
SHAPE = {"layers": "1", "heads": "1", "width": "8", "context": "12"}


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], tuple[Terms, Dataset]]:
    """The job with this `max_bytes` whose model is in `model`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mow.txt").write_bytes(WORDS)
    (tmp_path / "other.txt").write_bytes(WORDS.swapcase())
    folder = tmp_path / "model"
    folder.mkdir()

    def made(limit: int) -> tuple[Terms, Dataset]:
        text = template("gpt", source="mow.txt", rounds=1, times=LOCAL)
        for key, value in SHAPE.items():
            text = stated(text, f"model.{key}", value)
        body = parse_job_file(stated(text, "data.max_bytes", str(limit)), "job.toml")
        files, recipe = build(body), recipe_of(body)
        assert files.model == models.describe(models.GptConfig(1, 1, 8, 12))
        terms = drafted(body, files)
        (folder / "manifest.json").write_text(json.dumps({"model": files.model}))
        save_file(dict(recipe.model.named_parameters()), folder / "model.safetensors")
        monkeypatch.setattr(weights, "read_receipt", lambda _: SimpleNamespace(terms=terms))
        return terms, recipe.dataset

    return made


def assay(*arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = run("--json", *arguments).data
    return found


OF = ("job", "init", "eval.toml", "--template", "eval", "--weights", "model")


@pytest.mark.parametrize("limit", [4_000_000, 1_200_000, 50_000, 123_456])
def test_an_evaluation_holds_out_what_the_training_held_out(
    trained: Callable[[int], tuple[Terms, Dataset]], tmp_path: Path, limit: int
) -> None:
    terms, dataset = trained(limit)
    said = assay(*OF, "--data", "mow.txt")
    assert said["sameData"] is True and said["warnings"] == []
    found = recipe_of(read_job_file(tmp_path / "eval.toml")).dataset
    assert len(found.records) == terms.records * terms.record_size and found.records == dataset.records
    size = terms.record_size
    assert found.held_out[: len(dataset.held_out)] == dataset.held_out[: len(found.held_out)]
    assert abs(len(found.held_out) - len(dataset.held_out)) <= size


@pytest.mark.long
def test_data_of_another_training_are_named(trained: Callable[[int], tuple[Terms, Dataset]]) -> None:
    trained(50_000)
    said = assay(*OF, "--data", "other.txt")
    assert said["sameData"] is False
    (warning,) = said["warnings"]
    assert "other records than other.txt gives" in warning and "--data" in warning


@pytest.mark.long
def test_weights_without_a_receipt_are_of_data_that_nobody_knows(
    trained: Callable[[int], tuple[Terms, Dataset]], monkeypatch: pytest.MonkeyPatch
) -> None:
    trained(50_000)
    monkeypatch.setattr(weights, "read_receipt", read_receipt)
    said = assay(*OF, "--data", "mow.txt")
    assert said["sameData"] is None
    assert "no receipt says on which data" in said["warnings"][0]
