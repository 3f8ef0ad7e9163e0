"""Builds the archive with which a machine that only has PyTorch for CUDA can run ``scripts/gpu_check.sh``.

Contract: assay-gpu.tar.xz, of at most 60 MB, is for Linux on x86-64 and the Python versions of `PYTHONS`. It
has the tracked sources that the check needs, the compiled contracts, Anvil, and every package that the
project needs besides PyTorch and its dependencies: wheels in the versions and with the hashes of
requirements.lock, which pip fetches and checks, unpacked side by side (pure ones once, the others once per
Python). Not guaranteed: a C compiler and Python's headers, which the machine must have.

Usage: `scripts/gpu_bundle.py [--out FILE]`. Needs the packages' index; the other machine needs no network:
`python3 -m tarfile -e assay-gpu.tar.xz && assay-gpu/scripts/gpu_check.sh`.
"""

from __future__ import annotations

import argparse
import lzma
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence, Set
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from assay.chain.eth.anvil import anvil_binary
from scripts.gpu_check import commit

ROOT = Path(__file__).resolve().parents[1]
NAME, OWN = "assay-gpu", "assay-market"
PYTHONS = ("3.11", "3.12")
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
LIMIT_BYTES = 60_000_000
LEFT_OUT = ("torch",)
"""Packages left out with their dependencies: the machine has them."""
SOURCES = (
    "assay",
    "chain",
    "solver",
    "verifier",
    "whistleblower",
    "drills",
    "scripts",
    "contracts/artifacts",
    "LICENSE",
)
DICTIONARY_BYTES = 128 << 20
"""Dictionary size of xz: libraries that a package has for both Pythons are stored once."""


def needed(name: str, python: str, but: Sequence[str] = LEFT_OUT, seen: set[str] | None = None) -> set[str]:
    """The distribution and its dependencies under this Python, except those left out, by canonical name, as
    installed here."""
    seen = set() if seen is None else seen
    seen.add(canonicalize_name(name))
    known: dict[str, Any] = {
        **default_environment(),
        "python_version": python,
        "python_full_version": f"{python}.0",
        "extra": "",
    }
    for line in requires(name) or ():
        wanted = Requirement(line)
        key = canonicalize_name(wanted.name)
        if key in seen or key in but or (wanted.marker and not wanted.marker.evaluate(known)):
            continue
        try:
            needed(key, python, but, seen)
        except PackageNotFoundError as error:
            raise SystemExit(
                f"{name} needs {key} under Python {python}, which is not installed here"
            ) from error
    return seen


def locked(names: Set[str]) -> str:
    """Lines of requirements.lock for these. Raises SystemExit if one is missing."""
    text = (ROOT / "requirements.lock").read_text()
    entries = re.findall(r"^([A-Za-z0-9_.-]+)(==(?:.*\\\n)*.*\n)", text, re.MULTILINE)
    lines: dict[str, str] = {canonicalize_name(name): name + rest for name, rest in entries}
    if missing := names - lines.keys():
        raise SystemExit(f"requirements.lock has no {', '.join(sorted(missing))}")
    return "".join(lines[name] for name in sorted(names))


def fetch(names: set[str], python: str, folder: Path) -> list[Path]:
    """Fetches wheels, checked against the lock's hashes."""
    folder.mkdir(parents=True)
    asked = folder / "requirements.txt"
    asked.write_text(locked(names))
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "download", "--no-deps"]
    command += ["--require-hashes", "--only-binary=:all:", "--requirement", str(asked), "--dest", str(folder)]
    command += ["--python-version", python, "--implementation", "cp"]
    for abi in (f"cp{python.replace('.', '')}", "abi3", "none"):
        command += ["--abi", abi]
    for platform in PLATFORMS:
        command += ["--platform", platform]
    subprocess.run(command, check=True)
    wheels = sorted(folder.glob("*.whl"))
    if len(wheels) != len(names):
        raise SystemExit(f"{len(wheels)} wheels for {len(names)} packages of Python {python}")
    return wheels


def unpack(wheels: dict[str, list[Path]], target: Path) -> None:
    """Unpacks every wheel once if all Pythons have the same one, otherwise once per Python."""
    for python, own in wheels.items():
        for wheel in own:
            same = all(wheel.name in {other.name for other in others} for others in wheels.values())
            folder = target / ("any" if same else f"cp{python.replace('.', '')}")
            with ZipFile(wheel) as packed:
                packed.extractall(folder)
            for moved in folder.glob("*.data/*lib"):
                shutil.copytree(moved, folder, dirs_exist_ok=True)
    for left in target.glob("*/*.data"):
        shutil.rmtree(left)


def sources(target: Path) -> None:
    """Copies the tracked files that the check needs, links as links."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", *SOURCES], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        place = target / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, place, follow_symlinks=False)
    (target / "commit").write_text(commit() + "\n")
    (target / "bin").mkdir()
    shutil.copy2(anvil_binary(), target / "bin" / "anvil")


def pack(folder: Path, archive: Path) -> None:
    """Archives the folder; files of the same name are adjacent, so that xz finds what they share."""
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 1, "dict_size": DICTIONARY_BYTES}]
    archive.parent.mkdir(parents=True, exist_ok=True)
    files = [path for path in folder.rglob("*") if path.is_symlink() or path.is_file()]

    def by_name(path: Path) -> tuple[str, ...]:
        parts = path.relative_to(folder).parts
        return parts[2:] + parts[:2] if parts[0] == "packages" else parts

    with lzma.open(archive, "wb", filters=filters) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
        for path in sorted(files, key=by_name):
            tar.add(path, f"{NAME}/{path.relative_to(folder)}", filter=_nobodys)


def _nobodys(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """An entry without this machine's owner."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def main() -> None:
    """Gathers, packs and measures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist" / f"{NAME}.tar.xz")
    archive = parser.parse_args().out
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        wheels = {
            python: fetch(
                needed("assay-market", python) - {"assay-market"}, python, folder / "wheels" / python
            )
            for python in PYTHONS
        }
        sources(folder / NAME)
        unpack(wheels, folder / NAME / "packages")
        pack(folder / NAME, archive)
    size = archive.stat().st_size
    print(f"{archive}: {size / 1e6:.1f} MB")
    if size > LIMIT_BYTES:
        raise SystemExit(f"more than {LIMIT_BYTES / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
