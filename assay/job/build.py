"""Builds a job's files from its job file: traces model, data and optimiser (terms: ``terms.py``).

Contract: the same file, data, weights and code give the same programs, dataset and genesis, and so the same
roots.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from assay.job.parts import config_of, optimiser_of, precisions_of, recipe_of, rule_of, task_of
from assay.job.read import BadJobFile, JobFile, OwnModel
from assay.job.use_sections import DecoderModel
from assay.job.weights import Files, weights_of
from assay.program.validate import measure
from assay.protocol.errors import Stop
from assay.training import models
from assay.training.actors import Play, check_play, grpo_job
from assay.training.catalogue import CATALOGUE, EVALUATE, GRPO, INFER, outer_of, unsliced_because
from assay.training.checks import (
    check_algorithm,
    check_optimiser,
    check_rounds,
    check_slices,
    check_speeds,
)
from assay.training.evaluate import with_parameters
from assay.training.evaluation import check_passes, evaluation_job
from assay.training.grpo import Shape
from assay.training.inference import Asked, check_turns, inference_job
from assay.training.job import JobArtifacts, Keep, at_once, build_job
from assay.training.optimisers import AdamW, MicroSteps
from assay.training.policy import Policy
from assay.training.recipe import Recipe
from assay.training.results import RESULTS

Say = Callable[[str], None]
_LINES_NAMED = 8
"""Maximum number of faulty lines to name."""


def _described(made: Recipe, source: str | None) -> dict[str, Any]:
    """The manifest's model entry: a template's config, from which anybody can rebuild it, or a name."""
    kind = type(made.model)  # itself: a subclass may compute something else
    if isinstance(made.model, (models.Gpt, models.Mlp, models.Cnn)) and kind in models.Model.__args__:
        return models.describe(made.model.config)
    return {**made.facts, "kind": "own", "name": Path(source or "").name}


def _check_rounds(file: JobFile) -> None:
    t, name = file.training, file.outer.algorithm
    check_rounds(name, t.rounds, t.steps_per_round, t.segment_steps)
    why = CATALOGUE[name].one_step if name in CATALOGUE else ""
    if why and t.micro_steps > 1:
        raise BadJobFile(
            f"a round of {name} is one step, {why}; with {t.micro_steps} micro-steps most rounds would not"
            " change the model",
            hint="write micro_steps = 1; accumulate makes one step of several passes",
        )


def _check_algorithm(file: JobFile, made: Recipe) -> None:
    """Raises Stop if the outer algorithm's numbers cannot train, wherever they come from."""
    algorithm = outer_of(file.outer.algorithm, rule_of(file), made.outer)
    assert algorithm is not None, "a job that trains has one"
    check_algorithm(algorithm, file.training.shards, file.training.min_shards)


def _check_idle(file: JobFile, what: str) -> None:
    """Raises BadJobFile if the file has settings for training in a use without training."""
    training, said = file.training, file.outer
    unused = {"learning_rate": said.learning_rate, "momentum": said.momentum}
    if said.slices is not None:
        check_slices(said.algorithm)
    unused |= {"accumulate": training.accumulate - 1, "micro_steps": training.micro_steps - 1}
    if wrong := [name for name, value in unused.items() if value]:
        raise BadJobFile(
            f"{what} trains nothing, so {', '.join(wrong)} cannot be set",
            hint="write learning_rate = 0.0, momentum = 0.0, accumulate = 1 and micro_steps = 1",
        )
    _check_rounds(file)


def _evaluation(file: JobFile, made: Recipe, blocks: Files | None) -> JobArtifacts:
    """Builds a job that computes the loss of a model. Raises Stop for settings that an evaluation cannot
    use."""
    training = file.training
    _check_idle(file, "an evaluation")
    if file.weights is not None:
        made = replace(made, model=with_parameters(made.model, weights_of(file.weights.source, blocks)))
    dataset = made.dataset
    if file.evaluation is not None and file.evaluation.records == "held-out":
        dataset = replace(dataset, records=dataset.held_out, held_out=b"")
    records = len(dataset.records) // dataset.layout.record_size
    steps = training.rounds * training.steps_per_round
    check_passes(records, training.batch, training.shards, steps)
    return evaluation_job(
        made.model,
        made.loss,
        dataset,
        batch=training.batch,
        shards=training.shards,
        seed=training.seed,
        name=Path(file.model.source).name if isinstance(file.model, OwnModel) else "",
        precisions=made.precision,
    )


def _inference(file: JobFile, blocks: Files | None) -> JobArtifacts:
    """Builds a job that continues prompts."""
    section, training = file.inference, file.training
    assert section is not None and file.weights is not None, "the job file was validated"
    _check_idle(file, "an inference")
    asked = Asked(section.prompt_bytes, section.new_bytes, section.temperature)
    prompts = read_prompts(Path(section.prompts))
    net = models.build(config_of(file), seed=0)
    assert isinstance(net, models.Gpt), "the job file was validated"
    rows = training.batch * training.shards
    shape = (net.config.context, len(prompts), rows, training.rounds, training.steps_per_round)
    check_turns(asked, *shape)
    return inference_job(
        with_parameters(net, weights_of(file.weights.source, blocks)),
        prompts,
        asked,
        batch=training.batch,
        shards=training.shards,
        rounds=training.rounds,
        seed=training.seed,
        precisions=precisions_of(file),
    )


def _grpo(file: JobFile, blocks: Files | None, say: Say) -> JobArtifacts:
    """Builds a GRPO job: actors play and the outer claim learns."""
    section, training, model = file.grpo, file.training, file.model
    assert section is not None and isinstance(model, DecoderModel), "the job file was validated"
    _check_idle(file, "GRPO's outer claim learns by [optimiser]: [outer]")
    task = task_of(section)
    play = Play(
        task,
        Shape(model.layers, model.heads, model.width, task.length),
        training.batch,
        section.group,
        section.epochs,
        optimiser_of(file),
        section.clip_low,
        section.clip_high,
    )
    check_play(play, training.steps_per_round)
    policy = Policy(task, play.shape, training.seed)
    if file.weights is not None:
        theta = policy_weights(policy, weights_of(file.weights.source, blocks))
    else:
        warm = AdamW(lr=section.warm_rate, weight_decay=0.0, clip_norm=1.0)
        theta = policy.warmed(
            warm, section.warm_batch, section.warm_steps, _counting(section.warm_steps, say)
        )
    return grpo_job(policy, play, theta, shards=training.shards, seed=training.seed)


def _counting(steps: int, say: Say) -> Callable[[int], None]:
    """Progress callback of the supervised steps: reports the first and every tenth part."""
    every = max(1, steps // 10)

    def each(done: int) -> None:
        if done in (1, steps) or not done % every:
            say(f"supervised step {done} of {steps} before the job: [grpo] warm_steps")

    return each


def policy_weights(policy: Policy, held: Mapping[str, Tensor]) -> list[Tensor]:
    """Selects a policy's parameters from weights, such as those of an earlier job. Raises Stop."""
    found = {name: tensor for name, tensor in held.items() if name not in RESULTS}
    with_parameters(policy.net, found)
    return [found[name] for name in policy.names]


def read_prompts(path: Path) -> list[bytes]:
    """Reads one prompt per line, without line ends. Raises Stop if the file is unreadable, empty or has an
    empty line."""
    try:
        found = path.read_bytes().splitlines()
    except OSError as error:
        raise Stop(
            f"{path} cannot be read: {error.strerror}", hint="name a file with a prompt a line"
        ) from error
    if not found:
        raise Stop(f"{path} has no prompt", hint="write one prompt a line")
    if blank := [str(number) for number, prompt in enumerate(found, 1) if not prompt]:
        which = ", ".join(blank[:_LINES_NAMED]) + (", ..." if blank[_LINES_NAMED:] else "")
        raise Stop(
            f"{path} has no prompt on line {which}, and a prompt has at least 1 byte",
            hint="remove the line, or write a prompt there",
        )
    return found


def check_outer(file: JobFile, files: JobArtifacts) -> None:
    """Raises Stop if an outer claim needs more memory than the class admits and slices would help.

    The error has the number of slices, which may not be the exact minimum.
    """
    if unsliced_because(file.outer.algorithm):
        return
    most, needed = file.conditions, files.slices
    for program in files.outers:
        sizes = (program.state_bytes, most.state_bytes), (measure(program).peak_bytes, most.step_bytes)
        needed = max(needed, *(-(-files.slices * taken // limit) for taken, limit in sizes))
    if needed > files.slices:
        slices = f"{files.slices} slices" if files.slices > 1 else "one piece"
        raise Stop(
            f"with {file.training.shards} shards an outer step in {slices} takes more memory than the"
            f" job's class allows: it needs {needed} slices",
            hint=f"write slices = {needed} or more in [outer]",
        )


def build(
    file: JobFile,
    own: Recipe | None = None,
    blocks: Files | None = None,
    say: Say = lambda _: None,
    keep: Keep = at_once,
) -> JobArtifacts:
    """Traces the job's step and makes all its files. Raises Stop.

    `own`: as in `recipe_of`; `blocks`: source of weights named by CID; `say`: progress callback; `keep`:
    cache of traced steps (``job.trace_cache``).
    """
    if file.outer.algorithm == INFER:
        return _inference(file, blocks)
    if file.outer.algorithm == GRPO:
        return _grpo(file, blocks, say)
    made, training = recipe_of(file, own), file.training
    if file.outer.algorithm == EVALUATE:
        return _evaluation(file, made, blocks)
    _check_rounds(file)
    _check_algorithm(file, made)
    if file.speeds is not None:
        speeds = file.speeds
        check_speeds(speeds.slow_shards, speeds.slow_by, training.shards, training.segment_steps)
    assert made.optimiser is not None, "recipe_of gives one"
    check_optimiser(file.outer.algorithm, made.optimiser)
    source = file.model.source if isinstance(file.model, OwnModel) else None
    files = build_job(
        made.model,
        made.loss,
        made.optimiser if training.micro_steps == 1 else MicroSteps(made.optimiser, training.micro_steps),
        made.dataset,
        batch=training.batch,
        shards=training.shards,
        outer=rule_of(file),
        algorithm=file.outer.algorithm,
        slices=file.outer.slices,
        accumulate=training.accumulate,
        seed=training.seed if source else 0,
        description=_described(made, source),
        precisions=made.precision,
        held_out=0 if file.held_out is None else file.held_out.records,
        crew=0 if file.crew is None else file.crew.members,
        own=made.outer,
        keep=keep,
    )
    check_outer(file, files)
    return files
