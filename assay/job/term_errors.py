"""Translates refused terms and conditions to the job file's keys.

Contract: ``protocol.params`` refuses with the contracts' field names, in smallest units. `by_key` names
section and key, with the value as written, amounts in tokens and times in seconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from assay.job.read import BadJobFile, JobFile
from assay.job.terms import conditions_of
from assay.protocol.params import BadConditions, BadTerms
from assay.protocol.words import show_amount

KEYS = {
    "shards": ("training", "shards"),
    "minShards": ("training", "min_shards"),
    "rounds": ("training", "rounds"),
    "segmentSteps": ("training", "segment_steps"),
    "verifiers": ("verification", "verifiers"),
    "samples": ("verification", "samples"),
    "seedDelay": ("verification", "seed_delay_blocks"),
    "maxUnsettled": ("verification", "max_unsettled_rounds"),
    "taskTime": ("times", "task"),
    "stragglerTime": ("times", "straggler"),
    "outerTime": ("times", "outer"),
    "voteTime": ("times", "vote"),
    "challengeWindow": ("times", "challenge_window"),
    "moveTime": ("times", "move"),
    "pricePeriod": ("times", "price_period"),
    "priceFloor": ("money", "price_floor"),
    "priceCap": ("money", "price_cap"),
    "verifierFee": ("money", "verifier_fee"),
    "solverStake": ("money", "solver_stake"),
    "verifierStake": ("money", "verifier_stake"),
    "challengeBond": ("money", "challenge_bond"),
    "missPenalty": ("money", "miss_penalty"),
    "slices": ("outer", "slices"),
    "nodes": ("class", "nodes"),
    "segments": ("class", "segments"),
    "outerSegments": ("class", "segments"),
    "records": ("class", "data_bytes"),
    "stateBytes": ("class", "state_bytes"),
    "stepBytes": ("class", "step_bytes"),
    "stepOperations": ("class", "step_operations"),
}
"""Section and key of each contract field that a job file decides. For what the program decides: the class's
limit."""
_OF_CLASS = frozenset({"segmentSteps"})
"""Fields whose key in a class of conditions differs from that in terms."""
_WORD = re.compile(r"\b[a-z]+[A-Z]\w*\b")
_NUMBER = re.compile(r"(?<![\d/^.])\d+(?![\d/^.])")


@contextmanager
def by_key(file: JobFile) -> Iterator[None]:
    """Converts BadTerms and BadConditions about fields that `file` decides to BadJobFile."""
    try:
        yield
    except (BadTerms, BadConditions) as error:
        if error.field not in KEYS:
            raise
        raise _said(file, error) from error


def _said(file: JobFile, error: BadTerms | BadConditions) -> BadJobFile:
    section, key = KEYS[error.field]
    if isinstance(error, BadConditions) and error.field in _OF_CLASS:
        section = "class"
    held = getattr(file, "conditions" if section == "class" else section)
    value, why = getattr(held, key), error.why
    if error.field == "samples":
        why = _of_file(file, why)
    elif section == "money":
        why = _NUMBER.sub(lambda number: show_amount(int(number[0])), why)
    elif section == "times" and not why.endswith("seconds"):
        why = _NUMBER.sub(lambda number: f"{number[0]}s", why)
    why = _WORD.sub(lambda word: KEYS[word[0]][1] if word[0] in KEYS else word[0], why)
    shown = {"money": show_amount, "times": lambda seconds: f"{seconds}s"}.get(section, str)(value)
    why = why.removeprefix(f"is {shown}, and ")
    where = f"[{section}] {key}"
    return BadJobFile(
        f"the job is refused: {where}, here {shown}, {why}",
        hint=f"change {where} in the job file and validate again",
        code=error.code,
    )


def _of_file(file: JobFile, why: str) -> str:
    """Rewrites a message about samples without those of loops other than training."""
    more = conditions_of(file).samples - file.verification.samples
    return _NUMBER.sub(lambda number: str(max(int(number[0]) - more, 1)), why)
