"""Fine-tuning a causal language model of Hugging Face's `transformers` on a text: model, tokens and recipe.

Contract: everything is read from folders on this machine. Weights come from safetensors alone, sharded ones
too; bf16 and fp16 become float32, tied weights are tied. Nothing is unpickled, no code of a folder is run,
nothing is downloaded. Records are the text's tokens one after the other, an end-of-text token behind each
document; no document sees another, and no token is learnt across their border. `transformers` and
`tokenizers` are this module's own needs. Not guaranteed: that every architecture can be traced (the zoo's
test has those that are known to be).
"""

from __future__ import annotations

import hashlib
import inspect
import logging
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from assay.protocol import bounded_json
from assay.protocol.errors import Stop
from assay.training import lora
from assay.training.datasets import TEXT_HELD_OUT, Dataset, cut
from assay.training.losses import cross_entropy
from assay.training.recipe import Recipe

log = logging.getLogger(__name__)

TOKENIZER = "tokenizer.json"
_PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
_CONVERT = (
    "on a machine where you trust the file: transformers.AutoModelForCausalLM.from_pretrained(OLD)"
    ".save_pretrained(NEW)"
)
_BESIDE = (TOKENIZER, "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja")
"""Files of a tokenizer."""
_LONG = 1 << 30
"""Bytes of a line that holds a document."""


_CODE = {"auto_map", "quantization_config", "custom_generate"}
"""Keys of config.json with which some version of transformers imports code, of the folder or of a hub."""


def _library(name: str) -> Any:
    os.environ["HF_HUB_OFFLINE"] = os.environ["TRANSFORMERS_OFFLINE"] = "1"
    try:
        return __import__(name)
    except ImportError as error:
        raise Stop(f"fine-tuning needs {name}, which is not installed", hint=f"pip install {name}") from error


class LanguageModel(Protocol):
    """Interface of a causal language model of `transformers`."""

    forward: Callable[..., Any]

    def __call__(self, **given: Any) -> Any: ...
    def save_pretrained(self, out: Path) -> None: ...
    def get_output_embeddings(self) -> nn.Module | None: ...


class Causal(nn.Module):
    """A causal language model of `transformers`: (i64 tokens, i64 places in their documents), [B, T] each, to
    f32 [B, T, vocabulary] logits."""

    model: LanguageModel

    def __init__(self, model: LanguageModel, tokenizer: Path) -> None:
        super().__init__()
        self.model = model
        self._tokenizer = tokenizer
        self._placed = "position_ids" in inspect.signature(model.forward).parameters
        if not self._placed:
            log.warning(
                "%s takes no position_ids: documents of one record see those before them",
                type(model).__name__,
            )

    def forward(self, inputs: tuple[Tensor, Tensor]) -> Tensor:
        tokens, places = inputs
        given = {"position_ids": places} if self._placed else {}
        logits: Tensor = self.model(input_ids=tokens, use_cache=False, **given).logits
        return logits

    def save_pretrained(self, out: Path) -> None:
        """Writes the folder that `transformers` loads, with merged adapters and the tokenizer; removes the
        adapters from the model."""
        lora.merge(self)
        self.model.save_pretrained(out)
        for name in _BESIDE:
            if (self._tokenizer / name).is_file():
                shutil.copyfile(self._tokenizer / name, out / name)


def causal_model(folder: Path, tokenizer: Path) -> Causal:
    """Loads the model in a folder. Raises Stop without safetensors, or if its code would have to run."""
    if not (folder / "config.json").is_file():
        raise Stop(
            f"{folder} holds no model of transformers: config.json is missing",
            hint="name the folder that save_pretrained wrote, or that was downloaded",
        )
    if not any(folder.glob("*.safetensors")):
        found = sorted(path.name for pattern in _PICKLED for path in folder.glob(pattern))
        what = f"{found[0]} is pickled, and reading it could run its author's code" if found else "no weights"
        raise Stop(f"{folder} has no .safetensors: {what}", hint=_CONVERT)
    _refuse_code(folder)
    transformers = _library("transformers")
    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, use_safetensors=True, local_files_only=True, trust_remote_code=False
        )
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        first = (str(error).strip().splitlines() or ["no message"])[0]
        raise Stop(
            f"{folder} cannot be read as a causal language model: {first}",
            hint="it has to be one of transformers' own architectures, with the weights that config.json"
            " describes",
        ) from error
    model.config.use_cache = False
    return Causal(model.train(), tokenizer)


def _refuse_code(folder: Path) -> None:
    """Raises Stop for a folder whose code might run.

    Not every version of transformers respects `trust_remote_code`: one runs custom_generate/generate.py of
    any local folder.
    """
    found = [str(path.relative_to(folder)) for path in folder.rglob("*.py")]
    found += [name for name in ("custom_generate", "adapter_config.json") if (folder / name).exists()]
    for path in folder.glob("*config.json"):
        config = bounded_json.loads(path.read_text())
        found += [f"{key} in {path.name}" for key, value in _entries(config) if _names_code(key, value)]
    if found:
        raise Stop(
            f"{folder} names code or another folder ({', '.join(sorted(set(found))[:3])}), which is never"
            " run; nothing of it was read",
            hint="if the architecture is one of transformers' own, delete that from a copy of the folder",
        )


def _names_code(key: str, value: Any) -> bool:
    """True if a config entry imports code; an attention kernel is named by its repository."""
    return key in _CODE or ("attn_implementation" in key and "/" in str(value))


def _entries(config: Any) -> Iterator[tuple[str, Any]]:
    """All key-value pairs of a nested JSON value."""
    if isinstance(config, dict):
        for key, value in config.items():
            yield key, value
            yield from _entries(value)
    elif isinstance(config, list):
        for value in config:
            yield from _entries(value)


@dataclass(frozen=True)
class Packed:
    """context + 1 tokens, each of `width` bytes, little-endian; `end` ends a document.

    Inputs are the tokens and their places in their documents, i64 [B, context] each; targets the tokens that
    follow, -100 where that is another document's first.
    """

    context: int
    width: int
    end: int

    @property
    def record_size(self) -> int:
        return self.width * (self.context + 1)

    def split(self, batch: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor]:
        given = batch.long().view(batch.shape[0], self.context + 1, self.width)
        tokens = given[:, :, 0]
        for byte in range(1, self.width):
            tokens = tokens + given[:, :, byte] * 256**byte
        inputs, after = tokens[:, :-1].contiguous(), tokens[:, 1:]
        ended = inputs == self.end
        place = torch.arange(self.context)
        behind = torch.cat([torch.zeros_like(inputs[:, :1]), torch.where(ended, place + 1, 0)[:, :-1]], 1)
        begun = torch.cummax(behind, 1).values
        return (inputs, place - begun), torch.where(ended, -100, after)


def documents(source: Path) -> Iterator[str]:
    """Yields the texts of a file, or of all files below a folder. Raises Stop.

    A line of .jsonl has one under "text", a row of .parquet in its column `text`; any other file is one text.
    """
    files = sorted(p for p in source.rglob("*") if p.is_file()) if source.is_dir() else [source]
    for file in files:
        if file.suffix == ".parquet":
            yield from (
                _library("pyarrow.parquet").parquet.read_table(file, columns=["text"])["text"].to_pylist()
            )
            continue
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise Stop(
                f"{file} cannot be read as text: {error}", hint="give .jsonl, .txt or .parquet"
            ) from error
        if file.suffix == ".jsonl":
            yield from _lines(file, text)
        else:
            yield text


def _lines(file: Path, text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            found = bounded_json.loads(line)["text"]
        except (ValueError, KeyError, TypeError) as error:
            raise Stop(
                f"{file}, line {number} is not an object with a text: {error}",
                hint='write one document a line: {"text": "..."}; for a chat, the text that its template'
                " makes",
            ) from error
        if not isinstance(found, str):
            raise Stop(f"{file}, line {number}: text is not a string", hint='write {"text": "..."}')
        yield found


def _end_of_text(tokenizer: Any, folder: Path) -> int:
    """The token that ends a text. Raises Stop."""
    for name in ("generation_config.json", "config.json", "tokenizer_config.json"):
        try:
            held = bounded_json.loads((folder / name).read_bytes())
        except (OSError, ValueError):
            continue
        end = held.get("eos_token_id", held.get("eos_token"))
        end = end[0] if isinstance(end, list) else end
        end = end.get("content") if isinstance(end, dict) else end
        end = tokenizer.token_to_id(end) if isinstance(end, str) else end
        if isinstance(end, int):
            return end
    raise Stop(
        f"the tokenizer in {folder} does not say which token ends a text",
        hint="write eos_token_id in its config.json",
    )


def tokenised(folder: Path, texts: Iterable[str], context: int, held_out: float = TEXT_HELD_OUT) -> Dataset:
    """Records of context + 1 consecutive tokens of the texts; the incomplete rest is dropped. Raises Stop."""
    path = folder / TOKENIZER
    if not path.is_file():
        raise Stop(
            f"there is no {path}",
            hint="transformers.AutoTokenizer.from_pretrained(OLD).save_pretrained(NEW) writes one",
        )
    tokenizer = _library("tokenizers").Tokenizer.from_file(str(path))
    end = _end_of_text(tokenizer, folder)
    width = 2 if max(tokenizer.get_vocab_size(), end + 1) <= 1 << 16 else 4
    found = bytearray()
    for text in texts:
        for token in (*tokenizer.encode(text).ids, end):
            found += token.to_bytes(width, "little")
    return cut(Packed(context, width, end), bytes(found), held_out)


def adapted(model: Causal, rank: int) -> list[str]:
    """Freezes a model and adapts each of its linear layers but the last; returns their names."""
    head = model.model.get_output_embeddings()
    names = [name for name, part in model.named_modules() if lora.linear(part) and part is not head]
    return lora.adapt(model, names, rank=rank, alpha=2.0 * rank)


def fine_tuning(
    model: str | Path,
    tokenizer: str | Path,
    data: str | Path | Sequence[str | Path],
    *,
    context: int = 128,
    rank: int = 8,
    seed: int = 0,
) -> Recipe:
    """Recipe that trains the model in a folder on texts; `rank` of its adapters, 0: all weights.

    The job file names the optimiser. Raises Stop.
    """
    torch.manual_seed(seed)
    folder = Path(tokenizer)
    made = causal_model(Path(model), folder)
    if rank:
        adapted(made, rank)
    sources = [data] if isinstance(data, str | Path) else list(data)
    records = tokenised(folder, (text for source in sources for text in documents(Path(source))), context)
    digest = hashlib.sha256((folder / TOKENIZER).read_bytes()).hexdigest()
    records = replace(records.shuffled(seed), epochs=True)
    return Recipe(made, cross_entropy, records, facts={"tokenizer": digest})
