"""A fetched model's folder: its parameters, its manifest, and what a GPT in it writes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.client.receipt import MANIFEST, MODEL
from assay.protocol import bounded_json
from assay.protocol.errors import Stop

if TYPE_CHECKING:
    from torch import Tensor


def model_of(folder: Path) -> dict[str, Any]:
    """What the job's manifest says of the model. Raises Stop where a folder has none."""
    try:
        manifest = bounded_json.loads((folder / MANIFEST).read_bytes())
        (folder / MODEL).stat()
        return dict(manifest.get("model", {}))
    except (OSError, ValueError) as error:
        raise _none(folder, error) from error


def _none(folder: Path, error: Exception) -> Stop:
    return Stop(f"{folder} holds no fetched model: {error}", hint="`assay job fetch JOB --out DIR`")


def model_and_parameters(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What the job's manifest says of the model, and its parameters. Raises Stop where a folder has none."""
    from safetensors.torch import load_file

    model = model_of(folder)
    try:
        return model, load_file(folder / MODEL)
    except (OSError, ValueError) as error:
        raise _none(folder, error) from error


def sample_text(folder: Path, prompt: str, count: int, seed: int) -> str:
    """What the model in `folder` writes after `prompt`. Raises Stop for a model that writes no text."""
    from assay.training.evaluate import generate

    model, params = model_and_parameters(folder)
    return generate(params, model, prompt.encode(), count, seed).decode("latin-1")
