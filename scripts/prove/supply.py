"""What the project is made of: pins, hashes, licences, known advisories, and a bill of materials.

    python scripts/prove/supply.py [--advisories FOLDER] [--sbom FOLDER] [--pin]

- Everything that is installed is of the version that requirements.lock pins, and nothing else is installed.
- Each pin names its archives by their SHA-256; npm's locks have a hash of each.
- Each package's licence is one of those that may be used beside Apache-2.0.
- `--advisories`: a folder of OSV records (JSON, such as an unpacked dump of osv.dev's PyPI ecosystem), asked
  offline: nothing that is installed may be affected by one.
- `--sbom`: CycloneDX of the Python environment by cyclonedx-bom (installed when asked) and of the contracts'
  packages by npm.
- `--pin` writes the hashes of requirements.lock anew, those of every archive that the index has of a pinned
  version, by uv (installed when asked).

Exits 1 where anything is otherwise. Not guaranteed: that an archive with the right hash is harmless.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import venv
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / "requirements.lock"
NPM_LOCKS = tuple(f"{folder}/package-lock.json" for folder in ("contracts", "tests/browser", "tests/hardhat"))
CYCLONEDX, UV = "7.5.0", "0.13.9"
OUTSIDE = {"assay-market", "pip", "setuptools"}
ALLOWED = re.compile(
    r"MIT|BSD|Apache|ISC|PSF|Python Software|Zlib|0BSD|CC0|Unlicense|MPL|Mozilla|CNRI|BSL-1|Public Domain"
)


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(path: Path) -> dict[str, str]:
    """Versions by name of a requirements file."""
    found = re.findall(r"^([A-Za-z0-9_.-]+)==([^\s;]+)", path.read_text(), re.MULTILINE)
    return {canonical(name): version for name, version in found}


def installed() -> dict[str, metadata.Distribution]:
    return {canonical(found.metadata["Name"]): found for found in metadata.distributions()}


def unpinned() -> Iterator[str]:
    """What is installed otherwise than it is pinned, or pinned without a hash."""
    locked, here = pins(LOCK), installed()
    for name, version in locked.items():
        if name not in here:
            yield f"{name} {version} is pinned and not installed"
        elif here[name].version.partition("+")[0] != version.partition("+")[0]:
            yield f"{name} is installed as {here[name].version} and pinned as {version}"
    yield from (f"{name} is installed and not pinned" for name in here if name not in locked.keys() | OUTSIDE)
    for entry in re.split(r"(?<!\\)\n", LOCK.read_text()):
        if "==" in entry and not re.search(r"--hash=sha256:[0-9a-f]{64}\b", entry):
            yield f"{entry} has no SHA-256"


def unhashed() -> Iterator[str]:
    """npm packages without an integrity hash."""
    for lock in NPM_LOCKS:
        packages = json.loads((ROOT / lock).read_text())["packages"]
        for path, package in packages.items():
            if path and not package.get("link") and not package.get("integrity", "").startswith("sha512-"):
                yield f"{lock}: {path} has no hash"


def licence(found: metadata.Distribution) -> str:
    """What a package's metadata say of its licence."""
    about = found.metadata
    classified = [c for c in about.get_all("Classifier") or [] if c.startswith("License ::")]
    said = [about.get("License-Expression") or "", *classified, (about.get("License") or "")[:2000]]
    known = [each for each in said if each and each != "UNKNOWN"]
    return known[0].rpartition(":: ")[2] if known else ""


def unlicensed() -> Iterator[str]:
    """Packages whose licence is not known to go with ours."""
    for name, found in sorted(installed().items()):
        said = licence(found)
        if name not in OUTSIDE and not ALLOWED.search(said):
            yield f"{name}: licence {said[:80]!r}"


def affected(version: str, entry: dict[str, Any]) -> bool:
    """Whether a version is in an OSV record's `affected` entry."""
    if version in entry.get("versions", ()):
        return True
    try:
        here = Version(version)
        for ranged in entry.get("ranges", ()):
            if ranged["type"] != "ECOSYSTEM":
                continue
            inside = False
            for event in sorted(ranged["events"], key=lambda e: Version(next(iter(e.values())) or "0")):
                if "introduced" in event and here >= Version(event["introduced"]):
                    inside = True
                if "fixed" in event and here >= Version(event["fixed"]):
                    inside = False
                if "last_affected" in event and here > Version(event["last_affected"]):
                    inside = False
            if inside:
                return True
    except InvalidVersion:
        return True
    return False


def advised(folder: Path, here: dict[str, str]) -> Iterator[str]:
    """Records of the folder that concern a version of `here`. Raises SystemExit where there are none."""
    count = 0
    for path in sorted(folder.rglob("*.json")):
        record = json.loads(path.read_text())
        count += 1
        if record.get("withdrawn"):
            continue
        for entry in record.get("affected", ()):
            package = entry.get("package", {})
            name = canonical(package.get("name", ""))
            if package.get("ecosystem") == "PyPI" and name in here and affected(here[name], entry):
                yield f"{name} {here[name]}: {record['id']} {record.get('summary', '')}"
    if not count:
        sys.exit(f"there is no advisory below {folder}, so nothing is known")


def pin() -> None:
    """Write the hashes of the lock's versions anew, below its comment."""
    home = ROOT / ".assay/tools" / f"uv-{UV}"
    if not (home / "bin/uv").exists():
        venv.create(home, with_pip=True)
        subprocess.run([home / "bin/pip", "install", "--quiet", f"uv=={UV}"], check=True)
    python = ".".join(map(str, sys.version_info[:3]))
    options = ("--no-deps", "--generate-hashes", "--no-header", "--no-annotate", "--python-version", python)
    wanted = "".join(f"{name}=={version}\n" for name, version in sorted(pins(LOCK).items()))
    command = [str(home / "bin/uv"), "pip", "compile", "--quiet", *options, "-"]
    made = subprocess.run(command, input=wanted, check=True, stdout=subprocess.PIPE, text=True).stdout
    comment = "".join(line for line in LOCK.read_text().splitlines(True) if line.startswith("#"))
    LOCK.write_text(comment + made)


def sbom(folder: Path) -> None:
    """Write the bills of materials."""
    folder.mkdir(parents=True, exist_ok=True)
    home = ROOT / ".assay/tools" / f"cyclonedx-{CYCLONEDX}"
    if not (home / "bin/cyclonedx-py").exists():
        venv.create(home, with_pip=True)
        subprocess.run([home / "bin/pip", "install", "--quiet", f"cyclonedx-bom=={CYCLONEDX}"], check=True)
    tool = [str(home / "bin/cyclonedx-py"), "environment", sys.executable, "--output-reproducible"]
    subprocess.run([*tool, "-o", str(folder / "python.cdx.json")], check=True)
    npm = ["npm", "sbom", "--sbom-format", "cyclonedx", "--package-lock-only"]
    with (
        TemporaryDirectory() as copy
    ):  # npm wants a version of what it describes, and a private package has none
        for name in ("package.json", "package-lock.json"):
            body = json.loads((ROOT / "contracts" / name).read_text()) | {"version": "0.0.0"}
            if "packages" in body:
                body["packages"][""]["version"] = "0.0.0"
            Path(copy, name).write_text(json.dumps(body))
        done = subprocess.run(npm, cwd=copy, check=True, capture_output=True, text=True)
    (folder / "contracts.cdx.json").write_text(done.stdout)
    for path in sorted(folder.glob("*.cdx.json")):
        print(f"{path}: {len(json.loads(path.read_text())['components'])} components")


def show(what: str, faults: Iterable[str]) -> int:
    found = list(faults)
    print(f"{what}: {'; '.join(found) if found else 'nothing'}")
    return len(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--advisories", type=Path)
    parser.add_argument("--sbom", type=Path)
    parser.add_argument("--pin", action="store_true")
    options = parser.parse_args()
    if options.pin:
        pin()
    faults = show("otherwise than pinned", unpinned())
    faults += show("npm packages without a hash", unhashed())
    faults += show("licences that are not known to go with ours", unlicensed())
    if options.advisories:
        here = {name: found.version for name, found in installed().items()}
        faults += show("advisories", advised(options.advisories, here))
    if options.sbom:
        sbom(options.sbom)
    sys.exit(faults > 0)


if __name__ == "__main__":
    main()
