"""What votes cost is counted over the loops beside training, each with its keyed trace."""

from __future__ import annotations

from itertools import count

import pytest

from labs.economics.votes import job, measured
from tests.marked import long


@pytest.mark.parametrize(("algorithm", "beside"), [("powersgd", 1), long("streaming", 2)])
def test_every_loop_but_the_training_counts(algorithm: str, beside: int) -> None:
    ticks = count()
    files = job(algorithm, "mlp")
    assert len(files.tasks) == 1 + beside
    assert measured(files, 1, lambda: float(next(ticks))) == (1.0, beside, beside)
