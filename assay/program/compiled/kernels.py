"""Builds the C++ loops of a compiled form in few libraries instead of one each.

Contract: within `together`, a form's CPU loops are built in at most as many libraries as there are CPUs. The
functions are exactly those that PyTorch's compiler writes, with its flags. Built one by one, more than half
of the C++ compiler's time goes into PyTorch's header, again for each. Not guaranteed: anything for
accelerators, whose kernels are not C++.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import torch._inductor.config as inductor_config
from torch._inductor.async_compile import AsyncCompile
from torch._inductor.codecache import CppPythonBindingsCodeCache
from torch._inductor.codegen.common import device_codegens, init_backend_registration
from torch._inductor.codegen.cpp import CppKernelProxy, CppScheduling
from torch._inductor.codegen.wrapper import PythonWrapperCodegen
from torch._inductor.config import decide_compile_threads
from torch._inductor.dtype_propagation import DtypePropagationOpsHandler

MOST_LANES = 64
"""Number of lanes of the longest vector: of one-byte numbers."""
LEAST_CHARACTERS = 200_000
"""Minimum size of C++ source that is worth another library, whose header takes as long to compile."""


@contextmanager
def together() -> Iterator[None]:
    """Graphs that Inductor compiles in this process within the `with` block use a `ParallelCompile`."""
    init_backend_registration()
    usual = device_codegens["cpu"]
    device_codegens["cpu"] = replace(usual, scheduling=_Scheduling, wrapper_codegen=_Wrapper)
    rules = DtypePropagationOpsHandler.__init__
    DtypePropagationOpsHandler()
    try:
        # PyTorch 2.13 fills in this one table again before each operation that it writes.
        type.__setattr__(DtypePropagationOpsHandler, "__init__", _as_it_is)
        yield
    finally:
        type.__setattr__(DtypePropagationOpsHandler, "__init__", rules)
        device_codegens["cpu"] = usual


def _as_it_is(_: object) -> None:
    """Does nothing."""


class _Loops(CppKernelProxy):
    """Generates one loop nest."""

    def codegen_functions(self, functions: Sequence[Any], sizes: Sequence[Any]) -> None:
        """As in the base class, without the remainder loop of vectors that divide evenly, which would be
        discarded."""
        divided = all(size % MOST_LANES == 0 for size in chain.from_iterable(chain.from_iterable(sizes)))
        with inductor_config.patch({"cpp.enable_loop_tail_vec": not divided}):
            super().codegen_functions(functions, sizes)


class _Scheduling(CppScheduling):
    kernel_proxy_cls = _Loops


class _Wrapper(PythonWrapperCodegen):
    """Generates the module that runs a graph."""

    @staticmethod
    def create(is_subgraph: bool, *given: Any) -> PythonWrapperCodegen:
        """A wrapper for a graph; subgraphs use their parent's."""
        return PythonWrapperCodegen.create(is_subgraph, *given) if is_subgraph else _Wrapper()

    def write_header(self) -> None:
        """As in the base class, but the module requests its loops from a `ParallelCompile`."""
        super().write_header()
        self.header.splice(f"from {__name__} import ParallelCompile\nasync_compile = ParallelCompile()\n")


@dataclass(frozen=True)
class Asked:
    """A C++ function requested by a module."""

    types: Sequence[str]
    source: str


class ParallelCompile(AsyncCompile):
    """Compiler of a generated module's loops: collects requests, then builds them."""

    def cpp_pybinding(self, argtypes: list[str], source_code: str) -> Any:
        """A placeholder of the function until `wait`; the function itself if it also takes numbers."""
        if all(kind.endswith("*") for kind in argtypes):
            return Asked(argtypes, source_code)
        return super().cpp_pybinding(argtypes, source_code)

    def wait(self, module: dict[str, Any]) -> None:
        """Replaces placeholders by functions. Raises the C++ compiler's errors."""
        asked = {name: value for name, value in module.items() if isinstance(value, Asked)}
        groups = dealt(asked)
        loaders = [
            _Library.load_async(library_source(group), submit_fn=None if len(groups) == 1 else self.submit)
            for group in groups
        ]
        for group, load in zip(groups, loaders, strict=True):
            library = load()
            module.update((name, getattr(library, name)) for name in group)
        super().wait(module)


def dealt(asked: dict[str, Asked], most: int | None = None) -> list[dict[str, Asked]]:
    """Splits the functions into groups of similar size, at most `most` (default: number of CPUs)."""
    length = sum(len(one.source) for one in asked.values())
    count = max(1, min(most or decide_compile_threads(), length // LEAST_CHARACTERS))
    groups: list[dict[str, Asked]] = [{} for _ in range(count)]
    lengths = [0] * count
    for name in sorted(asked, key=lambda name: (-len(asked[name].source), name)):
        least = lengths.index(min(lengths))
        groups[least][name] = asked[name]
        lengths[least] += len(asked[name].source)
    return [group for group in groups if group]


class _Library(CppPythonBindingsCodeCache):
    """Libraries of many functions, cached as Inductor caches those of one."""

    entry_function = "loops"


def library_source(group: Mapping[str, Asked]) -> str:
    """C++ source of a Python module `loops` with these functions."""
    parts = [_BEGIN]
    for name, one in group.items():
        parts += [f"#define kernel {name}_loops\n", one.source, "\n#undef kernel\n"]
    parts.append(_GIVEN)
    for name, one in group.items():
        types = [kind.replace("const ", "") for kind in one.types]
        given = ", ".join(f"given<{kind}>(args[{i}])" for i, kind in enumerate(types))
        parts.append(_FUNCTION % {"name": name, "count": len(types), "given": given})
    table = "".join(f'{{"{name}", call(python_{name}), METH_FASTCALL, ""}},\n' for name in group)
    parts.append(_MODULE % {"table": table})
    return "".join(parts)


_BEGIN = """
#include <torch/csrc/inductor/cpp_prefix.h>
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <cstdlib>
#include <stdexcept>
"""
_GIVEN = """
static void* (*data_of)(PyObject*);

template <typename T> static inline T given(PyObject* x) {
    static_assert(std::is_pointer_v<T>);
    return static_cast<T>(data_of(x));
}

static PyCFunction call(PyObject* (*function)(PyObject*, PyObject* const*, Py_ssize_t)) {
    return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}
"""
_FUNCTION = """
static PyObject* python_%(name)s(PyObject*, PyObject* const* args, Py_ssize_t count) {
    if (count != %(count)d) {
        PyErr_SetString(PyExc_TypeError, "%(count)d tensors are wanted");
        return nullptr;
    }
    try {
        %(name)s_loops(%(given)s);
    } catch (std::exception const& error) {
        PyErr_SetString(PyExc_RuntimeError, error.what());
        return nullptr;
    }
    Py_RETURN_NONE;
}
"""
_MODULE = """
static PyMethodDef functions[] = {
%(table)s{nullptr, nullptr, 0, nullptr}};

static PyModuleDef module = {PyModuleDef_HEAD_INIT, "loops", nullptr, -1, functions};

PyMODINIT_FUNC PyInit_loops(void) {
    const char* address = std::getenv("_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR");
    if (!address) {
        PyErr_SetString(PyExc_RuntimeError, "where a tensor's data are is not said");
        return nullptr;
    }
    data_of = reinterpret_cast<decltype(data_of)>(std::strtoull(address, nullptr, 10));
    return PyModule_Create(&module);
}
"""
