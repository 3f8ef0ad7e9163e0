"""Users' models as programs: Llama style, residual networks, recurrent networks, LoRA."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from assay.program.execute import Executor, StepContext
from assay.protocol.errors import Stop
from assay.training import lora, models
from assay.training.optimisers import AdamW, Sgd
from tests.unit.training.architectures import CharGru, CharLstm, Llama, ResNet
from tests.unit.training.steps import SEED, built, compare, corpus, images

CAREFUL = AdamW(lr=0.01, eps=1e-4, weight_decay=0.01)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(5)


@pytest.mark.long
@pytest.mark.parametrize("table", [False, True], ids=["computed", "buffers"])
def test_a_llama_step_is_what_pytorch_computes(table: bool) -> None:
    made = compare(Llama(table=table), Sgd(lr=0.1), corpus(8), steps=2, relative=5e-3)
    assert made.slot_names.count("embedding.weight") == 1
    assert ("cosine" in made.slot_names) is table


@pytest.mark.long
@pytest.mark.parametrize("norm", ["batch", "group"])
def test_a_residual_network_step_is_what_pytorch_computes(norm: str) -> None:
    made = compare(ResNet(norm=norm), Sgd(lr=0.05), images(), steps=2, relative=2e-2)
    if norm == "batch":
        after = Executor(made.inner).run(made.genesis, StepContext(made.records, SEED, 0, 0), 2)
        held = dict(zip(made.slot_names, after, strict=True))
        assert held["blocks.0.norm_1.num_batches_tracked"] == 2
        assert not torch.equal(held["blocks.0.norm_1.running_mean"], torch.zeros(4))


@pytest.mark.long
@pytest.mark.parametrize("model", [CharLstm, CharGru])
def test_a_recurrent_step_is_what_pytorch_computes(model: type[nn.Module]) -> None:
    compare(model(), Sgd(lr=0.1), corpus(5), steps=2, relative=5e-3)


@pytest.mark.long
def test_dropout_in_a_model_differs_from_step_to_step() -> None:
    made = built(CharGru(dropout=0.5), Sgd(lr=0.0, momentum=0.0), corpus(5))
    executor, state = Executor(made.inner), list(made.genesis)
    first, again = (executor.step(state, StepContext(made.records, SEED, 0, 0))[-1] for _ in range(2))
    assert first == again
    assert executor.step(state, StepContext(made.records, SEED, 0, 1))[-1] != first


def _base(folder: Path) -> Path:
    trained_before = models.build(models.GptConfig(n_layer=1, n_head=2, d_model=16, context=8), 3)
    path = folder / "model.safetensors"
    save_file({n: p.detach().clone() for n, p in trained_before.named_parameters()}, path)
    return path


@pytest.mark.long
def test_lora_trains_the_adapters_alone(tmp_path: Path) -> None:
    model = models.build(models.GptConfig(n_layer=1, n_head=2, d_model=16, context=8), 4)
    lora.load(model, _base(tmp_path))
    adapted = lora.adapt(model, ["*qkv", "*up"], rank=2, alpha=4.0)
    assert adapted == ["blocks.0.attention.qkv", "blocks.0.up"]
    made = compare(model, CAREFUL, corpus(8), steps=2, relative=2e-2)
    trainable = made.slot_names[: made.inner.params]
    assert all(name.endswith((".down", ".up")) for name in trainable) and len(trainable) == 4
    after = Executor(made.inner).run(made.genesis, StepContext(made.records, SEED, 0, 0), 3)
    for name, x, y in zip(made.slot_names, made.genesis, after, strict=True):
        frozen = name not in trainable and name in dict(model.named_parameters())
        assert not frozen or torch.equal(x, y)
    assert made.outer.slots == 4 * len(trainable)
    assert not torch.equal(after[0], made.genesis[0]) or not torch.equal(after[1], made.genesis[1])


def test_lora_begins_as_the_model_it_adapts(tmp_path: Path) -> None:
    config = models.GptConfig(n_layer=1, n_head=2, d_model=16, context=8)
    model, tokens = models.build(config, 4), torch.arange(8)[None]
    lora.load(model, _base(tmp_path))
    before = model(tokens)
    lora.adapt(model, ["*"], rank=2, alpha=4.0)
    torch.testing.assert_close(model(tokens), before)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith(".up"):
                p.fill_(0.1)
    adapted = model(tokens)
    lora.merge(model)
    torch.testing.assert_close(model(tokens), adapted, rtol=1e-4, atol=1e-5)
    assert [n for n, _ in model.named_parameters()] == [
        n for n, _ in models.build(config, 0).named_parameters()
    ]


def test_weights_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    other = models.build(models.GptConfig(n_layer=2, n_head=2, d_model=16, context=8), 4)
    with pytest.raises(Stop, match=r"blocks\.1"):
        lora.load(other, _base(tmp_path))
    with pytest.raises(Stop, match="no file"):
        lora.load(other, tmp_path / "missing.safetensors")
    with pytest.raises(Stop, match="no linear layer"):
        lora.adapt(other, ["*convolution*"], rank=2, alpha=1.0)
