"""A client reads the result of a stranger's job."""

from __future__ import annotations

import pytest
import torch

from assay.client.results import parted, prompts_of, rows
from assay.training.results import NOTHING, TOKENS


def test_numbers_that_are_no_bytes_are_left_out() -> None:
    tokens = torch.tensor([[72, 300, 105], [-7, 33, NOTHING], [NOTHING] * 3], dtype=torch.int32)
    assert rows({TOKENS: tokens}) == [b"Hi", b"!", None]


def test_a_row_is_told_as_prompt_and_answer() -> None:
    """Prompts of at most 3 bytes, as their records of 5 say, and 2 bytes after each."""
    tokens = torch.tensor([[65, 66, 67, 120, 121], [65, 120, 121, NOTHING, NOTHING], [NOTHING] * 5])
    params = {TOKENS: tokens.to(torch.int32)}
    long, short, none = parted(params, rows(params), 5)
    assert long == {"prompt": "ABC", "answer": "xy", "text": "ABCxy"}
    assert short == {"prompt": "A", "answer": "xy", "text": "Axy"} and none is None


@pytest.mark.parametrize(("record_size", "cut"), [(0, 0), (2, 0), (7, 5), (1 << 20, 5)])
def test_records_that_are_no_prompts_are_no_error(record_size: int, cut: int) -> None:
    params = {TOKENS: torch.full((1, 5), 65, dtype=torch.int32)}
    (line,) = parted(params, rows(params), record_size)
    assert line == {"prompt": "A" * cut, "answer": "A" * (5 - cut), "text": "AAAAA"}


@pytest.mark.parametrize("said", ["many", -1, 4, True, None, [2], 2**70])
def test_a_number_of_prompts_that_there_cannot_be_is_every_row(said: object) -> None:
    params = {TOKENS: torch.zeros((3, 2), dtype=torch.int32)}
    assert prompts_of({"prompts": said}, params) == 3
    assert prompts_of({"prompts": 2}, params) == 2
