"""Terms: `check_terms` accepts what `Jobs.post` accepts, and names the same field (rules 2.5, 3.1, 3.2)."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from functools import partial
from operator import gt
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.protocol.loops import diloco_links, round_shape
from assay.protocol.params import (
    BadConditions,
    BadTerms,
    check_conditions,
    check_shape,
    check_terms,
    worst_case,
)
from assay.protocol.types import Conditions, Terms, Wei
from spec import events as e
from tests.fakes.classes import class_id, conditions_of
from tests.property.markets import CHANGES, TERMS
from tests.twin.conftest import Stage
from tests.twin.deployed import ACCOUNTS, BOUNDS

SIZES = ("data_bytes", "state_bytes", "step_bytes", "step_operations")
"""Fields of a class that nothing bounds."""
MOST = {field.name: 2**128 for field in dataclasses.fields(Conditions)}
MOST |= dict.fromkeys(("vote_time", "challenge_window", "move_time"), 2**64)
MOST |= dict.fromkeys(("verifiers", "samples", "seed_delay", "nodes", "segments", "segment_steps"), 2**32)
CLASS = replace(conditions_of(TERMS), verifier_fee=Wei(3), segments=16, segment_steps=16, data_bytes=1_000)
CLASS = replace(CLASS, nodes=60_000, state_bytes=2_000, step_bytes=2_000, step_operations=2_000)


@st.composite
def some_terms(draw: st.DrawFn) -> Terms:
    """Good terms with up to three fields changed; the counts that follow from loops and links mended more
    often than not."""
    names = draw(st.lists(st.sampled_from(sorted(CHANGES)), max_size=3, unique=True))
    base = replace(TERMS, client=ACCOUNTS[1], class_id=class_id(CLASS))
    changed: dict[str, Any] = {name: draw(CHANGES[name]) for name in names}
    terms = replace(base, **changed)
    if not draw(st.integers(0, 3)):
        return terms
    good = all(loop.segment_steps for loop in (*terms.loops, *terms.outer_loops))
    if good and {"loops", "outer_loops", "links", "outer_links"} & set(names):
        mended = round_shape(terms.loops, terms.outer_loops, (terms.links, terms.outer_links), terms.params)
        fitting: dict[str, Any] = {name: n for name, n in mended.items() if isinstance(n, int) and n < 2**32}
        terms = replace(terms, **fitting)
    if "shards" in names and "outer_links" not in names and terms.shards <= 1_024:
        links = diloco_links(terms.slots, 1, terms.shards)[1]
        slots = sum(link.slots for link in links)
        terms = replace(terms, outer_links=links, outer_slots=slots)
    return terms


@pytest.mark.long
def test_terms_are_refused_alike(stage: Stage) -> None:
    twin = stage.enter()
    assert twin.act(e.Register(CLASS), ACCOUNTS[1])
    fields: dict[str, int] = {}

    @given(some_terms())
    @settings(max_examples=400)
    def compare(terms: Terms) -> None:
        expected = "BudgetTooSmall"  # the rule after the terms': a budget of nothing
        field = ""
        try:
            check_shape(terms, BOUNDS)
            if terms.class_id != class_id(CLASS):
                raise KeyError
            check_terms(terms, CLASS, BOUNDS)
        except KeyError:
            expected = "NoSuchClass"
        except BadTerms as error:
            expected, field = "BadTerms", error.field
        if expected == "BudgetTooSmall" and worst_case(terms) == 0:
            expected = ""
        found = twin.deployed.ask_post(terms, Wei(0), ACCOUNTS[1])
        assert (found.name, found.arguments.get("field", "")) == (expected, field)
        fields[field] = fields.get(field, 0) + 1

    compare()
    assert fields[""] >= 20 and len(fields) >= 15, fields


def test_worst_case_is_the_contracts(stage: Stage) -> None:
    deployed = stage.enter().deployed

    @given(some_terms())
    @settings(max_examples=60)
    def compare(terms: Terms) -> None:
        (found,) = deployed.read([("Jobs", "worstCase", (terms,))])
        assert found == worst_case(terms)

    compare()


def test_conditions_are_refused_alike(stage: Stage) -> None:
    """Rule 3.4: a class is registered within the market's bounds, whatever is asked for."""
    twin = stage.enter()
    fields: dict[str, int] = {}
    numbers = st.sampled_from([0, 1, 2, 4, 5, 8, 9, 256, 257, 10_000, 10_001, 65_536, 65_537, 10**30 + 1])
    names = [field.name for field in dataclasses.fields(Conditions) if field.name not in SIZES]

    @given(st.lists(st.sampled_from(names), max_size=3, unique=True), st.data())
    @settings(max_examples=150)
    def compare(changed: list[str], data: st.DataObject) -> None:
        given_: dict[str, Any] = {
            name: data.draw(numbers.filter(partial(gt, MOST[name])), name) for name in changed
        }
        conditions = replace(CLASS, **given_)
        expected = ""
        try:
            check_conditions(conditions, BOUNDS)
        except BadConditions as error:
            expected = error.field
        found = twin.deployed.ask("Classes", "register", (conditions,), ACCOUNTS[1])
        name = "BadConditions" if expected else ""
        assert (found.name, found.arguments.get("field", "")) == (name, expected)
        fields[expected] = fields.get(expected, 0) + 1

    compare()
    assert fields[""] >= 10 and len(fields) >= 9, fields
