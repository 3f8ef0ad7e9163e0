"""Inductor settings of compiled forms by kind of device, for every supported PyTorch version.

Contract: `settings` omits settings that the installed PyTorch lacks, which costs speed and no bits. Settings
that guarantee bits are never omitted: if one is missing, `missing` names it and nothing is compiled. Not
guaranteed: that a setting means the same in versions that `make torches` does not run.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch._inductor.config as inductor_config

_BOTH: dict[str, Any] = {
    # Rules that treat numbers as real numbers (x + 0 = x, folding in binary64) would change bits.
    "joint_graph_constant_folding": False,
    "constant_and_index_propagation": False,
    "pattern_matcher": False,
    # Numbers of fewer bits are rounded where the graph rounds them; on a GPU also no fused multiply-add.
    "emulate_precision_casts": True,
    "fx_graph_cache": True,
}
_CPU: dict[str, Any] = {
    "cpp.enable_unsafe_math_opt_flag": False,
    # Inductor passes -fno-signed-zeros; the last flag wins, and these follow it (2.11 has no `cpp.march` for
    # that). In a source of many loops GCC would stop inlining vectors' loads and stores, which it does not
    # in a source of one; no debugger looks at them.
    "cpp.enable_floating_point_contract_flag": "off -fsigned-zeros -g0 --param=large-unit-insns=1000000",
    # Inductor tries out in another process whether the vector instructions that the processor names can be
    # loaded, and does without them when that takes 60 s, as it does on a busy machine: the form would be slow
    # for ever, and a stored one be compiled again. What is wrong there ends the compilation instead.
    "cpp.vec_isa_ok": True,
    # A header read beforehand is 156 MB of machine-dependent files outside this folder, where others may
    # write; for a library or two it takes longer to make than it saves.
    "cpp_cache_precompile_headers": False,
}
_CUDA: dict[str, Any] = {
    # True division, and no flush to zero.
    "eager_numerics.division_rounding": True,
    "eager_numerics.disable_ftz": True,
}
_SPEED = {"fx_graph_cache", "cpp.vec_isa_ok", "cpp_cache_precompile_headers"}
"""Optional settings; all others guarantee bits."""
_TUNING = "triton.autotune_at_compile_time"


def settings(kind: str) -> dict[str, Any]:
    """Inductor settings for a kind of device (`cpu`, `cuda`)."""
    wanted = _BOTH | (_CPU if kind == "cpu" else _CUDA)
    return {name: value for name, value in wanted.items() if name in _known() or name not in _SPEED}


def options(kind: str) -> dict[str, Any]:
    """Options of `standalone_compile`. For GPUs every kernel is generated twice and run on random numbers, to
    choose block sizes: the first step would otherwise choose them again."""
    return {"config_patches": {_TUNING: False}} if kind == "cuda" and _TUNING in _known() else {}


def missing(kind: str) -> list[str]:
    """Settings that guarantee bits and that this PyTorch lacks: it must not compile for such devices."""
    return sorted(settings(kind).keys() - _known())


@cache
def _known() -> frozenset[str]:
    return frozenset(inductor_config.get_config_copy())
