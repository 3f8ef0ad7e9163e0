"""A job whose tasks read parts of the outer state (rule 4.4) is settled, fetched and verified."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from assay.client.receipt import MODEL, BadReceipt
from assay.client.verifying import verify
from assay.node.artifacts import load_job
from assay.node.job_programs import check_shapes
from assay.node.manifests import BadManifest
from assay.protocol.loops import model_names
from assay.protocol.types import Kind
from assay.training.job import JobArtifacts, made_round
from tests.fakes.jobs import RESOURCE_LIMITS, DiLoCo, three_files
from tests.fakes.market_day import MarketDay
from tests.fakes.staged import staffed

SCRIPT = Path(__file__).parents[3] / "examples" / "verify_receipt.py"


def in_parts(stride: int = 3) -> JobArtifacts:
    """The tiny job of three parameters; its second shard reads the slots `stride` behind them, the
    momenta, instead."""
    tiny = three_files()
    made = made_round("diloco", tiny.inner, tiny.genesis, tiny.slot_names, 2, DiLoCo())
    assert tiny.records is not None
    files = JobArtifacts(**vars(made), records=tiny.records, held_out=b"", model=dict(tiny.model))
    return replace(files, links=(replace(files.links[0], mod=2, stride=stride), *files.links[1:]))


def test_all_parts_are_fetched_and_lead_to_the_root(day: MarketDay, tmp_path: Path) -> None:
    job_id = day.post(in_parts(), rounds=2)
    staffed(day)
    assert day.run(day.closed(job_id)), day.events[-3:]
    assert not day.market_state.games
    terms = day.market_state.jobs[job_id].view.terms
    folder = tmp_path / "model"
    found = day.fetch(job_id, folder)
    assert list(found) == ["w", "v", "u", "w@1", "v@1", "u@1"] == model_names(terms, in_parts().slot_names)
    assert not torch.equal(found["w"], found["w@1"])
    alone = [sys.executable, "-I", str(SCRIPT), str(folder)]
    assert verify(folder).rounds == 2
    assert subprocess.run(alone, capture_output=True, timeout=60).returncode == 0
    save_file({**load_file(folder / MODEL), "w@1": found["w@1"] + 1}, folder / MODEL)
    with pytest.raises(BadReceipt):
        verify(folder)
    assert subprocess.run(alone, capture_output=True, timeout=60).returncode != 0


def test_parts_of_unlike_shapes_are_refused_by_nodes(day: MarketDay) -> None:
    """Every part that some shard may take has the shape of the first."""
    files = in_parts()
    job_id = day.post(files)
    terms = day.market_state.jobs[job_id].view.terms
    every = {Kind.TASK: files.tasks, Kind.OUTER: files.outers}
    check_shapes(every, terms)
    with pytest.raises(BadManifest, match="dtype or shape of slot"):
        check_shapes(every, replace(terms, links=in_parts(stride=4).links))


@pytest.mark.parametrize("trick", ["a name of a part", "a part apart"])
def test_attack_T27_a_model_that_no_receipt_could_hold_is_no_job(day: MarketDay, trick: str) -> None:
    """A parameter called what the other part of w is, so that one of the two is lost; and a "part" of w
    behind slots that have no name."""
    files = in_parts()
    if trick == "a name of a part":
        bad = replace(files, slot_names=["w", "w@1", *files.slot_names[2:]])
        why = "two tensors of the model have the name 'w@1'"
    else:
        bad, why = in_parts(stride=6), "slot 3 of the outer state lies within the model"
    good, hostile = day.post(files), day.post(bad, nonce=2)
    terms = {job: day.market_state.jobs[job].view.terms for job in (good, hostile)}
    load_job(day.blocks(), terms[good], RESOURCE_LIMITS)
    with pytest.raises(BadManifest, match=why):
        load_job(day.blocks(), terms[hostile], RESOURCE_LIMITS)
