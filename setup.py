"""What pyproject.toml cannot say: a wheel takes the contracts along.

``assay/contracts`` in a wheel holds the Solidity sources and the committed artifacts, so that an installed
`assay` deploys a market without a compiler. In a checkout the contracts stay where they are.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

CONTRACTS = Path(__file__).resolve().parent / "contracts"
TAKEN = ("src/**/*.sol", "artifacts/*.json")


class BuildWithContracts(build_py):
    """Copies the contracts beside the packages of a wheel."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        target = Path(self.build_lib) / "assay" / "contracts"
        for file in (file for pattern in TAKEN for file in CONTRACTS.glob(pattern)):
            copy = target / file.relative_to(CONTRACTS)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)


setup(cmdclass={"build_py": BuildWithContracts})
