"""A running job whose products lose more than bfloat16's tells its client so; bits and pay do not change."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from torch import Tensor

from assay.app.job_progress import progress_table
from assay.client.following import Following, follow
from assay.client.job_events import events_between
from assay.client.losses import losses_of
from assay.node.artifacts import load_job
from assay.program.fault import NodeFault
from assay.program.isa import Op, Program
from assay.program.operand_parts import dequantised_nodes
from assay.protocol.types import JobId, Phase
from assay.training.precision import Precisions
from drills.orders import Plan
from tests.fakes.conspiracy import conspiracy
from tests.fakes.jobs import RESOURCE_LIMITS
from tests.fakes.market_day import MarketDay
from tests.unit.training.test_precision import made


def settled(day: MarketDay, precisions: Precisions) -> JobId:
    """A job of one shard with an outlier of 30,000, trained to its end by honest roles."""
    job_id = day.post(made(precisions), shards=1)
    day.solver("ann")
    day.verifiers()
    assert day.run(day.closed(job_id), turns=600), [s.status for s in day.services.values()]
    return job_id


def seen(day: MarketDay, job_id: JobId, measure: bool = True) -> Following:
    market = day.markets["client"]
    files = load_job(day.blocks(), market.job(job_id).terms, RESOURCE_LIMITS)
    return follow(market, job_id, losses_of(market, day.blocks(), job_id, files, measure=measure))


@pytest.mark.long
def test_a_job_with_an_outlier_is_settled_and_its_client_told_the_product(day: MarketDay) -> None:
    job_id = settled(day, Precisions("single"))
    assert set(day.phases(job_id)) == {Phase.SETTLED}
    following = seen(day, job_id)
    found = following.inaccuracy
    assert found is not None and found.error.whole > 100 and found.products >= 1
    assert (found.round, found.shard, found.step) == (1, 0, 16)
    told = [event.text for event in events_between(None, following)]
    assert any(text.startswith("inaccurate after step 16 (round 1, shard 0)") for text in told)
    caption = str(progress_table(following).caption)
    assert "inaccurate" in caption and "job halt" not in caption, "nothing is left to halt"
    job = following.job
    open_job = replace(job, progress=replace(job.progress, round=0, closed=False))
    assert "job halt" in str(progress_table(replace(following, job=open_job)).caption)
    assert seen(day, job_id, measure=False).inaccuracy is None


@pytest.mark.long
def test_the_same_job_in_parts_is_within_the_limit(day: MarketDay) -> None:
    following = seen(day, settled(day, Precisions("auto")))
    assert following.inaccuracy is None


@dataclass(frozen=True)
class Moved(NodeFault):
    """The element is off by 1: one ulp in a part of a number is too little to be seen in the state."""

    def output(self, step: int, node: int, x: Tensor) -> Tensor:
        if (step, node) != (self.step, self.node):
            return x
        changed = x.contiguous().clone()
        changed.view(-1)[self.element] += 1
        return changed


def nodes_in_parts(program: Program) -> dict[str, int]:
    """The nodes that only programs with operands in parts have."""
    (column,) = dequantised_nodes(program)

    def reader(op: Op, of: int) -> int:
        return next(
            i for i, node in enumerate(program.nodes) if node.op is op and of in [r.ref for r in node.inputs]
        )

    rest = reader(Op.SUB, reader(Op.RESHAPE, column))
    product = reader(Op.PRODUCT, reader(Op.QUANTISE, rest))
    return {"first part": column, "rest": rest, "rest's product": product}


@pytest.mark.long
@pytest.mark.parametrize("what", ["first part", "rest", "rest's product"])
def test_a_lie_about_a_part_of_an_operand_is_disputed_and_convicted(day: MarketDay, what: str) -> None:
    """Every verifier colludes; element 6 belongs to a feature next to the outlier."""
    files = made(Precisions("auto"))
    fault = Moved(3, nodes_in_parts(files.inner)[what], 6)
    job_id = day.post(files, shards=1)
    conspiracy(day, Plan(0, 0, fault), "ann")
    day.whistleblower("wendy")
    assert day.run(lambda: Phase.CONVICTED in day.phases(job_id)), [s.status for s in day.services.values()]
    assert day.named("fault-planted")
    assert next(p.view for p in day.market_state.games.values() if p.view.decided).challenger_won
