"""Load a fetched model into ``transformers``' GPT-2, and compare its logits with this folder's module.

Usage: `python examples/gpt2/into_transformers.py FOLDER [--heads 12]`; FOLDER holds model.safetensors, as
`assay job fetch` writes it. transformers is this script's own need: `pip install transformers`. Exit status 1
where logits differ by more than fp32's rounding explains.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from model import Gpt2, Size
from safetensors.torch import load_file
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel

TOLERANCE = 1e-5
"""Of the largest logit."""


def size_of(tensors: dict[str, Tensor], heads: int) -> Size:
    """The size of the GPT-2 that has these parameters."""
    vocabulary, width = tensors["transformer.wte.weight"].shape
    layers = sum(name.endswith("ln_1.weight") for name in tensors)
    return Size(layers, heads, width, vocabulary, len(tensors["transformer.wpe.weight"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--tokens", type=int, default=64, help="length of the text that is compared")
    chosen = parser.parse_args()
    tensors = load_file(chosen.folder / "model.safetensors")
    size = size_of(tensors, chosen.heads)
    ours = Gpt2(size)
    ours.load_state_dict(tensors)
    theirs = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=size.vocabulary,
            n_positions=size.positions,
            n_embd=size.width,
            n_layer=size.layers,
            n_head=size.heads,
            activation_function="gelu_new",
        )
    ).eval()
    missing, unexpected = theirs.load_state_dict(tensors, strict=False)
    assert set(missing) <= {"lm_head.weight"} and not unexpected, (missing, unexpected)
    theirs.tie_weights()
    tokens = torch.arange(chosen.tokens).unsqueeze(0) * 97 % size.vocabulary
    with torch.no_grad():
        a, b = ours.logits(tokens), theirs(tokens).logits
    worst, largest = float((a - b).abs().max()), float(b.abs().max())
    count = sum(x.numel() for x in tensors.values())
    print(f"{count:,} parameters: logits differ by {worst:.3g} at most, the largest is {largest:.3g}")
    raise SystemExit(worst > TOLERANCE * largest)


if __name__ == "__main__":
    main()
