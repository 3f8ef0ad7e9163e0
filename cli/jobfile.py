"""The job file: everything a client decides about a job, in TOML.

Contract: every consensus parameter is stated in the file; nothing has a default in code and unknown keys are
refused, with
the key's path in the error. ``assay job init`` writes a complete file from a template.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    model_validator,
)

from cli.units import parse_amount, parse_duration
from protocol.errors import AssayError, Stop


class BadJobFile(Stop):
    """The job file cannot be read as a job."""

    code = "bad-job-file"


def _amount(value: object) -> int:
    if not isinstance(value, str):
        raise ValueError("write an amount with its unit, such as '5tok'")
    try:
        return parse_amount(value)
    except AssayError as error:
        raise ValueError(error.message) from error


def _duration(value: object) -> int:
    if not isinstance(value, str):
        raise ValueError("write a duration with its unit, such as '60s'")
    try:
        return parse_duration(value)
    except AssayError as error:
        raise ValueError(error.message) from error


Amount = Annotated[int, BeforeValidator(_amount)]
Duration = Annotated[int, BeforeValidator(_duration)]
Count = Annotated[int, Field(ge=1, le=(1 << 31) - 1)]
Whole = Annotated[int, Field(ge=0, le=(1 << 31) - 1)]


def _finite(value: float) -> float:
    if not -1e30 < value < 1e30:
        raise ValueError("must be a finite number")
    return value


Number = Annotated[float, AfterValidator(_finite)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class GptModel(_Section):
    template: Literal["gpt"]
    layers: Count
    heads: Count
    width: Count
    context: Count


class MlpModel(_Section):
    template: Literal["mlp"]
    hidden: Count
    layers: Count


class OwnModel(_Section):
    """The client's own model: `from` is a Python file and a function that returns a
    ``training.recipe.Recipe``; dataset and optimiser are the recipe's.
    """

    source: str = Field(alias="from")


class Data(_Section):
    """`source`: "stdlib" (the Python standard library's own text), "digits", or a path to the user's text."""

    source: str
    max_bytes: Count


class AdamW(_Section):
    """`clip_norm` 0 means no clipping."""

    name: Literal["adamw"]
    learning_rate: Number
    beta1: Number
    beta2: Number
    epsilon: Number
    weight_decay: Number
    warmup_steps: Whole
    clip_norm: Number


class Sgd(_Section):
    """`clip_norm` 0 means no clipping."""

    name: Literal["sgd"]
    learning_rate: Number
    momentum: Number
    nesterov: bool
    weight_decay: Number
    warmup_steps: Whole
    clip_norm: Number


class Outer(_Section):
    """DiLoCo's outer optimiser: Nesterov momentum on the mean pseudo-gradient."""

    learning_rate: Number
    momentum: Number


class Training(_Section):
    seed: Count
    batch: Count
    shards: Count
    min_shards: Count
    rounds: Count
    steps_per_round: Count
    segment_steps: Count


class Verification(_Section):
    verifiers: Count
    quorum: Count
    samples: Count
    seed_delay_blocks: Count
    max_unsettled_rounds: Count


class Times(_Section):
    task: Duration
    straggler: Duration
    outer: Duration
    vote: Duration
    reveal: Duration
    challenge_window: Duration
    move: Duration
    price_period: Duration


class Money(_Section):
    price_floor: Amount
    price_cap: Amount
    verifier_fee: Amount
    outer_fee: Amount
    solver_stake: Amount
    verifier_stake: Amount
    challenge_bond: Amount
    miss_penalty: Amount


def _kind(model: object) -> str | None:
    """Which kind of model a [model] section is."""
    if isinstance(model, dict):
        return "from" if "from" in model else model.get("template")
    return "from" if isinstance(model, OwnModel) else getattr(model, "template", None)


Model = Annotated[
    Annotated[GptModel, Tag("gpt")] | Annotated[MlpModel, Tag("mlp")] | Annotated[OwnModel, Tag("from")],
    Discriminator(
        _kind,
        custom_error_type="model_kind",
        custom_error_message='write template = "gpt" or "mlp", or from = "my_model.py:build"',
    ),
]


class JobFile(_Section):
    """A whole job file; [data] and [optimiser] belong to the templates, a model of one's own brings both."""

    model: Model
    data: Data | None = None
    optimiser: Annotated[AdamW | Sgd, Field(discriminator="name")] | None = None
    outer: Outer
    training: Training
    verification: Verification
    times: Times
    money: Money

    @model_validator(mode="after")
    def _sections_fit(self) -> JobFile:
        own = isinstance(self.model, OwnModel)
        for name, section in (("data", self.data), ("optimiser", self.optimiser)):
            if own and section is not None:
                raise ValueError(f"[{name}] has no place beside a model of your own: build() gives it")
            if not own and section is None:
                raise ValueError(f"[{name}] is missing: a template needs it")
        return self


def parse_job_file(text: str, origin: str) -> JobFile:
    """Job file from TOML text. Raises BadJobFile with every key at fault."""
    try:
        body: dict[str, Any] = tomllib.loads(text)
        return JobFile.model_validate(body)
    except tomllib.TOMLDecodeError as error:
        raise BadJobFile(f"{origin} is not TOML: {error}", hint="mend the line it names") from error
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(str(p) for p in e['loc'])}: {e['msg']}" for e in error.errors())
        raise BadJobFile(
            f"{origin} is not a job: {faults}",
            hint="`assay job init` writes a complete file to compare with",
        ) from error


def read_job_file(path: Path) -> JobFile:
    """Job file from disk; a model of one's own is looked for from the file's folder. Raises BadJobFile."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise BadJobFile(f"cannot read {path}: {error}", hint="`assay job init FILE` writes one") from error
    body = parse_job_file(text, str(path))
    if isinstance(body.model, OwnModel):
        here = body.model.model_copy(update={"source": str(path.resolve().parent / body.model.source)})
        return body.model_copy(update={"model": here})
    return body


_COMMON = """
[training]
seed = 1                    # data order; with the shard and the step it decides every batch
batch = {batch}                   # rows a step
shards = 2
min_shards = 2              # accepted tasks with which a round closes once its stragglers' time is over
rounds = {rounds}                  # outer steps
steps_per_round = 64        # inner steps between two outer steps
segment_steps = 4           # a solver commits to its state this often; a verifier replays whole segments

[outer]                     # DiLoCo: Nesterov momentum on the mean change of the shards
learning_rate = 0.7
momentum = 0.9

[verification]
verifiers = 2               # drawn by stake for each task
quorum = 2                  # valid votes that accept it
samples = 1                 # segments that each of them replays
seed_delay_blocks = 2
max_unsettled_rounds = 4

[times]
task = "{task}"
straggler = "{straggler}"         # after `task`, to be voted on: a round may then close without the others
outer = "{outer}"              # for which the outer step is reserved to one shard's holder
vote = "{vote}"
reveal = "{vote}"
challenge_window = "{window}"
move = "{move}"
price_period = "60s"

[money]                     # why these amounts: docs/economics.md; in proportion to the price cap
price_floor = "10tok"       # a task; rises to the cap until somebody takes the shard
price_cap = "20tok"
verifier_fee = "3tok"       # above what a replay costs
outer_fee = "1tok"
solver_stake = "360tok"     # locked by each claim
verifier_stake = "40tok"    # locked by each vote
challenge_bond = "20tok"
miss_penalty = "20tok"      # of a drawn verifier that shows no vote
"""

_GPT = """# A byte-level GPT (about 0.8 million parameters) trained on text.
[model]
template = "gpt"
layers = 4
heads = 4
width = 128
context = 64

[data]
source = "{source}"           # the Python standard library's own source, or a path to your text
max_bytes = 4000000

[optimiser]
name = "adamw"
learning_rate = 0.002
beta1 = 0.9
beta2 = 0.95
epsilon = 1e-8
weight_decay = 0.1
warmup_steps = 0
clip_norm = 0.0             # 0: no clipping
"""

_MLP = """# A multi-layer perceptron on scikit-learn's digits.
[model]
template = "mlp"
hidden = 64
layers = 2

[data]
source = "digits"
max_bytes = 1000000

[optimiser]
name = "sgd"
learning_rate = 0.1
momentum = 0.9
nesterov = true
weight_decay = 0.0
warmup_steps = 0
clip_norm = 0.0             # 0: no clipping
"""

_OWN = """# A model of your own: {function} returns a training.recipe.Recipe with module, loss, dataset and
# optimiser. It runs on this machine only; the others run the program that is traced from it.
[model]
from = "{source}"
"""

LOCAL = {
    "task": "120s",
    "straggler": "180s",
    "outer": "30s",
    "vote": "60s",
    "window": "60s",
    "move": "30s",
}
"""Times for a chain on one's own machine."""
PUBLIC = {
    "task": "1h",
    "straggler": "2h",
    "outer": "10m",
    "vote": "30m",
    "window": "1d",
    "move": "1h",
}
"""Times for a chain with other people on it."""


def template(name: str, *, source: str, rounds: int, times: dict[str, str]) -> str:
    """Text of a complete job file. Raises BadJobFile for an unknown template."""
    if name == "gpt":
        return _GPT.format(source=source.replace("\\", "\\\\").replace('"', '\\"')) + _COMMON.format(
            batch=4, rounds=rounds, **times
        )
    if name == "mlp":
        return _MLP + _COMMON.format(batch=32, rounds=rounds, **times)
    raise BadJobFile(f"there is no template {name!r}", hint="choose gpt or mlp")


def own_template(source: str, *, batch: int, rounds: int, times: dict[str, str]) -> str:
    """Text of a complete job file for the recipe that `source` ("my_model.py:build") names."""
    escaped = source.replace("\\", "\\\\").replace('"', '\\"')
    head = _OWN.format(function=source.rpartition(":")[2], source=escaped)
    return head + _COMMON.format(batch=batch, rounds=rounds, **times)
