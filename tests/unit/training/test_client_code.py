"""A client's own code: wrappers for speed are traced as written, and its exceptions are reported by line."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.program.lowering.plain_tracing import traced_plainly
from assay.program.lowering.tracing import StepFailed, UnsupportedOperation
from assay.training import recipe
from assay.training.datasets import Dataset
from assay.training.job import JobArtifacts, build_job
from assay.training.losses import cross_entropy
from assay.training.optimisers import AdamW, Sgd
from assay.training.outer import DiLoCo
from assay.training.recipe import BadRecipe, Recipe


class Bytes:
    """Sixteen bytes as inputs, and a seventeenth as the target."""

    record_size = 17

    def split(self, batch: Tensor) -> tuple[Tensor, Tensor]:
        return batch[:, :16].float() / 255, batch[:, 16].float() / 255


DATA = Dataset(Bytes(), bytes(range(17)) * 8, bytes(17))


class Net(nn.Module):
    """Two layers, called through `wrap`."""

    def __init__(self, wrap: Callable[[Callable[..., Tensor]], Callable[..., Tensor]] = lambda f: f) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(16, 8), nn.Linear(8, 1)
        self._hidden = wrap(self.hidden)

    def hidden(self, x: Tensor) -> Tensor:
        return torch.tanh(self.first(x))

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self._hidden(x)).squeeze(1)


def job(model: nn.Module) -> JobArtifacts:
    return build_job(model, functional.mse_loss, Sgd(), DATA, batch=4, shards=1, outer=DiLoCo(0.7, 0.9))


def test_what_only_saves_time_is_traced_as_written() -> None:
    assert job(Net(torch.compile)).inner.root == job(Net()).inner.root


def test_a_compiled_module_is_the_module_that_it_wraps() -> None:
    module: Any = torch.compile(Net())
    made = recipe.checked(Recipe(module, functional.mse_loss, DATA, Sgd()), "x")
    assert isinstance(made.model, Net)
    assert job(made.model).slot_names == job(Net()).slot_names
    assert job(nn.Sequential(module)).inner.root == job(nn.Sequential(Net())).inner.root


@pytest.mark.parametrize(
    "sizes", [(1, 2), (2, 0), (0, 0), (-1, 3), (5, 5), (1, 2, 2, 1), (0, 3, -1, -2, 1, 1)]
)
def test_circular_padding_is_what_pytorch_pads(sizes: tuple[int, ...]) -> None:
    shape = (2, 3, 5) if len(sizes) == 2 else (2, 3, 6, 5) if len(sizes) == 4 else (2, 3, 4, 6, 5)
    x = torch.arange(torch.Size(shape).numel(), dtype=torch.float32).view(shape)
    wanted = functional.pad(x, sizes, mode="circular")
    with traced_plainly():
        for found in (
            functional.pad(x, sizes, mode="circular"),
            functional.pad(x, sizes, "circular"),
            functional.pad(input=x, pad=sizes, mode="circular"),
        ):
            assert torch.equal(found, wanted)
        assert functional.pad(x, sizes).sum() <= x.sum()  # other modes are left alone


def test_a_convolution_with_circular_padding_has_a_program() -> None:
    layers = nn.Conv1d(1, 2, 3, padding=1, padding_mode="circular"), nn.Flatten(), nn.Linear(32, 1)
    assert job(nn.Sequential(nn.Unflatten(1, (1, 16)), *layers, nn.Flatten(0))).inner.nodes


def test_a_buffer_that_no_program_has_is_left_out_until_it_is_used() -> None:
    class Rotary(Net):
        turns: Tensor

        def __init__(self, used: bool) -> None:
            super().__init__()
            self.register_buffer("turns", torch.polar(torch.ones(16), torch.arange(16.0)))
            self.register_buffer("fine", torch.zeros(3, dtype=torch.float64))
            self.used = used

        def forward(self, x: Tensor) -> Tensor:
            if self.used:
                x = (x * self.turns).real
            return super().forward(x)

    unused = job(Rotary(used=False))
    assert unused.inner.root == job(Net()).inner.root and "turns" not in unused.slot_names
    with pytest.raises(UnsupportedOperation, match="complex64") as caught:
        job(Rotary(used=True))
    assert Path(__file__).name in caught.value.source


def test_a_layer_that_no_program_has_is_named_where_no_line_of_the_client_calls_it() -> None:
    pool = nn.FractionalMaxPool2d(2, output_size=2)
    with pytest.raises(UnsupportedOperation) as caught:
        job(nn.Sequential(nn.Unflatten(1, (1, 4, 4)), pool, nn.Flatten(), nn.Linear(4, 1), nn.Flatten(0)))
    assert caught.value.source == "a FractionalMaxPool2d of the model"


def test_an_error_of_ours_that_the_client_calls_is_told_by_the_clients_line() -> None:
    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(outputs, targets.long()[:3])  # THERE

    line = next(i for i, text in enumerate(Path(__file__).read_text().splitlines(), 1) if "# THERE" in text)
    with pytest.raises(StepFailed, match=rf" at .*{Path(__file__).name}:{line}: "):
        build_job(nn.Linear(16, 8), loss, Sgd(), DATA, batch=4, shards=1, outer=DiLoCo(0.7, 0.9))


class Kept(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def test_an_error_in_forward_is_told_by_the_clients_line() -> None:
    class Narrow(Net):
        def hidden(self, x: Tensor) -> Tensor:
            return self.first(x[:, :7])  # HERE

    line = next(i for i, text in enumerate(Path(__file__).read_text().splitlines(), 1) if "# HERE" in text)
    logger, kept = logging.getLogger("torch._subclasses.fake_tensor"), Kept()
    logger.addHandler(kept)
    try:
        with pytest.raises(StepFailed, match=rf"RuntimeError at .*{Path(__file__).name}:{line}: ") as caught:
            job(Narrow())
    finally:
        logger.removeHandler(kept)
    assert "layout" in caught.value.hint and "\n" not in caught.value.message
    assert not kept.texts, "PyTorch's own log of it, with a traceback, is for its developers"
    assert not logger.disabled


BROKEN = """
import torch
from assay.training.recipe import Recipe
{at_import}

def build():
    return made()

def made():
    {body}
"""


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"body": "raise RuntimeError('no such corpus')"}, r"RuntimeError at net.py:10: no such corpus"),
        ({"body": "return torch.zeros(2) @ torch.zeros(3)"}, r"RuntimeError at net.py:10: "),
        ({"at_import": "import nowhere_to_be_found"}, r"ModuleNotFoundError at net.py:4: "),
        ({"at_import": "x = ("}, r"SyntaxError at net.py:4: "),
    ],
)
def test_an_error_in_build_is_told_by_the_clients_line(
    tmp_path: Path, changes: dict[str, str], says: str
) -> None:
    (tmp_path / "net.py").write_text(BROKEN.format(**{"at_import": "", "body": "pass", **changes}))
    with pytest.raises(BadRecipe, match=says) as caught:
        recipe.load("net.py:build", tmp_path)
    assert len(caught.value.message.splitlines()) <= 2 and "import net" in caught.value.hint


OPTIMISERS = [
    (lambda p: torch.optim.AdamW(p, lr=0.01), AdamW(0.01, 0.9, 0.999, 1e-8, 0.01, decay_dims=0)),
    (lambda p: torch.optim.Adam(p, 0.02, betas=(0.8, 0.9)), AdamW(0.02, 0.8, 0.9, 1e-8, 0.0, decay_dims=0)),
    (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True), Sgd(0.1, 0.9, True, 0.0)),
]


@pytest.mark.parametrize(("theirs", "ours"), OPTIMISERS)
def test_an_optimiser_of_pytorchs_is_replaced_and_said(
    theirs: Any, ours: Any, caplog: pytest.LogCaptureFixture
) -> None:
    net = Net()
    made = Recipe(net, functional.mse_loss, DATA, theirs(net.parameters()))
    assert recipe.checked(made, "net.py:build").optimiser == ours
    assert "net.py:build: torch.optim's" in caplog.text and "stay as they are" not in caplog.text


@pytest.mark.parametrize(
    "theirs",
    [
        lambda p: torch.optim.RMSprop(p, lr=0.01),
        lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.1),
        lambda p: torch.optim.AdamW(p, lr=0.01, amsgrad=True),
        lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, dampening=0.5),
        lambda p: torch.optim.SGD([{"params": [q], "lr": 0.1 * i} for i, q in enumerate(p)]),
    ],
)
def test_one_that_ours_cannot_stand_in_for_is_told_what_to_use(theirs: Any) -> None:
    net = Net()
    made = Recipe(net, functional.mse_loss, DATA, theirs(net.parameters()))
    option = r"torch\.optim's (RMSprop ch|Adam, with weight|AdamW, with ams|SGD, with (damp|opt))"
    with pytest.raises(BadRecipe, match=option) as caught:
        recipe.checked(made, "net.py:build")
    assert "Muon of assay.training.optimisers" in caught.value.hint and "--optimiser" in caught.value.hint


def _stepped(p: Any) -> torch.optim.Optimizer:
    made, held = torch.optim.SGD(p, lr=0.1, momentum=0.9), list(p)
    for q in held:
        q.grad = torch.ones_like(q)
    made.step()
    return made


def _scheduled(p: Any) -> torch.optim.Optimizer:
    made = torch.optim.AdamW(p, lr=0.01)
    torch.optim.lr_scheduler.LambdaLR(made, lambda step: min(1.0, step / 100))
    return made


@pytest.mark.parametrize(
    ("theirs", "says"),
    [
        (_scheduled, r"a scheduler, which set its rate to 0; no"),
        (lambda p: torch.optim.SGD(p, lr=0.0), "a learning rate of 0"),
        (_stepped, "has taken steps"),
        (
            lambda p: torch.optim.SGD([*p, nn.Parameter(torch.ones(2))], lr=0.1),
            "1 tensors that are not param",
        ),
    ],
)
def test_an_optimiser_that_would_do_something_else_is_refused(theirs: Any, says: str) -> None:
    net = Net()
    made = Recipe(net, functional.mse_loss, DATA, theirs(list(net.parameters())))
    with pytest.raises(BadRecipe, match=says):
        recipe.checked(made, "net.py:build")


def test_an_optimiser_of_some_parameters_trains_these_alone(caplog: pytest.LogCaptureFixture) -> None:
    net = Net()
    theirs: Any = torch.optim.SGD(net.last.parameters(), lr=0.1)
    with recipe.unfrozen_after(net):
        made = recipe.checked(Recipe(net, functional.mse_loss, DATA, theirs), "net.py:build")
        files = build_job(
            net, made.loss, made.optimiser or Sgd(), DATA, batch=4, shards=1, outer=DiLoCo(0.7, 0.9)
        )
    assert files.slot_names[: files.inner.params] == ["last.weight", "last.bias"]
    assert "first.weight, first.bias stay as they are, which it was not given" in caplog.text
    assert all(p.requires_grad for p in net.parameters())


def test_decay_of_pytorchs_reaches_every_parameter() -> None:
    net, theirs = Net(), Net()
    library = torch.optim.AdamW(theirs.parameters(), lr=0.1, weight_decay=0.5)
    ours = recipe.in_place_of(torch.optim.AdamW(net.parameters(), lr=0.1, weight_decay=0.5), net, "net")
    params, given = dict(net.named_parameters()), dict(theirs.named_parameters())
    grads = {name: torch.full_like(p, 0.25) for name, p in params.items()}
    for name, p in given.items():
        p.grad = grads[name].clone()
    library.step()
    after, _ = ours.update(params, grads, ours.genesis(params))
    for name, p in given.items():
        torch.testing.assert_close(after[name], p, rtol=1e-3, atol=1e-5)
