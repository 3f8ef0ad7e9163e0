"""From a job file to what is published: its model, data and optimiser traced into a job's files (terms:
``terms.py``).

Contract: the same file, data and code give the same programs, dataset and genesis, and so the same roots.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from assay.jobfile import read as jobfile
from assay.jobfile.read import BadJobFile, CnnModel, Data, GptModel, JobFile, MlpModel, OwnModel
from assay.protocol.errors import Stop
from assay.training import datasets, models, recipe
from assay.training.datasets import Dataset
from assay.training.evaluation import check_passes, evaluation_job
from assay.training.job import JobArtifacts, build_job
from assay.training.losses import cross_entropy
from assay.training.micro import MicroSteps
from assay.training.muon import Muon
from assay.training.optimisers import AdamW, Lion, Optimiser, Sgd
from assay.training.outer import DiLoCo
from assay.training.precision import Precisions
from assay.training.recipe import Recipe
from assay.training.round_names import EVALUATE, check_rounds
from assay.training.schedules import Schedule


def schedule_of(file: JobFile) -> Schedule:
    """The learning rate's course over the job. Raises Stop where it ends within its warm-up."""
    assert file.schedule is not None, "the job file was validated"
    whole = file.training.rounds * file.training.steps_per_round
    section = file.schedule
    return Schedule(section.warmup_steps, section.decay, section.total_steps or whole, section.floor)


def _adamw(section: jobfile.AdamW | jobfile.MuonOthers) -> AdamW:
    return AdamW(
        section.learning_rate,
        section.beta1,
        section.beta2,
        section.epsilon,
        section.weight_decay,
        no_decay=section.no_decay,
    )


def optimiser_of(file: JobFile) -> Optimiser:
    """The optimiser that the file names."""
    section, schedule = file.optimiser, schedule_of(file)
    assert section is not None, "the job file was validated"
    rate, clip = section.learning_rate, section.clip_norm or None
    if isinstance(section, jobfile.AdamW):
        return replace(_adamw(section), schedule=schedule, clip_norm=clip)
    if isinstance(section, jobfile.Sgd):
        momentum, nesterov, decay = section.momentum, section.nesterov, section.weight_decay
        return Sgd(rate, momentum, nesterov, decay, schedule, clip, section.no_decay)
    if isinstance(section, jobfile.Lion):
        betas, decay = (section.beta1, section.beta2), section.weight_decay
        return Lion(rate, *betas, decay, schedule, clip, section.no_decay)
    others = _adamw(section.others)
    return Muon(rate, section.momentum, section.weight_decay, others, section.others_of, schedule, clip)


def recipe_of(file: JobFile, made: Recipe | None = None) -> Recipe:
    """Module, loss, data and optimiser of any job; `made` is what a model of one's own gave already.

    An evaluation needs no optimiser. Raises Stop where the data cannot be read or does not fit, BadRecipe for
    a file that gives no recipe, and BadJobFile where both the recipe and the job file name an optimiser or a
    precision, or neither.
    """
    if not isinstance(file.model, OwnModel):
        model = models.build(config_of(file), file.training.seed)
        return Recipe(model, cross_entropy, _template_data(file), optimiser_of(file), precisions_of(file))
    made = made or recipe.load(file.model.source)
    if file.outer.algorithm == EVALUATE:
        _given_once(file, "a precision", made.precision, file.precision, "[precision]")
        return replace(made, precision=made.precision or precisions_of(file))
    _given_once(file, "an optimiser", made.optimiser, file.optimiser, "[optimiser] and [schedule]")
    _given_once(file, "a precision", made.precision, file.precision, "[precision]")
    return replace(
        made,
        optimiser=made.optimiser or optimiser_of(file),
        precision=made.precision or precisions_of(file),
    )


def _given_once(file: JobFile, what: str, by_recipe: object, by_file: object, sections: str) -> None:
    """Raises BadJobFile unless either the recipe or the job file has it."""
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
    """The precision of products that the file states."""
    assert file.precision is not None, "the job file was validated"
    return Precisions(file.precision.products, dict(file.precision.at))


def _template_data(file: JobFile) -> Dataset:
    assert isinstance(file.data, Data), "the job file was validated"
    source, limit = file.data.source, file.data.max_bytes
    if not isinstance(file.model, GptModel):
        if source != "digits":
            name = _template(file)
            raise Stop(f"the {name} template reads digits, not {source!r}", hint='write source = "digits"')
        return datasets.digits()
    if source == "digits":
        raise Stop("the gpt template reads text, not digits", hint='write source = "stdlib" or a path')
    if source == "stdlib":
        return datasets.standard_library(file.model.context, max_bytes=limit)
    return datasets.text(Path(source), file.model.context, max_bytes=limit)


def _template(file: JobFile) -> str:
    assert not isinstance(file.model, OwnModel)
    return file.model.template


def config_of(file: JobFile) -> models.Config:
    """Shape of the template's model."""
    model = file.model
    if isinstance(model, GptModel):
        return models.GptConfig(
            n_layer=model.layers, n_head=model.heads, d_model=model.width, context=model.context
        )
    if isinstance(model, MlpModel):
        return models.MlpConfig(hidden=model.hidden, layers=model.layers)
    assert isinstance(model, CnnModel), "a model of one's own has no config"
    return models.CnnConfig(width=model.width)


def _described(made: Recipe, source: str | None) -> dict[str, Any]:
    """The manifest's model entry: a template's config, from which anybody builds it again, or a name."""
    kind = type(made.model)  # itself: a subclass may compute something else
    if isinstance(made.model, (models.Gpt, models.Mlp, models.Cnn)) and kind in models.Model.__args__:
        return models.describe(made.model.config)
    return {"kind": "own", "name": Path(source or "").name}


def _evaluation(file: JobFile, made: Recipe) -> JobArtifacts:
    """The job that computes the loss of a model on its dataset. Raises Stop where the file says what an
    evaluation has no use for."""
    training, said = file.training, file.outer
    if not isinstance(file.model, OwnModel):
        raise Stop(
            "a template's weights are its first ones, which nobody wants evaluated",
            hint='give [model] source = "my_model.py:build", whose model has its weights loaded',
        )
    unused = {"learning_rate": said.learning_rate, "momentum": said.momentum}
    unused |= {"accumulate": training.accumulate - 1, "micro_steps": training.micro_steps - 1}
    if wrong := [name for name, value in unused.items() if value]:
        raise Stop(
            f"an evaluation trains nothing, and {', '.join(wrong)} would say how",
            hint="write learning_rate = 0.0, momentum = 0.0, accumulate = 1 and micro_steps = 1",
        )
    check_rounds(said.algorithm, training.steps_per_round, training.segment_steps, training.min_shards)
    records = len(made.dataset.records) // made.dataset.layout.record_size
    steps = training.rounds * training.steps_per_round
    check_passes(records, training.batch, training.shards, steps)
    return evaluation_job(
        made.model,
        made.loss,
        made.dataset,
        batch=training.batch,
        shards=training.shards,
        seed=training.seed,
        name=Path(file.model.source).name,
        precisions=made.precision,
    )


def build(file: JobFile, own: Recipe | None = None) -> JobArtifacts:
    """Trace the job's step and make every file that it needs; `own` as in `recipe_of`. Raises Stop."""
    made, training = recipe_of(file, own), file.training
    if file.outer.algorithm == EVALUATE:
        return _evaluation(file, made)
    check_rounds(file.outer.algorithm, training.steps_per_round, training.segment_steps, training.min_shards)
    assert made.optimiser is not None, "recipe_of gives one"
    source = file.model.source if isinstance(file.model, OwnModel) else None
    return build_job(
        made.model,
        made.loss,
        made.optimiser if training.micro_steps == 1 else MicroSteps(made.optimiser, training.micro_steps),
        made.dataset,
        batch=training.batch,
        shards=training.shards,
        outer=DiLoCo(file.outer.learning_rate, file.outer.momentum),
        algorithm=file.outer.algorithm,
        accumulate=training.accumulate,
        seed=training.seed if source else 0,
        description=_described(made, source),
        precisions=made.precision,
    )
