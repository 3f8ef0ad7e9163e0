"""Every numbered attack of docs/threats.md has a scenario, or says which test shows how it ends."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from drills.attacks import ATTACKS, Attack, scenarios_of

ROWS = re.findall(
    r"^\| (\d+) \| ([^|]*) \|(.*)$",
    (Path(__file__).parents[3] / "docs" / "threats.md").read_text(),
    re.MULTILINE,
)


def test_the_numbers_and_words_are_those_of_the_document() -> None:
    assert [(attack.number, attack.what) for attack in ATTACKS] == [(int(n), what) for n, what, _ in ROWS]


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: str(attack.number))
def test_an_attack_has_a_scenario_or_a_test_that_the_document_names(attack: Attack) -> None:
    assert bool(scenarios_of(attack.number)) != bool(attack.test)
    row = next(rest for number, _, rest in ROWS if int(number) == attack.number)
    assert f"`{attack.test}`" in row or not attack.test
