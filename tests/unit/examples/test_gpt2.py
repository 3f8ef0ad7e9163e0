"""The example of GPT-2 as published: its names and shapes, its tokens, and that a market's step trains it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from assay.program.execute import Executor, StepContext
from assay.training.job import build_job
from assay.training.outer import DiLoCo
from assay.training.recipe import checked

FILE = Path(__file__).resolve().parents[3] / "examples" / "gpt2" / "model.py"


@pytest.fixture(scope="module", name="gpt2")
def loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gpt2_example", FILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_small_has_the_published_parameters(gpt2: ModuleType) -> None:
    with torch.device("meta"):
        made = gpt2.Transformer(gpt2.Size())
    shapes = {name: tuple(p.shape) for name, p in made.named_parameters()}
    assert sum(p.numel() for p in made.parameters()) == 124_439_808
    assert len(shapes) == 148
    assert shapes["wte.weight"] == (50_257, 768) and shapes["wpe.weight"] == (1_024, 768)
    assert shapes["h.11.attn.c_attn.weight"] == (768, 2_304)
    assert shapes["h.0.mlp.c_proj.weight"] == (3_072, 768)


def test_tokens_are_of_sixteen_bits(gpt2: ModuleType) -> None:
    tokens = [50_256, 0, 255, 256]
    raw = b"".join(token.to_bytes(2, "little") for token in tokens)
    inputs, targets = gpt2.TokenLayout(3).split(torch.tensor([list(raw)], dtype=torch.uint8))
    assert inputs.tolist() == [tokens[:-1]] and targets.tolist() == [tokens[1:]]


@pytest.mark.long
def test_a_users_tokens_are_trained_on_and_learnt(gpt2: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_bytes(b"".join((290 + i % 3).to_bytes(2, "little") for i in range(9 * 60)))
    made = checked(gpt2.recipe(gpt2.Size(1, 2, 16, 300, 16), 8, file), "gpt2")
    assert made.optimiser is not None
    job = build_job(made.model, made.loss, made.optimiser, made.dataset, batch=4, shards=1, outer=DiLoCo())
    executor, state, losses = Executor(job.inner), job.genesis, []
    for step in range(40):
        state = executor.step(state, StepContext(job.records, bytes(32), 0, step))
        losses.append(float(state[-1]))
    assert losses[0] == pytest.approx(5.7, abs=0.1) and losses[-1] < losses[0] - 0.15
