"""Disables PyTorch's optimisations while a step is traced, so that the program is the plain arithmetic.

Contract: inside `traced_plainly`, recurrent layers run as ordinary operations, attention as its definition,
activation checkpointing in the form that ``recomputed`` follows, ``torch.compile`` wrappers as the original
code, and the functions of ``rewritten`` as reimplemented there. All give the same numbers. Tracebacks that
fake tensors would log are suppressed; the error itself is raised. Everything is restored afterwards.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode, get_proxy_slot, set_proxy_slot
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules import transformer
from torch.overrides import TorchFunctionMode

from assay.program.lowering import counting, inverses, resampling
from assay.program.lowering.checkpointing import regions_marked
from assay.program.lowering.complex_pairs import Pair
from assay.program.lowering.rewrites import REWRITES


@contextmanager
def traced_plainly() -> Iterator[None]:
    """Applies to the `with` block of one trace."""
    with ExitStack() as stack:
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        stack.enter_context(torch.backends.mkldnn.flags(enabled=False, allow_tf32=None))
        stack.enter_context(torch.compiler.set_stance("force_eager"))
        stack.enter_context(patch.object(torch._dynamo.config, "error_on_nested_fx_trace", False))
        stack.enter_context(patch.object(torch.distributions.Distribution, "_validate_args", False))
        stack.enter_context(patch.object(transformer, "_detect_is_causal_mask", _as_it_is_said))
        for name in ("__enter__", "__exit__"):
            stack.enter_context(patch.object(torch.autograd.profiler.record_function, name, _unmeasured))
        stack.enter_context(regions_marked())
        stack.enter_context(_Rewritten())
        stack.enter_context(patch.object(logging.getLogger(fake_tensor.__name__), "disabled", True))
        yield


FORMS = (counting, inverses, resampling)
"""Importing these modules fills the table, as importing `Pair` does."""


def _unmeasured(*_: Any) -> None:
    """Replaces profiler marks."""


def _as_it_is_said(mask: Tensor | None, is_causal: bool | None = None, size: int | None = None) -> bool:
    """The declared causality of a mask, without reading its values: the mask itself is applied."""
    return bool(is_causal)


_SET_DATA: Any = Tensor.data.__set__  # type: ignore[attr-defined]


def _set_data(x: Tensor, data: Tensor) -> None:
    """``x.data = data``, also for the tracer, which identifies a tensor by its object."""
    data = data if isinstance(data, FakeTensor) else data.clone()
    _SET_DATA(x, data)
    if (mode := get_proxy_mode()) is not None:
        set_proxy_slot(x, mode.tracer, get_proxy_slot(data, mode.tracer))


class _Rewritten(TorchFunctionMode):
    """Replaces PyTorch functions by those of ``program.lowering.rewrites``."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        given = kwargs or {}
        if func == _SET_DATA:
            return _set_data(*args)
        if func is functional.scaled_dot_product_attention:
            with sdpa_kernel(SDPBackend.MATH):  # also within the user's own choice
                return func(*args, **given)
        if func in REWRITES:
            with self:
                made = REWRITES[func](*args, **given)
            if made is not NotImplemented:
                return made
        if any(isinstance(x, Pair) for x in args):
            with self:
                return Pair.__torch_function__(func, types, args, given)
        return func(*args, **given)
