"""`import assay` and the names that it gives."""

from __future__ import annotations

import subprocess
import sys

import pytest

import assay


def test_importing_it_imports_nothing_else() -> None:
    program = "import sys; before = set(sys.modules); import assay; print(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    ours = [name for name in done.stdout.split() if name.startswith("assay")]
    assert ours == ["assay"] and "torch" not in done.stdout.split()


@pytest.mark.parametrize("name", assay.__all__)
def test_every_name_is_there_and_documented(name: str) -> None:
    found = getattr(assay, name)
    assert found.__name__ == name and found.__doc__
    assert name in dir(assay)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'conect'"):
        assay.conect  # noqa: B018
