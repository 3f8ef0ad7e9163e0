"""Tensors besides parameters that a model changes: the slot's next value, or a refusal that names the
line."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.program.lowering.tracing import UnsupportedOperation
from assay.protocol.errors import Stop
from assay.training.losses import cross_entropy
from assay.training.optimisers import Sgd
from tests.unit.training.steps import built, compare, images

Mid = Callable[["Net", Tensor], Tensor]
PLAIN = Sgd(lr=0.1, momentum=0.0)


class Net(nn.Module):
    """Two layers, with whatever `mid` does between them."""

    def __init__(self, mid: Mid, **held: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(64, 8), nn.Linear(8, 10)
        self.query, self.key = nn.Linear(8, 8), nn.Linear(8, 8).requires_grad_(False)
        self.register_buffer("mean", torch.zeros(8))
        self.mean: Any
        self.held: Any = held
        self.count: Any = 0
        self.mid = mid

    def forward(self, x: Tensor) -> Tensor:
        y = self.query(torch.relu(self.first(x)))
        made: Tensor = self.last(self.mid(self, y))
        return made


def _average(net: Net, y: Tensor) -> Tensor:
    net.mean = 0.9 * net.mean + 2 * y.detach().mean(0)
    return y - net.mean


def _average_by_data(net: Net, y: Tensor) -> Tensor:
    before = net.mean.data
    net.mean.data = 0.9 * net.mean.data + 2 * y.detach().mean(0)
    return y - net.mean + before


def _momentum_encoder(net: Net, y: Tensor) -> Tensor:
    for p, q in zip(net.key.parameters(), net.query.parameters(), strict=True):
        p.data = p.data * 0.5 + q.data * 0.5
    return y + net.key(y)


def _clipped(net: Net, y: Tensor) -> Tensor:
    net.last.weight.data = net.last.weight.data.clamp(-0.05, 0.05)
    return y


def _shown(net: Net, y: Tensor) -> Tensor:
    net.held["seen"] = y.detach().mean()
    return y * net.held["seen"]


def _cached(net: Net, y: Tensor) -> Tensor:
    if "table" not in net.held:
        net.held["table"] = torch.arange(8).float().cos()
    made: Tensor = y * net.held["table"]
    return made


@pytest.mark.parametrize("mid", [_average, _average_by_data, _momentum_encoder, _clipped, _shown, _cached])
def test_what_a_model_sets_is_the_next_value(mid: Mid) -> None:
    compare(Net(mid), PLAIN, images(), steps=3, relative=5e-3)


def test_tracing_leaves_the_attributes_of_a_model() -> None:
    net = Net(_cached)
    built(net, PLAIN, images())
    assert net.held == {} and net(torch.ones(1, 64)).shape == (1, 10)


def _dropped(net: Net, y: Tensor) -> Tensor:
    return y if random.random() < 0.5 else 2 * y


def _by_numpy(net: Net, y: Tensor) -> Tensor:
    return y * float(np.random.rand())


def _by_own(net: Net, y: Tensor) -> Tensor:
    net.count = net.count or np.random.default_rng(0)
    return y if net.count.random() < 0.5 else 2 * y


def _annealed(net: Net, y: Tensor) -> Tensor:
    net.count += 1
    return y * 0.9**net.count


def _now_and_then(net: Net, y: Tensor) -> Tensor:
    net.count += 1
    return 2 * y if net.count % 100 == 0 else y


def _carried(net: Net, y: Tensor) -> Tensor:
    y = y + net.held.get("before", 0)
    net.held["before"] = y.detach().mean(0)
    return y


def _counted(net: Net, y: Tensor) -> Tensor:
    net.held.setdefault("count", torch.zeros(())).add_(1)
    made: Tensor = y * net.held["count"]
    return made


def _first_only(net: Net, y: Tensor) -> Tensor:
    if "begun" not in net.held:
        net.held["begun"] = True
        return torch.tanh(y)
    return y


TURNS = [1.0, 2.0, 3.0, 4.0]


def _of_a_list(net: Net, y: Tensor) -> Tensor:
    return y * TURNS.pop()


REFUSED: list[tuple[Mid, int, str]] = [
    (_dropped, 1, "Python's random changes"),
    (_by_numpy, 1, "NumPy's random changes"),
    (_by_own, 2, "the Net's count changes"),
    (_annealed, 1, "the Net's count changes"),
    (_now_and_then, 1, "the Net's count changes"),
    (_carried, 1, "reads what the step before has computed"),
    (_counted, 2, "the step after it gives .* other numbers"),
    (_first_only, 3, "the step after it has .* where this one has aten.tanh"),
    (_of_a_list, 1, "the step after it gives .* other numbers"),
]


@pytest.mark.parametrize(("mid", "line", "says"), REFUSED, ids=[mid.__name__ for mid, _, _ in REFUSED])
def test_what_only_python_keeps_is_refused_with_its_line(mid: Mid, line: int, says: str) -> None:
    with pytest.raises(UnsupportedOperation, match=says) as caught:
        built(Net(mid), PLAIN, images())
    assert f"{__file__}:{mid.__code__.co_firstlineno + line}" in caught.value.message


def test_what_an_optimiser_counts_in_python_is_refused() -> None:
    class Decaying(Sgd):
        turns: ClassVar = [1]

        def update(self, params: Any, grads: Any, state: Any) -> Any:
            self.turns[0] += 1
            return {n: p - grads[n] * (0.1 / self.turns[0]) for n, p in params.items()}, {}

    with pytest.raises(UnsupportedOperation, match="other numbers"):
        built(Net(lambda _, y: y), Decaying(momentum=0.0), images())


def test_a_state_that_cannot_go_on_is_refused_by_name() -> None:
    def shorter(net: Net, y: Tensor) -> Tensor:
        net.mean = y.detach().mean()
        return y

    def renewed(net: Net, y: Tensor) -> Tensor:
        net.first.weight = nn.Parameter(net.first.weight * 0.9)
        return y

    with pytest.raises(Stop, match=r"sets its mean, torch.float32 \(8,\), to torch.float32 \(\)"):
        built(Net(shorter), PLAIN, images())
    with pytest.raises(Stop, match=r"replaces its parameter first\.weight"):
        built(Net(renewed), PLAIN, images())


class Scaled(nn.Module):
    """A loss with its own parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(outputs * self.scale, targets)


def test_a_parameter_of_the_loss_is_refused() -> None:
    with pytest.raises(UnsupportedOperation, match="a parameter that is not the model's") as caught:
        built(Net(lambda _, y: y), PLAIN, images(), loss=Scaled())
    assert caught.value.source.partition(":")[0] == __file__
    built(Net(lambda _, y: y), PLAIN, images(), loss=Scaled().requires_grad_(False))
    built(Net(lambda _, y: y), PLAIN, images(), loss=cross_entropy)


def test_a_buffer_beyond_31_bits_is_refused_by_name() -> None:
    net = Net(lambda _, y: y)
    net.register_buffer("table", torch.tensor([2**40, 5]))
    with pytest.raises(Stop, match="the buffer table has whole numbers beyond 31 bits"):
        built(net, PLAIN, images())
