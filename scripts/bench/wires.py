"""What others fetch of a task, by outer algorithm: bytes of its wire's files, packed and as i32.

Usage: wires.py [--json] [--width D]. The byte-level GPT of `make bench-diloco` (2 layers, context 32), or a
wider one; every algorithm compresses the same random change, and the state is stored as a solver stores it.
`f32` is what the parameters take, `claimed` what the coding's own count of bits says, `files` the bytes of
the wire's files, `as i32` what they would be unpacked. For `streaming` a round's fragment is the mean one of
a turn. Bytes are counted, not timed: a busy machine does not matter.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from assay.blocks.blockstore import BlockStore
from assay.node.slots import store_state
from assay.training import models
from assay.training.algorithms import Algorithm
from assay.training.catalogue import RECIPES, WHOLE
from assay.training.streaming import streaming_of


@dataclass(frozen=True)
class Wire:
    """Bytes of one shard's wire, a round."""

    f32: int
    claimed: float
    as_i32: int
    files: int

    @property
    def told(self) -> dict[str, float]:
        """As it is printed."""
        fewer = round(self.f32 / self.files, 1)
        return {
            "f32": self.f32,
            "claimed": round(self.claimed),
            "as i32": self.as_i32,
            "files": self.files,
            "fewer": fewer,
        }


def stored(tensors: list[Tensor]) -> tuple[int, int]:
    """Bytes of these slots' files, each once, and of the slots as they are."""
    with tempfile.TemporaryDirectory() as folder:
        blocks = BlockStore(Path(folder))
        slots = store_state(blocks, tensors).slots
        files = {slot.cid: len(blocks.read_file(slot.cid, 1 << 30)) for slot in slots}
    return sum(files.values()), sum(x.numel() * x.element_size() for x in tensors)


def wire_of(algorithm: Algorithm, changes: list[Tensor], turns: int = 1) -> Wire:
    """The wire of a change of every parameter, or of one of `turns` fragments of it."""
    sent = [t for change in changes for t in algorithm.compress(change, torch.zeros_like(change), None)[0]]
    files, plain = stored([t.to(torch.int32) if not t.is_floating_point() else t for t in sent])
    claimed = sum(algorithm.coding.bits(tuple(change.shape)) for change in changes) / 8
    whole = sum(4 * change.numel() for change in changes)
    return Wire(whole, claimed / turns, plain // turns, files // turns)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one object on stdout")
    parser.add_argument("--width", type=int, default=32, help="d of the model")
    options = parser.parse_args()
    config = models.GptConfig(n_layer=2, n_head=2, d_model=options.width, context=32)
    generator = torch.Generator().manual_seed(1)
    changes = [1e-3 * torch.randn(p.shape, generator=generator) for p in models.build(config, 0).parameters()]
    streaming = streaming_of([tuple(c.shape) for c in changes])
    found = {name: wire_of(recipe, changes) for name, recipe in RECIPES.items()}
    found["streaming"] = wire_of(streaming.algorithm, changes, streaming.steps)
    if options.json:
        print(json.dumps({name: wire.told for name, wire in found.items()}))
        return
    print(f"{found[WHOLE].f32 // 4:,} parameters; bytes of a shard's wire, a round")
    for name, wire in found.items():
        print(f"{name:16}" + "".join(f"  {key} {value:>10,}" for key, value in wire.told.items()))


if __name__ == "__main__":
    main()
