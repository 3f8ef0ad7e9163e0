"""Loads a client's own model: the `Recipe` that a function in a Python file returns.

Contract: ``load("my_model.py:build")`` runs the file once, on the client's machine only; others run the
program that was traced from it. Anything but a `Recipe` is refused with a reason. Not guaranteed: that two
runs of a `build` that draws random numbers give the same genesis; call ``torch.manual_seed`` in it.

Example::

    def build() -> Recipe:
        torch.manual_seed(0)
        return Recipe(
            model=MyModel(),
            loss=cross_entropy,
            dataset=Dataset(TextLayout(64), records, held_out),
            optimiser=AdamW(lr=3e-4, schedule=Schedule(100, "cosine", 2000)),
        )
"""

from __future__ import annotations

import importlib.util
import logging
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from assay.protocol.errors import Stop
from assay.training.algorithms import Algorithm
from assay.training.datasets import Dataset
from assay.training.optimisers import AdamW, Optimiser, Sgd
from assay.training.precision import Precisions

log = logging.getLogger(__name__)

LossFunction = Callable[[Any, Tensor], Tensor]
"""Maps (model output, targets) to an f32 scalar."""


class BadRecipe(Stop):
    """The client's file returns no valid recipe; the message says what it returned."""

    code = "bad-recipe"


@dataclass(frozen=True)
class Recipe:
    """Everything that a training step is made of.

    `model` maps the layout's inputs to what `loss` takes first; `loss` maps (outputs, targets) to an f32
    scalar. Parameters that require no gradient are frozen. `optimiser` is one of ``training.optimisers``,
    an object with their two methods, one of ``torch.optim`` that ours can stand in for and that has taken no
    step and has no scheduler (what it was not given is frozen), or None: the one that the job file names. So
    is `precision`, that of the step's products. `outer` is an outer algorithm of one's own, for a job file
    with ``algorithm = "own"``. `facts` stand beside the model's name in the job's manifest.
    """

    model: nn.Module
    loss: LossFunction
    dataset: Dataset
    optimiser: Optimiser | None = None
    precision: Precisions | None = None
    outer: Algorithm | None = None
    facts: Mapping[str, str] = field(default_factory=dict)


def parts(reference: str) -> tuple[str, str]:
    """(path of the file, name of the function) of ``"my_model.py:build"``. Raises BadRecipe."""
    path, colon, name = reference.rpartition(":")
    if not colon or not path.endswith(".py") or not name.isidentifier():
        raise BadRecipe(
            f"{reference!r} names no function in a Python file",
            hint='write the file, a colon and the function, such as "my_model.py:build"',
        )
    return path, name


def load(reference: str, folder: Path = Path()) -> Recipe:
    """Loads the recipe that a function of a file returns; a relative path starts at `folder`.

    The file's folder is importable while it runs. Raises BadRecipe if file or function is missing, it returns
    something else, or the client's code raises: with its line and message.
    """
    path, name = parts(reference)
    file = (folder / path).resolve()
    if not file.is_file():
        raise BadRecipe(f"there is no file {file}", hint="a relative path begins at the job file's folder")
    spec = importlib.util.spec_from_file_location(f"_recipe_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise BadRecipe(f"{file} cannot be loaded as Python", hint="name a .py file")
    module = importlib.util.module_from_spec(spec)
    with _importable(file.parent, spec.name, module):
        try:
            spec.loader.exec_module(module)
            build = getattr(module, name, None)
            if not callable(build):
                raise BadRecipe(f"{file} has no function {name}", hint="check the name after the colon")
            made = build()
        except Stop:
            raise
        except Exception as error:
            raise _raised(error, file, name) from error
        return checked(made, f"{file.name}:{name}")


def _raised(error: Exception, file: Path, name: str) -> BadRecipe:
    """The client's own line and message, without the frames above."""
    if isinstance(error, SyntaxError) and error.filename:
        where, text = f"{Path(error.filename).name}:{error.lineno}", (error.text or "").strip()
    else:
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if Path(frame.filename).is_relative_to(file.parent)]
        at = own[-1] if own else frames[-1]
        where, text = f"{Path(at.filename).name}:{at.lineno}", at.line or ""
    first = (str(error).strip().splitlines() or [""])[0]
    return BadRecipe(
        f"{file.name}:{name} raised {type(error).__name__} at {where}: {first}"
        + (f"\n    {text}" if text else ""),
        hint=f"mend that line; in {file.parent}, `python -c 'import {file.stem}; {file.stem}.{name}()'` shows"
        " the whole way there",
    )


@contextmanager
def _importable(folder: Path, name: str, module: ModuleType) -> Iterator[None]:
    """Registers the module (dataclasses need that) and puts its folder on the path, for a `with` block."""
    sys.path.insert(0, str(folder))
    sys.modules[name] = module
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        del sys.modules[name]


_LEFT_OUT = ("amsgrad", "maximize", "dampening")
"""Options of PyTorch's optimisers that ours lack; their defaults have no effect."""
_OWN = (
    "give Recipe(optimiser=...) one of Sgd, AdamW, Lion and Muon of assay.training.optimisers, or leave it"
    " out and name it in the job file (`assay job init --optimiser adamw`)"
)


def _like_adam(given: dict[str, Any]) -> Optimiser:
    (beta1, beta2), rate = given["betas"], float(given["lr"])
    decay = float(given["weight_decay"])
    return AdamW(rate, float(beta1), float(beta2), float(given["eps"]), decay, decay_dims=0)


def _like_sgd(given: dict[str, Any]) -> Optimiser:
    momentum, decay = float(given["momentum"]), float(given["weight_decay"])
    return Sgd(float(given["lr"]), momentum, bool(given["nesterov"]), decay)


_OURS: dict[str, Callable[[dict[str, Any]], Optimiser]] = {
    "AdamW": _like_adam,
    "Adam": _like_adam,
    "SGD": _like_sgd,
}


def _unlike(name: str, groups: list[dict[str, Any]]) -> str:
    """Why none of our optimisers can replace one with these groups; empty if one can."""
    if name not in _OURS:
        return ""
    if any(group != groups[0] for group in groups):
        return ", with options that differ from group to group"
    given = groups[0]
    wrong = [option for option in _LEFT_OUT if given.get(option)]
    if name == "Adam" and given["weight_decay"] and not given.get("decoupled_weight_decay"):
        wrong.append("weight_decay, which it adds to the gradient (AdamW's is apart from it)")
    return f", with {', '.join(wrong)}" if wrong else ""


def _check_fresh(optimiser: torch.optim.Optimizer, what: str) -> None:
    """Raises BadRecipe if the optimiser has a scheduler, earlier steps, or nothing to optimise."""
    for group in optimiser.param_groups:
        if "initial_lr" in group:
            raise BadRecipe(
                f"{what} has a scheduler, which set its rate to {float(group['lr']):g}; no node would run it,"
                " and the rate would stay there",
                hint="give the schedule to the optimiser, such as"
                f" Recipe(optimiser=AdamW(lr={float(group['initial_lr']):g}, schedule=Schedule(100, 'cosine',"
                " 2000))) of assay.training.optimisers and assay.training.schedules",
            )
        if float(group["lr"]) == 0:
            raise BadRecipe(
                f"{what} has a learning rate of 0, so it trains nothing", hint="give a rate above 0"
            )
    if any(optimiser.state.values()):
        raise BadRecipe(
            f"{what} has taken steps, and its state (moments, momentum) would be lost, since a job's"
            " optimiser starts from its initial state",
            hint="make a new optimiser for the job, as build() does; the weights are kept",
        )


def _freeze_others(optimiser: torch.optim.Optimizer, model: nn.Module, what: str) -> None:
    """Freezes parameters that the optimiser was not given. Raises BadRecipe for one that is not the
    model's."""
    given = {id(p) for group in optimiser.param_groups for p in group["params"]}
    named = dict(model.named_parameters())
    if strange := len(given - {id(p) for p in named.values()}):
        raise BadRecipe(
            f"{what} has {strange} tensors that are not parameters of the model, so they would not be"
            " trained",
            hint="make it from model.parameters() of the recipe's own model, and make what a loss learns a"
            " part of the model",
        )
    others = [name for name, p in named.items() if p.requires_grad and id(p) not in given]
    for name in others:
        named[name].requires_grad_(False)
    idle = [name for name, p in named.items() if not p.requires_grad and id(p) in given]
    for names, why in ((others, "which it was not given"), (idle, "which require no gradient")):
        if names:
            log.warning("%s: %s stay as they are, %s", what, _few(names), why)


@contextmanager
def unfrozen_after(model: nn.Module) -> Iterator[None]:
    """Restores the frozen state of parameters after a `with` block."""
    flags = [(p, p.requires_grad) for p in model.parameters()]
    try:
        yield
    finally:
        for p, flag in flags:
            p.requires_grad_(flag)


def _few(names: list[str], most: int = 4) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if names[most:] else "")


def in_place_of(optimiser: torch.optim.Optimizer, model: nn.Module, origin: str) -> Optimiser:
    """Our optimiser with the options of PyTorch's, as logged; parameters not given to it are frozen.

    Raises BadRecipe if there is none or it would behave differently.
    """
    name = type(optimiser).__name__
    what = f"{origin}: torch.optim's {name}"
    groups = [
        {k: v for k, v in group.items() if k not in ("params", "initial_lr")}
        for group in optimiser.param_groups
    ]
    if name not in _OURS or (why := _unlike(name, groups)):
        raise BadRecipe(
            f"{what}{why if name in _OURS else ''} changes the model from outside, and a job's optimiser"
            " has to be traced as part of the program",
            hint=_OWN,
        )
    _check_fresh(optimiser, what)
    _freeze_others(optimiser, model, what)
    ours = _OURS[name](groups[0])
    log.warning("%s becomes %s, whose update is part of the program", what, ours)
    return ours


def checked(made: object, origin: str) -> Recipe:
    """Validates a Recipe; `origin` names its source in errors. Raises BadRecipe.

    If its optimiser is PyTorch's, parameters not given to it are frozen in the model.
    """
    if not isinstance(made, Recipe):
        raise BadRecipe(
            f"{origin} returned a {type(made).__name__}, not an assay.training.recipe.Recipe",
            hint="return Recipe(model=..., loss=..., dataset=..., optimiser=...)",
        )
    model = getattr(made.model, "_orig_mod", made.model)  # what torch.compile has wrapped
    made = replace(made, model=model)
    if isinstance(made.optimiser, torch.optim.Optimizer) and isinstance(model, nn.Module):
        made = replace(made, optimiser=in_place_of(made.optimiser, model, origin))
    wanted: tuple[tuple[str, bool, str], ...] = (
        ("model", isinstance(made.model, nn.Module), "an nn.Module"),
        ("loss", callable(made.loss), "a function of (outputs, targets)"),
        ("dataset", isinstance(made.dataset, Dataset), "a training.datasets.Dataset"),
        (
            "optimiser",
            made.optimiser is None
            or all(callable(getattr(made.optimiser, m, None)) for m in ("genesis", "update")),
            "an optimiser with genesis and update",
        ),
        (
            "precision",
            made.precision is None or isinstance(made.precision, Precisions),
            "a training.precision.Precisions",
        ),
        (
            "outer",
            made.outer is None or isinstance(made.outer, Algorithm),
            "a training.algorithms.Algorithm",
        ),
    )
    for name, holds, what in wanted:
        if not holds:
            found = type(getattr(made, name)).__name__
            raise BadRecipe(f"{origin}: {name} is a {found}, not {what}", hint=f"give {what}")
    size = made.dataset.layout.record_size
    if not made.dataset.records or len(made.dataset.records) % size:
        raise BadRecipe(
            f"{origin}: {len(made.dataset.records)} bytes are no whole records of {size} bytes",
            hint="cut the dataset to a multiple of layout.record_size",
        )
    return made
