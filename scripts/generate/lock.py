"""Writes the hashes of requirements.lock: of every archive that the index has for each pinned version.

Contract: versions and the comments above them stay; uv computes the hashes, installed into .assay/tools on
first use. To change a pin, change its version in requirements.lock and run this.
"""

from __future__ import annotations

import re
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / "requirements.lock"
UV = "0.13.9"


def main() -> None:
    text = LOCK.read_text()
    pins = re.findall(r"^([A-Za-z0-9_.-]+==[^\s;]+)", text, re.MULTILINE)
    home = ROOT / ".assay/tools" / f"uv-{UV}"
    if not (home / "bin/uv").exists():
        venv.create(home, with_pip=True)
        subprocess.run([home / "bin/pip", "install", "--quiet", f"uv=={UV}"], check=True)
    python = ".".join(map(str, sys.version_info[:3]))
    options = ("--no-deps", "--generate-hashes", "--no-header", "--no-annotate", "--python-version", python)
    command = [str(home / "bin/uv"), "pip", "compile", "--quiet", *options, "-"]
    wanted = "\n".join(pins)
    made = subprocess.run(command, input=wanted, check=True, stdout=subprocess.PIPE, text=True).stdout
    LOCK.write_text("".join(line for line in text.splitlines(True) if line.startswith("#")) + made)


if __name__ == "__main__":
    main()
