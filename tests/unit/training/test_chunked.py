"""Losses and attention in parts: the numbers of the plain forms, and no tensor larger than a part."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from assay.program.isa import Program
from assay.program.validate import measure
from assay.training import datasets, models
from assay.training.chunked import causal_attention, projected_cross_entropy
from assay.training.optimisers import Sgd
from tests.unit.training.steps import built, compare


class LongGpt(nn.Module):
    """The built-in GPT whose blocks are computed again, with attention and loss in parts."""

    def __init__(self, config: models.GptConfig, seed: int, rows: int = 8) -> None:
        super().__init__()
        gpt = models.build(config, seed)
        assert isinstance(gpt, models.Gpt)
        self.gpt = gpt
        for block in self.gpt.blocks:
            assert isinstance(block, models.Block)
            block.attention = Parted(block.attention, rows)  # type: ignore[assignment]

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        gpt = self.gpt
        x = gpt.embedding(tokens) + gpt.position(torch.arange(tokens.shape[1]))
        for block in gpt.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return gpt.norm(x), gpt.embedding.weight


class Parted(nn.Module):
    def __init__(self, attention: models.Attention, rows: int) -> None:
        super().__init__()
        self.inner, self.rows = attention, rows

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        heads = self.inner.heads
        parts = self.inner.qkv(x).view(batch, length, 3, heads, width // heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = causal_attention(query, key, value, self.rows)
        return self.inner.out(mixed.transpose(1, 2).reshape(batch, length, width))


def plain_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    scores = (query / math.sqrt(query.shape[-1])) @ key.transpose(-2, -1)
    seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    return torch.softmax(torch.where(seen, scores, -torch.inf), -1) @ value


@pytest.mark.parametrize(("length", "rows"), [(12, 12), (12, 4), (13, 4), (3, 1)])
def test_attention_in_parts_is_attention(length: int, rows: int) -> None:
    torch.manual_seed(length)
    q, k, v = inputs = [torch.randn(2, 3, length, 8, requires_grad=True) for _ in range(3)]
    weights = torch.randn(2, 3, length, 8)
    for made in (plain_attention(q, k, v), causal_attention(q, k, v, rows)):
        (made * weights).sum().backward()
    both = [x.grad for x in inputs]
    for x in inputs:
        x.grad = None
    (plain_attention(q, k, v) * weights).sum().backward()
    alone = [x.grad for x in inputs]
    for summed, one in zip(both, alone, strict=True):
        assert summed is not None and one is not None
        assert torch.allclose(summed, 2 * one, atol=1e-5)
    assert torch.allclose(causal_attention(q, k, v, rows), plain_attention(q, k, v), atol=1e-6)


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
        LongGpt(config, 3, rows=4),
        Sgd(lr=0.1),
        data(12),
        steps=2,
        relative=2e-3,
        batch=3,
        loss=lambda outputs, targets: projected_cross_entropy(outputs, targets, 8),
    )


@pytest.mark.long
def test_no_tensor_is_larger_than_a_part_and_a_longer_text_takes_little_more_memory() -> None:
    def program(context: int, rows: int) -> Program:
        config = models.GptConfig(n_layer=1, n_head=2, d_model=16, context=context, tied=True)
        return built(
            LongGpt(config, 3, rows),
            Sgd(),
            data(context),
            batch=1,
            loss=lambda outputs, targets: projected_cross_entropy(outputs, targets, rows),
        ).inner

    plain, parted = program(256, 256), program(256, 64)
    assert max(node.elements for node in plain.nodes) == 2 * 256 * 256
    assert max(node.elements for node in parted.nodes) == 2 * 64 * 256
    assert measure(parted).peak_bytes < 0.4 * measure(plain).peak_bytes
