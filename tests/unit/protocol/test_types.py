"""The market's nouns are the contracts' structs field by field."""

from __future__ import annotations

from dataclasses import fields

import pytest

from assay.protocol import types
from tests.fakes.interfaces import ENUMS, STRUCTS, camel


@pytest.mark.parametrize("name", ["ProgramRef", "Loop", "Link", "Terms", "Claim", "ClaimStatus", "Vote"])
def test_a_struct_has_the_contracts_fields_in_their_order(name: str) -> None:
    assert len(STRUCTS[name]) > 3
    assert [camel(field.name) for field in fields(getattr(types, name))] == STRUCTS[name]


@pytest.mark.parametrize("name", ["Role", "Kind", "Origin", "Phase"])
def test_an_enum_has_the_contracts_members_in_their_order(name: str) -> None:
    assert len(ENUMS[name]) > 1
    assert [(member.name, member.value) for member in getattr(types, name)] == [
        (member, value) for value, member in enumerate(ENUMS[name])
    ]
