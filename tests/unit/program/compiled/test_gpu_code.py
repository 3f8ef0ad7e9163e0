"""What a GPU would run of a step rounds where the definition does: looked up in the code, without a GPU."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from assay.fitness.digests import stored
from assay.program.isa import Op

ROOT = Path(__file__).resolve().parents[4]
NOT_ROUNDED_ONCE = re.compile(
    r"^fma\.|\.ftz|\.approx|^(div|rcp|sqrt|ex2|lg2|sin|cos)\.(?!rn\.|u|s)|^(add|sub|mul)\.f(32|64)$"
)
"""Contracted, or free to be; flushed to zero; near the right result."""


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="`make kernels` installs Triton and runs these"
)
@pytest.mark.parametrize("name", ["mlp", "gpt"])
def test_every_instruction_of_a_step_rounds_as_the_definition_does(name: str) -> None:
    command = [sys.executable, "-W", "ignore", "-m", "tests.unit.program.compiled.gpu_code", name]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    made = json.loads(done.stdout)
    (sample,) = (sample for sample in stored().samples if sample.name == name)
    assert made["products"] == sum(node.op is Op.PRODUCT for node in sample.program.nodes) > 5
    assert made["kernels"] > 10 and made["ptx"]["div.rn.f32"] > 0
    assert [word for word in made["ptx"] if NOT_ROUNDED_ONCE.search(word)] == []


@pytest.mark.parametrize(
    ("word", "wrong"),
    [
        ("fma.rn.f32", True),
        ("mul.f32", True),
        ("mul.rn.f32", False),
        ("add.ftz.f32", True),
        ("div.full.f32", True),
        ("ex2.approx.ftz.f32", True),
        ("sqrt.approx.f32", True),
        ("div.rn.f32", False),
        ("sqrt.rn.f64", False),
        ("div.u32", False),
        ("mad.lo.s32", False),
    ],
)
def test_which_instructions_those_are(word: str, wrong: bool) -> None:
    assert bool(NOT_ROUNDED_ONCE.search(word)) == wrong
