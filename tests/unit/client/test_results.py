"""What a client reads from the result of a job that a stranger has made."""

from __future__ import annotations

import pytest
import torch

from assay.client.results import prompts_of, rows
from assay.training.results import NOTHING, TOKENS


def test_numbers_that_are_no_bytes_are_left_out() -> None:
    tokens = torch.tensor([[72, 300, 105], [-7, 33, NOTHING], [NOTHING] * 3], dtype=torch.int32)
    assert rows({TOKENS: tokens}) == [b"Hi", b"!", None]


@pytest.mark.parametrize("said", ["many", -1, 4, True, None, [2], 2**70])
def test_a_number_of_prompts_that_there_cannot_be_is_every_row(said: object) -> None:
    params = {TOKENS: torch.zeros((3, 2), dtype=torch.int32)}
    assert prompts_of({"prompts": said}, params) == 3
    assert prompts_of({"prompts": 2}, params) == 2
