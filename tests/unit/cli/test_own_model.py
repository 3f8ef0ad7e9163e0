"""``assay job init --from``: a user's module on the user's data, from its file to a checked step."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from assay.app.output import Exit
from assay.job.build import build
from assay.job.parts import recipe_of
from assay.job.read import read_job_file
from assay.job.weights import weights_of
from assay.program.execute import Executor, StepContext
from assay.program.kernels import FAST
from assay.program.state import state_root
from assay.training.job import JobArtifacts, step_function
from assay.training.optimisers import OPTIMISERS, Muon, Sgd
from assay.training.recipe import load
from tests.fakes.command import run
from tests.unit.training.steps import SEED, batch_of

FILE = """
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from assay.training.algorithms import Algorithm
from assay.training.codings import Integers
from assay.training.datasets import Dataset
from assay.training.optimisers import Sgd
from assay.training.recipe import Recipe
from assay.training.schedules import Schedule


@dataclass(frozen=True)
class Tides:
    '''Twelve hourly levels of a byte each, then the level an hour later.'''

    record_size: int = 13

    def split(self, batch):
        levels = batch.float() / 255
        return levels[:, :12], levels[:, 12]


class Forecast(nn.Module):
    def __init__(self):
        super().__init__()
        self.lag = nn.Conv1d(1, 6, 3, padding=1)
        self.norm = nn.LayerNorm(12)
        self.mix = nn.MultiheadAttention(12, 3, bias=False, batch_first=True)
        self.out = nn.Linear(72, 1)
        self.register_buffer("centre", torch.tensor(0.5))

    def forward(self, x):
        y = F.silu(self.lag(x[:, None]))
        y = self.norm(y)
        y = y + self.mix(y, y, y, need_weights=False)[0]
        return self.out({function}(y).flatten(1)).squeeze(1) + self.centre


def error(forecast, levels):
    return F.smooth_l1_loss(forecast, levels, beta=0.1)


def data():
    t = torch.arange(4000)
    level = 128 + 60 * torch.sin(t / 2.0) + 40 * torch.sin(t / 3.7)
    rows = level.round().to(torch.uint8).unfold(0, 13, 1).contiguous()
    return Dataset(Tides(), rows[:3500].numpy().tobytes(), rows[3500:].numpy().tobytes())


def build():
    torch.manual_seed(3)
    return Recipe(Forecast(), error, data())


def with_optimiser():
    torch.manual_seed(3)
    return Recipe(Forecast(), error, data(), Sgd(lr=0.05, schedule=Schedule(2, "cosine", 128)))


@dataclass(frozen=True)
class Polyak:
    '''m = 0.5m + Δ, θ −= 0.25m.'''

    slots: int = 1

    def start(self, theta):
        return [torch.zeros_like(theta)]

    def step(self, theta, delta, state):
        moment = state[0] * 0.5 + delta
        return theta - moment * 0.25, [moment]


def linear(*optimiser, **more):
    torch.manual_seed(3)
    return Recipe(nn.Linear(12, 1), lambda y, t: ((y[:, 0] - t) ** 2).mean(), data(), *optimiser, **more)


def with_outer():
    return linear(Sgd(), outer=Algorithm(Polyak(), Integers(6), feedback=0.5))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_model.py").write_text(FILE.replace("{function}", "torch.tanh"))
    (tmp_path / "jobs").mkdir()
    yield tmp_path


def assay(*arguments: str) -> tuple[int, Any]:
    """Status, and the data or the error that ``assay --json`` printed."""
    ran = run("--json", *arguments)
    return ran.status, ran.data if ran.status == 0 else ran.error


@cache
def text_of(function: str, *more: str) -> str:
    """The job file that `init` writes of a function, whose model is traced once for all tests of it."""
    with TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.chdir(name)
        Path("my_model.py").write_text(FILE.replace("{function}", "torch.tanh"))
        assert assay("job", "init", "job.toml", "--from", f"my_model.py:{function}", *more)[0] == Exit.OK
        return Path("job.toml").read_text()


def checked_step(made: JobArtifacts, file: Path) -> list[torch.Tensor]:
    """The first step: the same bits by both sets of kernels, and what PyTorch computes in fp32."""
    at = StepContext(made.records, SEED, 0, 0)
    after = Executor(made.inner).step(made.genesis, at)
    assert state_root(Executor(made.inner, kernels=FAST).step(made.genesis, at)) == state_root(after)
    body = read_job_file(file)
    recipe = recipe_of(body)
    assert recipe.optimiser is not None
    accumulate, layout = body.training.accumulate, recipe.dataset.layout
    native = step_function(recipe.model, recipe.loss, recipe.optimiser, layout, accumulate)
    rows = batch_of(made, 0, body.training.batch * accumulate)
    wanted = native([x.clone() for x in made.genesis], rows)
    for name, x, y in zip(made.slot_names, after, wanted, strict=True):
        assert (x - y).norm() <= 5e-3 * y.norm() + 1e-6, name
    return after


def test_a_module_of_ones_own_is_evaluated_with_the_weights_of_a_file(folder: Path) -> None:
    net = load("my_model.py:build").model
    changed = {name: p.detach() + 1 for name, p in net.named_parameters()}
    save_file(changed, folder / "w.safetensors")
    eval_of = ("--template", "eval", "--from", "my_model.py:build", "--weights", "w.safetensors")
    assert assay("job", "init", "jobs/e.toml", *eval_of, "--rounds", "1")[0] == Exit.OK
    body = read_job_file(folder / "jobs" / "e.toml")
    training = body.training
    assert training.batch * training.shards * training.steps_per_round * training.rounds <= 488
    assert body.evaluation is not None and body.evaluation.records == "held-out"
    assert body.weights is not None
    held = weights_of(body.weights.source)
    assert all(torch.equal(held[name], tensor) for name, tensor in changed.items())


@pytest.mark.long
def test_a_module_of_ones_own_becomes_a_job_whose_step_is_right(folder: Path) -> None:
    status, said = assay("job", "init", "jobs/tides.toml", "--from", "my_model.py:build", "--batch", "16")
    assert status == Exit.OK and said["nodes"] > 100
    file = folder / "jobs" / "tides.toml"
    text = file.read_text()
    assert 'from = "../my_model.py:build"' in text and 'name = "adamw"' in text
    file.write_text(
        text.replace("accumulate = 1", "accumulate = 2")
        .replace("epsilon = 1e-8", "epsilon = 1e-3")
        .replace('"constant"', '"cosine"', 1)
    )
    status, valid = assay("job", "validate", str(file))
    made = build(read_job_file(file))
    assert status == Exit.OK and valid["programRoot"] == "0x" + made.inner.root.hex()
    assert valid["parameters"] == said["parameters"] and valid["recordSize"] == 13
    assert made.slot_names[:2] == ["lag.weight", "lag.bias"] and "step" in made.slot_names
    after = checked_step(made, file)
    assert not torch.equal(after[0], made.genesis[0])


@pytest.mark.long
def test_what_a_job_learnt_is_evaluated_on_the_clients_own_held_out_records(folder: Path) -> None:
    assert assay("job", "init", "job.toml", "--from", "my_model.py:with_optimiser")[0] == Exit.OK
    assert "\n[optimiser]" not in (folder / "job.toml").read_text()
    made = build(read_job_file(folder / "job.toml"))
    executor, state, losses = Executor(made.inner, kernels=FAST), list(made.genesis), []
    for steps in (0, 100):
        for step in range(steps):
            state = executor.step(state, StepContext(made.records, SEED, 0, step))
        model = folder / f"after-{steps}"
        model.mkdir()
        (model / "manifest.json").write_text("{}")
        names = made.slot_names[: made.inner.params]
        save_file(dict(zip(names, state, strict=False)), model / "model.safetensors")
        status, found = assay("job", "eval", str(model), "job.toml")
        assert status == Exit.OK and found["records"] == 488 and found["accuracy"] is None
        losses.append(found["loss"])
    assert losses[1] < 0.5 * losses[0]
    status, refused = assay("job", "eval", "nowhere", "job.toml")
    assert status == Exit.USAGE and "holds no fetched model" in refused["message"]


@pytest.mark.long
def test_an_operation_that_no_program_has_is_named_and_nothing_is_written(folder: Path) -> None:
    (folder / "my_model.py").write_text(FILE.replace("{function}", "torch.special.i0e"))
    line = next(i for i, text in enumerate(FILE.splitlines(), 1) if "{function}" in text)
    status, error = assay("job", "init", "job.toml", "--from", "my_model.py:build")
    assert status == Exit.USAGE and error["code"] == "unsupported-operation"
    assert "special_i0e" in error["message"] and f"my_model.py:{line}" in error["message"]
    assert "docs/operations.md" in error["hint"] and not (folder / "job.toml").exists()


def test_a_price_is_of_the_operations_of_a_task_and_within_what_a_market_admits(folder: Path) -> None:
    asked = ("job", "init", "job.toml", "--from", "my_model.py:with_optimiser", "--price")
    status, plain = assay(*asked, "0tok/1e15op")
    assert status == Exit.OK and read_job_file(folder / "job.toml").money.price_cap == 20 * 10**18
    (folder / "job.toml").unlink()
    rate = 100 * 10**15 // plain["taskOperations"]
    assert assay(*asked, f"{rate}tok/1e15op")[0] == Exit.OK
    money = read_job_file(folder / "job.toml").money
    assert 99 * 10**18 < money.price_cap <= 100 * 10**18 and money.verifier_stake == 8 * 40 * 10**18
    (folder / "job.toml").unlink()
    status, refused = assay(*asked, f"{100 * rate}tok/1e15op")
    assert status == Exit.USAGE and "nothing was written" in refused["message"]
    assert "lower --price" in refused["hint"] and not (folder / "job.toml").exists()
    status, refused = assay("job", "init", "job.toml", "--price", "5tok/1e15op")
    assert status == Exit.USAGE and "--price cannot be given here" in refused["message"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ("--from", "my_model.py:with_optimiser", "--optimiser", "lion"),
            "both my_model.py:with_optimiser and",
        ),
        (("--from", "my_model.py:build", "--optimiser", "nosuch"), "no optimiser 'nosuch'"),
        (("--template", "cnn", "--optimiser", "nosuch"), "no optimiser 'nosuch'"),
    ],
)
def test_an_optimiser_that_cannot_be_is_refused_and_nothing_written(
    folder: Path, arguments: tuple[str, ...], says: str
) -> None:
    status, error = assay("job", "init", "job.toml", *arguments)
    assert status == Exit.USAGE and says in error["message"] and error["hint"]
    assert os.listdir(folder / "jobs") == [] and not (folder / "job.toml").exists()


@pytest.mark.long
def test_a_job_without_any_optimiser_is_refused(folder: Path) -> None:
    assert assay("job", "init", "job.toml", "--from", "my_model.py:build")[0] == Exit.OK
    file = folder / "job.toml"
    text = file.read_text()
    file.write_text(text[: text.index("\n[optimiser]")] + text[text.index("\n[training]") :])
    status, error = assay("job", "validate", str(file))
    assert (
        status == Exit.USAGE
        and "neither my_model.py:build nor the job file names an optimiser" in error["message"]
    )


OUTLIERS = """

class Loud(Forecast):
    def __init__(self):
        super().__init__()
        self.register_buffer("gain", torch.ones(12).index_fill(0, torch.tensor([4]), {outlier}))
        self.register_buffer("deaf", torch.ones(72).index_fill(0, torch.arange(4, 72, 12), 0.0))
        self.norm = nn.Identity()
        self.mix = nn.Identity()

    def forward(self, x):
        y = F.silu(self.lag(x[:, None]))
        y = (y * self.gain).flatten(1)
        return F.linear(y, self.out.weight * self.deaf, self.out.bias).squeeze(1) + self.centre


def loud():
    torch.manual_seed(3)
    return Recipe(Loud(), error, data(), Sgd(lr={rate}))


def exact():
    from assay.training.precision import Precisions
    return Recipe(Loud(), error, data(), Sgd(lr={rate}), Precisions("split"))
"""


@pytest.mark.long
def test_validate_says_which_products_are_in_parts_and_why(folder: Path) -> None:
    model = folder / "my_model.py"
    model.write_text(model.read_text() + OUTLIERS.format(outlier=30_000.0, rate=0.05))
    assert assay("job", "init", "job.toml", "--from", "my_model.py:loud")[0] == Exit.OK
    file = folder / "job.toml"
    text = file.read_text()
    assert 'products = "auto"' in text
    status, found = assay("job", "validate", str(file))
    assert status == Exit.OK and not found["warnings"]
    (line,) = found["inParts"]
    where = model.read_text()[: model.read_text().index("return F.linear")].count("\n") + 1
    assert f"my_model.py:{where}: left: error" in line
    file.write_text(text.replace('"auto"', '"single"'))
    status, found = assay("job", "validate", str(file))
    assert status == Exit.OK and not found["inParts"]
    other, warning = found["warnings"]
    assert f"my_model.py:{where}: the product (single) loses" in warning
    assert "the loss of the first step" in other, (
        "what it loses shows in the loss, which is compared with PyTorch's"
    )
    one = f'[precision.at]\n"my_model.py:{where}" = "split"\n#'
    file.write_text(text.replace('"auto"', '"single"').replace("[precision.at]", one))
    assert assay("job", "validate", str(file))[1]["warnings"] == []


@pytest.mark.long
def test_validate_warns_of_numbers_that_are_none_after_the_first_steps(folder: Path) -> None:
    model = folder / "my_model.py"
    model.write_text(model.read_text() + OUTLIERS.format(outlier=1.0, rate=1e38))
    assert assay("job", "init", "job.toml", "--from", "my_model.py:loud")[0] == Exit.OK
    status, found = assay("job", "validate", "job.toml")
    assert status == Exit.OK and "after step" in found["warnings"][0]


def test_the_precision_is_stated_once(folder: Path) -> None:
    model, file = folder / "my_model.py", folder / "job.toml"
    model.write_text(model.read_text() + OUTLIERS.format(outlier=1.0, rate=0.05))
    assert assay("job", "init", str(file), "--from", "my_model.py:exact")[0] == Exit.OK
    text = file.read_text()
    assert "[precision]" not in text
    file.write_text(text.replace("my_model.py:exact", "my_model.py:loud"))
    status, error = assay("job", "validate", str(file))
    assert status == Exit.USAGE and "my_model.py:loud nor the job file names a precision" in error["message"]
    file.write_text(text + '\n[precision]\nproducts = "auto"\n[precision.at]\n')
    status, error = assay("job", "validate", str(file))
    says = "both my_model.py:exact and the job file name a precision"
    assert status == Exit.USAGE and says in error["message"]


@pytest.mark.long
def test_an_algorithm_brings_its_papers_numbers_and_its_optimiser(folder: Path) -> None:
    file = folder / "job.toml"
    given = ("job", "init", str(file), "--from", "my_model.py:linear", "--algorithm", "demo")
    assert assay(*given)[0] == Exit.OK
    body = read_job_file(file)
    rule = recipe_of(body).optimiser
    assert isinstance(rule, Sgd) and not rule.momentum, "the step's change is the gradient"
    assert (body.outer.algorithm, body.outer.learning_rate, body.outer.momentum) == ("demo", 0.001, 0.0)
    assert (body.training.steps_per_round, body.training.segment_steps) == (1, 1)
    file.write_text(file.read_text().replace("\nmomentum = 0.0\n", "\nmomentum = 0.9\n", 1))
    status, error = assay("job", "validate", str(file))
    assert status != Exit.OK and "must be the gradient" in error["message"]


@pytest.mark.long
def test_an_outer_algorithm_of_ones_own_is_the_jobs(folder: Path) -> None:
    """A rule that no recipe here has: task and outer claim do in programs what it says in PyTorch."""
    file = folder / "job.toml"
    assert assay("job", "init", str(file), "--from", "my_model.py:with_outer")[0] == Exit.OK
    assert 'algorithm = "own"' in file.read_text() and assay("job", "validate", str(file))[0] == Exit.OK
    made, own = build(read_job_file(file)), load("my_model.py:with_outer").outer
    assert own is not None and len(made.tasks) == 2
    at, count = StepContext(made.records, SEED, 0, 0), made.inner.params
    trained = Executor(made.tasks[0]).step(made.genesis, at)
    sent = Executor(made.tasks[1]).step(trained, at)
    assert sent[made.slot_names.index("residual.weight")].any()
    first = made.slot_names.index("wire.0")
    wires = [sent[first + 2 * i : first + 2 * i + 2] for i in range(count)]
    given = list(made.outer_genesis)
    width = (made.outer.slots - 2 * count) // 2  # of each shard: its wires and whether it is there
    given[2 * count :] = [*(t for wire in wires for t in wire)] * 2 + [
        torch.tensor(True),
        torch.tensor(False),
    ]
    assert len(given) == 2 * count + 2 * width
    after = Executor(made.outer).step(given, at)
    for i, theta in enumerate(made.genesis[:count]):
        change = own.coding.decode(own.coding.encode(theta - trained[i]), theta.shape)
        assert change.any() and torch.allclose(after[i], theta - 0.25 * change, atol=1e-6)
        assert torch.allclose(after[count + i], change, atol=1e-6), "the rule's own momentum"


@pytest.mark.parametrize(
    ("function", "changes", "says"),
    [
        (
            "with_outer",
            ('algorithm = "own"', 'algorithm = "fedavg"'),
            "an outer algorithm, and [outer] names fedavg",
        ),
        ("linear", ('algorithm = "diloco"', 'algorithm = "own"'), "brings no outer algorithm"),
        ("with_outer", ("learning_rate = 0.0", "learning_rate = 0.5"), "has its rate and momentum itself"),
    ],
)
def test_an_outer_algorithm_is_named_once(
    folder: Path, function: str, changes: tuple[str, str], says: str
) -> None:
    file = folder / "job.toml"
    text = text_of(function)
    if function == "linear":
        text = text.replace("learning_rate = 0.7", "learning_rate = 0.0").replace(
            "momentum = 0.9", "momentum = 0.0"
        )
    elif "fedavg" in changes[1]:
        text = text.replace("learning_rate = 0.0", "learning_rate = 1.0")
    assert changes[0] in text
    file.write_text(text.replace(*changes))
    status, error = assay("job", "validate", str(file))
    assert status == Exit.USAGE and says in error["message"], error


@pytest.mark.parametrize(
    ("made", "says"),
    [
        ("Polyak(), Integers(1)", "Integers.width is 1"),
        ("Polyak(), Integers(0)", "Integers.width is 0"),
        ("Polyak(), codings.E3M0(0)", "E3M0.block is 0"),
        ("Polyak(), codings.Largest(0)", "Largest.k is 0"),
        ("Polyak(), feedback=2.0", "feedback is 2.0"),
        ("algorithms.Nesterov(-0.7, 0.9)", "Nesterov.lr is -0.7"),
        ("Polyak(), late=300", "late is 300, and must be a whole number, 0 to 254"),
    ],
)
def test_an_outer_algorithm_whose_numbers_cannot_train_is_refused(folder: Path, made: str, says: str) -> None:
    file = folder / "job.toml"
    file.write_text(text_of("with_outer"))
    model, good = folder / "my_model.py", "Algorithm(Polyak(), Integers(6), feedback=0.5)"
    text = model.read_text()
    assert good in text
    bad = "from assay.training import algorithms, codings\n" + text.replace(good, f"Algorithm({made})")
    model.write_text(bad)
    status, error = assay("job", "validate", str(file))
    assert status == Exit.USAGE and says in error["message"] and error["hint"], error


def test_a_template_has_no_algorithm_of_its_own(folder: Path) -> None:
    assert assay("job", "init", "job.toml", "--template", "mlp")[0] == Exit.OK
    file = folder / "job.toml"
    file.write_text(file.read_text().replace('algorithm = "diloco"', 'algorithm = "own"'))
    status, error = assay("job", "validate", str(file))
    assert status == Exit.USAGE and "a template has none" in error["message"]
    given = ("--from", "my_model.py:with_outer", "--algorithm", "streaming")
    status, error = assay("job", "init", "other.toml", *given)
    assert status == Exit.USAGE and "brings its outer algorithm" in error["message"]


@pytest.mark.long
@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_every_optimiser_of_a_job_file_trains(folder: Path, optimiser: str) -> None:
    """With a warm-up, a cosine decay, clipping and accumulation, each as the file says."""
    file = folder / "job.toml"
    given = ("--from", "my_model.py:build", "--batch", "4", "--optimiser", optimiser)
    assert assay("job", "init", str(file), *given)[0] == Exit.OK
    text = file.read_text()
    for old, new in (
        ("warmup_steps = 0", "warmup_steps = 5"),
        ('decay = "constant"', 'decay = "cosine"'),
        ("clip_norm = 0.0", "clip_norm = 0.01"),
        ("accumulate = 1", "accumulate = 2"),
        ("epsilon = 1e-8", "epsilon = 1e-3"),
    ):
        assert old in text or old.startswith("epsilon")
        text = text.replace(old, new)
    file.write_text(text)
    body = read_job_file(file)
    found = recipe_of(body).optimiser
    assert type(found) is OPTIMISERS[optimiser]
    rule: Any = found
    assert (rule.clip_norm, rule.schedule.warmup_steps) == (0.01, 5)
    assert (rule.schedule.decay, rule.schedule.total_steps) == ("cosine", 3 * 64)
    assert not isinstance(rule, Muon) or (rule.others.lr, rule.others.eps) == (0.001, 0.001)
    made = build(body)
    after = checked_step(made, file)
    assert all(x.isfinite().all() for x in after)
    assert float(after[made.slot_names.index("step")]) == 1
