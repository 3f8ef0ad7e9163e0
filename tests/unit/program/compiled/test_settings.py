"""Settings of another PyTorch: some are left out; without one that guards bits nothing is compiled."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.program.compiled import settings as module
from assay.program.compiled.executor import CannotCompile, CompiledExecutor
from assay.program.compiled.settings import missing, options, settings
from tests.fakes.programs import training_sample

UNSAFE = "cpp.enable_unsafe_math_opt_flag"


def without(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    known = module._known() - set(names)
    monkeypatch.setattr(module, "_known", lambda: known)


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_this_pytorch_has_every_setting(kind: str) -> None:
    assert not missing(kind)


def test_a_setting_for_speed_that_is_not_there_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "cpp.vec_isa_ok" in settings("cpu")
    without(monkeypatch, "cpp.vec_isa_ok")
    assert "cpp.vec_isa_ok" not in settings("cpu") and not missing("cpu")


@pytest.mark.parametrize("name", ["pattern_matcher", "emulate_precision_casts", UNSAFE])
def test_without_a_setting_that_guards_bits_nothing_is_compiled(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    without(monkeypatch, name)
    with pytest.raises(CannotCompile, match=f"no setting {name}"):
        CompiledExecutor(training_sample().program, cache_dir=tmp_path)


def test_only_gpus_are_told_not_to_try_kernels_while_compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "triton.autotune_at_compile_time"
    assert options("cuda") == {"config_patches": {name: False}} and options("cpu") == {}
    without(monkeypatch, name)
    assert options("cuda") == {} and not missing("cuda")


def test_settings_of_one_device_hold_nothing_up_on_another(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, UNSAFE, "eager_numerics.division_rounding")
    assert missing("cpu") == [UNSAFE]
    assert missing("cuda") == ["eager_numerics.division_rounding"]
