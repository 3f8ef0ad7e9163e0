"""Contents of the archive for a GPU machine."""

from __future__ import annotations

import os
import tarfile
import zipfile
from pathlib import Path

import pytest

from scripts import gpu_bundle
from scripts.gpu_bundle import NAME, needed, pack, sources, unpack


@pytest.mark.parametrize("python", gpu_bundle.PYTHONS)
def test_it_has_what_the_project_needs_but_for_pytorch(python: str) -> None:
    found = needed("assay-market", python)
    assert {"numpy", "web3", "pydantic-core", "safetensors", "aiohttp"} <= found
    assert not {"torch", "sympy", "pytest", "mypy", "triton"} & found
    text = gpu_bundle.locked(found - {"assay-market"})
    assert all(f"\n{name}==" in f"\n{text}" for name in ("numpy", "web3")) and "--hash=sha256:" in text
    assert "torch==" not in text


def test_a_package_that_is_not_locked_is_refused() -> None:
    with pytest.raises(SystemExit, match="has no left-pad"):
        gpu_bundle.locked({"numpy", "left-pad"})


def wheel(folder: Path, name: str, *files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / name, "w") as made:
        for file in files:
            made.writestr(file, file)
    return folder / name


def test_pure_packages_are_carried_once_and_others_for_each_python(tmp_path: Path) -> None:
    wheels = {
        "3.11": [
            wheel(tmp_path / "a", "pure-1-py3-none-any.whl", "pure/__init__.py"),
            wheel(tmp_path / "a", "fast-1-cp311-cp311-x.whl", "fast/c.so", "fast-1.data/purelib/more.py"),
        ],
        "3.12": [
            wheel(tmp_path / "b", "pure-1-py3-none-any.whl", "pure/__init__.py"),
            wheel(tmp_path / "b", "fast-1-cp312-cp312-x.whl", "fast/c.so"),
        ],
    }
    unpack(wheels, tmp_path / "to")
    found = sorted(str(path.relative_to(tmp_path / "to")) for path in (tmp_path / "to").rglob("*.*"))
    assert found == ["any/pure/__init__.py", "cp311/fast/c.so", "cp311/more.py", "cp312/fast/c.so"]


def test_the_sources_are_those_that_the_check_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    anvil = tmp_path / "anvil"
    anvil.write_text("a chain")
    monkeypatch.setattr(gpu_bundle, "anvil_binary", lambda: anvil)
    sources(tmp_path / "to")
    for name in (
        "scripts/gpu_check.sh",
        "drills/run.py",
        "assay/fitness/digests.json",
        "commit",
        "bin/anvil",
    ):
        assert (tmp_path / "to" / name).is_file(), name
    assert (tmp_path / "to" / "assay" / "chain").is_symlink()
    assert (tmp_path / "to" / "assay" / "chain" / "folders.py").is_file()
    assert any((tmp_path / "to" / "contracts" / "artifacts").iterdir())
    assert not (tmp_path / "to" / "tests").exists() and not (tmp_path / "to" / "docs").exists()


def test_an_archive_unpacks_to_what_was_packed(tmp_path: Path) -> None:
    made = tmp_path / "made"
    (made / "packages" / "cp311").mkdir(parents=True)
    (made / "packages" / "cp311" / "x.so").write_text("x")
    (made / "run.sh").write_text("#!/bin/sh\n")
    (made / "run.sh").chmod(0o755)
    (made / "link").symlink_to("packages")
    pack(made, tmp_path / "it.tar.xz")
    with tarfile.open(tmp_path / "it.tar.xz") as tar:
        assert {entry.uid for entry in tar} == {0}
        tar.extractall(tmp_path / "to", filter="data")
    there = tmp_path / "to" / NAME
    assert (there / "link" / "cp311" / "x.so").read_text() == "x" and (there / "link").is_symlink()
    assert os.access(there / "run.sh", os.X_OK)
