"""Causal attention by Triton's interpreter, and the code of its kernels, as a program of its own.

Usage: `python -m tests.unit.numerics.attention_cases CASE [ARGUMENT ...]` prints what went wrong, or "right";
of `code` a JSON object: Triton must not interpret then.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import torch

from assay.numerics import attention_triton
from assay.numerics.attention_triton import check, equal, gradient_definition, softmax_definition
from assay.numerics.native import Unusable
from assay.numerics.verdicts import loaded
from tests.unit.numerics.operand_cases import rare

CPU = torch.device("cpu")


def checked(source: str, length: str) -> str:
    """What the check at the first use on a device says of rows of this length."""
    try:
        check(attention_triton.build(Path(source)), CPU, int(length))
    except Unusable as reason:
        return str(reason)
    return ""


def sizes(source: str, seed: str) -> str:
    """Batches of any size with numbers of any size, and numbers here and there that poison."""
    kernel, random = attention_triton.build(Path(source)), Random(int(seed))
    generator = torch.Generator().manual_seed(int(seed))
    for _ in range(12):
        length = random.choice([1, 2, 3, 15, 16, 17, 31, 32, 33, 63, 65, 100, 128, 129, 200])
        shape = (*random.choice([(), (1,), (2,), (2, 1)]), length, length)
        x, slope = torch.randn(2, *shape, generator=generator) * random.choice([1.0, 30.0])
        x, slope = (
            random.choice([z, z, rare(z, generator), z * 2.0**-140, z * 2.0**120]) for z in (x, slope)
        )
        wanted = softmax_definition(x)
        if not equal(wanted, kernel.softmax(x)):
            return f"softmax of {list(shape)}"
        above = slope.masked_fill(attention_triton.causal(length, CPU), 0.0)
        needed = ((above - above) != 0).any(-1).to(torch.int32)
        for p, read_all in ((wanted[0], needed), (x, torch.ones_like(needed))):
            given = (p, slope, read_all)
            if not equal(gradient_definition(*given), kernel.gradient(*given)):
                return f"gradient of {list(shape)}"
    return ""


def found(source: str) -> str:
    """What is found first, if anything."""
    return checked(source, "40") or sizes(source, "0")


def code(source: str, capability: str) -> None:
    """PTX instructions, bytes of stack and of shared memory of the kernels for rows of 512, for a GPU that is
    not there."""
    from tests.unit.numerics.triton_code import compiled_for, usage

    module, made = loaded(Path(source)), {}
    cut, _ = attention_triton._blocks(torch.empty(1, 512, 512))
    for name, constants in (
        ("softmax", cut),
        ("by_rows", {**cut, "ROUNDS": attention_triton._ROUNDS}),
        ("by_columns", attention_triton._TILE),
    ):
        function = getattr(module, name)
        signature = {x: "constexpr" if x in constants else KINDS.get(x, "i32") for x in function.arg_names}
        aligned = [x for x in ("T", "wide") if x in signature]
        warps = int(attention_triton._OPTIONS["num_warps"])
        one = compiled_for(function, signature, dict(constants), int(capability), aligned, num_warps=warps)
        made[name] = usage(one)
    print(json.dumps(made))


KINDS = {
    **dict.fromkeys(("x", "y", "p", "g", "sums"), "*fp32"),
    **dict.fromkeys(("e", "p_e", "d_e", "p_maxima", "d_maxima", "read_all"), "*i32"),
    **dict.fromkeys(("high", "low", "p_high", "p_low", "d_high", "d_low"), "*i8"),
}


def main() -> None:
    case: Callable[..., str | None] = globals()[sys.argv[1]]
    said = case(*sys.argv[2:])
    if said is not None:
        print(said or "right")


if __name__ == "__main__":
    main()
