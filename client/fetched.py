"""A fetched model's folder: its parameters, its manifest, and what a GPT in it writes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors.torch import load_file

from assay.protocol import bounded_json
from assay.protocol.errors import Stop
from assay.training.evaluate import generate

if TYPE_CHECKING:
    from torch import Tensor


def model_and_parameters(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What the job's manifest says of the model, and its parameters. Raises Stop where a folder has none."""
    try:
        manifest = bounded_json.loads((folder / "manifest.json").read_bytes())
        return dict(manifest.get("model", {})), load_file(folder / "model.safetensors")
    except (OSError, ValueError) as error:
        raise Stop(
            f"{folder} holds no fetched model: {error}", hint="`assay job fetch JOB --out DIR`"
        ) from error


def sample_text(folder: Path, prompt: str, count: int, seed: int) -> str:
    """What the model in `folder` writes after `prompt`. Raises Stop for a model that writes no text."""
    model, params = model_and_parameters(folder)
    return generate(params, model, prompt.encode(), count, seed).decode("latin-1")
