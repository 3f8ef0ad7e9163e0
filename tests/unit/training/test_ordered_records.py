"""Records that each shard reads in order, from its own part."""

from __future__ import annotations

import pytest
import torch

from assay.program.build import ProgramBuilder
from assay.program.execute import Executor, StepContext
from assay.program.isa import DType
from assay.protocol.errors import Stop
from assay.training.ordered_records import own_records
from tests.marked import long


@pytest.mark.parametrize(
    ("records", "rows", "shards"), [(103, 4, 3), (7, 7, 1), long(4096, 1, 2), (50, 3, 4)]
)
def test_each_shard_reads_its_own_part_in_order(records: int, rows: int, shards: int) -> None:
    """First records of steps, at the counters where a rounded quotient could be off by one, too."""
    b = ProgramBuilder()
    slot = b.state(DType.I32, ())
    program = Executor(b.finish([own_records(records, rows, shards)(b, [slot])], params=1))
    part = records // shards
    turns = part // rows
    near = [k * turns + d for k in (1, 7, (1 << 24) // turns - 1) for d in (-1, 0, 1)]
    for step in (*range(2 * turns + 2), *near):
        for shard in range(shards):
            (first,) = program.step(
                [torch.zeros((), dtype=torch.int32)], StepContext(None, bytes(32), shard, step)
            )
            assert int(first) == shard * part + step % turns * rows, (step, shard)
            assert int(first) + rows <= (shard + 1) * part
    with pytest.raises(Stop, match="one step reads"):
        own_records(10, 6, 2)
