"""A hostile job is accepted by the chain, and refused by every node that reads its files."""

from __future__ import annotations

import subprocess
import sys

import pytest

from assay.node.artifacts import load_job, publish_job
from assay.node.limits import ResourceLimits
from assay.protocol.errors import Stop
from drills.hostile_jobs import BOMB, HOSTILE_JOBS, HostileJob
from tests.fakes.blocks import FakeBlocks, Network
from tests.fakes.jobs import RESOURCE_LIMITS, account, recipe_files, tiny_terms


def read(job: HostileJob, limits: ResourceLimits = RESOURCE_LIMITS) -> None:
    """Publish a job with it, and read that job as a node does."""
    blocks = FakeBlocks(Network())
    published = publish_job(blocks, job.files(recipe_files("diloco")))
    load_job(blocks, job.terms(tiny_terms(published, account("stranger")), blocks), limits)


def test_with_nothing_spoilt_the_job_is_sound() -> None:
    read(HostileJob("nothing"))


@pytest.mark.parametrize(
    ("kind", "says"), [("hostile-manifest", "manifest"), ("unsound-program", "node \\d+")]
)
def test_a_reader_refuses_it(kind: str, says: str) -> None:
    with pytest.raises(Stop, match=says):
        read(HOSTILE_JOBS[kind])


def test_the_bomb_ends_a_reader_that_does_not_count() -> None:
    """In a process of its own: with a small stack it ends the process, not only the call."""
    code = "import json, sys; json.loads(sys.stdin.buffer.read())"
    assert subprocess.run([sys.executable, "-c", code], input=BOMB, capture_output=True).returncode
