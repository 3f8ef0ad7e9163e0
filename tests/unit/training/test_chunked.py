"""Losses in parts: the numbers of the plain form, and no tensor larger than a part."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from assay.program.isa import Program
from assay.program.validate import measure
from assay.training import datasets, models
from assay.training.chunked import projected_cross_entropy
from assay.training.optimisers import Sgd
from tests.unit.training.steps import built, compare


class LongGpt(nn.Module):
    """The built-in GPT whose blocks are computed again, with the loss in parts."""

    def __init__(self, config: models.GptConfig, seed: int) -> None:
        super().__init__()
        gpt = models.build(config, seed)
        assert isinstance(gpt, models.Gpt)
        self.gpt = gpt

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        gpt = self.gpt
        x = gpt.embedding(tokens) + gpt.position(torch.arange(tokens.shape[1]))
        for block in gpt.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return gpt.norm(x), gpt.embedding.weight


@pytest.mark.parametrize("rows", [1, 5, 64])
def test_a_loss_in_parts_is_cross_entropy(rows: int) -> None:
    torch.manual_seed(rows)
    hidden, weight = torch.randn(3, 7, 8, requires_grad=True), torch.randn(11, 8, requires_grad=True)
    targets = torch.randint(0, 11, (3, 7))
    ours = projected_cross_entropy((hidden, weight), targets, rows)
    plain = functional.cross_entropy((hidden @ weight.T).reshape(-1, 11), targets.reshape(-1))
    assert torch.allclose(ours, plain)
    for a, b in zip(
        torch.autograd.grad(ours, (hidden, weight)), torch.autograd.grad(plain, (hidden, weight)), strict=True
    ):
        assert torch.allclose(a, b, atol=1e-6)


def data(context: int) -> datasets.Dataset:
    layout = datasets.TextLayout(context)
    return datasets.Dataset(layout, bytes(i * 7 % 251 for i in range(layout.record_size * 8)), b"")


@pytest.mark.long
def test_the_traced_step_trains_as_pytorch_does() -> None:
    config = models.GptConfig(n_layer=1, n_head=2, d_model=16, context=12, tied=True)
    compare(
        LongGpt(config, 3),
        Sgd(lr=0.1),
        data(12),
        steps=2,
        relative=2e-3,
        batch=3,
        loss=lambda outputs, targets: projected_cross_entropy(outputs, targets, 8),
    )


def test_no_tensor_is_larger_than_a_part_of_the_logits_and_none_is_kept() -> None:
    def program(rows: int) -> Program:
        config = models.GptConfig(n_layer=0, n_head=1, d_model=8, context=256, tied=True)
        return built(
            LongGpt(config, 3),
            Sgd(),
            data(256),
            batch=1,
            loss=lambda outputs, targets: projected_cross_entropy(outputs, targets, rows),
        ).inner

    plain, parted = program(256), program(16)
    assert max(node.elements for node in plain.nodes) == 256 * 256
    assert max(node.elements for node in parted.nodes) == 16 * 256
    assert measure(parted).peak_bytes < 0.1 * measure(plain).peak_bytes
