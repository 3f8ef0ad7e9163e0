"""Operands by Triton's interpreter, and the code of their kernels, as a program of its own.

Usage: `python -m tests.unit.numerics.operand_cases CASE [ARGUMENT ...]` prints what went wrong, or
"right"; of `code` a JSON object: Triton must not interpret then.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random

import torch
from torch import Tensor

from assay.numerics import operand_triton
from assay.numerics.native import Unusable
from assay.numerics.operand_triton import Kernel, check, definition
from assay.numerics.verdicts import loaded

CPU = torch.device("cpu")


def checked(source: str) -> str:
    """What the check at the first use on a device says."""
    try:
        check(operand_triton.build(Path(source)), CPU)
    except Unusable as reason:
        return str(reason)
    return ""


def layouts(source: str, seed: str) -> str:
    """Matrices and batches of any size that lie in any order, cut anywhere, with numbers of any size."""
    kernel, random = operand_triton.build(Path(source)), Random(int(seed))
    generator = torch.Generator().manual_seed(int(seed))
    for _ in range(25):
        batch = random.choice([(), (), (1,), (3,), (2, 3), (2, 1, 2)])
        shape = (
            *batch,
            *(random.choice([1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 129, 200]) for _ in range(2)),
        )
        order = random.choice([list(range(len(shape))), random.sample(range(len(shape)), len(shape))])
        x = torch.randn([shape[d] for d in order], generator=generator).permute(
            [order.index(d) for d in range(len(shape))]
        )
        x = random.choice(
            [x, x.sign(), x**9, x * 2.0**-140, x * 2.0**120, x * 0, x * -0.0, rare(x, generator)]
        )
        loss = loss_of(x, generator) if not batch and random.random() < 0.5 else []
        cuts = [
            random.choice([[], whole(n), parts(n, random) if not batch else whole(n)]) for n in shape[:-3:-1]
        ]
        if wrong := differs(kernel, x, cuts[0], cuts[1], loss):
            return wrong
    return ""


def whole(n: int) -> list[int]:
    return [0, n]


def parts(n: int, random: Random) -> list[int]:
    return sorted({0, n, *(random.randrange(n + 1) for _ in range(3))})


def rare(x: Tensor, generator: torch.Generator) -> Tensor:
    """With numbers here and there that poison their rows and columns."""
    chance = torch.rand(x.shape, generator=generator)
    for at, value in enumerate((float("nan"), float("inf"), float("-inf"))):
        x = torch.where((chance > at * 0.01) & (chance < at * 0.01 + 0.003), value, x)
    return x


def loss_of(x: Tensor, generator: torch.Generator) -> list[Tensor]:
    """Vectors with which x makes a gradient, whose places may lie outside of the matrix."""
    rows, columns = x.shape
    total, factor, share = torch.randn(3, rows, generator=generator).mul(3).exp()
    place = torch.randint(-1, columns + 1, (rows,), generator=generator).to(torch.int32)
    return [total, factor - 1, place, share - 1]


def differs(kernel: Kernel, x: Tensor, across: list[int], down: list[int], loss: list[Tensor]) -> str:
    wanted, made = definition(x, across, down, loss), kernel.operands(x, across, down, loss)
    for number, (right, found) in enumerate(zip(wanted, made, strict=True)):
        for part, a, b in zip(("exponents", "high", "low"), right, found, strict=True):
            if a.shape != b.shape or not torch.equal(a, b):
                return f"{part} of operand {number} of {list(x.shape)}, cut at {across} and {down}"
    return ""


def found(source: str) -> str:
    """What is found first, if anything."""
    return checked(source) or layouts(source, "0") or layouts(source, "1")


def code(source: str, capability: str) -> None:
    """PTX instructions, registers' spills and shared memory of both kernels, for a GPU that is not there."""
    from tests.unit.numerics.triton_code import compiled_for, usage

    module, made = loaded(Path(source)), []
    for function in (module.maxima, module.parts):
        for by_rows, loss in ((True, False), (False, False), (True, True)):
            kinds = {"LOSS": loss, "BY_ROWS": by_rows, "BY_COLUMNS": True}
            constants = {**kinds, **operand_triton._TILE}
            signature = {name: kind_of(name, constants) for name in function.arg_names}
            one = compiled_for(
                function, signature, constants, int(capability), num_warps=operand_triton._WARPS
            )
            made.append(usage(one))
    print(json.dumps(made))


def kind_of(name: str, constants: Mapping[str, object]) -> str:
    if name in constants:
        return "constexpr"
    ends = {
        **dict.fromkeys(("maxima", "exponents", "places"), "*i32"),
        **dict.fromkeys(("x", "totals", "factors", "shares"), "*fp32"),
        **dict.fromkeys(("high", "low"), "*i8"),
    }
    return ends.get(name.rpartition("_")[2], "i32")


def main() -> None:
    case: Callable[..., str | None] = globals()[sys.argv[1]]
    said = case(*sys.argv[2:])
    if said is not None:
        print(said or "right")


if __name__ == "__main__":
    main()
