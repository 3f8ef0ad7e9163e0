"""A disk whose power is cut: what was not synced is gone, names whose folder was not synced included."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tests.fakes.port import Killed


class Power:
    """Stands in for ``os`` in ``assay.disk.record``. Dies before the call number `cut` (from 0); `lose` then
    leaves of the files below `root` what a loss of power leaves. Everything else is ``os`` itself."""

    def __init__(self, root: Path, cut: int = -1) -> None:
        self._root, self._cut = root, cut
        self.calls = 0
        self._open: dict[int, Path] = {}
        self._durable = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
        self._synced = dict(self._durable)
        self._names: list[tuple[Path, Path | None]] = []
        """(a name that is new or changed, the name it had before)."""

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def _call(self) -> None:
        if self.calls == self._cut:
            raise Killed(f"power cut at call {self.calls}")
        self.calls += 1

    def open(self, path: Path, flags: int, mode: int = 0o777) -> int:
        self._call()
        new = flags & os.O_CREAT and not Path(path).exists()
        file = os.open(path, flags, mode)
        self._open[file] = Path(path)
        if new:
            self._synced.pop(Path(path), None)
            self._names.append((Path(path), None))
        return file

    def write(self, file: int, data: bytes) -> int:
        self._call()
        return os.write(file, data)

    def fsync(self, file: int) -> None:
        self._call()
        path = self._open[file]
        if not path.is_dir():
            self._synced[path] = path.read_bytes()
            return
        for new, old in [names for names in self._names if names[0].parent == path]:
            if old is not None:
                self._durable.pop(old, None)
            if new.exists():
                self._durable[new] = self._synced.get(new, b"")
        self._names = [names for names in self._names if names[0].parent != path]

    def replace(self, old: Path, new: Path) -> None:
        self._call()
        os.replace(old, new)
        self._synced[new] = self._synced.pop(old, b"")
        self._names.append((new, old))

    def lose(self) -> None:
        """The power comes back: what is left."""
        for path in [path for path in self._root.rglob("*") if path.is_file()]:
            path.unlink()
        for path, data in self._durable.items():
            path.write_bytes(data)
