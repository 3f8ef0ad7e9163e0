"""Computes the cache key of a traced program from everything that determines it.

Contract: two calls have the same key only if all of these are equal. The arguments and everything reachable
from them: numbers, tensors to the last bit, objects with their contents, the code of functions and classes
with the values it names. The source files of every loaded module that is not installed, and every file of
this package. The versions of Python, PyTorch and all installed packages, and PyTorch's defaults. Code that
reads the environment has all of it in its key. An argument that cannot be hashed has no key (`Unkeyed`): its
program is traced each time. Not guaranteed: that the same work has the same key everywhere, or anything about
a step that draws Python's random numbers while it is traced, on which no two runs agree.
"""

from __future__ import annotations

import os
import platform
import site
import sys
import sysconfig
from collections.abc import Callable, Iterable
from enum import Enum
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

PACKAGE = Path(__file__).resolve().parents[1]
_NUMBERS = (bool, int, float, complex, str, type(None), type(...), type(NotImplemented))
_TORCH_WORDS = (torch.dtype, torch.device, torch.Size, torch.layout, torch.memory_format)
_NAMED = (BuiltinFunctionType, MethodDescriptorType, WrapperDescriptorType, GetSetDescriptorType)
_OF_THE_ENVIRONMENT = frozenset({"environ", "environb", "getenv", "getenvb"})
_NO_PART = frozenset(
    {"__dict__", "__weakref__", "__doc__", "__annotations__", "__slotnames__", "__static_attributes__"}
    | {"_abc_impl"}
)
"""Class attributes that do not affect its behaviour."""


class Unkeyed(Exception):
    """A value cannot be distinguished from another, so there is no key."""


def key_of(make: Callable[..., Any], *arguments: Any, files: Iterable[Path] = (), **options: Any) -> bytes:
    """Key of ``make(*arguments, **options)``; `files`: further files that determine it. Raises Unkeyed."""
    walk = _Walk()
    walk.add(_surroundings())
    walk.add([(str(path), digest_of(path)) for path in sorted({*files, *own_sources()})])
    walk.add((make, arguments, options))
    return walk.sha.digest()


def digest_of(path: Path) -> bytes:
    """SHA-256 of a file; of nothing if it is missing."""
    try:
        return sha256(path.read_bytes()).digest()
    except OSError:
        return bytes(32)


def own_sources() -> list[Path]:
    """Source files of the loaded modules that are not installed: the user's."""
    files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    return [Path(file) for file in files if file and file.endswith(".py") and not is_installed(file)]


@cache
def is_installed(file: str) -> bool:
    """True if a file belongs to this package, Python, or an installed package."""
    path = Path(file).resolve()
    return any(path.is_relative_to(folder) for folder in _installed_folders())


@cache
def _installed_folders() -> tuple[Path, ...]:
    paths = sysconfig.get_paths()
    named = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    named |= {*site.getsitepackages(), site.getusersitepackages(), str(Path(torch.__file__).parents[1])}
    rooms = (room.resolve() for room in PACKAGE.iterdir() if room.is_dir())  # links in a checkout
    return (*(Path(name).resolve() for name in named), PACKAGE, *rooms)


@cache
def _package() -> bytes:
    """Digest of all files of this package."""
    sha = sha256()
    for folder, below, names in os.walk(PACKAGE, followlinks=True):
        below[:] = sorted(name for name in below if name != "__pycache__")
        for name in sorted(names):
            if name.endswith((".py", ".c", ".h", ".json")):
                sha.update(f"{folder}/{name}\n".encode() + digest_of(Path(folder, name)))
    return sha.digest()


def _surroundings() -> tuple[Any, ...]:
    """Versions and defaults that affect what code does."""
    folders = (Path(name) for name in dict.fromkeys(sys.path) if name)
    infos = (path.name for folder in folders if folder.is_dir() for path in folder.glob("*.dist-info"))
    return (
        _package(),
        (sys.version, platform.machine(), sys.flags.optimize),
        (torch.__version__, torch.version.git_version, np.__version__),
        tuple(sorted(infos)),
        (torch.get_default_dtype(), torch.get_default_device(), torch.is_autocast_enabled("cpu")),
    )


class _Walk:
    """Hashes everything reachable from the arguments, visiting each object once."""

    def __init__(self) -> None:
        self.sha = sha256()
        self._seen: dict[int, int] = {}
        self._held: list[Any] = []
        """Keeps visited objects alive, so that their ids are not reused."""

    def put(self, *parts: str | bytes) -> None:
        for part in parts:
            data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
            self.sha.update(len(data).to_bytes(8, "little"))
            self.sha.update(data)

    def add(self, x: Any) -> None:
        """Hashes one value. Raises Unkeyed."""
        kind = type(x)
        if kind in _NUMBERS:
            return self.put(kind.__name__, repr(x) if kind is not str else x)
        if kind in (bytes, bytearray, memoryview):
            return self.put(kind.__name__, bytes(x) if kind is not bytes else x)
        if id(x) in self._seen:
            return self.put("again", str(self._seen[id(x)]))
        self._seen[id(x)] = len(self._seen)
        self._held.append(x)
        self.put(f"{kind.__module__}.{kind.__qualname__}")
        self._add_new(x, kind)

    def _all(self, items: Iterable[Any]) -> None:
        held = list(items)
        self.put(str(len(held)))
        for item in held:
            self.add(item)

    def _add_new(self, x: Any, kind: type) -> None:
        if kind in (tuple, list):
            self._all(x)
        elif kind in (dict, MappingProxyType):
            self._all(part for pair in x.items() for part in pair)
        elif kind in (set, frozenset):
            self._all(sorted(_alone(item) for item in x))
        elif isinstance(x, Tensor):
            self._add_tensor(x)
        elif isinstance(x, np.ndarray):
            self._add_array(x)
        elif isinstance(x, _TORCH_WORDS):
            self.put(repr(x))
        elif isinstance(x, ModuleType):
            self.put(x.__name__)
        elif isinstance(x, type):
            self._add_class(x)
        elif isinstance(x, FunctionType):
            self._add_function(x)
        elif isinstance(x, MethodType):
            self._all((x.__func__, x.__self__))
        elif isinstance(x, _NAMED):
            self._add_named(x)
        elif isinstance(x, MemberDescriptorType):
            self.put(x.__name__)
        elif isinstance(x, CodeType):
            self._add_code(x)
        elif isinstance(x, CellType):
            self._all([x.cell_contents] if _is_full(x) else [])
        elif isinstance(x, property):
            self._all((x.fget, x.fset, x.fdel))
        elif isinstance(x, staticmethod | classmethod):
            self.add(x.__func__)
        elif isinstance(x, Enum):
            self._all((kind, x.name, x.value))
        else:
            self._add_object(x, kind)

    def _add_tensor(self, x: Tensor) -> None:
        held = x.detach()
        if held.layout != torch.strided or held.device.type == "meta" or x._backward_hooks:
            raise Unkeyed(f"a tensor of layout {held.layout} on {held.device}")
        self.put(str(x.dtype), str(tuple(x.shape)), str(x.requires_grad), str(x.device))
        self.put(held.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        self._all((x.grad if x.is_leaf else None, vars(x)))

    def _add_array(self, x: np.ndarray[Any, Any]) -> None:
        if x.dtype.hasobject:
            raise Unkeyed("an array of objects")
        self.put(x.dtype.str, str(x.shape), x.tobytes())

    def _add_named(self, x: Any) -> None:
        owner = getattr(x, "__self__", None) or getattr(x, "__objclass__", None)
        self.put(str(getattr(x, "__module__", "")), x.__qualname__)
        if isinstance(owner, type):
            self.put(f"{owner.__module__}.{owner.__qualname__}")
        elif owner is not None and not isinstance(owner, ModuleType):
            self.add(owner)

    def _add_class(self, x: type) -> None:
        self.put(x.__module__, x.__qualname__)
        if is_known(x.__module__) and "<locals>" not in x.__qualname__:
            return
        self._all(x.__bases__)
        self._all(part for name, item in vars(x).items() if name not in _NO_PART for part in (name, item))

    def _add_function(self, x: FunctionType) -> None:
        self.put(x.__module__ or "", x.__qualname__)
        known = is_known(x.__module__)
        if known and "<locals>" not in x.__qualname__:
            return
        self._all((x.__defaults__, x.__kwdefaults__, x.__closure__, vars(x)))
        if known:
            return
        self.add(x.__code__)
        names = sorted(_names(x.__code__))
        self._add_looked_up(names, x.__globals__, set())
        if _OF_THE_ENVIRONMENT.intersection(names):
            self._all(sorted(os.environ.items()))

    def _add_looked_up(self, names: list[str], among: dict[str, Any], been: set[str]) -> None:
        """Hashes what code may find under these names, also in the user's modules."""
        for name in names:
            if name not in among:
                continue
            self.put(name)
            self.add(found := among[name])
            if isinstance(found, ModuleType) and found.__name__ not in been and not is_known(found.__name__):
                been.add(found.__name__)
                self._add_looked_up(names, vars(found), been)

    def _add_code(self, x: CodeType) -> None:
        self.put(x.co_code, x.co_filename, x.co_qualname, x.co_linetable, x.co_exceptiontable)
        self._all((x.co_names, x.co_varnames, x.co_freevars, x.co_cellvars, x.co_flags, x.co_firstlineno))
        self._all((x.co_argcount, x.co_posonlyargcount, x.co_kwonlyargcount, x.co_consts))

    def _add_object(self, x: Any, kind: type) -> None:
        """Hashes an object by what recreates it, and one of a user's class by all its contents."""
        self.add(kind)
        try:
            made = x.__reduce_ex__(4)
        except Exception as error:
            raise Unkeyed(f"{kind.__module__}.{kind.__qualname__}: {error}") from error
        if isinstance(made, str):  # only where it is found, and not what it is
            self.put(made)
            if not is_known(getattr(x, "__module__", None)):
                self.add(getattr(x, "__wrapped__", None) or _unkeyed(kind))
        else:
            iterators = {number for number in (3, 4) if len(made) > number and made[number] is not None}
            self._all(list(part) if number in iterators else part for number, part in enumerate(made))
        if not is_known(kind.__module__):
            self._all((getattr(x, "__dict__", None),))


def _unkeyed(kind: type) -> NoReturn:
    raise Unkeyed(f"{kind.__module__}.{kind.__qualname__}")


def is_known(module: str | None) -> bool:
    """True if a module is Python's, this package's or installed: then its name and version identify it."""
    if module is None:
        return False
    if module.partition(".")[0] == "assay":
        return True
    found = sys.modules.get(module)
    if found is None or module == "__main__":
        return False
    file = getattr(found, "__file__", None)
    return is_installed(file) if file else module in sys.builtin_module_names or _is_frozen(found)


def _is_frozen(module: ModuleType) -> bool:
    spec = getattr(module, "__spec__", None)
    return spec is not None and spec.origin in ("built-in", "frozen")


def _is_full(cell: CellType) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True


def _alone(x: Any) -> bytes:
    """Digest of one element of a set, whose order is arbitrary."""
    walk = _Walk()
    walk.add(x)
    return walk.sha.digest()


def _names(code: CodeType) -> set[str]:
    """Global names that a function's code, and code within it, may look up."""
    inner = [const for const in code.co_consts if isinstance(const, CodeType)]
    return {*code.co_names}.union(*(_names(each) for each in inner))
