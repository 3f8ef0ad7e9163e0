"""Maps each computing instruction to its tensor function.

Contract: `REFERENCE` maps an instruction's word to the function named in its row of ``program.isa``. It takes
tensors of the right dtypes, broadcasts where the instruction does, and has the bits of docs/arithmetic.md on
every device. `convert` and `bits` take `dtype`, scatter_sum takes `V`. `FAST` has the same bits for validated
programs, whose product operands come from quantise (A32). Not guaranteed: that wrong dtypes or shapes are
refused; validation does that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import TypeVar

import torch
from torch import Tensor

from assay.numerics import fast
from assay.program.isa import DType, Family, Node, Op

TORCH_DTYPES: dict[DType, torch.dtype] = {
    DType.F32: torch.float32,
    DType.I32: torch.int32,
    DType.I16: torch.int16,
    DType.U8: torch.uint8,
    DType.BOOL: torch.bool,
}

T = TypeVar("T")
Kernels = Mapping[str, Callable[..., Tensor]]


def _function(path: str) -> Callable[..., Tensor]:
    module, name = path.split(".")
    found: Callable[..., Tensor] = getattr(
        import_module(module if module == "torch" else f"assay.numerics.{module}"), name
    )
    return found


REFERENCE: Kernels = {op.word: _function(op.row.kernel) for op in Op if op.row.kernel}
FAST: Kernels = {**REFERENCE, Op.PRODUCT.word: fast.product}


def on_inputs(node: Node, kernel: Callable[..., T]) -> Callable[..., T]:
    """`kernel` as a function of the node's inputs alone."""
    if node.op.row.family is Family.CONVERSION:
        return partial(kernel, dtype=TORCH_DTYPES[node.dtype])
    if node.op is Op.SCATTER_SUM:
        return partial(kernel, V=node.shape[-1])
    return kernel
