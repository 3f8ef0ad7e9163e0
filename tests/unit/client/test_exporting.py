"""A fetched GPT as a `transformers` folder: names, shapes, numbers; the real library if it is there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save, save_file

from assay.client.exporting import export_gpt2, write_config
from assay.client.receipt import RECEIPT
from assay.protocol.errors import Stop
from assay.training.datasets import Dataset, TextLayout
from assay.training.job import build_job
from assay.training.losses import cross_entropy
from assay.training.models import Config, Gpt, GptConfig, MlpConfig, build, describe
from assay.training.optimisers import Sgd
from assay.training.outer import DiLoCo

CONFIGS = (
    GptConfig(2, 2, 16, 32),
    GptConfig(2, 2, 16, 32, tied=True, bias=True, activation="gelu_erf"),
    GptConfig(1, 1, 8, 8, activation="silu"),
)


def fetched(config: Config, folder: Path) -> torch.nn.Module:
    """A folder as `job fetch` leaves it, of a model none of whose parameters is 0 or 1."""
    model = build(config, 3)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn(p.shape, generator=generator) / 8)
    folder.mkdir()
    (folder / "manifest.json").write_text(json.dumps({"model": describe(config)}))
    (folder / RECEIPT).write_text('{"job": "is elsewhere"}')
    save_file(dict(model.named_parameters()), folder / "model.safetensors")
    return model


@pytest.mark.parametrize("config", CONFIGS)
def test_every_parameter_is_there_once_and_the_receipt_beside_it(config: GptConfig, tmp_path: Path) -> None:
    model = fetched(config, tmp_path / "model")
    count = export_gpt2(tmp_path / "model", tmp_path / "gpt2")
    tensors = load_file(tmp_path / "gpt2" / "model.safetensors")
    assert count == sum(x.numel() for x in tensors.values())
    ours = sorted(x for p in model.parameters() for x in p.detach().flatten().tolist())
    theirs = sorted(x for t in tensors.values() for x in t.flatten().tolist())
    zeros = len(theirs) - len(ours)  # biases that ours does not have
    assert (zeros > 0) == (not config.bias) and ours == sorted(x for x in theirs if x != 0.0)
    assert (tmp_path / "gpt2" / RECEIPT).read_bytes() == (tmp_path / "model" / RECEIPT).read_bytes()
    assert ("lm_head.weight" in tensors) == (not config.tied)
    width = config.d_model
    assert tensors["transformer.h.0.attn.c_attn.weight"].shape == (width, 3 * width)


@pytest.mark.slow
@pytest.mark.parametrize("config", CONFIGS)
def test_transformers_computes_what_ours_does(config: GptConfig, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="pip install transformers, for this test alone")
    model = fetched(config, tmp_path / "model")
    assert isinstance(model, Gpt)
    export_gpt2(tmp_path / "model", tmp_path / "gpt2")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "gpt2")
    tokens = torch.randint(0, 256, (3, config.context), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        assert torch.allclose(theirs(tokens).logits, model(tokens), atol=1e-5)


def causal(transformers: Any, kind: str) -> tuple[torch.nn.Module, Any]:
    """A tiny GPT-2 or Llama of transformers, subclassed as docs/tutorials/researcher.md says."""
    options = {"vocab_size": 256, "bos_token_id": None, "eos_token_id": None, "attn_implementation": "eager"}
    if kind == "gpt2":
        shape = {"n_positions": 16, "n_embd": 16, "n_layer": 1, "n_head": 2}
        drops = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
        config, base = transformers.GPT2Config(**options, **shape, **drops), transformers.GPT2LMHeadModel
    else:
        shape = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
        heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 16}
        config, base = transformers.LlamaConfig(**options, **shape, **heads), transformers.LlamaForCausalLM

    class Causal(base):  # type: ignore[misc, valid-type]
        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            at = torch.arange(tokens.shape[1])
            mask = torch.where(at <= at.unsqueeze(1), 0.0, -1e30)[None, None]
            made = super().forward(tokens, attention_mask=mask, position_ids=at[None], use_cache=False)
            logits: torch.Tensor = made.logits
            return logits

    return Causal(config), base


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_a_module_of_transformers_is_a_job_and_comes_back_as_one(kind: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="pip install transformers, for this test alone")
    model, base = causal(transformers, kind)
    data = Dataset(TextLayout(16), bytes(range(256)) * 17, bytes(17))
    files = build_job(model, cross_entropy, Sgd(0.1), data, batch=2, shards=1, outer=DiLoCo())
    count = files.inner.params
    params = dict(zip(files.slot_names[:count], files.genesis[:count], strict=True))
    (tmp_path / "model.safetensors").write_bytes(save(params))  # as client.fetching writes it
    assert write_config(model, tmp_path) and not write_config(torch.nn.Linear(2, 2), tmp_path / "none")
    theirs = base.from_pretrained(tmp_path, attn_implementation="eager")
    tokens = torch.arange(32).view(2, 16)
    with torch.inference_mode():
        assert torch.equal(theirs(tokens).logits, base.forward(model, tokens).logits)


def test_another_model_and_the_models_own_folder_are_refused(tmp_path: Path) -> None:
    fetched(MlpConfig(), tmp_path / "mlp")
    with pytest.raises(Stop, match="no architecture for a model of kind 'mlp'"):
        export_gpt2(tmp_path / "mlp", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    fetched(CONFIGS[0], tmp_path / "gpt")
    before = (tmp_path / "gpt" / "model.safetensors").read_bytes()
    with pytest.raises(Stop, match="fetched model with its receipt"):
        export_gpt2(tmp_path / "gpt", tmp_path / "mlp" / ".." / "gpt")
    assert (tmp_path / "gpt" / "model.safetensors").read_bytes() == before
