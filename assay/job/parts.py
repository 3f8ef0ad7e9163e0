"""Converts a job file's sections to a model, its data, an optimiser and a precision.

Contract: the same file, data and code give the same results. ``job.build`` assembles them.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from torch import nn

from assay.job.optimisers import chosen
from assay.job.outer import numbers_in
from assay.job.read import BadJobFile, CnnModel, Data, GptModel, JobFile, MlpModel, OwnModel
from assay.job.use_sections import AdditionSection, GrpoSection, SortingSection
from assay.protocol.errors import Stop
from assay.training import datasets, models, recipe
from assay.training.catalogue import EVALUATE, OWN
from assay.training.datasets import Dataset
from assay.training.losses import cross_entropy
from assay.training.optimisers import Optimiser
from assay.training.outer import DiLoCo, Overlap
from assay.training.precision import Precisions
from assay.training.recipe import Recipe
from assay.training.schedules import Schedule
from assay.training.verifiable import Addition, Brackets, Sorting, Verifiable


def schedule_of(file: JobFile) -> Schedule:
    """Learning rate schedule over the job, in optimiser steps of as many micro-steps as the file states.

    Raises Stop if it ends within its warm-up.
    """
    assert file.schedule is not None, "the job file was validated"
    steps = file.training.steps_per_round if file.grpo is None else file.grpo.epochs
    whole = file.training.rounds * steps
    section, micro = file.schedule, file.training.micro_steps
    warmup, total = (-(-count // micro) for count in (section.warmup_steps, section.total_steps or whole))
    return Schedule(warmup, section.decay, total, section.floor)


def optimiser_of(file: JobFile) -> Optimiser:
    """The optimiser that the file names."""
    assert file.optimiser is not None, "the job file was validated"
    return chosen(file.optimiser, schedule_of(file))


def rule_of(file: JobFile) -> DiLoCo:
    """Outer rate and momentum of the file, with the algorithm's further settings."""
    said = file.outer
    usual = Overlap()
    overlap = Overlap(
        said.fragments,
        usual.delay if said.overlap_rounds is None else said.overlap_rounds,
        usual.alpha if said.alpha is None else said.alpha,
    )
    numbers = tuple(numbers_in(said).items())
    return DiLoCo(said.learning_rate, said.momentum, said.momentum_every or 1, overlap, numbers)


def recipe_of(file: JobFile, made: Recipe | None = None) -> Recipe:
    """Module, loss, data and optimiser of a job; `made`: the recipe of an own model, if already called.

    An evaluation needs no optimiser. Raises Stop if the data cannot be read or does not fit, BadRecipe if the
    file gives no recipe, and BadJobFile if optimiser or precision is named by both the recipe and the job
    file, or by neither.
    """
    if not isinstance(file.model, OwnModel):
        model = _module(file)
        optimiser = None if file.outer.algorithm == EVALUATE else optimiser_of(file)
        return Recipe(model, cross_entropy, _template_data(file), optimiser, precisions_of(file))
    made = made or recipe.load(file.model.source)
    if file.outer.algorithm == EVALUATE:
        _given_once(file, "a precision", made.precision, file.precision, "[precision]")
        return replace(made, precision=made.precision or precisions_of(file))
    if (made.outer is None) == (file.outer.algorithm == OWN):
        name = Path(file.model.source).name
        raise BadJobFile(
            f"{name} brings {'no' if made.outer is None else 'an'} outer algorithm, and [outer] names"
            f" {file.outer.algorithm}",
            hint='algorithm = "own" is what Recipe(outer=...) brings, and all others are names',
        )
    _given_once(file, "an optimiser", made.optimiser, file.optimiser, "[optimiser] and [schedule]")
    _given_once(file, "a precision", made.precision, file.precision, "[precision]")
    return replace(
        made,
        optimiser=made.optimiser or optimiser_of(file),
        precision=made.precision or precisions_of(file),
    )


def _module(file: JobFile) -> nn.Module:
    """Creates the template's module. Raises Stop if this machine has too little memory."""
    try:
        return models.build(config_of(file), file.training.seed)
    except (MemoryError, RuntimeError) as error:  # PyTorch's own says so in words alone
        if isinstance(error, RuntimeError) and "memory" not in str(error):
            raise
        raise Stop(
            "this machine has too little memory for the parameters of this model",
            hint="write smaller numbers in [model], or use a machine with more memory",
        ) from error


def _given_once(file: JobFile, what: str, by_recipe: object, by_file: object, sections: str) -> None:
    """Raises BadJobFile unless exactly one of recipe and job file states it."""
    if (by_recipe is None) != (by_file is None):
        return
    assert isinstance(file.model, OwnModel)
    name, both = Path(file.model.source).name, by_recipe is not None
    raise BadJobFile(
        f"both {name} and the job file name {what}"
        if both
        else f"neither {name} nor the job file names {what}",
        hint="remove one" if both else f"add {sections} to the job file",
    )


def precisions_of(file: JobFile) -> Precisions:
    """Precision of matrix products in the file."""
    assert file.precision is not None, "the job file was validated"
    return Precisions(file.precision.products, dict(file.precision.at))


def _template_data(file: JobFile) -> Dataset:
    assert isinstance(file.data, Data), "the job file was validated"
    source, limit = file.data.source, file.data.max_bytes
    if not isinstance(file.model, GptModel):
        if source != "digits":
            name = _template(file)
            raise Stop(
                f"the {name} template trains on digits, not on {source!r}", hint='write source = "digits"'
            )
        return datasets.digits()
    if source == "digits":
        raise Stop("the gpt template trains on text, not on digits", hint='write source = "stdlib" or a path')
    if source == "stdlib":
        return datasets.standard_library(file.model.context, max_bytes=limit)
    return datasets.text(Path(source), file.model.context, max_bytes=limit)


def _template(file: JobFile) -> str:
    assert not isinstance(file.model, OwnModel)
    return file.model.template


def config_of(file: JobFile) -> models.Config:
    """Shape of the template's model. Raises Stop if it is invalid."""
    model = file.model
    if isinstance(model, GptModel):
        if model.width % model.heads:
            raise Stop(
                f"[model] width = {model.width} does not divide into heads = {model.heads}",
                hint="change width or heads in [model]",
            )
        return models.GptConfig(
            n_layer=model.layers, n_head=model.heads, d_model=model.width, context=model.context
        )
    if isinstance(model, MlpModel):
        return models.MlpConfig(hidden=model.hidden, layers=model.layers)
    assert isinstance(model, CnnModel), "a model of one's own has no config"
    return models.CnnConfig(width=model.width)


def task_of(section: GrpoSection) -> Verifiable:
    """The task that GRPO's actors play."""
    if isinstance(section, AdditionSection):
        return Addition(section.digits)
    if isinstance(section, SortingSection):
        return Sorting(section.digits)
    return Brackets(section.depth, section.kinds)
