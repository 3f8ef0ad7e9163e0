"""The bytes that the table of wires tells are those of the files, and near the coding's own count."""

from __future__ import annotations

import torch

from assay.training.catalogue import RECIPES
from scripts.bench.wires import wire_of

CHANGES = [torch.randn(64, 64, generator=torch.Generator().manual_seed(1)), torch.zeros(100)]


def test_a_wires_files_have_the_codings_bits_and_a_header() -> None:
    wire = wire_of(RECIPES["diloco-4bit"], CHANGES)
    codes, blocks = (4096, 128), (64, 2)
    assert wire.f32 == 4 * 4196 and wire.as_i32 == 4 * (sum(codes) + sum(blocks))
    full, empty = 4 + codes[0] // 2, 4 + codes[1] // 8
    assert wire.files == full + empty + 4 * sum(blocks), "equal zeros take a bit each"
    whole = wire_of(RECIPES["diloco"], CHANGES)
    assert whole.files == whole.as_i32 == whole.claimed == whole.f32


def test_every_wire_is_within_its_count() -> None:
    for name, recipe in RECIPES.items():
        wire = wire_of(recipe, CHANGES[:1])
        assert wire.files <= wire.claimed + 4 * 3, name
