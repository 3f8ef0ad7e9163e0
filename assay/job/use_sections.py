"""Sections of job files without an outer algorithm: evaluation, batch inference, GRPO.

Contract: `misplaced` reports a missing or unexpected section for an algorithm and model. ``job.build`` checks
values across sections.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from assay.job.values import Count, Number, Rate, Section, Whole
from assay.training.catalogue import EVALUATE, GRPO, INFER, OWN


class WeightsSection(Section):
    """`source`: a folder that `assay job fetch` wrote, a .safetensors file, or the CID of one."""

    source: str


class EvaluationSection(Section):
    """Selects records of [data], or of the recipe's dataset: those held out from training, or the others."""

    records: Literal["held-out", "training"]


class HeldOutSection(Section):
    """`records`: number of held-out records on which every task computes the loss of its round's initial
    parameters."""

    records: Count


class InferenceSection(Section):
    """`prompts`: a file with one prompt per line, each of 1 to `prompt_bytes` bytes; the model writes
    `new_bytes` after each.

    `temperature` 0 takes the likeliest byte. Otherwise bytes are drawn from the softmax of logits divided by
    it, with [training] seed.
    """

    prompts: str
    prompt_bytes: Count
    new_bytes: Count
    temperature: Number


class DecoderModel(Section):
    """The decoder of GRPO's tasks."""

    template: Literal["decoder"]
    layers: Count
    heads: Count
    width: Count


class LearningSection(Section):
    """GRPO on any task: `group` samples per problem; `epochs` steps of the learner on a round's rollouts.

    `clip_low` and `clip_high` bound the ratio of probabilities. Without [weights] the client takes
    `warm_steps` supervised steps of `warm_batch` problems at `warm_rate` before it posts.
    """

    group: Count
    epochs: Count
    clip_low: Number
    clip_high: Number
    warm_steps: Whole
    warm_batch: Count
    warm_rate: Rate


class AdditionSection(LearningSection):
    """Addition of two numbers of `digits` digits."""

    task: Literal["addition"]
    digits: Count


class SortingSection(LearningSection):
    """Sorting of `digits` digits."""

    task: Literal["sorting"]
    digits: Count


class BracketsSection(LearningSection):
    """Closing `depth` opening brackets of `kinds` kinds in reverse order."""

    task: Literal["brackets"]
    depth: Count
    kinds: Count


GrpoSection = AdditionSection | SortingSection | BracketsSection


_TRAINING = ("data", "optimiser", "schedule", "precision")
_GROUPS = ("speeds", "crew")
"""Optional sections wherever something is trained."""
_NEEDED = {
    EVALUATE: ("weights", "evaluation", "data", "precision"),
    INFER: ("weights", "inference", "precision"),
    GRPO: ("grpo", "optimiser", "schedule"),
}
"""Required sections of a template's job, by algorithm; `_TRAINING` for any other."""
_ALLOWED = {GRPO: ("weights",)}
"""Optional sections, by algorithm."""
_OWN = {EVALUATE: ("weights", "evaluation", "optimiser", "schedule", "precision")}
"""Optional sections for an own model; `_TRAINING` without [data] for any other algorithm."""


def misplaced(algorithm: str, model: str, given: Collection[str]) -> str:
    """Describes what is wrong with the optional sections in `given`; empty if nothing is.

    `model`: its template, or "from".
    """
    if model == "from" and algorithm in (INFER, GRPO):
        return f"[model] from has no place with {algorithm}: that takes a template's model"
    if algorithm == OWN and model != "from":
        return '[outer] algorithm = "own" is what the recipe of [model] from brings; a template has none'
    wanted = {INFER: "gpt", GRPO: "decoder"}.get(algorithm)
    if wanted and model != wanted:
        return f'[model] of {algorithm} is template = "{wanted}"'
    if model == "decoder" and algorithm != GRPO:
        return f'the decoder is for algorithm = "{GRPO}"'
    if model == "from" and "data" in given:
        return "[data] has no place beside a model of your own: build() gives it"
    needed = () if model == "from" else _NEEDED.get(algorithm, _TRAINING)
    if ("optimiser" in given) != ("schedule" in given):
        return "[optimiser] and [schedule] go together: one of them is missing"
    for name in needed:
        if name not in given:
            return f"[{name}] is missing: a template needs it"
    allowed = _OWN.get(algorithm, _TRAINING) if model == "from" else needed + _ALLOWED.get(algorithm, ())
    allowed += () if algorithm in _NEEDED else (*_GROUPS, "held_out")
    for name in given:
        if name not in allowed:
            return f"[{name}] has no place with algorithm = {algorithm!r}"
    return ""
