"""Structs and enumerations as the contracts' interfaces declare them."""

from __future__ import annotations

import re
from pathlib import Path

INTERFACES = Path(__file__).parents[2] / "contracts" / "src" / "interfaces"
SOLIDITY = "".join((INTERFACES / name).read_text() for name in ("Types.sol", "ICourt.sol"))
STRUCTS = {
    name: re.findall(r"^ +[\w\[\]]+ (\w+);", body, re.MULTILINE)
    for name, body in re.findall(r"^struct (\w+) \{\n(.*?)^\}", SOLIDITY, re.MULTILINE | re.DOTALL)
}
ENUMS = {
    name: re.findall(r"^ +([A-Z_]+)\b", body, re.MULTILINE)
    for name, body in re.findall(r"^enum (\w+) \{\n(.*?)^\}", SOLIDITY, re.MULTILINE | re.DOTALL)
}


def camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
