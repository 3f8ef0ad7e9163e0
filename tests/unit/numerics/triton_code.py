"""The machine code that Triton and its assembler make of the products' kernel, for GPUs that are not there.

Usage: `python -m tests.unit.numerics.triton_code SOURCE CAPABILITY TILE N K` (TILE: a number of `ALL`) prints
a JSON object: instructions of PTX, those of the machine and those among its products (`loop`), registers,
bytes of stack and of shared memory, words moved for want of registers in blocks of products (`moved`) and in
all that ordinary exponents take (`moved_at_ends`), the registers that partitions ask for (`asked`), and for
each loop of products whether it tells another barrier each time (`turns`). Triton must not interpret.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.driver import driver

from assay.numerics.product_triton import HOPPER, Tile
from assay.numerics.triton_kernel import SHORT_K
from assay.numerics.verdicts import loaded
from tests.unit.numerics.triton_cases import EVERY

POINTERS = {
    **dict.fromkeys(("a_high", "a_low", "b_high", "b_low"), "*i8"),
    **dict.fromkeys(("a_exponents", "b_exponents"), "*i32"),
    "out": "*fp32",
}
BINARIES = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"


ALL = [*EVERY, *HOPPER]


def compiled(source: str, capability: int, tile: Tile, n: int, k: int) -> Any:
    """The kernel as it is launched for aligned tensors whose K is padded."""
    module = loaded(Path(source))
    if tile in HOPPER:
        return _for_hopper(module, tile, n, k)
    constants = {"BLOCK_M": tile.m, "BLOCK_N": tile.n, "BLOCK_K": tile.k, "GROUP": 8}
    constants["SHORT"] = k <= SHORT_K
    signature = {**POINTERS, **dict.fromkeys("MNK", "i32"), **dict.fromkeys(constants, "constexpr")}
    return compiled_for(
        module.product,
        signature,
        constants,
        capability,
        ["K"] if n % 16 else ["K", "N"],
        num_warps=tile.warps,
        num_stages=tile.stages,
    )


class _Hopper:
    """Triton's driver, as far as compiling asks it."""

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)


def _for_hopper(module: Any, tile: Tile, n: int, k: int) -> Any:
    driver.set_active(_Hopper())
    m = 130
    a, b = (
        module.described([torch.zeros(rows, k, dtype=torch.int8)] * 2, block, tile.k)
        for rows, block in ((m, tile.m), (n, tile.n))
    )
    ea, eb = (torch.zeros(rows, dtype=torch.int32) for rows in (m, n))
    options = {"num_warps": tile.warps, "enable_fp_fusion": False, "STAGES": tile.stages, "GROUP": 8}
    given = (*a, *b, ea, eb, torch.zeros(m, n), m, n, k, 1)
    return module.product.warmup(*given, grid=(1,), **options, SHORT=k <= SHORT_K)


def turns(ptx: str) -> list[bool]:
    """For each loop of asynchronous products, whether the barrier that it tells is computed within it."""
    found = []
    for block in re.split(r"^\$L__BB", ptx, flags=re.MULTILINE):
        told_of = re.findall(r"mbarrier\.arrive\.shared::cta\.b64 _, \[(%r\d+)\]", block)
        if told_of and "wgmma.mma_async" in block:
            found.append(all(re.search(rf"^\s+\S+\s+{name},", block, re.MULTILINE) for name in told_of))
    return found


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


def usage(made: Any) -> dict[str, Any]:
    """PTX instructions of a compiled kernel, its registers, and bytes of stack and of shared memory."""
    found = told(made.asm["cubin"], "cuobjdump", "--dump-resource-usage")
    return {
        "ptx": Counter(re.findall(r"^\s+(?:@\S+ )?([a-z][\w.]+)", made.asm["ptx"], re.MULTILINE)),
        "registers": int(re.findall(r"REG:(\d+)", found)[0]),
        "stack": int(re.findall(r"STACK:(\d+)", found)[0]),
        "shared": made.metadata.shared,
    }


def main() -> None:
    source, capability, number, n, k = sys.argv[1:]
    made = compiled(source, int(capability), ALL[int(number)], int(n), int(k))
    assembly = told(made.asm["cubin"], "nvdisasm", "-c")
    sass = re.findall(r"^\s+/\*\w+\*/\s+(?:@\S+ )?([A-Z][\w.]+)", assembly, re.MULTILINE)
    blocks = re.split(r"^\.L_|\bBRA\b", assembly, flags=re.MULTILINE)
    words = {block: len(re.findall(r"\b(?:STL|LDL)\b", block)) for block in blocks}
    products = [place for place, name in enumerate(sass) if "MMA" in name]
    print(
        json.dumps(
            {
                **usage(made),
                "sass": Counter(sass),
                "loop": Counter(sass[products[0] : products[-1]]),
                "moved": sum(n for block, n in words.items() if "MMA" in block),
                "moved_at_ends": sum(n for block, n in words.items() if "I2F.S64" not in block),
                "asked": [int(n, 16) for n in re.findall(r"USETMAXREG\S+ (?:UP\d, )?0x(\w+)", assembly)],
                "turns": turns(made.asm["ptx"]),
            }
        )
    )


if __name__ == "__main__":
    main()
