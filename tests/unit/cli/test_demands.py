"""Leaves that a person names, or has named."""

from __future__ import annotations

import pytest

from assay.cli.commands.demands import parse_place, random_places
from assay.protocol.demands import StateLeaf
from assay.protocol.errors import Stop


def test_a_leaf_is_written_as_slot_and_leaf() -> None:
    assert parse_place("0:0", 3) == StateLeaf(0, 0)
    assert parse_place(f"2:{2**32 - 1}", 3) == StateLeaf(2, 2**32 - 1)


@pytest.mark.parametrize("text", ["3:0", "0", "0:", ":0", "-1:0", "0:x", f"0:{2**32}", "0:0:0", ""])
def test_what_is_no_leaf_is_refused(text: str) -> None:
    with pytest.raises(Stop, match="no leaf of this program's state") as refused:
        parse_place(text, 3)
    assert "0 to 2" in refused.value.hint


def test_a_command_that_is_repeated_after_it_was_cut_off_names_the_same_leaves() -> None:
    """Its intent is found again; another command's has another random word."""
    intent, other = "cli/demand/ab/0/random/0123456789abcdef", "cli/demand/ab/0/random/0123456789abcdee"
    assert random_places(intent, 1_000) == random_places(intent, 1_000) != random_places(other, 1_000)
    seen = {place.slot for i in range(50) for place in random_places(f"{intent}{i}", 5)}
    assert seen == set(range(5))
