"""Reading and writing by index, against PyTorch, values bit for bit where they are copied."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.unit.program.lowered import Function, agree, both, lowered

G = torch.Generator().manual_seed(4)
X = torch.randn(4, 6, 5, generator=G)
I = torch.randint(0, 6, (4, 3, 5), generator=G)  # noqa: E741
DISTINCT = torch.stack([torch.randperm(6, generator=G)[:3] for _ in range(20)]).view(4, 5, 3).transpose(1, 2)
PART = torch.randint(0, 6, (2, 3, 4), generator=G)


def test_gather_along_every_dimension() -> None:
    for dim in range(3):
        idx = torch.randint(0, X.shape[dim], (4, 5, 5), generator=G)[: X.shape[0], : X.shape[1]]
        agree(lambda x, i, b, dim=dim: [x.gather(dim, i)], X, idx, relative=0)


def test_scatter_copies_to_distinct_places() -> None:
    source = torch.randn(4, 3, 5, generator=G)
    source[0, 0, 0], source[1, 1, 1] = float("inf"), 1e-40
    agree(lambda x, i, s, b: [x.scatter(1, i, s), x.scatter(1, i, 7.0)], X, DISTINCT, source, relative=0)


def test_of_two_entries_the_last_is_written() -> None:
    idx, source = torch.tensor([[1, 1, 0, 1]]), torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    agree(lambda x, i, s, b: [x.scatter(1, i, s)], torch.zeros(1, 3), idx, source, relative=0)


def test_many_distinct_entries_are_told_apart_by_their_sum() -> None:
    idx = torch.stack([torch.randperm(700, generator=G)[:400] for _ in range(2)])
    source = torch.randn(2, 400, generator=G)
    agree(lambda x, i, s, b: [x.scatter(1, i, s)], torch.zeros(2, 700), idx, source, relative=0)


def test_scatter_add_with_repeated_places_and_into_a_part() -> None:
    source = torch.randn(4, 3, 5, generator=G)
    agree(lambda x, i, s, b: [x.scatter_add(1, i, s)], X, I, source)
    agree(lambda x, i, s, b: [x.scatter_add(1, i, s), x.scatter(1, i % 1, 3.0)], X, PART, source)


def test_more_entries_than_the_fan_in_are_added_in_chunks() -> None:
    idx = torch.randint(0, 9, (2, 5000), generator=G)
    agree(lambda x, i, b: [torch.zeros(2, 9).scatter_add(1, i, x)], torch.randn(2, 5000, generator=G), idx)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, i, j, b: [x[i, j], x[:, i, j % 5], x[i, :, j % 5], x[-i, j]],
        lambda x, i, j, b: [x.index_put((i, j), torch.ones(3, 5))],
        lambda x, i, j, b: [x.index_put((i, j), torch.ones(3, 5), accumulate=True)],
        lambda x, i, j, b: [x.index_add(1, j, x[:, :3]), x.index_copy(1, j, x[:, 3:])],
    ],
)
def test_several_indices(function: Function) -> None:
    agree(function, X, torch.tensor([2, 0, 3]), torch.tensor([5, 1, 0]))


def test_a_counter_chooses_a_row() -> None:
    agree(lambda x, c, b: [x.index_select(0, c.view(1)), x[c.view(1)]], X, torch.tensor(2), relative=0)


def test_gradients_of_reading_by_index() -> None:
    def gradient(x: Tensor, i: Tensor, b: Tensor) -> list[Tensor]:
        leaf = x.detach().requires_grad_()
        with torch.enable_grad():
            value = (leaf.gather(1, i) ** 2).sum() + (leaf[i[:, 0, 0] % 4, i[:, 0, 1]] ** 3).sum()
        return [*torch.autograd.grad(value, [leaf])]

    agree(gradient, X, I)


def test_assignments_to_a_part() -> None:
    def assigned(x: Tensor, b: Tensor) -> list[Tensor]:
        y = x.clone()
        y[:, 1] = 3.0
        y[1:3, ::2] = x[1:3, ::2] * 2
        y[0, -1, 2:4] = -1.0
        z = x.clone()
        z[z > 0] = 0.0
        return [y, z, y + z]

    ours, native = both(assigned, X)
    assert all(torch.equal(a, c) for a, c in zip(ours, native, strict=True))


def test_a_mask_that_chooses_is_refused_with_what_to_write() -> None:
    with pytest.raises(Exception, match="cannot be traced"):
        lowered(lambda x, b: [x[x > 0]], [X])
