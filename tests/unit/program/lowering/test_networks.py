"""Convolutions, pooling, norms of batches, recurrent layers: lowered and compared with native fp32."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.unit.program.lowered import Function, agree


def _random(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def _gradient(function: Callable[..., Tensor]) -> Function:
    """Value and gradients of a sum of squares, which no constant gradient can hide in."""

    def run(*inputs: Tensor) -> list[Tensor]:
        *given, _ = inputs
        leaves = [x.detach().requires_grad_() for x in given]
        with torch.enable_grad():
            y = function(*leaves)
            loss = (y * y).sum() + y.flatten()[::3].sum()
        return [y.detach(), *torch.autograd.grad(loss, leaves)]

    return run


X = _random(2, 4, 7, 6)


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((3, 4, 3, 3), {"padding": 1}),
        ((3, 4, 3, 3), {"stride": 2, "padding": 1}),
        ((5, 4, 1, 1), {"stride": 2}),
        ((3, 4, 2, 3), {"stride": (3, 2), "padding": (0, 2)}),
        ((3, 4, 3, 2), {"dilation": 2, "padding": 2}),
        ((3, 4, 3, 2), {"dilation": (3, 2), "stride": (2, 3), "padding": 3}),
        ((3, 4, 3, 3), {"dilation": 2, "stride": 2, "padding": 2}),
        ((3, 4, 5, 1), {"stride": (2, 3)}),
        ((4, 2, 3, 3), {"groups": 2, "padding": 1}),
        ((8, 1, 3, 3), {"groups": 4, "stride": 2}),
        ((3, 4, 3, 3), {"padding": "same"}),
    ],
)
def test_convolutions(shape: tuple[int, ...], options: dict) -> None:
    def function(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return functional.conv2d(x, w, b, **options)

    agree(_gradient(function), X, _random(*shape, seed=2), _random(shape[0], seed=3), relative=2e-3)


def test_a_convolution_of_lines() -> None:
    def function(x: Tensor, w: Tensor) -> Tensor:
        return functional.conv1d(x, w, stride=2, padding=1)

    agree(_gradient(function), _random(2, 3, 9), _random(4, 3, 3, seed=2), relative=2e-3)


def test_a_convolution_of_volumes() -> None:
    def function(x: Tensor, w: Tensor) -> Tensor:
        return functional.conv3d(x, w, padding=1)

    agree(_gradient(function), _random(2, 2, 3, 4, 5), _random(3, 2, 3, 2, 3, seed=2), relative=2e-3)


@pytest.mark.parametrize(
    ("x", "weight"),
    [
        ((6, 2, 40, 41), (3, 2, 2, 2)),  # two images a block of exponents
        ((2, 2, 70, 61), (3, 2, 3, 3)),  # an image is longer than one contraction
        ((1, 500, 4, 4), (3, 500, 3, 3)),  # and a window
    ],
)
def test_convolutions_longer_than_one_contraction(x: tuple[int, ...], weight: tuple[int, ...]) -> None:
    def function(x: Tensor, w: Tensor) -> Tensor:
        return functional.conv2d(x, w, padding=1)

    agree(_gradient(function), _random(*x), _random(*weight, seed=2), relative=2e-3)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: functional.max_pool2d(x, 2),
        lambda x: functional.max_pool2d(x, 3, 2, 1),
        lambda x: functional.max_pool2d(x, (2, 3), (1, 2), ceil_mode=True),
        lambda x: functional.max_pool2d(x, 2, 1, dilation=2),
        lambda x: functional.avg_pool2d(x, 2),
        lambda x: functional.avg_pool2d(x, 3, 2, 1),
        lambda x: functional.adaptive_avg_pool2d(x, 1),
        lambda x: functional.adaptive_avg_pool2d(x, (7, 2)),
        lambda x: functional.interpolate(x, scale_factor=2),
    ],
)
def test_pooling(function: Callable[..., Tensor]) -> None:
    agree(_gradient(function), X, relative=1e-5)


def test_indices_of_a_pool_are_places_in_the_plane() -> None:
    agree(lambda x, b: list(functional.max_pool2d(x, 3, 2, 1, return_indices=True)), X)


def test_equal_elements_of_a_pool_give_the_first() -> None:
    agree(_gradient(lambda x: functional.max_pool2d(x, 2)), X.round().clamp(-1, 1))


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w, b: functional.group_norm(x, 2, w, b),
        lambda x, w, b: functional.group_norm(x, 4) * w.sum() + b.sum(),
        lambda x, w, b: functional.batch_norm(x, None, None, w, b, training=True),
        lambda x, w, b: functional.instance_norm(x, weight=w, bias=b),
        lambda x, w, b: functional.rms_norm(x.transpose(1, 3), (4,), w) + b,
    ],
)
def test_norms(function: Callable[..., Tensor]) -> None:
    agree(_gradient(function), X, _random(4, seed=2), _random(4, seed=3), relative=2e-4)


@pytest.mark.parametrize("training", [True, False])
def test_running_statistics_move(training: bool) -> None:
    def function(x: Tensor, mean: Tensor, variance: Tensor, batch: Tensor) -> list[Tensor]:
        leaf = x.detach().requires_grad_()
        with torch.enable_grad():
            y = functional.batch_norm(leaf, mean, variance, training=training, momentum=0.3)
        return [y.detach(), torch.autograd.grad((y**3).sum(), leaf)[0], mean, variance]

    agree(function, X, _random(4, seed=5), _random(4, seed=6).abs() + 0.5, relative=1e-4)


@pytest.mark.parametrize(
    "layer",
    [
        nn.LSTMCell(4, 5),
        nn.GRUCell(4, 5),
        nn.LSTM(4, 5, batch_first=True),
        nn.LSTM(4, 3, num_layers=2, bidirectional=True),
        nn.GRU(4, 5, batch_first=True),
        nn.RNN(4, 5),
        nn.RNN(4, 5, nonlinearity="relu", bias=False),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_recurrent_layers(layer: nn.Module) -> None:
    names = [name for name, _ in layer.named_parameters()]
    cell = isinstance(layer, nn.RNNCellBase)

    def function(x: Tensor, *weights: Tensor) -> Tensor:
        found = torch.func.functional_call(layer, dict(zip(names, weights, strict=True)), (x,))
        return found[0] if isinstance(found, tuple) else found

    x = _random(2, 4) if cell else _random(2, 3, 4)
    weights = [_random(*p.shape, seed=9 + i) * 0.5 for i, p in enumerate(layer.parameters())]
    agree(_gradient(function), x, *weights, relative=2e-3)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: functional.elu(x) + functional.selu(x) * functional.celu(x, 0.5),
        lambda x: functional.hardtanh(x) + functional.relu6(x * 4) + functional.hardswish(x),
        lambda x: functional.mish(x) + functional.softplus(x) + functional.logsigmoid(x),
        lambda x: functional.glu(x, 1).repeat_interleave(2, 1) + functional.normalize(x, dim=1),
    ],
)
def test_more_activations(function: Callable[..., Tensor]) -> None:
    agree(_gradient(function), X, relative=2e-5)


@pytest.mark.parametrize(
    "loss",
    [
        functional.l1_loss,
        functional.smooth_l1_loss,
        functional.huber_loss,
        lambda x, y: functional.binary_cross_entropy_with_logits(x, y.sigmoid()),
        lambda x, y: functional.kl_div(x.log_softmax(1), y.softmax(1), reduction="batchmean"),
    ],
)
def test_more_losses(loss: Callable[..., Tensor]) -> None:
    agree(_gradient(loss), X, _random(2, 4, 7, 6, seed=8), relative=2e-5)
