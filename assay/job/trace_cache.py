"""On-disk cache of traced programs, so that a job's step is traced once for all commands.

Contract: `Traces.keep` returns what the call returns, to the last bit. A cached file is only used if its key
(``job.trace_key``) matches the call and every file read and module imported while tracing is unchanged. Its
digest is checked; a damaged file is ignored. A call without a key, or a failed write, just traces. The least
recently used files are removed beyond `MAX_BYTES`.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple
from hashlib import sha256
from json import dumps
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from assay.app.invocation import App
from assay.disk.record import replace_file, require_spare
from assay.job.trace_key import Unkeyed, digest_of, is_installed, key_of, own_sources
from assay.program import isa
from assay.program.accuracy import Error
from assay.program.lowering import ProductSite
from assay.program.operand_parts import Precision
from assay.protocol import bounded_json
from assay.protocol.types import Kind, Link, Origin
from assay.training.job import TracedRound
from assay.training.precision import ChosenProduct
from assay.training.recipe import parts

log = logging.getLogger(__name__)
FOLDER = "traces"
SUFFIX = ".trace"
MAX_BYTES = 2 << 30
_KIND = b"assay-trace-1"
_NOWHERE = ("/proc/", "/sys/", "/dev/", tempfile.gettempdir() + "/torchinductor")


def traces(app: App, source: str = "") -> Traces:
    """The cache of this home; a dry run adds nothing. `source`: reference of an own model, whose file is part
    of every key."""
    files = [Path(parts(source)[0]).resolve()] if source else []
    return Traces(app.settings.home / FOLDER, files, adds=not app.dry_run)


class Traces:
    """Traced rounds in a folder; `files` are part of every key."""

    def __init__(self, folder: Path, files: Sequence[Path] = (), *, adds: bool = True) -> None:
        self.folder, self._files, self._adds = folder, files, adds

    def keep(self, make: Callable[..., TracedRound], *arguments: Any, **options: Any) -> TracedRound:
        """Returns ``make(*arguments, **options)``, from the cache if possible. Raises what the call
        raises."""
        try:
            key = key_of(make, *arguments, files=self._files, **options)
        except Unkeyed as error:
            log.info("traced anew, since %s cannot be told apart", error)
            return make(*arguments, **options)
        path = self.folder / (key.hex() + SUFFIX)
        with suppress(OSError, ValueError, KeyError, TypeError, SafetensorError):
            found = decode(path.read_bytes(), key)
            os.utime(path)
            return found
        with _reading() as read:
            made = make(*arguments, **options)
        if self._adds:
            with suppress(OSError):
                data = encode(made, key, read)
                self.folder.mkdir(parents=True, exist_ok=True)
                require_spare(self.folder, len(data))
                replace_file(path, data)
                _trim(self.folder)
        return made


def _trim(folder: Path) -> None:
    """Removes the least recently used files beyond `MAX_BYTES`; the latest stays."""
    files = sorted(folder.glob(f"*{SUFFIX}"), key=lambda path: path.stat().st_mtime, reverse=True)
    total = 0
    for number, path in enumerate(files):
        total += path.stat().st_size
        if number and total > MAX_BYTES:
            path.unlink(missing_ok=True)


class _Watched:
    """Audit hook that records opened files while enabled; Python cannot remove such a hook."""

    names: set[str] | None = None
    hooked = False

    @classmethod
    def hook(cls, event: str, arguments: tuple[Any, ...]) -> None:
        if cls.names is None or event != "open" or not isinstance(arguments[0], str | bytes | os.PathLike):
            return
        cls.names.add(os.fsdecode(arguments[0]))


@contextmanager
def _reading() -> Iterator[dict[Path, bytes]]:
    """Records user files read within the `with` block, with their digests."""
    if not _Watched.hooked:
        sys.addaudithook(_Watched.hook)
        _Watched.hooked = True
    before, found = {*own_sources()}, dict[Path, bytes]()
    names: set[str] = set()
    _Watched.names = names
    try:
        yield found
    finally:
        _Watched.names = None
    opened = (Path(name).absolute() for name in names if not name.endswith(".pyc"))
    for path in {*opened, *own_sources()} - before:
        if path.is_file() and not str(path).startswith(_NOWHERE) and not is_installed(str(path)):
            found[path] = digest_of(path)


def encode(made: TracedRound, key: bytes, read: Mapping[Path, bytes] | None = None) -> bytes:
    """Encodes a traced round."""
    blobs: dict[str, Tensor] = {}

    def kept(tensors: Iterable[Tensor]) -> list[Any]:
        return [_kept(blobs, tensor) for tensor in tensors]

    body = {
        "key": key.hex(),
        "read": {str(path): digest.hex() for path, digest in (read or {}).items()},
        "tasks": kept(_bytes_of(isa.encode(program)) for program in made.tasks),
        "outers": kept(_bytes_of(isa.encode(program)) for program in made.outers),
        "main": made.main,
        "links": [astuple(link) for link in made.links],
        "outer_links": [astuple(link) for link in made.outer_links],
        "genesis": kept(made.genesis),
        "outer_genesis": kept(made.outer_genesis),
        "slot_names": made.slot_names,
        "slices": made.slices,
        "model": made.model,
        "sites": [[*astuple(site), how.value, nodes] for site, how, nodes in made.sites],
        "chosen": [
            [*astuple(one.site), one.precision.value, one.single, one.error, one.measured]
            for one in made.chosen
        ],
        "unsettled": made.unsettled,
        "idle": made.idle,
        "comparable": made.comparable,
    }
    data = save(blobs, {"body": dumps(body)})
    return _KIND + sha256(data).digest() + data


def decode(data: bytes, key: bytes) -> TracedRound:
    """Decodes a traced round.

    Raises ValueError if the file is damaged, belongs to another call, or a file read while tracing has
    changed; and safetensors' errors.
    """
    head = len(_KIND) + 32
    data, stated = data[head:], data[:head]
    if stated != _KIND + sha256(data).digest():
        raise ValueError("it is not what was written")
    size = int.from_bytes(data[:8], "little")
    body = bounded_json.loads(bounded_json.loads(data[8 : 8 + size])["__metadata__"]["body"])
    if body["key"] != key.hex():
        raise ValueError("it is another's")
    if any(digest_of(Path(path)).hex() != digest for path, digest in body["read"].items()):
        raise ValueError("what it was made from has changed")
    blobs = load(data)

    def program(entry: Any) -> isa.Program:
        return isa.decode(_tensor(blobs, entry).numpy().tobytes())

    def links(entries: Any) -> tuple[Link, ...]:
        return tuple(Link(Origin(origin), Kind(source), *more) for origin, source, *more in entries)

    return TracedRound(
        tuple(program(entry) for entry in body["tasks"]),
        tuple(program(entry) for entry in body["outers"]),
        body["main"],
        links(body["links"]),
        links(body["outer_links"]),
        [_tensor(blobs, entry) for entry in body["genesis"]],
        [_tensor(blobs, entry) for entry in body["outer_genesis"]],
        body["slot_names"],
        slices=body["slices"],
        model=body["model"],
        sites=tuple(
            (ProductSite(number, source), Precision(how), tuple(nodes))
            for number, source, how, nodes in body["sites"]
        ),
        chosen=tuple(
            ChosenProduct(
                ProductSite(number, source), Precision(how), Error(*single), Error(*error), measured
            )
            for number, source, how, single, error, measured in body["chosen"]
        ),
        unsettled=tuple(body["unsettled"]),
        idle=tuple(body["idle"]),
        comparable=body["comparable"],
    )


def _bytes_of(data: bytes) -> Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def _kept(blobs: dict[str, Tensor], tensor: Tensor) -> list[Any]:
    """Encodes a tensor: only its shape if all bits are zero, and once if several are equal."""
    held = tensor.detach().cpu().contiguous()
    form = [str(held.dtype).removeprefix("torch."), list(held.shape)]
    data = held.reshape(-1).view(torch.uint8)
    if not data.any():
        return [*form, ""]
    name = sha256(repr(form).encode() + data.numpy().tobytes()).hexdigest()
    blobs.setdefault(name, held)
    return [*form, name]


def _tensor(blobs: Mapping[str, Tensor], entry: Sequence[Any]) -> Tensor:
    dtype, shape, name = entry
    return blobs[name].clone() if name else torch.zeros(shape, dtype=getattr(torch, dtype))
