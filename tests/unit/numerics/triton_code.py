"""The machine code that Triton and its assembler make of the products' kernel, for GPUs that are not there.

Usage: `python -m tests.unit.numerics.triton_code SOURCE CAPABILITY TILE` (a number of `triton_cases.EVERY`)
prints a JSON object: instructions of PTX, those of the machine and those among its products (`loop`),
registers, bytes of stack and of shared memory. Triton must not interpret.
"""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from assay.numerics.product_triton import Tile
from tests.unit.numerics.triton_cases import EVERY

POINTERS = {
    **dict.fromkeys(("a_high", "a_low", "b_high", "b_low"), "*i8"),
    **dict.fromkeys(("a_exponents", "b_exponents"), "*i32"),
    "out": "*fp32",
}
BINARIES = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"


def compiled(source: str, capability: int, tile: Tile) -> Any:
    """The kernel as it is launched for aligned tensors whose K is padded."""
    spec = importlib.util.spec_from_file_location("kernel", source)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    constants = {"BLOCK_M": tile.m, "BLOCK_N": tile.n, "BLOCK_K": tile.k, "GROUP": 8}
    signature = {**POINTERS, **dict.fromkeys("MNK", "i32"), **dict.fromkeys(constants, "constexpr")}
    return compiled_for(
        module.product,
        signature,
        constants,
        capability,
        ["K"],
        num_warps=tile.warps,
        num_stages=tile.stages,
    )


def compiled_for(
    function: Any,
    signature: dict[str, str],
    constants: dict[str, Any],
    capability: int,
    aligned: Sequence[str] = (),
    **options: int,
) -> Any:
    """A kernel for a GPU of this capability; pointers and what is `aligned` are multiples of 16."""
    wide = [i for i, (name, kind) in enumerate(signature.items()) if kind.startswith("*") or name in aligned]
    return triton.compile(
        ASTSource(function, signature, constants, {(i,): [["tt.divisibility", 16]] for i in wide}),
        target=GPUTarget("cuda", capability, 32),
        options={**options, "enable_fp_fusion": False},
    )


def told(binary: bytes, tool: str, *options: str) -> str:
    """What a tool of Triton's says of a cubin."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary)
        file.flush()
        done = subprocess.run(
            [BINARIES / tool, *options, file.name], capture_output=True, text=True, check=True
        )
    return done.stdout


def main() -> None:
    source, capability, number = sys.argv[1:]
    made = compiled(source, int(capability), EVERY[int(number)])
    usage = told(made.asm["cubin"], "cuobjdump", "--dump-resource-usage")
    assembly = told(made.asm["cubin"], "nvdisasm", "-c")
    sass = re.findall(r"^\s+/\*\w+\*/\s+(?:@\S+ )?([A-Z][\w.]+)", assembly, re.MULTILINE)
    products = [place for place, name in enumerate(sass) if "MMA" in name]
    print(
        json.dumps(
            {
                "ptx": Counter(re.findall(r"^\s+(?:@\S+ )?([a-z][\w.]+)", made.asm["ptx"], re.MULTILINE)),
                "sass": Counter(sass),
                "loop": Counter(sass[products[0] : products[-1]]),
                "registers": int(re.findall(r"REG:(\d+)", usage)[0]),
                "stack": int(re.findall(r"STACK:(\d+)", usage)[0]),
                "shared": made.metadata.shared,
            }
        )
    )


if __name__ == "__main__":
    main()
