"""What PyTorch does for speed or memory, done plainly while a step is traced: the program is the arithmetic.

Contract: inside `traced_plainly` recurrent layers run as ordinary operations, attention as its definition,
activation checkpointing as a call, what ``torch.compile`` has wrapped as it was written, and circular padding
as a concatenation; every one gives the same numbers. Nothing else is touched, and all is put back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils import checkpoint


@contextmanager
def traced_plainly() -> Iterator[None]:
    """The length of one trace."""
    with ExitStack() as stack:
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        stack.enter_context(torch.backends.mkldnn.flags(enabled=False, allow_tf32=None))
        stack.enter_context(torch.compiler.set_stance("force_eager"))
        stack.enter_context(patch.object(torch._dynamo.config, "error_on_nested_fx_trace", False))
        stack.enter_context(
            patch.object(checkpoint, "_checkpoint_without_reentrant_generator", _not_checkpointed)
        )
        stack.enter_context(patch.object(checkpoint, "CheckpointFunction", _Called))
        stack.enter_context(_Padding())
        yield


def _not_checkpointed(*_: Any, **__: Any) -> Iterator[None]:
    """In place of what saves and recomputes: nothing, before and after the call."""
    yield


class _Called:
    """In place of the re-entrant checkpoint: the call itself."""

    @staticmethod
    def apply(function: Callable[..., Any], _: bool, *args: Any) -> Any:
        return function(*args)


class _Padding(TorchFunctionMode):
    """Circular padding, which PyTorch writes in place piece by piece, as a concatenation."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        given = kwargs or {}
        if func is functional.pad:
            mode = given.get("mode", args[2] if len(args) > 2 else "constant")
            sizes = given.get("pad", args[1] if len(args) > 1 else None)
            x = given.get("input", args[0] if args else None)
            if mode == "circular" and isinstance(x, Tensor) and sizes is not None:
                return _wrapped_around(x, list(sizes))
        return func(*args, **given)


def _wrapped_around(x: Tensor, sizes: Sequence[int]) -> Tensor:
    """As ``functional.pad(x, sizes, mode="circular")``: sizes are (before, after) of the last dimension, then
    of the one before it, ...; negative ones cut. Raises ValueError where a side is longer than the tensor."""
    for at in range(0, len(sizes), 2):
        dim, (before, after) = x.dim() - 1 - at // 2, sizes[at : at + 2]
        length = x.shape[dim]
        if max(before, after) > length:
            raise ValueError(f"circular padding of {max(before, after)} is longer than the {length} it wraps")
        x = x.narrow(dim, max(-before, 0), length - max(-before, 0) - max(-after, 0))
        parts = [
            *((x.narrow(dim, x.shape[dim] - before, before),) if before > 0 else ()),
            x,
            *((x.narrow(dim, 0, after),) if after > 0 else ()),
        ]
        x = torch.cat(parts, dim) if len(parts) > 1 else parts[0]
    return x
