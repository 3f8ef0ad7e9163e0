"""Code as libraries write it: tensors without elements, strided memory, parts written in place, checks
that read values, whole random numbers, losses of planes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.program.lowering.tracing import StepFailed, UnsupportedOperation, trace_step
from tests.unit.program.lowered import BATCH, agree, both, lowered
from tests.unit.program.lowering.test_rewrites import of_module, with_gradient

G = torch.Generator().manual_seed(8)
X = torch.randn(3, 4, generator=G)
PLANES = torch.randn(2, 5, 3, 4, generator=G)
LABELS = torch.randint(0, 5, (2, 3, 4), generator=G)
WEIGHTS = torch.tensor([0.5, 2.0, 1.0, 0.1, 3.0])


def test_running_sums_of_whole_numbers() -> None:
    numbers = torch.tensor([[1, 3, -2, 5], [2**30, 2**30, 2**30, -7], [0, 0, 1, 1]], dtype=torch.int32)
    agree(lambda x, b: [x.cumsum(1), x.cumsum(0), (x > 0).cumsum(1), x.cumsum(1, dtype=torch.int32)], numbers)
    agree(lambda x, b: [b.cumsum(1), b.long().cumsum(0), (x != 1).float().cumsum(1).int()], numbers)
    long = torch.arange(5000, dtype=torch.int32).view(1, -1) * 1000
    agree(lambda x, b: [x.cumsum(1)[:, ::1000], (x % 2).cumsum(1)[:, ::1000]], long)


def test_tensors_without_elements_join_and_are_cut() -> None:
    def function(x: Tensor) -> Tensor:
        held = torch.cat([torch.tensor([]), x], dim=-1)
        left, right = held[:, :4] * 2, held[:, 4:] * 3
        return torch.cat([left, right, x.new_zeros(3, 0)], -1) + torch.zeros(3, 0).sum(1, keepdim=True).sum()

    agree(with_gradient(lambda x: torch.cat([torch.tensor([]), x[:, :4], x[:, 4:] * 3], -1)), X)
    with pytest.raises(UnsupportedOperation, match="no elements"):
        lowered(lambda x, b: [function(x)], [X])


def test_small_constants_of_several_numbers_are_part_of_the_program() -> None:
    table = torch.tensor([[1.5, -2.0, 3.0, 0.25]])
    agree(lambda x, b: [x * table, x + torch.tensor([1, 2, 3, 4])], X, relative=0)


def test_memory_read_by_strides() -> None:
    wide = torch.randn(2, 3, 8, generator=G)
    agree(
        lambda x, b: [x.unfold(-1, 4, 2), x.unfold(1, 2, 1), x.transpose(1, 2).unfold(1, 3, 3)],
        wide,
        relative=0,
    )
    agree(with_gradient(lambda x: x.unfold(-1, 4, 2)), wide)
    agree(lambda x, b: [torch.as_strided(x, (2, 3), (1, 2), 1)], X, relative=0)
    with pytest.raises(UnsupportedOperation, match="gaps"):
        lowered(lambda x, b: [torch.as_strided(x[:, :2], (3,), (4,))], [X])


@pytest.mark.parametrize(
    "write",
    [
        lambda y, x: y[:, 0].fill_(0.0),
        lambda y, x: y[:, 1:].add_(x[:, :3]),
        lambda y, x: y[:, :2].relu_(),
        lambda y, x: y[1].mul_(y[0].clone()),
    ],
)
def test_a_part_written_in_place_has_its_gradient(write: Callable[..., Any]) -> None:
    def function(x: Tensor) -> Tensor:
        y = x * 2
        write(y, x)
        return y * x

    agree(with_gradient(function), X)


def test_results_written_into_a_given_tensor() -> None:
    def function(x: Tensor, b: Tensor) -> list[Tensor]:
        out = torch.empty_like(x)
        torch.div(x, x.abs().sum(), out=out)
        functional.normalize(x * 3, dim=1, out=out)
        return [out + 1]

    agree(function, X)


@pytest.mark.parametrize("given", [{}, {"ignore_index": 2}, {"label_smoothing": 0.1}, {"reduction": "sum"}])
def test_cross_entropy_of_planes(given: dict[str, Any]) -> None:
    agree(with_gradient(lambda x, y: functional.cross_entropy(x, y, **given)), PLANES, LABELS)
    agree(lambda x, y, b: [functional.cross_entropy(x, y, reduction="none", ignore_index=1)], PLANES, LABELS)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_class_weights_with_smoothing(reduction: str) -> None:
    given: dict[str, Any] = {"label_smoothing": 0.2, "ignore_index": 3, "reduction": reduction}
    agree(with_gradient(lambda x, y: functional.cross_entropy(x, y, WEIGHTS, **given)), PLANES, LABELS)
    loss = nn.CrossEntropyLoss(weight=WEIGHTS, label_smoothing=0.1)
    agree(with_gradient(lambda x, y: loss(x, y)), PLANES, LABELS)


def test_checks_that_read_values_are_left_out() -> None:
    def drawn(x: Tensor) -> Tensor:
        return torch.distributions.Normal(x, x.abs() + 0.1).log_prob(x.detach() + 1)

    agree(with_gradient(drawn), X)
    agree(with_gradient(lambda x, y: functional.gaussian_nll_loss(x, y, y.abs(), full=True)), X, X.flip(0))
    mask = torch.triu(torch.full((4, 4), float("-inf")), 1)
    layer = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True), 1, enable_nested_tensor=False
    )
    _, params = of_module(layer)
    agree(
        lambda *given: of_masked(layer, mask)(*given),
        *params,
        torch.randn(2, 4, 4, generator=G),
        relative=1e-2,
    )


def of_masked(layer: nn.Module, mask: Tensor) -> Callable[..., list[Tensor]]:
    names = [name for name, _ in layer.named_parameters()]

    def function(*inputs: Tensor) -> Tensor:
        held = dict(zip(names, inputs, strict=False))
        made = torch.func.functional_call(layer, held, inputs[len(names) :], {"mask": mask})
        assert isinstance(made, Tensor)
        return made

    return with_gradient(function)


def test_a_users_own_choice_of_attention_kernel() -> None:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def function(x: Tensor) -> Tensor:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return functional.scaled_dot_product_attention(x, x, x)

    agree(with_gradient(function), torch.randn(1, 2, 4, 8, generator=G), relative=1e-2)


def test_groups_of_rows() -> None:
    rows, weights = torch.randn(6, 4, generator=G), torch.randn(3, 4, 5, generator=G)
    ends = torch.tensor([2, 2, 5], dtype=torch.int32)

    def native(x: Tensor, w: Tensor, offs: Tensor) -> Tensor:
        return torch.cat([x[:2] @ w[0], x[2:5] @ w[2], torch.zeros(1, 5)])

    grouped = with_gradient(lambda x, w, offs: functional.grouped_mm(x, w, offs=offs))
    ours, _ = both(with_gradient(lambda x, w, o: grouped_or(x, w, o, grouped, native)), rows, weights, ends)
    wanted = with_gradient(native)(rows, weights, ends, BATCH)
    for mine, right in zip(ours, wanted, strict=True):
        assert (mine - right).norm() <= 1e-2 * right.norm()


def grouped_or(x: Tensor, w: Tensor, o: Tensor, grouped: Any, native: Any) -> Tensor:
    """The form while it is traced; PyTorch's own kernel has conditions on strides."""
    made = functional.grouped_mm(x, w, offs=o) if torch._C._len_torch_function_stack() else native(x, w, o)
    assert isinstance(made, Tensor)
    return made


@pytest.mark.parametrize("reduce", ["amax", "amin", "sum", "mean"])
@pytest.mark.parametrize("include_self", [True, False])
def test_extremes_and_means_by_index(reduce: str, include_self: bool) -> None:
    index = torch.tensor([[0, 2, 1, 0], [2, 2, 0, 1], [1, 1, 1, 1]])
    source = torch.randn(3, 4, generator=G)

    def function(x: Tensor, i: Tensor, s: Tensor) -> Tensor:
        return x.scatter_reduce(0, i, s, reduce, include_self=include_self)

    agree(with_gradient(function), X, index, source)
    agree(lambda x, i, s, b: [x.clone().scatter_reduce_(0, i, s, reduce)], X, index, source)


def test_counts_in_bins() -> None:
    numbers = torch.tensor([0.0, 1.0, 1.0, 3.0, 2.9, -1.0, 4.0])
    agree(lambda x, b: [torch.histc(x, bins=4, min=0, max=3), x.histc(7, -1, 1)], numbers)
    agree(lambda x, b: [functional.one_hot(x.abs().long(), 5)], numbers)


def test_functions_of_one_line() -> None:
    agree(with_gradient(lambda x: torch.hypot(x, x.flip(0)) + torch.erfc(x)), X)
    agree(lambda x, b: [torch.tril_indices(3, 4, -1) + x.long()[0, 0], torch.triu_indices(2, 3)], X)
    agree(lambda x, b: [torch.logspace(-1, 2, 5) + x[0, 0]], X)
    agree(with_gradient(lambda x: functional.interpolate(x, size=(2, 3), mode="area")), PLANES)
    agree(with_gradient(lambda x: functional.avg_pool2d(x, (3, 4))), PLANES)


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("onesided", [True, False])
def test_transforms_of_windows(center: bool, onesided: bool) -> None:
    wave, window = torch.randn(2, 40, generator=G), torch.hann_window(12)

    def function(x: Tensor) -> Tensor:
        made = torch.stft(x, 16, 4, 12, window, center=center, onesided=onesided, return_complex=True)
        return torch.view_as_real(made)

    agree(with_gradient(function), wave, relative=1e-3)


def test_whole_random_numbers() -> None:
    def function(x: Tensor, b: Tensor) -> list[Tensor]:
        return [
            torch.randint(3, 7, (400,)),
            torch.randint(5, (400,)),
            torch.randint_like(x, 2),
            torch.randperm(9),
            torch.normal(2.0, 3.0, (400,)),
            torch.normal(x, 0.0),
            torch.bernoulli(torch.full((400,), 0.25)),
        ]

    drawn, _ = both(function, X)
    assert set(drawn[0].tolist()) == {3, 4, 5, 6} and set(drawn[1].tolist()) == {0, 1, 2, 3, 4}
    assert set(drawn[2].flatten().tolist()) <= {0.0, 1.0} and sorted(drawn[3].tolist()) == list(range(9))
    assert abs(drawn[4].mean() - 2) < 0.6 and abs(drawn[4].std() - 3) < 0.6
    assert torch.equal(drawn[5], X) and 60 < drawn[6].sum() < 140


def test_what_a_profiler_marks() -> None:
    def function(x: Tensor, b: Tensor) -> list[Tensor]:
        with torch.profiler.record_function("part"):
            return [x * 2]

    agree(function, X)


def test_one_hot_without_its_classes_says_what_to_write() -> None:
    with pytest.raises(StepFailed, match=r"test_library_forms\.py:\d+: .*write num_classes="):
        lowered(lambda x, b: [functional.one_hot(x.abs().long())], [X])


def test_a_line_of_a_library_is_told_with_the_users_that_leads_there(tmp_path: Any) -> None:
    folder = tmp_path / "site-packages" / "somebodys"
    folder.mkdir(parents=True)
    code = "import torch\ndef odd(x):\n    return torch.special.i0e(x)\n"
    file = folder / "layers.py"
    file.write_text(code)
    held: dict[str, Any] = {}
    exec(compile(code, str(file), "exec"), held)
    with pytest.raises(UnsupportedOperation) as caught:
        lowered(lambda x, b: [held["odd"](x)], [X])
    error = caught.value
    assert error.source.startswith(f"{file}:3, in somebodys, called at ")
    assert "test_library_forms.py" in error.source and error.hint.startswith("The line is somebodys's")
    graph = trace_step(lambda s, b: [torch.ops.aten.special_i0e(held["odd"](s[0]))], [X], BATCH)
    assert all(
        "layers.py:3" in n.meta["source"] or "test_library" in n.meta["source"]
        for n in graph.graph.nodes
        if n.op == "call_function"
    )
