"""Parses the job file: everything a client decides about a job, in TOML.

Contract: the file states every consensus parameter; code has no defaults, and unknown keys are refused with
the key's path. ``assay job init`` writes a complete file (``job.templates``).
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, ValidationError, model_validator

from assay.job.optimisers import OptimiserSection
from assay.job.outer import Outer, unsuitable
from assay.job.use_sections import (
    DecoderModel,
    EvaluationSection,
    GrpoSection,
    HeldOutSection,
    InferenceSection,
    WeightsSection,
    misplaced,
)
from assay.job.validation_errors import fault
from assay.job.values import (
    Amount,
    Count,
    Duration,
    Section,
    Share,
    Size,
    Whole,
)
from assay.protocol.cid import is_cid
from assay.protocol.crew import MAX_MEMBERS
from assay.protocol.errors import Stop
from assay.training.schedules import Decay


class BadJobFile(Stop):
    """The job file is invalid."""

    code = "bad-job-file"


class GptModel(Section):
    template: Literal["gpt"]
    layers: Count
    heads: Count
    width: Count
    context: Count


class MlpModel(Section):
    template: Literal["mlp"]
    hidden: Count
    layers: Count


class CnnModel(Section):
    """`width`: channels of the first block, a multiple of 4."""

    template: Literal["cnn"]
    width: Count


class OwnModel(Section):
    """The client's own model. `from` names a Python file and a function that returns a
    ``assay.training.recipe.Recipe``; the dataset is the recipe's, and so is the optimiser if it names one."""

    source: str = Field(alias="from")


class Data(Section):
    """`source`: "stdlib" (the Python standard library's text), "digits", or a path to the user's text."""

    source: str
    max_bytes: Count


class ScheduleSection(Section):
    """Learning rate schedule in steps of one shard; `total_steps` 0 means all of the job's."""

    warmup_steps: Whole
    decay: Decay
    total_steps: Whole
    floor: Share


ProductPrecision = Literal["single", "split", "auto"]


class PrecisionSection(Section):
    """Precision of all matrix products, and in [precision.at] of those from lines such as
    "my_model.py:31"."""

    products: ProductPrecision
    at: dict[str, ProductPrecision]


class Training(Section):
    seed: Count
    batch: Count
    accumulate: Count
    micro_steps: Count
    shards: Count
    min_shards: Count
    rounds: Count
    steps_per_round: Count
    segment_steps: Count


class Verification(Section):
    verifiers: Count
    samples: Count
    seed_delay_blocks: Count
    max_unsettled_rounds: Count


class Times(Section):
    task: Duration
    straggler: Duration
    outer: Duration
    vote: Duration
    challenge_window: Duration
    move: Duration
    price_period: Duration


class Money(Section):
    price_floor: Amount
    price_cap: Amount
    verifier_fee: Amount
    outer_fee: Amount
    solver_stake: Amount
    verifier_stake: Amount
    challenge_bond: Amount
    miss_penalty: Amount


class SpeedsSection(Section):
    """Slow shards: the last `slow_shards` take `slow_by` times fewer steps per round and segment."""

    slow_shards: Count
    slow_by: Count


class CrewSection(Section):
    """Each shard is for a crew of `members`. What they send each other in a step is rounded to `boundary`
    bits, by the program."""

    members: Annotated[int, Field(ge=2, le=MAX_MEMBERS)]
    boundary: Literal[8]


class ClassSection(Section):
    """The rest of the class of conditions: minimum fee, and maximum sizes. Jobs of the same class share
    verifiers."""

    least_fee: Amount
    nodes: Count
    segments: Count
    segment_steps: Count
    data_bytes: Size
    state_bytes: Size
    step_bytes: Size
    step_operations: Size


def _kind(model: object) -> str | None:
    """Kind of model of a [model] section."""
    if isinstance(model, dict):
        return "from" if "from" in model else model.get("template")
    return "from" if isinstance(model, OwnModel) else getattr(model, "template", None)


Model = Annotated[
    Annotated[GptModel, Tag("gpt")]
    | Annotated[MlpModel, Tag("mlp")]
    | Annotated[CnnModel, Tag("cnn")]
    | Annotated[DecoderModel, Tag("decoder")]
    | Annotated[OwnModel, Tag("from")],
    Discriminator(
        _kind,
        custom_error_type="model_kind",
        custom_error_message='write template = "gpt", "mlp", "cnn" or "decoder", or from = "mine.py:build"',
    ),
]


_OPTIONAL = (
    "data",
    "optimiser",
    "schedule",
    "precision",
    "weights",
    "evaluation",
    "inference",
    "grpo",
    "held_out",
    "speeds",
    "crew",
)


class JobFile(Section):
    """A whole job file. An own model brings its data, and may bring optimiser and schedule, or precision."""

    model: Model
    data: Data | None = None
    optimiser: Annotated[OptimiserSection, Field(discriminator="name")] | None = None
    schedule: ScheduleSection | None = None
    precision: PrecisionSection | None = None
    weights: WeightsSection | None = None
    evaluation: EvaluationSection | None = None
    inference: InferenceSection | None = None
    grpo: Annotated[GrpoSection, Field(discriminator="task")] | None = None
    held_out: HeldOutSection | None = None
    speeds: SpeedsSection | None = None
    crew: CrewSection | None = None
    outer: Outer
    training: Training
    verification: Verification
    times: Times
    money: Money
    conditions: ClassSection = Field(alias="class")

    @model_validator(mode="after")
    def _sections_fit(self) -> JobFile:
        given = [name for name in _OPTIONAL if getattr(self, name) is not None]
        if wrong := misplaced(self.outer.algorithm, _kind(self.model) or "", given):
            raise ValueError(wrong)
        if wrong := unsuitable(self.outer):
            raise ValueError(wrong)
        return self


def job_file_of(body: Mapping[str, Any], origin: str) -> JobFile:
    """Validates parsed TOML. Raises BadJobFile with every faulty key."""
    try:
        return JobFile.model_validate(body)
    except ValidationError as error:
        faults = "; ".join(fault(found, body, JobFile) for found in error.errors())
        raise BadJobFile(
            f"{origin} is not a valid job file: {faults}",
            hint="compare it with a complete one, which `assay job init` writes",
        ) from error


def parse_job_file(text: str, origin: str) -> JobFile:
    """Parses TOML text. Raises BadJobFile with every faulty key."""
    try:
        return job_file_of(tomllib.loads(text), origin)
    except tomllib.TOMLDecodeError as error:
        raise BadJobFile(f"{origin} is not TOML: {error}", hint="fix the line that it names") from error
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, brackets without end
        raise BadJobFile(
            f"{origin} cannot be read: {error}",
            hint="a number is too long, or the nesting too deep: shorten it",
        ) from error


def read_job_file(path: Path) -> JobFile:
    """Reads a job file; paths in it are relative to its folder. Raises BadJobFile."""
    try:
        text = path.read_text()
    except OSError as error:
        why = (error.strerror or type(error).__name__).lower()
        raise BadJobFile(f"cannot read {path}: {why}", hint="`assay job init FILE` writes one") from error
    except UnicodeDecodeError as error:
        raise BadJobFile(
            f"{path} is a binary file, so it is not TOML", hint="`assay job init FILE` writes a job file"
        ) from error
    body, folder = parse_job_file(text, str(path)), path.resolve().parent
    if isinstance(body.model, OwnModel):
        here = body.model.model_copy(update={"source": str(folder / body.model.source)})
        body = body.model_copy(update={"model": here})
    if body.weights is not None and not is_cid(body.weights.source):
        held = body.weights.model_copy(update={"source": str(folder / body.weights.source)})
        body = body.model_copy(update={"weights": held})
    if body.inference is not None:
        asked = body.inference.model_copy(update={"prompts": str(folder / body.inference.prompts)})
        body = body.model_copy(update={"inference": asked})
    return body
