"""A demand's fields and id, compared with the contract's."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from assay.protocol import demands
from assay.protocol.demands import Asked, DemandView, StateLeaf
from assay.protocol.types import ClaimId, Seconds
from tests.fakes.jobs import account

SOLIDITY = (Path(__file__).parents[3] / "contracts" / "src" / "interfaces" / "IAvailability.sol").read_text()


def camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


@pytest.mark.parametrize("name", ["StateLeaf", "Asked", "Chunk"])
def test_a_struct_has_the_contracts_fields_in_their_order(name: str) -> None:
    body = re.search(rf"^    struct {name} \{{\n(.*?)^    \}}", SOLIDITY, re.MULTILINE | re.DOTALL)
    assert body is not None
    wanted = re.findall(r"^ +[\w\[\]]+ (\w+);", body[1], re.MULTILINE)
    assert len(wanted) >= 2 and [camel(field.name) for field in fields(getattr(demands, name))] == wanted


def test_a_view_tells_what_the_answer_has_to_bring_again() -> None:
    places = (StateLeaf(3, 1), StateLeaf(0, 7))
    claim, root = ClaimId(b"c" * 32), b"r" * 32
    view = DemandView(5, claim, account("wendy"), 2, root, Seconds(90), places, "")
    assert view.asked == Asked(claim, root, account("wendy"), Seconds(90), places)
