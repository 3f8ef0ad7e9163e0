"""The code that Inductor and Triton make of a sample's step for an H100 that is not there.

Usage: `python -m tests.unit.program.compiled.gpu_code SAMPLE` (of ``assay.fitness``) prints a JSON object:
the number of kernels and of products, and how often each PTX instruction occurs in all kernels. Needs the
Triton that the installed PyTorch wants, and no CUDA: what PyTorch asks of a GPU is answered here. Nothing is
run.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
import torch._inductor.config as inductor_config
import triton
from torch import Tensor
from torch._dynamo.device_interface import CudaInterface
from torch._inductor import compile_fx, inductor_prims
from torch._inductor.fx_passes import joint_graph, post_grad
from torch._inductor.graph import GraphLowering
from torch._inductor.runtime import triton_helpers, triton_heuristics
from torch._subclasses import fake_tensor
from torch.fx import GraphModule
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase

from assay.fitness.digests import stored
from assay.program.compiled.graph import example_inputs, trace
from assay.program.compiled.settings import options, settings
from assay.program.isa import Program

DEVICE = torch.device("cuda", 0)
SHARED_BYTES = 227 << 10
PROPERTIES = SimpleNamespace(
    name="an H100 that is not there",
    major=9,
    minor=0,
    multi_processor_count=132,
    regs_per_multiprocessor=1 << 16,
    max_threads_per_multi_processor=2048,
    max_threads_per_block=1024,
    shared_memory_per_block_optin=SHARED_BYTES,
    warp_size=32,
    total_memory=80 << 30,
)


class Driver(DriverBase):
    """What Triton asks of a driver while it compiles."""

    utils = SimpleNamespace(
        get_device_properties=lambda device: {
            "max_shared_mem": SHARED_BYTES,
            "multiprocessor_count": PROPERTIES.multi_processor_count,
            "max_num_regs": PROPERTIES.regs_per_multiprocessor,
            "warpSize": PROPERTIES.warp_size,
        }
    )

    def __init__(self) -> None:
        """Nothing is loaded."""

    @classmethod
    def is_active(cls) -> bool:
        return True

    def map_python_to_cpp_type(self, ty: str) -> str:
        return ty

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return DEVICE

    def get_benchmarker(self) -> Any:
        raise NotImplementedError("nothing is run")


def pretend() -> None:
    """Answer for a GPU, in this process for good."""
    triton.runtime.driver.set_active(Driver())
    answers: dict[str, Callable[..., Any]] = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda device: None,
        "synchronize": lambda device=None: None,
        "get_device_properties": lambda device=None: PROPERTIES,
        "get_device_capability": lambda device=None: (9, 0),
        "get_device_name": lambda device=None: PROPERTIES.name,
        "get_rng_state": lambda device=None: torch.zeros(16, dtype=torch.uint8),
        "set_rng_state": lambda state, device=None: None,
        "_lazy_init": lambda: None,
        "_exchange_device": lambda index: 0,
        "_maybe_exchange_device": lambda index: 0,
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, answer)
        if hasattr(CudaInterface, name):
            setattr(CudaInterface, name, staticmethod(answer))
    fake_tensor.__dict__["init_gpu_context"] = lambda device: None
    # What they make ready are patterns, which the settings leave out.
    joint_graph.lazy_init = post_grad.lazy_init = lambda device=None: None
    triton_helpers.set_driver_to_gpu = lambda: None
    # Its shape is found by copying, which a PyTorch without CUDA refuses.
    inductor_prims.eager_force_stride.__code__ = _strided.__code__
    tensor: Any = torch.Tensor
    tensor.__getitem__ = _indexed  # which a PyTorch without CUDA refuses of its tensors


def _strided(input_tensor: Tensor, stride: list[int]) -> Tensor:
    return input_tensor.new_empty_strided(input_tensor.shape, stride)


_indexed_by_pytorch = torch.Tensor.__getitem__


def _indexed(x: Tensor, index: Any) -> Tensor:
    """`x[index]` by operations that do not ask for a device; index has no None, mask or ellipsis."""
    if x.device.type != "cuda":
        return _indexed_by_pytorch(x, index)
    tensors: list[Tensor | None] = []
    for part in index if isinstance(index, tuple) else (index,):
        if isinstance(part, int):
            x = torch.ops.aten.select.int(x, len(tensors), part)
            continue
        if isinstance(part, slice):
            x = torch.ops.aten.slice.Tensor(x, len(tensors), part.start, part.stop, part.step or 1)
        tensors.append(part if isinstance(part, Tensor) else None)
    found: Tensor = torch.ops.aten.index.Tensor(x, tensors) if any(t is not None for t in tensors) else x
    return found


class _Written(Exception):
    """The module's text is there."""


def module_of(graph: GraphModule, inputs: list[Tensor]) -> str:
    """The module that Inductor writes of a graph."""
    found: list[str] = []

    def written(self: GraphLowering) -> Any:
        code: Any = self.codegen()[0]
        found.append(getattr(code, "value", code))
        raise _Written

    config = inductor_config.patch({**settings("cuda"), "fx_graph_cache": False})
    with patch.object(GraphLowering, "compile_to_module", written), torch.no_grad(), config:
        try:
            compile_fx.compile_fx(graph, inputs, **options("cuda"))
        except Exception:
            if not found:
                raise
    return found[0]


def kernels_in(module: str) -> dict[str, str]:
    """Triton's source of each kernel of a module."""
    return dict(re.findall(r"async_compile\.triton\('(\w+)', '''(.*?)'''", module, re.DOTALL))


@contextmanager
def assembled() -> Iterator[list[str]]:
    """PTX of all that Triton compiles within the `with` block."""
    found: list[str] = []
    real = triton.compile

    def compiled(*given: Any, **named: Any) -> Any:
        made = real(*given, **named)
        found.append(made.asm["ptx"])
        return made

    with patch.object(triton_heuristics.triton, "compile", compiled):
        yield found


def ptx_of(name: str, source: str, folder: Path) -> str:
    """PTX of a kernel, with the first of the block sizes that are tried."""
    path = folder / f"{hashlib.sha256(name.encode()).hexdigest()}.py"  # a name may be too long for a file
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    kernel = getattr(module, name)
    with assembled() as found, suppress(RuntimeError, AttributeError):  # of loading it
        kernel._precompile_config(kernel.configs[0])
    return found[0]


def instructions(ptx: str) -> Counter[str]:
    """How often each occurs."""
    return Counter(re.findall(r"^\s+(?:@\S+ )?([a-z][\w.]+)", ptx, re.MULTILINE))


def graph_of(program: Program) -> tuple[GraphModule, list[Tensor]]:
    """The GPU's graph of a program, with inputs that have no numbers."""
    with fake_tensor.FakeTensorMode():
        inputs = example_inputs(program, DEVICE)
    return trace(program, DEVICE), inputs


def main() -> None:
    pretend()
    (sample,) = (sample for sample in stored().samples if sample.name == sys.argv[1])
    module = module_of(*graph_of(sample.program))
    sources = kernels_in(module)
    total: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for name, source in sources.items():
            total += instructions(ptx_of(name, source, Path(folder)))
    products = module.count("torch.ops.assay.product_of_parts.default(")
    print(json.dumps({"kernels": len(sources), "products": products, "ptx": total}))


if __name__ == "__main__":
    main()
