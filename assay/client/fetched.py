"""Reads a fetched model's folder: parameters, manifest, and text sampled from a GPT."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.client.receipt import MANIFEST, MODEL
from assay.protocol import bounded_json
from assay.protocol.errors import Stop

if TYPE_CHECKING:
    from torch import Tensor


def model_of(folder: Path) -> dict[str, Any]:
    """The manifest's model entry. Raises Stop if a folder has none."""
    try:
        manifest = bounded_json.loads((folder / MANIFEST).read_bytes())
        (folder / MODEL).stat()
        return dict(manifest.get("model", {}))
    except (OSError, ValueError) as error:
        raise _none(folder, error) from error


def _none(folder: Path, error: Exception) -> Stop:
    why = error.strerror.lower() if isinstance(error, OSError) and error.strerror else str(error)
    return Stop(
        f"{folder} holds no fetched model: {why}",
        hint="name a folder that `assay job fetch JOB --out FOLDER` wrote",
        code="not-fetched",
    )


def model_and_parameters(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The manifest's model entry and the parameters. Raises Stop if a folder has none."""
    from safetensors.torch import load_file

    model = model_of(folder)
    try:
        return model, load_file(folder / MODEL)
    except (OSError, ValueError) as error:
        raise _none(folder, error) from error


_RESULTS = {
    "inference": "what it wrote is in the folder's written.jsonl, a line for each prompt",
    "evaluation": "its result is a loss, which `assay job fetch` says",
    "grpo": "`assay job init --template grpo --weights FOLDER` goes on with this policy",
}
"""What to do with results of jobs that do not train (``job.use_sections``), by name."""


def _no_text(folder: Path, model: dict[str, Any]) -> Stop:
    """Error that explains why a model cannot be sampled from, and what can be done with it."""
    kind, name = model.get("kind"), model.get("name")
    if kind != "own":
        whose = f"a model of the template {kind!r}"
    elif name in _RESULTS:
        whose = f"what a job of kind {name!r} gave"
    else:
        whose = f"a model of its client's own, {name!r}"
    return Stop(
        f"{folder} holds {whose}; `job sample` goes on a text with a GPT of the template 'gpt' alone",
        hint=_RESULTS.get(str(name), "")
        or f"load the parameters in {folder / MODEL}, by name, into your own module, or measure them with"
        f" `assay job eval {folder} JOBFILE`",
        code="not-a-gpt",
    )


def sample_text(folder: Path, prompt: str, count: int, seed: int) -> str:
    """Text that the model in `folder` writes after `prompt`.

    Raises Stop for a model that writes no text, and for an empty prompt.
    """
    if (described := model_of(folder)).get("kind") != "gpt":
        raise _no_text(folder, described)
    if not prompt:
        raise Stop("a GPT needs a prompt of at least one byte", hint="--prompt TEXT")
    from assay.training.evaluate import generate

    model, params = model_and_parameters(folder)
    return generate(params, model, prompt.encode(), count, seed).decode("latin-1")
