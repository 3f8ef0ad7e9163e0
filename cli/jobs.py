"""From a job file to what is published and posted.

Contract: the same file, data and code give the same programs, dataset and genesis, and so the same roots.
"""

from __future__ import annotations

from pathlib import Path

from cli.jobfile import AdamW as AdamWSection
from cli.jobfile import Data, GptModel, JobFile, MlpModel, OwnModel
from protocol.errors import Stop
from protocol.types import Address, Seconds, Terms, Wei
from training import datasets, models, recipe
from training.artifacts import Published
from training.datasets import Dataset
from training.job import JobArtifacts, build_job, from_recipe
from training.losses import cross_entropy
from training.optimisers import AdamW, Optimiser, Sgd
from training.outer import DiLoCo
from training.schedules import Schedule


def _optimiser(file: JobFile) -> Optimiser:
    section = file.optimiser
    assert section is not None, "the job file was validated"
    clip = section.clip_norm or None
    if isinstance(section, AdamWSection):
        return AdamW(
            section.learning_rate,
            section.beta1,
            section.beta2,
            section.epsilon,
            section.weight_decay,
            Schedule(section.warmup_steps),
            clip,
        )
    return Sgd(
        section.learning_rate,
        section.momentum,
        section.nesterov,
        section.weight_decay,
        Schedule(section.warmup_steps),
        clip,
    )


def dataset_of(file: JobFile) -> Dataset:
    """The job's dataset. Raises Stop where the source does not fit the model or cannot be read."""
    if isinstance(file.model, OwnModel):
        return recipe.load(file.model.source).dataset
    assert isinstance(file.data, Data), "the job file was validated"
    source, limit = file.data.source, file.data.max_bytes
    if not isinstance(file.model, GptModel):
        if source != "digits":
            raise Stop(f"the mlp template reads digits, not {source!r}", hint='write source = "digits"')
        return datasets.digits()
    if source == "digits":
        raise Stop("the gpt template reads text, not digits", hint='write source = "stdlib" or a path')
    if source == "stdlib":
        return datasets.standard_library(file.model.context, max_bytes=limit)
    return datasets.text(Path(source), file.model.context, max_bytes=limit)


def config_of(model: GptModel | MlpModel) -> models.GptConfig | models.MlpConfig:
    """Shape of the template's model."""
    if isinstance(model, GptModel):
        return models.GptConfig(
            n_layer=model.layers, n_head=model.heads, d_model=model.width, context=model.context
        )
    return models.MlpConfig(hidden=model.hidden, layers=model.layers)


def build(file: JobFile) -> JobArtifacts:
    """Trace the job's step and make every file that it needs. Raises Stop."""
    outer = DiLoCo(file.outer.learning_rate, file.outer.momentum)
    if isinstance(file.model, OwnModel):
        return from_recipe(
            recipe.load(file.model.source),
            batch=file.training.batch,
            shards=file.training.shards,
            outer=outer,
            seed=file.training.seed,
            name=Path(file.model.source).name,
        )
    config = config_of(file.model)
    return build_job(
        models.build(config, file.training.seed),
        cross_entropy,
        _optimiser(file),
        dataset_of(file),
        batch=file.training.batch,
        shards=file.training.shards,
        outer=outer,
        description=models.describe(config),
    )


def terms_of(file: JobFile, published: Published, client: Address, nonce: int) -> Terms:
    """The job's terms, which its id is the hash of."""
    training, verification, times, money = file.training, file.verification, file.times, file.money
    return Terms(
        client=client,
        inner=published.inner,
        outer=published.outer,
        dataset_root=published.dataset_root,
        genesis_root=published.genesis_root,
        outer_genesis_root=published.outer_genesis_root,
        manifest=published.manifest,
        seed=training.seed.to_bytes(32, "big"),
        records=published.records,
        record_size=published.record_size,
        shards=training.shards,
        min_shards=training.min_shards,
        rounds=training.rounds,
        steps_per_round=training.steps_per_round,
        segment_steps=training.segment_steps,
        samples=verification.samples,
        verifiers=verification.verifiers,
        quorum=verification.quorum,
        seed_delay=verification.seed_delay_blocks,
        max_unsettled=verification.max_unsettled_rounds,
        task_time=Seconds(times.task),
        straggler_time=Seconds(times.straggler),
        outer_time=Seconds(times.outer),
        vote_time=Seconds(times.vote),
        reveal_time=Seconds(times.reveal),
        challenge_window=Seconds(times.challenge_window),
        move_time=Seconds(times.move),
        price_period=Seconds(times.price_period),
        nonce=nonce,
        price_floor=Wei(money.price_floor),
        price_cap=Wei(money.price_cap),
        verifier_fee=Wei(money.verifier_fee),
        outer_fee=Wei(money.outer_fee),
        solver_stake=Wei(money.solver_stake),
        verifier_stake=Wei(money.verifier_stake),
        challenge_bond=Wei(money.challenge_bond),
        miss_penalty=Wei(money.miss_penalty),
    )
