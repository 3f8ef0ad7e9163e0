"""Labels, tokens and indices out of range are found anywhere in the data, and reported with their line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.job.rehearsal import warnings_of
from assay.protocol.errors import Stop
from assay.training.datasets import Dataset, LabelledLayout, TextLayout
from assay.training.evaluation import evaluation_job
from assay.training.job import JobArtifacts, build_job
from assay.training.losses import cross_entropy
from assay.training.native_checks import extreme_records
from assay.training.optimisers import Sgd
from assay.training.outer import DiLoCo

ROWS = torch.arange(3000 * 5).remainder(3).to(torch.uint8).view(3000, 5)


def data(*changes: tuple[int, int, int], text: bool = False) -> Dataset:
    rows = ROWS.clone()
    for row, column, value in changes:
        rows[row, column] = value
    return Dataset(TextLayout(4) if text else LabelledLayout(4, 1.0), rows.numpy().tobytes(), b"")


class Net(nn.Module):
    """Four columns through `read`, three classes."""

    def __init__(self, read: Callable[[Net, Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table, self.last = nn.Embedding(3, 4), nn.Linear(4, 3)
        self.drop, self.seen, self.read = nn.Dropout(0.5), 0, read
        self.register_buffer("calls", torch.zeros(()))
        self.calls: Tensor

    def forward(self, x: Tensor) -> Tensor:
        self.calls.add_(1)
        made: Tensor = self.last(self.drop(self.read(self, x)))
        return made


def plain(net: Net, x: Tensor) -> Tensor:
    return net.table.weight.mean() + x


def looked_up(net: Net, x: Tensor) -> Tensor:
    return net.table(x[:, 2].long())


def indexed(net: Net, x: Tensor) -> Tensor:
    return net.table.weight[x[:, 1].long()]


def encoded(net: Net, x: Tensor) -> Tensor:
    return functional.one_hot(x[:, 0].long(), 3).float() @ net.table.weight


def built(net: nn.Module, dataset: Dataset, held_out: int = 0) -> JobArtifacts:
    outer = DiLoCo(0.7, 0.9)
    return build_job(net, cross_entropy, Sgd(), dataset, batch=4, shards=1, outer=outer, held_out=held_out)


@pytest.mark.parametrize(
    ("read", "column", "says"),
    [
        (plain, 4, "Target 3 is out of bounds"),
        (looked_up, 2, "index out of range"),
        (indexed, 1, "index 3 is out of bounds"),
        (encoded, 0, "Class values must be smaller"),
    ],
)
def test_one_number_out_of_range_is_found(
    read: Callable[[Net, Tensor], Tensor], column: int, says: str
) -> None:
    built(Net(read), data())
    with pytest.raises(Stop, match=says) as caught:
        built(Net(read), data((2777, column, 3)))
    line = f"{__file__}:{read.__code__.co_firstlineno + 1}"
    assert caught.value.code == "out-of-range" and (read is plain or line in caught.value.message)


def test_records_that_are_held_out_or_evaluated_are_looked_at_too() -> None:
    good, bad = data(), data((0, 4, 3))
    tested = replace(good, held_out=bad.records[:50])
    with pytest.raises(Stop, match="Target 3 is out of bounds"):
        built(Net(plain), tested, held_out=4)
    with pytest.raises(Stop, match="Target 3 is out of bounds"):
        evaluation_job(Net(plain), cross_entropy, bad, batch=4, shards=1)


def test_a_token_beyond_the_table_is_found() -> None:
    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(100, 100)

        def forward(self, tokens: Tensor) -> Tensor:
            made: Tensor = self.table(tokens)
            return made

    built(Words(), data((5, 0, 99), text=True))
    with pytest.raises(Stop, match="index out of range"):
        built(Words(), data((5, 0, 100), text=True))


def test_a_look_leaves_no_trace() -> None:
    torch.manual_seed(3)
    net, drawn = Net(plain), torch.random.get_rng_state()
    files = built(net, data())
    assert torch.equal(torch.random.get_rng_state(), drawn) and float(net.calls) == 0
    assert float(files.genesis[files.slot_names.index("calls")]) == 0


def test_of_a_wide_tensor_the_extremes_of_all_are_looked_at() -> None:
    rows = torch.ones(10_000, 101, dtype=torch.uint8)
    rows[9_999, 70], rows[4_097, 3], rows[7, 100] = 200, 0, 9
    found = extreme_records(Dataset(LabelledLayout(100, 1.0), rows.numpy().tobytes(), b""))
    assert {tuple(row.tolist()) for row in found} >= {tuple(rows[i].tolist()) for i in (7, 4_097, 9_999)}


def hashed(net: Net, x: Tensor) -> Tensor:
    return net.table((x[:, 0].long() * 1_000_000_007 * 13 + 5) % 1000 % 3)


def test_a_whole_number_beyond_31_bits_is_seen_in_the_first_loss() -> None:
    def net(read: Callable[[Net, Tensor], Tensor]) -> Net:
        made = Net(read)
        made.drop.p = 0.0
        made.last.weight.data *= 30
        return made

    assert not [line for line in warnings_of(built(net(looked_up), data()), 0) if "PyTorch" in line]
    assert [line for line in warnings_of(built(net(hashed), data()), 0) if "PyTorch" in line]
    assert not [line for line in warnings_of(built(Net(hashed), data()), 0) if "PyTorch" in line], "random"
