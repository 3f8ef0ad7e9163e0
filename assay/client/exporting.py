"""Exports a fetched GPT as a folder that Hugging Face's `transformers` loads: GPT-2's names, shapes and
settings.

Contract: the numbers are the fetched ones, transposed where GPT-2 stores a matrix transposed; biases that the
job's model lacks are zeros. The receipt is copied for reference; it vouches for the fetched folder. Not
guaranteed: the same bits in `transformers`' own floating point. A vocabulary of bytes needs no tokenizer:
byte values are the tokens.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from assay.client.fetched import model_and_parameters
from assay.client.receipt import MODEL, RECEIPT
from assay.protocol.errors import Stop
from assay.training import recipe
from assay.training.evaluate import with_parameters
from assay.training.models import VOCABULARY, GptConfig, from_description

_ACTIVATIONS = {"gelu": "gelu_new", "gelu_erf": "gelu", "relu": "relu", "silu": "silu"}
_BLOCK = {
    "norm_1": "ln_1",
    "attention.qkv": "attn.c_attn",
    "attention.out": "attn.c_proj",
    "norm_2": "ln_2",
    "up": "mlp.c_fc",
    "down": "mlp.c_proj",
}
_TURNED = ("attention.qkv", "attention.out", "up", "down")
"""Matrices that GPT-2 stores as [inputs, outputs]."""


def gpt2_config(config: GptConfig) -> dict[str, Any]:
    """GPT-2's `config.json` for this model."""
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": VOCABULARY,
        "n_positions": config.context,
        "n_ctx": config.context,
        "n_embd": config.d_model,
        "n_layer": config.n_layer,
        "n_head": config.n_head,
        "n_inner": 4 * config.d_model,
        "activation_function": _ACTIVATIONS[config.activation],
        "layer_norm_epsilon": 1e-5,
        "resid_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "attn_pdrop": 0.0,
        "tie_word_embeddings": config.tied,
        "bos_token_id": None,
        "eos_token_id": None,
        "torch_dtype": "float32",
    }


def gpt2_tensors(config: GptConfig, params: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The GPT's parameters under GPT-2's names and in its shapes; all f32."""
    width = config.d_model
    out = {
        "transformer.wte.weight": params["embedding.weight"],
        "transformer.wpe.weight": params["position.weight"],
        "transformer.ln_f.weight": params["norm.weight"],
        "transformer.ln_f.bias": params.get("norm.bias", torch.zeros(width)),
    }
    if not config.tied:
        out["lm_head.weight"] = params["head.weight"]
    for i in range(config.n_layer):
        for ours, theirs in _BLOCK.items():
            weight = params[f"blocks.{i}.{ours}.weight"]
            bias = params.get(f"blocks.{i}.{ours}.bias", torch.zeros(weight.shape[0]))
            turned = weight.T if ours in _TURNED else weight
            out[f"transformer.h.{i}.{theirs}.weight"] = turned
            out[f"transformer.h.{i}.{theirs}.bias"] = bias
    return {name: tensor.contiguous() for name, tensor in out.items()}


def _check_apart(folder: Path, out: Path) -> None:
    if out.resolve() == folder.resolve():
        raise Stop(
            f"{out} holds the fetched model with its receipt; nothing was written",
            hint="choose another folder",
        )


def export_own(folder: Path, source: str, out: Path) -> int:
    """Writes an own model fetched into `folder` as a `transformers` folder; returns the number of parameters.

    `source`: file and function of the recipe that it was trained with. Raises Stop as `export_gpt2`, or if
    the recipe's model is not one of `transformers`.
    """
    _check_apart(folder, out)
    model = with_parameters(recipe.load(source).model, model_and_parameters(folder)[1])
    save = getattr(model, "save_pretrained", None)
    if not callable(save):
        raise Stop(
            f"the model of {source}, a {type(model).__name__}, has no save_pretrained; nothing was written",
            hint=f"load {folder / MODEL} into it by name, and save it yourself",
        )
    out.mkdir(parents=True, exist_ok=True)
    save(out)
    shutil.copyfile(folder / RECEIPT, out / RECEIPT)
    return sum(x.numel() for x in model.parameters())


def export_gpt2(folder: Path, out: Path) -> int:
    """Writes the GPT fetched into `folder` as a `transformers` folder; returns the number of parameters.

    Raises Stop if `folder` holds no fetched model or another kind of model, or `out` is `folder`.
    """
    _check_apart(folder, out)
    description, params = model_and_parameters(folder)
    config = from_description(description)
    if not isinstance(config, GptConfig):
        raise Stop(
            f"transformers has no architecture for a model of kind {description.get('kind')!r}; nothing was"
            " written",
            hint="for a model of your own give its source: --from FILE.py:FUNCTION",
        )
    out.mkdir(parents=True, exist_ok=True)
    tensors = gpt2_tensors(config, params)
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    (out / "config.json").write_text(json.dumps(gpt2_config(config), indent=2) + "\n")
    shutil.copyfile(folder / RECEIPT, out / RECEIPT)
    return sum(tensor.numel() for tensor in tensors.values())


def write_config(model: nn.Module, folder: Path) -> bool:
    """Writes the config.json of a `transformers` module (or subclass), whose parameter names already match;
    False for others.

    Then `from_pretrained(folder)` loads it.
    """
    to_json = getattr(getattr(model, "config", None), "to_json_string", None)
    if not callable(to_json):
        return False
    (folder / "config.json").write_text(str(to_json()))
    return True
