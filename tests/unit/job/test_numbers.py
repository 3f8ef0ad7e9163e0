"""Whole numbers of an algorithm's own in [outer]: what they set, and which of them cannot be."""

from __future__ import annotations

from dataclasses import replace

import pytest

from assay.job.build import build
from assay.job.parts import rule_of
from assay.job.read import JobFile, parse_job_file
from assay.job.templates import LOCAL, by_algorithm, template
from assay.protocol.errors import Stop
from assay.training.catalogue import defined_with, outer_of
from assay.training.codings import E3M0, Bins, Coding, Largest


def stating(algorithm: str, numbers: str) -> JobFile:
    """The smallest template's job file by an algorithm, with these numbers."""
    text = template("mlp", source="digits", rounds=3, times=LOCAL, optimiser=defined_with(algorithm))
    lines = by_algorithm(text, algorithm).split("\n")
    keys = [line.partition(" = ")[0] for line in numbers.splitlines()]
    kept = [line for line in lines if line.partition(" = ")[0] not in keys]
    at = next(i for i, line in enumerate(kept) if line.startswith("algorithm = "))
    return parse_job_file("\n".join([*kept[: at + 1], numbers, *kept[at + 1 :]]), "a test")


@pytest.mark.parametrize(
    ("algorithm", "numbers", "coding"),
    [
        ("sparseloco", "top_k = 5", Largest(5, 64, cosine=False, values=Bins(2))),
        ("sparseloco", "chunk_side = 32", Largest(64, 32, cosine=False, values=Bins(2))),
        ("demo", "top_k = 5\nchunk_side = 128", Largest(5, 128)),
        ("streaming", "block_size = 32", E3M0(32)),
    ],
)
def test_numbers_of_a_coding_are_what_shards_send_with(algorithm: str, numbers: str, coding: Coding) -> None:
    found = outer_of(algorithm, rule_of(stating(algorithm, numbers)))
    usual = outer_of(algorithm, rule_of(stating(algorithm, "")))
    assert found is not None and usual is not None
    assert found.coding == coding and replace(found, coding=usual.coding) == usual


@pytest.mark.parametrize(
    ("algorithm", "numbers", "why"),
    [
        ("diloco-4bit", "top_k = 5", r"outer\.top_k .* chunks: demo, sparseloco; not for diloco-4bit"),
        ("sparseloco", "top_k = 0", r"outer\.top_k: it should be greater than or equal to 1"),
        ("sparseloco", "top_k = 2.5", r"outer\.top_k"),
        ("demo", "chunk_side = 4097", r"outer\.chunk_side is 4097, and at most 4096: the cosine transform"),
        ("demo", "top_k = 4097", "the 4097 largest .* a chunk of 64 × 64 has 4096"),
        ("sparseloco", "chunk_side = 7", "the 64 largest .* a chunk of 7 × 7 has 49"),
    ],
)
def test_numbers_that_an_algorithm_cannot_have_are_refused_with_the_reason(
    algorithm: str, numbers: str, why: str
) -> None:
    with pytest.raises(Stop, match=why) as refused:
        build(stating(algorithm, numbers))
    assert refused.value.hint
