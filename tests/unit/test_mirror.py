"""tests/unit mirrors the packages: each module of `protocol` that ships has its file of tests."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = sorted(path.stem for path in (ROOT / "assay" / "protocol").glob("*.py") if path.stem != "__init__")


def test_the_modules_are_found() -> None:
    assert {"types", "trees", "game", "ports"} <= set(MODULES)


@pytest.mark.parametrize("module", MODULES)
def test_a_module_has_its_tests(module: str) -> None:
    text = (ROOT / "tests" / "unit" / "protocol" / f"test_{module}.py").read_text()
    assert f"protocol.{module} import" in text or f"import {module}" in text, "they are not of this module"
    assert text.count("\ndef test_") >= 2


def test_every_folder_of_unit_tests_is_a_room() -> None:
    beside = {"vectors", "examples", "scripts", "__pycache__"}
    folders = {path.name for path in (ROOT / "tests" / "unit").iterdir() if path.is_dir()} - beside
    roots = (ROOT, ROOT / "assay")
    packages = {file.parent.name for root in roots for file in root.glob("*/__init__.py")}
    assert folders <= packages
