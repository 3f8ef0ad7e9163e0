"""The worked examples of docs/protocol.md, one a chapter, are what the code makes of them."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from assay.protocol import params, trees
from assay.protocol.game import opened_levels
from assay.protocol.loops import locate
from assay.protocol.sampling import claim_seed, record_index, sample_segments
from assay.protocol.types import Address, ClaimId, Loop, Seconds, Wei
from spec.settlement import alike, convict, lost_bond
from tests.property import markets

DOCUMENT = (Path(__file__).parents[3] / "docs" / "protocol.md").read_text()
TASK = (Loop(bytes(32), 1, 64, 4, 1, slow_from=1, slow_by=4), Loop(bytes(32), 1, 1, 1, 1))

TERMS = replace(
    markets.TERMS,
    rounds=3,
    shards=2,
    slices=1,
    max_unsettled=4,
    verifiers=2,
    price_period=Seconds(600),
    price_floor=Wei(10),
    price_cap=Wei(20),
    verifier_fee=Wei(3),
    outer_fee=Wei(1),
)


def trees_of_three() -> list[object]:
    a, b, c = map(trees.leaf, (b"a", b"b", b"c"))
    folded = trees.node(trees.node(a, b), trees.node(c, bytes(32)))
    assert folded == trees.root([a, b, c])
    return [a.hex(), folded.hex()]


def programs() -> list[object]:
    places = [locate(TASK, 3, 0), locate(TASK, 16, 0)]
    assert [place.number for place in places] == [0, 1]
    firsts = [place.first_step(2) for place in places]
    return [record_index(bytes(32), 1, 64, 0, 1_000), *firsts, locate(TASK, 3, 1).first_step(2)]


def jobs() -> list[object]:
    wasted = params.most_wasted(TERMS)
    return [params.worst_case(TERMS), wasted, params.least_stake(wasted)]


def rounds() -> list[object]:
    seed = claim_seed(bytes(32), ClaimId(bytes(32)))
    drawn = [sample_segments(seed, Address("0x" + digit * 40), TASK) for digit in "12"]
    return [
        params.shard_price(TERMS, 1_000, 1_090),
        seed.hex()[:32],
        *(segment for each in drawn for segment in each),
    ]


def convictions() -> list[object]:
    fell = convict(Wei(440), [], 2, Wei(3), Wei(160))
    assert alike(fell.reward, 3) == (18, 18)
    bond = lost_bond(Wei(21))
    return [fell.burnt, fell.fees, fell.compensation, fell.reward, 18, bond.burnt, bond.paid]


def games() -> list[object]:
    found: list[object] = []
    moves = 4
    for leaves in (4_900, 8_192 * 3_072 * 4 // trees.LEAF_BYTES):
        left = [trees.depth(leaves)]
        while left[-1]:
            left.append(left[-1] - opened_levels(left[-1]))
        found += [left[0], *(before - after for before, after in pairwise(left))]
        moves += 2 * (len(left) - 1)
    return [*found, moves]


@pytest.mark.parametrize(
    ("chapter", "told"), list(enumerate([trees_of_three, programs, jobs, rounds, convictions, games], 1))
)
def test_a_chapters_example_is_what_the_code_makes_of_it(chapter: int, told: object) -> None:
    assert callable(told)
    text = re.split(r"^## \d\. ", DOCUMENT, flags=re.MULTILINE)[chapter]
    (example,) = re.findall(r"^\*\*Example\.\*\* (.*?)\n\n", text, re.MULTILINE | re.DOTALL)
    at = 0
    for value in told():
        found = re.compile(rf"(?<![\w.]){value}(?!\w)").search(" ".join(example.split()), at)
        assert found, f"{value} in {example!r} after {at}"
        at = found.end()
