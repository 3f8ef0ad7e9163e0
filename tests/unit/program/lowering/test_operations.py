"""Every family of operations, lowered and compared with native PyTorch in fp32."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tests.unit.program.lowered import Function, agree, lowered

X = torch.tensor([[0.3, -1.7, 2.5, -0.01], [4.0, -3.0, 0.7, 1.1], [-0.4, 0.9, -2.2, 3.3]])
Y = torch.tensor([[1.5, 0.2, -0.6, 2.0], [-1.0, 0.5, 3.0, -0.3], [0.8, -2.0, 1.2, 0.1]])
I = torch.tensor([2, 0, 1, 2])  # noqa: E741


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y, b: [x + y, x - y, x * y, x / y, 3 - x, x * 2, 1 / x, -x, x + 2 * y],
        lambda x, y, b: [
            x.abs(),
            x.exp(),
            x.tanh(),
            x.erf(),
            x.sin(),
            x.cos(),
            x.floor(),
            x.ceil(),
            x.sign(),
        ],
        lambda x, y, b: [x.abs().sqrt(), x.abs().log(), x.abs().rsqrt(), x.reciprocal(), x.sigmoid()],
        lambda x, y, b: [x**2, x**3, x.abs() ** 0.5, x**-1, x**-2, x.abs() ** -0.5, x.abs() ** 1.7, x**0],
        lambda x, y, b: [torch.maximum(x, y), torch.minimum(x, y), x.clamp(-1, 1), x.clamp(min=0.5)],
        lambda x, y, b: [
            x > y,
            x >= 0.3,
            x == y,
            x != x,
            x < 1,
            x <= y,
            (x > 0) & (y > 0),
            ~(x > 0) | (y > 0),
        ],
        lambda x, y, b: [
            torch.where(x > 0, x, y),
            x.masked_fill(y > 0, -math.inf),
            torch.where(x > 0, 1.0, y),
        ],
        lambda x, y, b: [torch.addcmul(x, x, y, value=0.5), torch.addcdiv(x, x, y), torch.lerp(x, y, 0.3)],
        lambda x, y, b: [torch.log1p(x.abs()), torch.expm1(x), functional.softplus(x), functional.silu(x)],
        lambda x, y, b: [functional.relu(x), functional.leaky_relu(x), functional.gelu(x)],
        lambda x, y, b: [functional.gelu(x, approximate="tanh"), torch.isnan(x / 0 * 0), torch.isinf(x / 0)],
    ],
)
def test_element_by_element(function: Function) -> None:
    agree(function, X, Y)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y, b: [x.sum(), x.sum(0), x.sum(1, keepdim=True), x.mean(), x.mean((0, 1)), x.mean(0)],
        lambda x, y, b: [x.amax(1), x.max(), x.max(1)[0], x.max(0)[1], x.argmax(1), x.amin(0), x.min()],
        lambda x, y, b: [x.var(1), x.var(0, correction=0), x.std(), (x > 0).any(1), (x > -9).all(), x.norm()],
        lambda x, y, b: [x.softmax(1), x.log_softmax(0), x.logsumexp(1), x.cumsum(1), (x > 0).sum(0)],
        lambda x, y, b: [functional.layer_norm(x, (4,)), functional.layer_norm(x, (3, 4), y, y)],
    ],
)
def test_reductions(function: Function) -> None:
    agree(function, X, Y)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y, b: [
            x.t() + 1,
            x.t().contiguous().view(2, 6),
            x.reshape(2, 6) * 2,
            x[1],
            x[:, 1:3],
            x[::2],
        ],
        lambda x, y, b: [
            x.unsqueeze(1).expand(3, 2, 4),
            x[:, :1].expand(3, 4) + y,
            x.flip(1),
            x.repeat(2, 3),
        ],
        lambda x, y, b: [torch.cat([x, y], 1), torch.stack([x, y]), *x.split([1, 3], 1), *x.unbind(1)],
        lambda x, y, b: [
            x.diagonal(),
            torch.tril(x),
            torch.triu(x, 1),
            x.roll(1, 0),
            x[:, -1],
            x.T[1:].sum(1),
        ],
        lambda x, y, b: [
            functional.pad(x, (1, 2), value=7.0),
            functional.pad(x, (0, 0, 2, 1)),
            torch.eye(3) * x[:, :3],
        ],
        lambda x, y, b: [
            torch.arange(3),
            torch.arange(2, 9, 3) + 0.5,
            torch.full((2,), 3),
            torch.zeros(2) + x[0, 0],
        ],
        lambda x, y, b: [b.float() + x, b.long() * 2 - 1, b.long() + b.long(), b[:, 1:].long(), b.int() > 2],
    ],
)
def test_views_joins_and_conversions(function: Function) -> None:
    agree(function, X, Y)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, i, b: [x[i], x[:, i], x.index_select(0, i), functional.embedding(i, x), x[i - 3]],
        lambda x, i, b: [x.gather(0, i.unsqueeze(0)), x.gather(1, i[:3].unsqueeze(1))],
        lambda x, i, b: [
            torch.zeros(3, 4).scatter(1, i[:3].unsqueeze(1), 1.0),
            functional.one_hot(i, 3).float(),
        ],
        lambda x, i, b: [torch.zeros(3, 4).index_put((i,), x[i], accumulate=True)],
    ],
)
def test_indexing(function: Function) -> None:
    agree(function, X, I)


def _gradient(loss: Callable[..., Tensor]) -> Function:
    def function(*inputs: Tensor) -> list[Tensor]:
        *given, batch = inputs
        leaves = [x.detach().requires_grad_() if x.is_floating_point() else x for x in given]
        with torch.enable_grad():
            value = loss(*leaves, batch)
        wanted = [x for x in leaves if x.is_floating_point()]
        return [value.detach(), *torch.autograd.grad(value, wanted, allow_unused=False)]

    return function


@pytest.mark.parametrize(
    "loss",
    [
        lambda x, y, b: (functional.gelu(x) * functional.gelu(y, approximate="tanh")).sum(),
        lambda x, y, b: (functional.silu(x) * y.sigmoid() * x.tanh() + functional.relu(y)).mean(),
        lambda x, y, b: (x.softmax(1) * y).sum() + (x.log_softmax(0) * y.abs().sqrt()).sum(),
        lambda x, y, b: (functional.layer_norm(x, (4,), y[0], y[1]) * y).sum(),
        lambda x, y, b: (x[1:, ::2] * y[:2, 1:3]).sum() + x[0, 1] * y[2, 3] + (x.t()[1] * y[:, 0]).sum(),
        lambda x, y, b: functional.mse_loss(x, y) + (x / y).sum() + (x**3).sum() + (x.abs() ** 0.5).sum(),
        lambda x, y, b: torch.cat([x, y.flip(0)], 1).var(1).sum() + x.amax(1).sum() + y.exp().mean(0).sum(),
        lambda x, y, b: functional.cross_entropy(x, b[0, :3].long()) + y.logsumexp(0).sum(),
        lambda x, y, b: (
            functional.cross_entropy(x, b[0, :3].long(), ignore_index=0, reduction="sum") + y.sum()
        ),
        lambda x, y, b: (functional.embedding(b.long(), torch.cat([x, y])) ** 2).sum(),
        lambda x, y, b: functional.pad(x, (1, 1)).cumsum(1).sum() + torch.maximum(x, y).sum(),
    ],
)
def test_gradients(loss: Callable[..., Tensor]) -> None:
    agree(_gradient(loss), X, Y, relative=2e-5)


def test_attention_by_the_library_agrees() -> None:
    def attend(q: Tensor, k: Tensor, v: Tensor, batch: Tensor) -> Tensor:
        return (functional.scaled_dot_product_attention(q, k, v, is_causal=True) ** 2).sum()

    generator = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(2, 2, 6, 8, generator=generator) for _ in range(3))
    agree(_gradient(attend), q, k, v, relative=2e-3)


def test_products_longer_than_the_fan_in_are_chunked() -> None:
    generator = torch.Generator().manual_seed(2)
    x, y = torch.randn(3, 5000, generator=generator), torch.randn(5000, 2, generator=generator)

    def function(x: Tensor, y: Tensor, b: Tensor) -> list[Tensor]:
        return [x @ y, x.sum(1), x.amax(1), x.mean(), (x * y.t()[:1]).sum()]

    agree(function, x, y, relative=1e-3)
    contracted = [n for n in lowered(function, [x, y]).nodes if n.op.name in {"PRODUCT", "SUM", "AMAX"}]
    assert max(n.inputs[0].shape[-1] for n in contracted) == 4096


def test_a_gradient_scattered_from_more_than_the_fan_in_is_chunked() -> None:
    generator = torch.Generator().manual_seed(3)
    rows, index = torch.randn(5000, 2, generator=generator), torch.randint(0, 7, (5000,), generator=generator)
    agree(lambda x, i, b: [torch.zeros(7, 2).index_put((i,), x, accumulate=True)], rows, index)


def test_writing_in_place_rebinds_the_tensor() -> None:
    def function(x: Tensor, y: Tensor, b: Tensor) -> list[Tensor]:
        z = x * 2
        z += y
        z.mul_(0.5).clamp_(min=0)
        return [z, functional.relu(z, inplace=True) + 1]

    agree(function, X, Y)


def test_dropout_without_dropping_is_nothing() -> None:
    agree(lambda x, y, b: [functional.dropout(x, 0.0) + y], X, Y)


def test_a_tensor_is_quantised_once_however_often_it_is_multiplied() -> None:
    program = lowered(lambda x, y, b: [x @ y.t(), x @ (y * 2).t(), x @ y.t() + 1], [X, Y])
    assert sum(n.op.name == "QUANTISE" for n in program.nodes) == 3
    assert sum(n.op.name == "PRODUCT" for n in program.nodes) == 2


def test_grouped_dimensions_are_not_pulled_apart() -> None:
    def function(x: Tensor, y: Tensor, b: Tensor) -> list[Tensor]:
        batched = (x @ y.t()).view(3, 1, 3) * 2 + y[0, :3]
        return [(batched - batched.mean(-1, keepdim=True)).view(3, 3) @ x]

    agree(function, X, Y, relative=2e-3)
    shapes = [n.shape for n in lowered(function, [X, Y]).nodes if n.op.name == "RESHAPE"]
    assert shapes == [(3, 1)] * len(shapes)


def test_transposes_that_cancel_leave_no_node() -> None:
    program = lowered(lambda x, y, b: [(x.t().contiguous().t() * y).t().t()], [X, Y])
    assert not [n for n in program.nodes if n.op.name in {"STRIDED", "RESHAPE"}]


def test_logarithms_and_exponentials_near_zero() -> None:
    x = torch.tensor([-20.0, -5.0, 3.0, -88.0, 0.0])
    agree(lambda x, b: [torch.log(functional.softplus(x)), functional.logsigmoid(-x)], x)
    small = torch.tensor([-1e-8, -1e-3, -3.0, -1e-20, -0.4, -0.6, 1e-9, 5.0, float("inf"), -1.0])
    agree(
        lambda x, b: [
            torch.log(-torch.expm1(x[:6])),
            torch.expm1(x),
            torch.log1p(x[:-2]),
            torch.log1p(-x[:6]),
        ],
        small,
    )
    agree(lambda x, b: [torch.log1p(x)], torch.tensor([-1.0, float("inf"), -2.0, float("nan"), 3e38]))
