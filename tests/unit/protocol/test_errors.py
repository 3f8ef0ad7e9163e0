"""Errors say what to do: each is one of three kinds and has its own code."""

from __future__ import annotations

import re

import pytest

from assay.protocol import errors
from assay.protocol.errors import Ask, AssayError, Retry, Reverted, RpcUnreachable, Stop

CLASSES = [
    value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, AssayError)
]


@pytest.mark.parametrize("kind", [c for c in CLASSES if c is not AssayError], ids=lambda c: c.__name__)
def test_an_error_is_of_one_kind_and_has_a_stable_code(kind: type[AssayError]) -> None:
    assert sum(issubclass(kind, base) for base in (Retry, Stop, Ask)) == 1
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", kind.code)


def test_no_two_errors_share_a_code() -> None:
    codes = [kind.code for kind in CLASSES]
    assert len(codes) > 10 and len(set(codes)) == len(codes)


def test_message_hint_and_code_are_what_was_given() -> None:
    error = Stop("the file is empty", hint="write one", code="empty-file")
    assert (str(error), error.hint, error.code) == ("the file is empty", "write one", "empty-file")
    assert Stop.code == "stop" and RpcUnreachable("gone").code == "rpc-unreachable"


def test_a_revert_tells_its_error_and_arguments() -> None:
    error = Reverted("refused", error="NotClient", args={"client": "0x1"})
    assert (error.error, error.arguments) == ("NotClient", {"client": "0x1"})
    assert Reverted("refused").arguments == {}
