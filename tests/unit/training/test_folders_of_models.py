"""A folder of a model that would have code imported is refused before any library is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from assay.protocol.errors import Stop
from assay.training.pretrained import causal_model


def folder(path: Path) -> Path:
    """Files that are checked before weights are read."""
    (path / "config.json").write_text('{"model_type": "llama", "_attn_implementation_autoset": true}')
    (path / "model.safetensors").touch()
    return path


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("custom_generate/generate.py", "raise SystemExit('ran')"),
        ("theirs.py", ""),
        ("adapter_config.json", '{"base_model_name_or_path": "/tmp/another"}'),
        ("generation_config.json", '{"text": [{"custom_generate": "their/repo"}]}'),
        ("config.json", '{"_attn_implementation_internal": "their/repo"}'),
        ("config.json", '{"text_config": {"auto_map": {"AutoConfig": "theirs.C"}}}'),
        ("config.json", '{"quantization_config": {}}'),
    ],
)
def test_attack_T66_a_folder_that_would_have_code_imported_is_refused(
    tmp_path: Path, file: str, content: str
) -> None:
    path = folder(tmp_path) / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(content)
    with pytest.raises(Stop, match="nothing of it was read"):
        causal_model(tmp_path, tmp_path)


def test_a_folder_without_code_is_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def library(name: str) -> None:
        asked.append(name)
        raise Stop("the library is asked", hint="-")

    monkeypatch.setattr("assay.training.pretrained._library", library)
    with pytest.raises(Stop, match="the library is asked"):
        causal_model(folder(tmp_path), tmp_path)
    assert asked == ["transformers"] and json.loads((tmp_path / "config.json").read_text())
