"""Clocks in the loops of compiled forms."""

from __future__ import annotations

import pytest
import torch

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

    def step(x: torch.Tensor) -> list[torch.Tensor]:
        e = fused.kept(transcendental.exp(x))
        return [e, fused.sum(e), x.abs().amax(-1)]

    x = torch.randn(64, 128)
    graph = torch.fx.experimental.proxy_tensor.make_fx(step, tracing_mode="fake")(x)
    form = compile_form(graph, [x])
    for _ in range(3):
        made = form([x])
    assert torch.equal(made[0], transcendental.exp(x)), "clocks change no number"
    assert {"exponentials", "sums", "maxima"} <= set(loops.kinds)
    runs = [loops.times[2 * i + 1] for i in range(len(loops.kinds))]
    assert runs and all(count == 3 for count in runs)
    assert 0 < sum(loops.seconds(3).values()) < 1
