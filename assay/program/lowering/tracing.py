"""Traces a PyTorch step function to a graph of ATen operations with source lines.

Contract: `trace_step` runs the function once on fake tensors (no arithmetic is done, no value is read). It
returns a graph of core-ATen operations with example values in ``meta["val"]`` and the user's source in
``meta["source"]``. An operation of the backward pass has the line of the forward operation that it
differentiates. Not guaranteed: that `program.lowering` has every operation in the graph; control flow that
depends on tensor values cannot be traced at all.

Source: ``torch.fx.experimental.proxy_tensor.make_fx``.
"""

from __future__ import annotations

import os
import re
import sys
import sysconfig
from collections.abc import Callable, Sequence
from functools import cache, lru_cache, partial
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch._decomp import core_aten_decompositions
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedOperatorException,
)
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import get_proxy_mode, make_fx
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.utils._python_dispatch import TorchDispatchMode

from assay.program.lowering.checkpointing import place
from assay.program.lowering.determinism import Kept, Record, changed, line_that_changes
from assay.program.lowering.hints import rewrite_of
from assay.program.lowering.plain_tracing import traced_plainly
from assay.protocol.errors import Stop

StepFunction = Callable[[list[Tensor], Tensor], list[Tensor]]
"""Maps (state, batch) to the next state, of the same shapes and dtypes."""

UNKNOWN_SOURCE = "an unknown line"


class UnsupportedOperation(Stop):
    """Model, loss or optimiser uses something that the instruction set cannot express."""

    code = "unsupported-operation"

    def __init__(self, operation: str, source: str, reason: str = "", *, hint: str = "") -> None:
        why = f": {reason}" if reason else " has no lowering to the instruction set"
        instead = hint or rewrite_of(operation)
        if library := library_of(source):
            instead = (
                f"The line is {library}'s: choose an option or a layer that does not lead there. {instead}"
            )
        super().__init__(
            f"{operation}{why} (used at {source}). The job's program cannot be built.", hint=instead
        )
        self.operation = operation
        self.source = source


class StepFailed(Stop):
    """Model, loss, optimiser or outer algorithm raised an error, or returned an unusable result."""

    code = "step-failed"


_LOWERED_WHOLE = (
    "embedding_dense_backward",
    "native_layer_norm_backward",
    "nll_loss_forward",
    "nll_loss_backward",
    "nll_loss2d_forward",
    "nll_loss2d_backward",
    "_softmax_backward_data",
    "_log_softmax_backward_data",
    "gelu_backward",
    "tanh_backward",
    "sigmoid_backward",
    "threshold_backward",
    "silu",
    "silu_backward",
    "addcmul",
    "addcdiv",
    "lerp",
    "mse_loss",
    "mse_loss_backward",
    "slice_backward",
    "select_backward",
    "tril",
    "triu",
    "masked_fill",
    "rsub",
    "native_dropout",
    "max_pool2d_with_indices_backward",
    "avg_pool2d",
    "avg_pool2d_backward",
    "_adaptive_avg_pool2d",
    "_adaptive_avg_pool2d_backward",
    "native_group_norm",
    "native_group_norm_backward",
    "native_batch_norm_backward",
    "upsample_nearest2d",
    "upsample_nearest2d_backward",
    "t",
    "transpose",
    "eye",
    "roll",
    "detach",
)
"""Operations that are lowered whole: the rule has fewer nodes than PyTorch's decomposition, or traces
faster."""


_COMPOSITE = "CompositeImplicitAutograd"


def decompositions() -> dict[Any, Callable[..., Any]]:
    """Core-ATen decompositions except for operations that are lowered whole."""
    return _decompositions(tuple(torch._C._dispatch_get_registrations_for_dispatch_key(_COMPOSITE)))


@lru_cache(maxsize=1)
def _decompositions(_: tuple[str, ...]) -> dict[Any, Callable[..., Any]]:
    """Cached; rebuilt only after self-decomposing operations, such as a user's own, were added."""
    table = dict(core_aten_decompositions())
    for name in _LOWERED_WHOLE:
        packet = getattr(torch.ops.aten, name)
        for overload in packet.overloads():
            table.pop(getattr(packet, overload), None)
    return table


_ROOMS = Path(__file__).parent.parent.parent
_PASSED_OVER = (
    f"{Path(torch.__file__).parent}{os.sep}",
    f"{_ROOMS / 'program'}{os.sep}",
    f"{_ROOMS / 'training' / 'job.py'}",
    "<",
)
_STANDARD = sysconfig.get_paths()["stdlib"]
_INSTALLED = re.compile(r"[/\\](?:site|dist)-packages[/\\]([^/\\]+)")


@cache
def _whose(file: str) -> str | None:
    """Library that a file of code belongs to: "" for the user's own, None for PyTorch, Python and this
    package's tracing, which errors do not name."""
    if file.startswith(_PASSED_OVER):
        return None
    if file.startswith(f"{_ROOMS}{os.sep}"):
        return ""
    if found := _INSTALLED.search(file):
        return found.group(1).removesuffix(".py")
    return None if file.startswith(_STANDARD) else ""


def _told(inner: str, library: str, own: str) -> str:
    """A library's line with the user's line that leads there."""
    return f"{inner}, in {library}" + (f", called at {own}" if own else "")


def library_of(source: str) -> str:
    """Library of a source line; "" if it is the user's own."""
    _, told, rest = source.partition(", in ")
    return rest.partition(",")[0] if told and not rest.startswith("its gradient") else ""


_VALUE_READ = (DataDependentOutputException, DynamicOutputShapeException, GuardOnDataDependentSymNode)


def _user_line(frame: FrameType | None) -> str:
    """``file:line`` of the innermost frame outside PyTorch and this package.

    For another library's frame the user's line that leads there is added. Without one, because a PyTorch
    layer is the whole model, that layer.
    """
    layer = inner = library = ""
    while frame is not None:
        code = frame.f_code
        if code.co_name == "run" and code.co_filename == __file__:
            break  # what called the trace is no part of it
        whose = _whose(code.co_filename)
        if whose is not None:
            line = f"{code.co_filename}:{frame.f_lineno}"
            if not whose:
                return _told(inner, library, line) if inner else line
            inner, library = inner or line, library or whose
        elif not layer and isinstance(module := frame.f_locals.get("self"), nn.Module):
            layer = f"a {type(module).__name__} of the model"
        frame = frame.f_back
    return _told(inner, library, "") if inner else layer or UNKNOWN_SOURCE


def in_project(source: str) -> bool:
    """True if a ``file:line`` is in this project's code."""
    return source.startswith(f"{_ROOMS}{os.sep}")


def failure_line(error: BaseException) -> str:
    """``file:line`` of the innermost user frame in an error's traceback, or another library's with the user's
    line.

    The innermost frame of the project if there is no other.
    """
    at, own, inner, library, ours = error.__traceback__, "", "", "", UNKNOWN_SOURCE
    while at is not None:
        file = at.tb_frame.f_code.co_filename
        line, whose = f"{file}:{at.tb_lineno}", _whose(file)
        if whose:
            inner, library = line, whose
        elif whose is not None and in_project(line):
            ours = line
        elif whose is not None:
            own, inner = line, ""
        at = at.tb_next
    return _told(inner, library, own) if inner else own or ours


class _Sources(TorchDispatchMode):
    """Annotates every graph node with the user's line and its place (``recomputed``).

    A forward operation is remembered by autograd's sequence number, under which its backward runs later.
    """

    def __init__(self, record: Record) -> None:
        super().__init__()
        self._lines: dict[int, str] = {}
        self._record = record

    def _source(self) -> str:
        backward = torch._C._current_autograd_node()
        if backward is not None:
            line = self._lines.get(backward._sequence_nr())
            return f"{line}, in its gradient" if line else "the gradient of the loss"
        line = _user_line(sys._getframe(2))
        self._lines[torch.autograd._get_sequence_nr() - 1] = line
        return line

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        source, where = self._source(), place(func)
        proxy = get_proxy_mode()
        root = proxy.tracer.graph._root if proxy is not None else None
        last = root._prev if root is not None else None
        try:
            result = func(*args, **(kwargs or {}))
        except _VALUE_READ as error:
            why = "its result depends on the data, so it cannot be traced"
            raise UnsupportedOperation(str(func), source, why) from error
        except UnsupportedOperatorException as error:
            raise UnsupportedOperation(str(func), source) from error
        self._record.add(func, args, kwargs, result, source)
        if root is not None and last is not None:
            while last._next is not root:
                last = last._next
                last.meta.setdefault("source", source)
                last.meta.setdefault("place", where)
        return result


def trace_step(
    step: StepFunction, state: Sequence[Tensor], batch: Tensor, modules: Sequence[nn.Module] = ()
) -> GraphModule:
    """Traces one step; placeholders are the state's tensors in order, then the batch.

    The step runs a second time, after which the attributes of `modules` are restored. Raises
    UnsupportedOperation if the step reads a tensor's value (``item()``, a data-dependent shape or branch) or
    the second run differs (``program.lowering.determinism``). Raises StepFailed, with the user's line, if the
    step raises an error.
    """
    record, kept = Record(), Kept(modules)

    def run(*flat: Tensor) -> list[Tensor]:
        record.begin(flat)
        with traced_plainly(), _Sources(record):
            return list(step(list(flat[:-1]), flat[-1]))

    def inputs() -> list[Tensor]:
        with fake:
            return [torch.empty_strided(t.shape, t.stride(), dtype=t.dtype) for t in (*state, batch)]

    def again() -> None:
        given = inputs()
        with fake:
            run(*given)

    fake = FakeTensorMode(allow_non_fake_inputs=True)
    try:
        graph = make_fx(run, decomposition_table=decompositions(), tracing_mode="fake")(*inputs())
        before = kept.numbers()
        again()
        _check_repeated(record, changed(before, kept.numbers()), kept, again)
    except Stop:
        raise
    except Exception as error:
        raise _failed(error) from error
    finally:
        kept.put_back()
    graph.graph.eliminate_dead_code()
    return graph


_FROZEN = "every step of a program is as the first, whatever Python keeps between steps"


def _check_repeated(record: Record, moving: Sequence[str], kept: Kept, again: Callable[[], None]) -> None:
    """Raises UnsupportedOperation if the step's two runs differ, or state that it may use changes."""
    for name in moving:
        raise UnsupportedOperation(
            f"{name} changes from step to step",
            line_that_changes(again, partial(kept.number, name), _PASSED_OVER) or UNKNOWN_SOURCE,
            _FROZEN,
            hint="On this line, draw with torch.rand and choose with torch.where; count in a buffer of the"
            " module, self.count.add_(1): these are parts of the program.",
        )
    source, how = record.differs()
    if source:
        raise UnsupportedOperation(
            f"the step {how}",
            source,
            _FROZEN,
            hint="On this line, take what changes from step to step from a buffer of the module, written in"
            " place (copy_, mul_, add_) or set by self.name = ...; draw with torch.rand.",
        )


def _failed(error: Exception) -> StepFailed:
    """The error of the user's step, with the line that raised it."""
    first = (str(error).strip().splitlines() or ["no message"])[0]
    hint = (
        "mend that line, or what leads to it; the model is called with the inputs, and the loss with its"
        " outputs and the targets, that the dataset's layout splits a batch of records into"
    )
    if first.startswith("Expected target size"):
        hint = (
            "nn.CrossEntropyLoss wants classes second, as [batch, classes, positions]; assay.cross_entropy"
            " takes them last, as models give them"
        )
    return StepFailed(
        f"the training step cannot be traced: {type(error).__name__} at {failure_line(error)}: {first}",
        hint=hint,
    )
