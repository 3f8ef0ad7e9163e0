"""Loops that are built together: dealt out evenly, called as they are alone, and nobody else's business."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch._inductor.config as inductor_config
from torch._inductor.async_compile import AsyncCompile
from torch._inductor.codegen.common import device_codegens, init_backend_registration
from torch._inductor.runtime.cache_dir_utils import temporary_cache_dir

from assay.program.compiled.kernels import LEAST_CHARACTERS, Asked, ParallelCompile, dealt, together
from assay.program.compiled.settings import settings

PREFIX = "#include <torch/csrc/inductor/cpp_prefix.h>\n"
DOUBLED = PREFIX + 'extern "C"  void  kernel(const float* in, float* out) { out[0] = 2 * in[0]; }'
THROWS = PREFIX + 'extern "C"  void  kernel(float* out) { throw std::runtime_error("as it must"); }'


def asked(lengths: dict[str, int]) -> dict[str, Asked]:
    return {name: Asked(["float*"], "x" * length) for name, length in lengths.items()}


def test_functions_are_dealt_out_by_their_length() -> None:
    unit = LEAST_CHARACTERS
    groups = dealt(asked({"a": 3 * unit, "b": unit, "c": unit, "d": unit}), 2)
    assert [sorted(group) for group in groups] == [["a"], ["b", "c", "d"]]
    assert [sorted(g) for g in dealt(asked({"a": unit, "b": unit, "c": unit - 1}), 8)] == [["a", "c"], ["b"]]


def test_a_little_text_is_one_library_and_none_is_none() -> None:
    assert [sorted(g) for g in dealt(asked({"a": 10, "b": 10, "c": 10}), 8)] == [["a", "b", "c"]]
    assert dealt({}, 8) == []


@pytest.mark.long
def test_functions_of_one_library_are_called_and_fail_as_they_do_alone(tmp_path: Path) -> None:
    module: dict[str, object] = {"other": 7}
    with temporary_cache_dir(str(tmp_path)), inductor_config.patch(settings("cpu")):
        made = ParallelCompile()
        module["doubled"] = made.cpp_pybinding(["const float*", "float*"], DOUBLED)
        module["throws"] = made.cpp_pybinding(["float*"], THROWS)
        made.wait(module)
    doubled, throws = module["doubled"], module["throws"]
    assert callable(doubled) and callable(throws) and module["other"] == 7
    out = torch.zeros(1)
    doubled(torch.tensor([1.5]), out)
    assert out.item() == 3.0
    with pytest.raises(RuntimeError, match="as it must"):
        throws(out)
    with pytest.raises(TypeError, match="2 tensors"):
        doubled(out)
    assert len(list(tmp_path.rglob("*.main.so"))) == 1


def test_only_what_is_compiled_within_is_built_together() -> None:
    init_backend_registration()
    usual = device_codegens["cpu"]
    with pytest.raises(ValueError, match="in between"), together():
        assert device_codegens["cpu"] != usual
        raise ValueError("in between")
    assert device_codegens["cpu"] is usual


def test_a_function_that_takes_numbers_is_built_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AsyncCompile, "cpp_pybinding", lambda self, types, source: (types, source))
    assert ParallelCompile().cpp_pybinding(["float*", "int64_t"], "C++") == (["float*", "int64_t"], "C++")
