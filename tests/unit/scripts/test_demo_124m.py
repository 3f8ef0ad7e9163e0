"""What the demonstration of 124 million parameters asks for, and how it counts memory."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from assay.job.build import build
from scripts.demo_124m import FAULT, Watch, _resident, family, job


@pytest.mark.long
def test_the_fault_lies_in_a_weight_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"GPT2_SIZE": "tiny", "GPT2_CONTEXT": "16"}.items():
        monkeypatch.setenv(name, value)
    body = job(rounds=2, shards=2, steps=2)
    assert (body.training.shards, body.training.steps_per_round, body.training.segment_steps) == (2, 2, 1)
    files = build(body)
    round_, step, slot, element = map(int, FAULT.split(":"))
    assert round_ < body.training.rounds and step < body.training.steps_per_round
    assert slot < files.inner.params and files.slot_names[slot].endswith("attn.c_attn.weight")
    assert element < files.genesis[slot].numel()
    assert not [name for name in files.slot_names if "momentum" in name], "plain gradient descent"


def test_memory_is_that_of_all_processes_below(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scripts.demo_124m.SAMPLE_S", 0.01)
    much = "x = bytearray(b'1' * (100 << 20)); print(1, flush=True); input()"
    middle = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {much!r}])"
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with Watch() as watch, subprocess.Popen([sys.executable, "-c", middle], **pipes) as child:
        assert child.stdout is not None and child.stdin is not None
        assert child.stdout.readline() == "1\n"
        assert len(family(child.pid)) == 2 and child.pid in family(os.getpid())
        assert sum(map(_resident, family(child.pid))) > 100 << 20
        while watch.most_bytes < 100 << 20:
            assert child.poll() is None
        child.communicate("\n")
    assert _resident(child.pid) == 0, "a process that has ended has none"
