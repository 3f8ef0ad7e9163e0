"""PyTorch's functions in the form that a program has of them: values and gradients against PyTorch's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.program.lowering import resampling
from tests.unit.program.lowered import agree

SLOW = pytest.mark.slow
G = torch.Generator().manual_seed(6)
IMAGES = torch.randn(2, 3, 6, 8, generator=G)
LINES = torch.randn(2, 3, 7, generator=G)
VOLUME = torch.randn(1, 2, 4, 4, 4, generator=G)
TABLE = torch.randn(7, 4, generator=G)
WORDS = torch.randint(0, 7, (3, 5), generator=G)
ROWS = torch.randn(3, 8, generator=G)


def with_gradient(function: Callable[..., Tensor]) -> Callable[..., list[Tensor]]:
    """The results, and the gradient of a sum of them that weighs each otherwise."""

    def run(*inputs: Tensor) -> list[Tensor]:
        leaves = [x.detach().requires_grad_() if x.is_floating_point() else x for x in inputs[:-1]]
        with torch.enable_grad():
            made = function(*leaves)
            weights = torch.cos(torch.arange(made.numel()).float()).view(made.shape)
            value = (made * weights + 0.1 * made * made).sum()
        floats = [x for x in leaves if x.is_floating_point()]
        return [made.detach(), *torch.autograd.grad(value, floats)]

    return run


def of_module(module: nn.Module) -> tuple[Callable[..., list[Tensor]], list[Tensor]]:
    """A module as a function of its parameters and an input."""
    names = [name for name, _ in module.named_parameters()]

    def function(*inputs: Tensor) -> Tensor:
        made = torch.func.functional_call(
            module, dict(zip(names, inputs, strict=False)), inputs[len(names) :]
        )
        assert isinstance(made, Tensor)
        return made

    return with_gradient(function), [p.detach().clone() for p in module.parameters()]


RESAMPLED = [
    ("bilinear", IMAGES, {"scale_factor": 2}),
    ("bilinear", IMAGES, {"size": (9, 5), "align_corners": True}),
    pytest.param("bilinear", IMAGES, {"size": (3, 11)}, marks=SLOW),
    ("bicubic", IMAGES, {"scale_factor": 2}),
    pytest.param("bicubic", IMAGES, {"size": (7, 4), "align_corners": True}, marks=SLOW),
    pytest.param("linear", LINES, {"scale_factor": 3}, marks=SLOW),
    pytest.param("trilinear", VOLUME, {"scale_factor": 2}, marks=SLOW),
    ("nearest", IMAGES, {"size": (9, 5)}),
    ("nearest", LINES, {"scale_factor": 2}),
    pytest.param("nearest", VOLUME, {"scale_factor": 2}, marks=SLOW),
    pytest.param("nearest-exact", IMAGES, {"size": (9, 5)}, marks=SLOW),
]


@pytest.mark.parametrize(("mode", "x", "given"), RESAMPLED)
def test_resampling(mode: str, x: Tensor, given: dict[str, Any]) -> None:
    agree(with_gradient(lambda y: functional.interpolate(y, mode=mode, **given)), x)


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize(("padding", "align"), [("zeros", False), pytest.param("border", True, marks=SLOW)])
def test_sampling_by_a_grid(mode: str, padding: str, align: bool) -> None:
    grid = torch.rand(2, 4, 5, 2, generator=G) * 2.4 - 1.2
    given: dict[str, Any] = {"mode": mode, "padding_mode": padding, "align_corners": align}
    agree(with_gradient(lambda x: functional.grid_sample(x, grid_of(x, grid), **given)), IMAGES)


def grid_of(x: Tensor, grid: Tensor) -> Tensor:
    """The grid made from ranges, as a program's constants have to be."""
    place = torch.arange(grid.numel()).float().view(grid.shape)
    return torch.sin(place * 1.3) * 1.2


@pytest.mark.parametrize("mode", ["circular", "reflect", "replicate"])
def test_padding(mode: str) -> None:
    agree(with_gradient(lambda x: functional.pad(x, (2, 1, 1, 2), mode=mode)), IMAGES)
    if mode != "replicate":
        with pytest.raises(ValueError, match=f"{mode} padding of 9 is longer than"):
            resampling.pad(IMAGES, (9, 0), mode=mode)


TRANSPOSED = [
    (nn.ConvTranspose1d(3, 5, 4, stride=2, padding=1), LINES),
    (nn.ConvTranspose2d(3, 5, 4, stride=2, padding=1), IMAGES),
    (nn.ConvTranspose2d(3, 6, 3, stride=2, padding=1, output_padding=1, groups=3), IMAGES),
    pytest.param(nn.ConvTranspose2d(3, 2, 3, dilation=2, bias=False), IMAGES, marks=SLOW),
    pytest.param(nn.ConvTranspose2d(3, 2, 2, stride=3), IMAGES, marks=SLOW),
    pytest.param(nn.ConvTranspose3d(2, 3, 3, stride=2, padding=1), VOLUME, marks=SLOW),
]


@pytest.mark.parametrize(("module", "x"), TRANSPOSED)
def test_transposed_convolutions(module: nn.Module, x: Tensor) -> None:
    function, params = of_module(module)
    agree(function, *params, x, relative=1e-3)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: functional.avg_pool2d(x, 4, ceil_mode=True, count_include_pad=False, padding=1),
        lambda x: functional.avg_pool2d(x, 3, 2, padding=1, divisor_override=5),
        lambda x: functional.adaptive_avg_pool2d(x, (4, 3)),
        lambda x: functional.adaptive_max_pool2d(x, (4, 3)),
        lambda x: functional.unfold(x, 3, padding=1, stride=2),
        lambda x: functional.fold(functional.unfold(x, (2, 3), stride=(2, 1)), (6, 8), (2, 3), stride=(2, 1)),
        lambda x: functional.lp_pool2d(x.abs() + 0.1, 2, 2),
        lambda x: functional.local_response_norm(x, 2),
    ],
)
def test_windows_of_images(function: Callable[..., Tensor]) -> None:
    agree(with_gradient(function), IMAGES)


@pytest.mark.slow
def test_windows_of_volumes() -> None:
    agree(with_gradient(lambda x: functional.max_pool3d(x, 2)), VOLUME)
    agree(with_gradient(lambda x: functional.avg_pool3d(x, 2, padding=1)), VOLUME)
    agree(with_gradient(lambda x: functional.adaptive_avg_pool3d(x, 3)), VOLUME)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.cumprod(1),
        lambda x: torch.cumprod(x, 0),
        lambda x: x.prod(1),
        lambda x: torch.prod(x, 0, keepdim=True),
        lambda x: x[:1].prod().reshape(1),
        lambda x: x.logcumsumexp(1),
        lambda x: x.cummax(1)[0],
    ],
)
def test_along_a_dimension(function: Callable[..., Tensor]) -> None:
    agree(with_gradient(function), ROWS)


@pytest.mark.parametrize("mode", ["mean", "sum", "max"])
def test_bags_of_embeddings(mode: str) -> None:
    agree(with_gradient(lambda w, i: functional.embedding_bag(i, w, mode=mode)), TABLE, WORDS)
    agree(with_gradient(lambda w, i: functional.embedding_bag(i, w, mode=mode, padding_idx=2)), TABLE, WORDS)
    offsets = torch.tensor([0, 4, 9])

    def ragged(w: Tensor, i: Tensor, at: Tensor) -> Tensor:
        return functional.embedding_bag(i.flatten(), w, at, mode=mode)

    agree(with_gradient(ragged), TABLE, WORDS, offsets)


FUNCTIONS = [torch.tan, torch.sinh, torch.cosh, torch.asinh, torch.atan]
WITHIN = [torch.asin, torch.acos, torch.atanh]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_functions_of_any_number(function: Callable[..., Tensor]) -> None:
    agree(with_gradient(function), ROWS, relative=1e-5)


@pytest.mark.parametrize("function", WITHIN)
def test_functions_of_numbers_below_one(function: Callable[..., Tensor]) -> None:
    agree(with_gradient(lambda x: function(torch.tanh(x) * 0.95)), ROWS, relative=1e-5)


@pytest.mark.long
def test_functions_of_two_numbers() -> None:
    agree(with_gradient(torch.atan2), ROWS, ROWS.flip(0))
    agree(
        lambda x, y, b: [torch.atan2(x, y)], *(torch.tensor(v) for v in ([0.0, 1.0, -1.0], [1.0, 0.0, 0.0]))
    )
    agree(with_gradient(torch.cdist), ROWS, ROWS.flip(1)[:2])
    agree(with_gradient(lambda x: torch.acosh(1.1 + x.abs())), ROWS)


@pytest.mark.parametrize(
    "function",
    [functional.hardshrink, functional.softshrink, functional.mish, functional.softsign, functional.celu],
)
def test_activations(function: Callable[..., Tensor]) -> None:
    agree(with_gradient(function), ROWS)


def test_classes_of_unequal_weight() -> None:
    def loss(x: Tensor, i: Tensor) -> Tensor:
        weight = torch.arange(1.0, 9.0)
        return functional.cross_entropy(x, i[:, 0], weight=weight, ignore_index=2).reshape(1)

    agree(with_gradient(loss), ROWS, WORDS)


def test_weight_normalisation_and_bilinear_layers() -> None:
    torch.manual_seed(3)
    function, params = of_module(nn.utils.parametrizations.weight_norm(nn.Linear(8, 3)))
    agree(function, *params, ROWS, relative=1e-3)
    function, params = of_module(nn.Bilinear(8, 8, 3))
    agree(function, *params, ROWS, ROWS.flip(0), relative=1e-3)


def test_draws_by_probability_are_indices_that_have_some() -> None:
    odds = torch.tensor([[0.0, 1.0, 0.0, 3.0]] * 3)

    def drawn(x: Tensor, b: Tensor) -> list[Tensor]:
        made = torch.multinomial(x + 1e-30, 2)
        return [((made % 2) == 1).all().float() * x.sum(), (made[:, 0] != made[:, 1]).float()]

    agree(drawn, odds)


SLOPES: list[Callable[[Tensor], Tensor]] = [
    *(torch.atan, torch.asin, torch.acos, torch.asinh, torch.atanh, torch.arcsinh),
    lambda x: torch.atan2(x, torch.ones(1)),
    lambda x: torch.atan2(x, -torch.ones(1)),
    lambda x: torch.atan2(torch.ones(1), x),
]


@pytest.mark.parametrize("function", SLOPES)
def test_a_slope_at_zero_is_pytorchs(function: Callable[[Tensor], Tensor]) -> None:
    agree(with_gradient(function), torch.tensor([0.0, 1e-30, 0.3]))


def test_area_functions_of_large_numbers_are_finite() -> None:
    agree(with_gradient(torch.asinh), torch.tensor([1e20, -1e30, 1e8, -2e8, 3e38]))
    agree(with_gradient(torch.acosh), torch.tensor([1e20, 1e30, 1e8, 2e8, 3e38, 1.0000001]))
    agree(with_gradient(torch.atan2), torch.zeros(2), torch.tensor([0.0, 2.0]))
    odd = torch.tensor([torch.nan, torch.inf, -torch.inf, torch.inf, 1.0, torch.nan])
    agree(
        lambda y, x, b: [torch.atan2(y, x)],
        odd,
        torch.tensor([0.0, torch.inf, torch.inf, -1.0, torch.nan, 1.0]),
    )


ROW = torch.tensor([[1.0, 3.0, 2.0, 3.0, 5.0, 5.0], [2.0, 1.0, 1.0, -1.0, -1.0, 0.0]])


@pytest.mark.parametrize("function", [torch.cummax, torch.cummin])
def test_running_extremes_have_pytorchs_places_and_gradient(function: Callable[..., Any]) -> None:
    agree(with_gradient(lambda x: function(x, 1)[0]), ROW)
    agree(lambda x, b: list(function(x, 1)), ROW)
    agree(lambda x, b: list(function(x, 0)), torch.tensor([[1.0], [float("nan")], [2.0]]))
    agree(lambda x, b: list(function(b.long(), 1)), ROW)


def test_running_sums_of_exponentials_begin_anywhere() -> None:
    agree(with_gradient(lambda x: x.logcumsumexp(1).exp()), torch.tensor([[0.5, -torch.inf, 2.0]]))
    agree(lambda x, b: [x.logcumsumexp(1)], torch.tensor([[-2e32, -1e31, 2.0]]))


def test_small_and_large_numbers_of_hyperbolic_functions() -> None:
    x = torch.tensor([1e-8, -1e-8, 20.0, 1e7, -88.0, 0.0])
    agree(lambda x, b: with_gradient(torch.cosh)(x[:3], b) + with_gradient(torch.sinh)(x[:3], b), x)
    agree(lambda x, b: [torch.sinh(x), torch.cosh(x), torch.acosh(x)], x)


@pytest.mark.parametrize("function", [functional.hardshrink, functional.softshrink, functional.elu])
def test_activations_keep_nan_and_small_numbers(function: Callable[..., Tensor]) -> None:
    agree(
        lambda x, b: [function(x)], torch.tensor([torch.nan, 0.5, -0.5, -1e-8, 1e-8, 3.0, -3.0, -torch.inf])
    )
