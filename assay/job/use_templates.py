"""Templates of job files for evaluation, batch inference and GRPO, for ``assay job init``.

Contract: as ``job.templates``. Rounds and steps are chosen to use all records or prompts, as far as whole
rounds of whole segments allow.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assay.job.read import BadJobFile
from assay.job.templates import (
    common,
    escaped,
    optimiser_section,
    own_template,
    precision_section,
    stated,
)

SHARDS = 2
SEGMENT = 4
MOST_STEPS = 64
"""Maximum steps of a round, so that a solver that fails loses little."""
MODEL_KEYS = {
    "gpt": {"layers": "n_layer", "heads": "n_head", "width": "d_model", "context": "context"},
    "mlp": {"hidden": "hidden", "layers": "layers"},
    "cnn": {"width": "width"},
}
"""By template: keys of [model] and their names in a manifest."""
MAX_BYTES = 4_000_000
"""Bytes of text, as in ``job.templates``."""
WARM_STEPS = 120
"""Supervised steps after which the small decoder is right about once in three times."""
_WEIGHTS = """
[weights]                   # a folder that `assay job fetch` wrote, a .safetensors file, or the CID of one
source = "{weights}"
"""
_RECORDS = """
[evaluation]
records = "held-out"        # those that training never saw; or "training": the others
"""
_INFERENCE = """
[inference]
prompts = "{prompts}"       # a prompt a line
prompt_bytes = {longest}           # of the longest; prompt and answer fit the model's context
new_bytes = {new}              # what the model writes after each
temperature = {temperature}           # 0.0: the likeliest byte; else drawn, by [training] seed
"""
_GRPO = """# GRPO: actors add numbers, and are rewarded for exactly right sums; the outer claim learns from
# all of them. A hundred thousand parameters; the first {warm} steps, supervised, are this machine's.
[model]
template = "decoder"
layers = 2
heads = 4
width = 64

[grpo]
task = "addition"           # 1 reward for an exactly right answer, else 0. Or "sorting", of digits = 3; or
digits = 1                  # "brackets", depth = 3 of kinds = 3 instead of digits; both take 6 steps a round
group = 8                   # samples of a problem, which are compared with one another
epochs = 4                  # steps of the learner on a round's rollouts
clip_low = 0.2              # of the ratio of probabilities
clip_high = 0.28
warm_steps = {warm}             # supervised, before the job is posted; with [weights] they are not taken
warm_batch = 64
warm_rate = 0.003
"""
_GRPO_MONEY = {
    "price_floor": "2",
    "price_cap": "4",
    "verifier_fee": "5.5",
    "outer_fee": "18",
    "verifier_stake": "90",
    "miss_penalty": "45",
}
"""Amounts in tokens. A rollout is little work; a vote replays all of it, and a learner does five times as
much."""


@dataclass(frozen=True)
class Turns:
    """Division of records or prompts into rounds and steps."""

    batch: int
    rounds: int
    steps: int
    segment: int


def passes(records: int, batch: int, rounds: int) -> Turns:
    """At most `rounds` rounds of steps that read no record twice."""
    batch = max(1, min(batch, records // SHARDS))
    total = max(1, records // (batch * SHARDS))
    steps = min(MOST_STEPS, total)
    segment = SEGMENT if steps >= SEGMENT else 1
    steps -= steps % segment
    return Turns(batch, max(1, min(rounds, total // steps)), steps, segment)


def _model(description: Mapping[str, Any]) -> str:
    """The [model] section for a manifest's model entry. Raises BadJobFile for a model of no template."""
    kind = str(description.get("kind"))
    keys = MODEL_KEYS.get(kind)
    plain = {"tied": False, "bias": False, "activation": "gelu"}
    if keys is None or any(description.get(key, value) != value for key, value in plain.items()):
        raise BadJobFile(
            f"no template makes the fetched model, {description.get('name', kind)!r}",
            hint="name yours with --from FILE.py:FUNCTION, and its parameters with --weights",
        )
    lines = [f'template = "{kind}"', *(f"{key} = {description[of]}" for key, of in keys.items())]
    return "[model]\n" + "\n".join(lines) + "\n"


_IDLE = {
    "evaluate": "no outer step: an evaluation trains nothing; the key is required",
    "infer": "no outer step: an inference trains nothing; the key is required",
    "grpo": "the learner's rate is [optimiser]'s; the key is required",
}
"""Comment that explains why [outer] learning_rate is 0.0."""


def _shaped(text: str, turns: Turns, algorithm: str) -> str:
    """A job file's common part for a use without an outer rule."""
    keys = {
        "outer.algorithm": f'"{algorithm}"',
        "outer.learning_rate": f"{'0.0':<11} # {_IDLE[algorithm]}",
        "outer.momentum": f"{'0.0':<16} # likewise",
        "training.steps_per_round": str(turns.steps),
        "training.segment_steps": str(turns.segment),
    }
    for key, value in keys.items():
        text = stated(text, key, value)
    return text


def evaluation_template(
    description: Mapping[str, Any],
    weights: str,
    data: str,
    records: int,
    batch: int,
    rounds: int,
    times: dict[str, str],
    limit: int = MAX_BYTES,
) -> str:
    """Job file that evaluates a template's model with these weights on `records` held-out records.

    `limit`: `max_bytes` of its data. Raises BadJobFile for a model of no template.
    """
    model = _model(description)
    source = data if 'template = "gpt"' in model else "digits"
    turns = passes(records, batch, rounds)
    head = "# The loss of a trained model on records held out from training, computed by the market.\n"
    dataset = f'\n[data]                      # the same as in training\nsource = "{escaped(source)}"\n'
    dataset += f"max_bytes = {limit}\n"
    parts = (model, _WEIGHTS.format(weights=escaped(weights)), dataset, _RECORDS, precision_section("single"))
    return head + "".join(parts) + _shaped(common(turns.batch, turns.rounds, times), turns, "evaluate")


def own_evaluation_template(
    source: str, weights: str, records: int, batch: int, rounds: int, times: dict[str, str], precise: bool
) -> str:
    """As `evaluation_template`, for an own recipe on its dataset; without `weights`, those that it
    creates."""
    turns = passes(records, batch, rounds)
    precision = "auto" if precise else ""
    text = own_template(source, batch=turns.batch, rounds=turns.rounds, times=times, precision=precision)
    head, mark, rest = text.partition("\n[training]")
    sections = (_WEIGHTS.format(weights=escaped(weights)) if weights else "") + _RECORDS
    return head + sections + _shaped(mark + rest, turns, "evaluate")


def inference_template(
    description: Mapping[str, Any],
    weights: str,
    prompts: str,
    count: int,
    longest: int,
    new: int,
    temperature: float,
    times: dict[str, str],
) -> str:
    """Job file that continues `count` prompts. Raises BadJobFile for a model that is not the template's
    GPT."""
    model = _model(description)
    if 'template = "gpt"' not in model:
        raise BadJobFile(
            "only a GPT generates text, and these weights are of another model",
            hint="give --weights of a job that trained a GPT",
        )
    batch = max(1, min(8, math.ceil(count / SHARDS)))
    steps = max(1, longest + new - 1)
    steps += -steps % SEGMENT
    turns = Turns(batch, max(1, math.ceil(count / (batch * SHARDS))), steps, SEGMENT)
    head = "# What a trained GPT writes after prompts, computed by the market.\n"
    section = _INFERENCE.format(
        prompts=escaped(prompts), longest=max(1, longest), new=new, temperature=float(temperature)
    )
    parts = (model, _WEIGHTS.format(weights=escaped(weights)), section, precision_section("single"))
    return head + "".join(parts) + _shaped(common(turns.batch, turns.rounds, times), turns, "infer")


def grpo_template(rounds: int, times: dict[str, str], weights: str = "") -> str:
    """Job file for GRPO on sums of one digit; `weights` "": starts with supervised steps."""
    turns = Turns(256, rounds, 5, 5)
    sections = optimiser_section("adamw")
    for key, value in (("learning_rate", "0.001"), ("weight_decay", "0.0"), ("clip_norm", "1.0")):
        sections = stated(sections, f"optimiser.{key}", value)
    held = _WEIGHTS.format(weights=escaped(weights)) if weights else ""
    shaped = _shaped(common(turns.batch, rounds, times), turns, "grpo")
    for key, value in _GRPO_MONEY.items():
        shaped = stated(shaped, f"money.{key}", f'"{value}tok"')
    return _GRPO.format(warm=WARM_STEPS) + held + sections + shaped
