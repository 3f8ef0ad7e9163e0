"""Fine-tuning a folder of transformers: weights from safetensors alone, tokens, documents apart, and back.

`make zoo` installs the libraries and runs this.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.protocol.errors import Stop
from tests.zoo.published import declare_operators

declare_operators()
transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

from assay.training import pretrained  # noqa: E402
from assay.training.job import build_job  # noqa: E402
from assay.training.optimisers import AdamW  # noqa: E402
from assay.training.outer import DiLoCo  # noqa: E402
from assay.training.pretrained import Packed, causal_model, documents, fine_tuning, tokenised  # noqa: E402

WORDS = ["<s>", "</s>", *(f"w{i}" for i in range(60))]
SIZE: dict[str, Any] = {
    "vocab_size": 64, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "intermediate_size": 24, "max_position_embeddings": 64,
    "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1, "tie_word_embeddings": True,
}  # fmt: skip


def tokenizer() -> Any:
    made = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="<s>")
    )
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return made


def llama(folder: Path, dtype: torch.dtype = torch.float32, **given: Any) -> Any:
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZE)).to(dtype)
    model.save_pretrained(folder, **given)
    tokenizer().save(str(folder / "tokenizer.json"))
    return model


def text(folder: Path, count: int = 40) -> Path:
    path = folder / "text.jsonl"
    lines = [{"text": " ".join(f"w{(i * j) % 60}" for j in range(1, 5 + i % 7))} for i in range(count)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def logits(model: Any, tokens: Tensor) -> Tensor:
    with torch.no_grad():
        found = model.eval()(input_ids=tokens).logits
    assert isinstance(found, Tensor)
    return found


@pytest.mark.parametrize(
    ("dtype", "given"),
    [(torch.bfloat16, {}), (torch.float16, {}), (torch.float32, {"max_shard_size": "4KB"})],
)
def test_half_precision_shards_and_tied_weights_are_read(
    tmp_path: Path, dtype: torch.dtype, given: Any
) -> None:
    saved = llama(tmp_path, dtype, **given)
    assert ("max_shard_size" in given) == (tmp_path / "model.safetensors.index.json").is_file()
    made: Any = causal_model(tmp_path, tmp_path).model
    assert {p.dtype for p in made.parameters()} == {torch.float32}
    assert made.lm_head.weight is made.model.embed_tokens.weight
    for name, p in made.named_parameters():
        assert torch.equal(p, saved.get_parameter(name).float())


def test_pickles_are_refused_unread(tmp_path: Path) -> None:
    llama(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'touch ran'\ntR.")
    with pytest.raises(Stop, match=r"pytorch_model\.bin is pickled") as caught:
        causal_model(tmp_path, tmp_path)
    assert "save_pretrained" in caught.value.hint
    with pytest.raises(Stop, match=r"config\.json is missing"):
        causal_model(tmp_path / "nowhere", tmp_path)


def test_code_of_a_folder_is_not_run(tmp_path: Path) -> None:
    llama(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config |= {
        "model_type": "their_own",
        "auto_map": {"AutoModelForCausalLM": "theirs.Model", "AutoConfig": "theirs.C"},
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "theirs.py").write_text("raise SystemExit('ran')\n")
    with pytest.raises(Stop, match=r"names code or another folder \(auto_map in config\.json, theirs\.py\)"):
        causal_model(tmp_path, tmp_path)


def test_documents_of_every_kind(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n\n{"text": "two", "id": 3}\n')
    (tmp_path / "b.txt").write_text("three\nfour")
    assert list(documents(tmp_path)) == ["one", "two", "three\nfour"]
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n{"prompt": "two"}\n')
    with pytest.raises(Stop, match=r"a\.jsonl, line 2 is no object with a text"):
        list(documents(tmp_path / "a.jsonl"))


def test_tokens_follow_each_other_with_an_end_behind_each_document(tmp_path: Path) -> None:
    llama(tmp_path)
    made = tokenised(tmp_path, ["w0 w1 w2", "w3", "w4 w5 w6 w7 w8 w9"], 3)
    assert isinstance(made.layout, Packed) and made.layout.width == 2 and made.layout.end == 1
    rows = torch.frombuffer(bytearray(made.records + made.held_out), dtype=torch.int16).view(-1, 4)
    assert rows.tolist() == [[2, 3, 4, 1], [5, 1, 6, 7], [8, 9, 10, 11]]


@pytest.mark.parametrize("width", [2, 4])
def test_places_begin_anew_and_no_border_is_learnt(width: int) -> None:
    row = [7, 1, 8, 9, 1, 1, 5, 60]
    batch = torch.tensor([[(t >> 8 * i) & 255 for t in row for i in range(width)]], dtype=torch.uint8)
    (tokens, places), targets = Packed(7, width, 1).split(batch)
    assert tokens.tolist() == [row[:-1]]
    assert places.tolist() == [[0, 1, 0, 1, 2, 0, 0]]
    assert targets.tolist() == [[1, -100, 9, 1, -100, -100, 60]]


def test_a_document_is_read_as_if_it_were_alone(tmp_path: Path) -> None:
    saved = llama(tmp_path)
    made = causal_model(tmp_path, tmp_path)
    row = torch.tensor([[5, 9, 1, 8, 30, 31, 4]])
    (tokens, places), _ = Packed(6, 1, 1).split(row.to(torch.uint8))
    with torch.no_grad():
        found = made((tokens, places))
    assert torch.allclose(found[:, :3], logits(saved, row[:, :3]), atol=1e-5)
    assert torch.allclose(found[:, 3:], logits(saved, row[:, 3:6]), atol=1e-5)
    assert not torch.allclose(found[:, 3:], logits(saved, row[:, :6])[:, 3:], atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 2])
def test_a_fine_tuned_model_goes_back_to_transformers(tmp_path: Path, rank: int) -> None:
    llama(tmp_path / "base")
    recipe = fine_tuning(tmp_path / "base", tmp_path / "base", text(tmp_path), context=8, rank=rank)
    assert set(recipe.facts) == {"tokenizer"} and recipe.dataset.epochs
    made = build_job(recipe.model, recipe.loss, AdamW(), recipe.dataset, batch=2, shards=2, outer=DiLoCo())
    names = made.slot_names[: made.inner.params]
    assert all((name.endswith((".up", ".down"))) == (rank > 0) for name in names)
    assert isinstance(recipe.model, pretrained.Causal)
    with torch.no_grad():
        for p in recipe.model.parameters():
            p.add_(0.01 * torch.randn_like(p) if p.requires_grad else torch.zeros(()))
        tokens = torch.arange(2, 10).view(1, 8)
        expected = recipe.model((tokens, torch.arange(8).view(1, 8)))
    recipe.model.save_pretrained(tmp_path / "out")
    back = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out", local_files_only=True)
    assert torch.allclose(logits(back, tokens), expected, atol=1e-5)
    assert (tmp_path / "out" / "tokenizer.json").read_bytes() == (
        tmp_path / "base" / "tokenizer.json"
    ).read_bytes()


def test_adapters_of_gpt2_are_merged_into_its_own_layers(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=64, n_embd=16, n_layer=1, n_head=2, n_positions=32, eos_token_id=1
    )
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path)
    made = causal_model(tmp_path, tmp_path).eval()
    assert len(pretrained.adapted(made, 2)) == 4
    with torch.no_grad():
        for name, p in made.named_parameters():
            p.add_(0.1 * torch.randn_like(p) if name.endswith("up") else torch.zeros(()))
        tokens = torch.arange(8).view(1, 8)
        expected = made((tokens, tokens))
    made.save_pretrained(tmp_path / "out")
    back = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out", local_files_only=True)
    assert torch.allclose(logits(back, tokens), expected, atol=1e-5)
