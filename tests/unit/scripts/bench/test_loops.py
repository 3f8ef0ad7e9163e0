"""Clocks in the loops of compiled forms."""

from __future__ import annotations

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from assay.numerics import fused, transcendental
from assay.program.compiled import kernels
from assay.program.compiled.cache import compile_form
from scripts.bench.loops import ADDRESS, Loops


@pytest.mark.long
def test_each_loop_has_a_clock_and_is_known_by_what_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "library_source", kernels.library_source)  # both are put back
    monkeypatch.setenv(ADDRESS, "0")
    loops = Loops()
    loops.install()

    x = torch.randn(64, 128)
    steps = {
        "exponentials": lambda x: [transcendental.exp(x)],
        "sums": lambda x: [fused.sum(x)],
        "maxima": lambda x: [x.abs().amax(-1)],
    }
    for kind, step in steps.items():  # each alone: one loop may do several things
        graph = make_fx(step, tracing_mode="fake")(x)
        known = len(loops.kinds)
        form = compile_form(graph, [x])
        assert kind in loops.kinds[known:]
        for _ in range(3):
            (made,) = form([x])
        assert torch.equal(made, step(x)[0]), "clocks change no number"
    runs = [loops.times[2 * i + 1] for i in range(len(loops.kinds))]
    assert runs and all(count == 3 for count in runs)
    assert 0 < sum(loops.seconds(3).values()) < 1
