"""Terms: `check_terms` accepts what `Jobs.post` accepts, and names the same field (rules 2.5, 3.1, 3.2)."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from assay.protocol.params import BadTerms, check_terms, worst_case
from assay.protocol.types import Terms, Wei
from tests.property.markets import CHANGES, TERMS
from tests.twin.conftest import Stage
from tests.twin.deployed import ACCOUNTS


@st.composite
def some_terms(draw: st.DrawFn) -> Terms:
    """Good terms with up to three fields changed, the outer program's slots mended more often than not."""
    names = draw(st.lists(st.sampled_from(sorted(CHANGES)), max_size=3, unique=True))
    terms = replace(TERMS, client=ACCOUNTS[1], **{name: draw(CHANGES[name]) for name in names})
    slots = (2 + terms.shards) * terms.inner.params
    if draw(st.integers(0, 3)) and slots < 2**32:
        terms = replace(terms, outer=replace(terms.outer, slots=slots))
    return terms


def test_terms_are_refused_alike(stage: Stage) -> None:
    twin = stage.enter()
    fields: dict[str, int] = {}

    @given(some_terms())
    @settings(max_examples=400)
    def compare(terms: Terms) -> None:
        expected = "BudgetTooSmall"  # the rule after the terms': a budget of nothing
        field = ""
        try:
            check_terms(terms)
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
