"""The C kernels' forms for 64-bit ARM against the definition, bit for bit, in an emulator.

    python scripts/prove/arm.py [--seeds 80] [--form "SHA-256" ...]        (make arm)

Three forms of the product kernel (NEON's i16, int8 dot products, int8 matrix products), the windows kernel
and the SHA-256 kernel are compiled by `aarch64-linux-gnu-gcc` and run by `qemu-aarch64` as processes that do
one call after the other, buffers ending at a guarded page. Each goes through what a kernel of this machine
goes through before it is used, then through the x86 forms' own tests of bits: every layout, batch and size,
and the largest sums. Then faults are planted in each form, and each has to be found.

Exits 1 with a sentence where compiler or emulator is missing (Debian: gcc-aarch64-linux-gnu,
libc6-dev-arm64-cross, qemu-user), and where anything differs. Not guaranteed: speed, which no emulator tells.
"""

from __future__ import annotations

import argparse
import ctypes
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, cast

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from assay.numerics import product_kernel, windows_kernel
from assay.numerics.native import Unusable
from assay.program import sha_kernel
from tests.unit.numerics import test_product_kernel as products
from tests.unit.numerics import test_windows_kernel as windows
from tests.unit.planting import planted
from tests.unit.program import test_sha_kernel as hashes

COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
NANS = (0x7F800001, 0xFFC00000)
SERVER = Path(__file__).with_name("arm_server.c")
INTEGER, READ, WRITTEN = range(3)
Argument = tuple[int, int, int]
"""Kind, address or integer, and a buffer's bytes (-1 for none)."""


@dataclass(frozen=True)
class Form:
    """What is compiled, how, and the tests it must pass."""

    name: str
    source: Path
    define: str
    flags: tuple[str, ...]
    faults: tuple[tuple[str, str], ...]


PRODUCT, WINDOWS = products.SOURCE, windows.SOURCE
SHARED_FAULTS = (("e >= 129 ? NAN : made.value", "made.value"),)
PAIR_FAULTS = (
    ("vmlal_lane_s16(low, vshrn_n_s32((int32x4_t)b, 16), pair, 1)", "low"),
    ("#define LIMIT 0x1p62", "#define LIMIT 0x1p64"),
)
PART_FAULTS = (
    ("high * 16384", "high * 16383"),
    ("(q[i] + 64) >> 7", "q[i] >> 7"),
    ("(i * width + r) * TOGETHER", "(i * width + r / 2 * 2) * TOGETHER"),
)
FORMS = (
    Form("products, i16", PRODUCT, "PRODUCT", ("-march=armv8-a",), SHARED_FAULTS + PAIR_FAULTS),
    Form(
        "products, int8 dot",
        PRODUCT,
        "PRODUCT",
        ("-march=armv8.2-a+dotprod",),
        (*SHARED_FAULTS, *PART_FAULTS, ("a[(r) / 4], (r) % 4)", "a[(r) / 4], 3 - (r) % 4)")),
    ),
    Form(
        "products, int8 matrix",
        PRODUCT,
        "PRODUCT",
        ("-march=armv8.2-a+dotprod+i8mm",),
        (*SHARED_FAULTS, *PART_FAULTS, ("vget_high_s32(s[r][c])", "vget_low_s32(s[r][c])")),
    ),
    Form(
        "windows, i16",
        WINDOWS,
        "WINDOWS",
        ("-march=armv8-a",),
        (PAIR_FAULTS[0], ("((1 << 18) - 1)", "((1 << 20) - 1)")),
    ),
    Form("SHA-256", hashes.SOURCE, "SHA", (), (("vsha256h2q_u32(y[l], before, sum)", "y[l]"),)),
)


class Emulated:
    """A kernel's library in another process; replaces a `ctypes.CDLL`."""

    def __init__(self, binary: Path) -> None:
        self._process = subprocess.Popen(
            [EMULATOR, "-cpu", "max", str(binary)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.quantised_product = _Function(self._quantised_product)
        self.windowed_product = _Function(self._windowed_product)
        self.plane = _Function(self._plane)
        self.tensor_root = _Function(self._tensor_root)
        self.usable = _Function(lambda: self._call(0))

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()

    def _call(self, function: int, *given: Argument) -> int:
        assert self._process.stdin and self._process.stdout
        parts = [struct.pack("<qq", function, len(given))]
        for kind, value, size in given:
            parts.append(struct.pack("<qq", kind, value if kind == INTEGER else size))
            if kind != INTEGER and size > 0:
                parts.append(ctypes.string_at(value, size))
        self._process.stdin.write(b"".join(parts))
        self._process.stdin.flush()
        (made,) = struct.unpack("<q", self._answer(8))
        for kind, value, size in given:
            if kind == WRITTEN and size > 0:
                ctypes.memmove(value, self._answer(size), size)
        return int(made)

    def _answer(self, size: int) -> bytes:
        assert self._process.stdout
        answer = self._process.stdout.read(size)
        if len(answer) < size:
            raise Unusable(f"its process ended with {self._process.wait()}")
        return answer

    def _quantised_product(self, *given: Any) -> int:
        x, xs, ex, y, ys, ey, integers, out, sizes, dims, threads = given
        *batch, m, n, k = sizes[: dims + 3]
        size, count, total = 2 if integers else 4, prod(batch), prod(batch) * m * n
        return self._call(
            0,
            _read(x, size * _reach((*batch, m, k), xs)),
            _read(xs, 8 * len(xs)),
            _read(ex, 4 * count * m),
            _read(y, size * _reach((*batch, n, k), ys)),
            _read(ys, 8 * len(ys)),
            _read(ey, 4 * count * n),
            (INTEGER, int(integers), 0),
            _written(out, 4 * total),
            _read(sizes, 8 * len(sizes)),
            *((INTEGER, int(value), 0) for value in (dims, threads)),
        )

    def _windowed_product(self, *given: Any) -> int:
        x, count, xd, w, wd, fx, fw, out, x_step, w_step, threads = given
        (b, m, _), (_, n, _) = ([prod(s) for s, _ in _parts(dims)] for dims in (xd, wd))
        sizes, strides = ([v for part in _parts(wd) for v in part[i]] for i in (0, 1))
        return self._call(
            0,
            _read(x, 2 * count),
            (INTEGER, count, 0),
            _read(xd, 8 * len(xd)),
            _read(w, 2 * _reach(sizes, strides)),
            _read(wd, 8 * len(wd)),
            _read(fx, 8 * b * m),
            _read(fw, 8 * b * n),
            _written(out, 4 * b * m * n),
            *((INTEGER, int(value), 0) for value in (x_step, w_step, threads)),
        )

    def _plane(self, *given: Any) -> int:
        x, rank, sizes, before, after, channels, e, out, threads = given
        wide = prod(a + b + c for a, b, c in zip(sizes, before, after, strict=True))
        return self._call(
            1,
            _read(x, 4 * prod(sizes) * channels),
            (INTEGER, rank, 0),
            *(_read(dims, 8 * len(dims)) for dims in (sizes, before, after)),
            (INTEGER, channels, 0),
            _read(e, 4 * wide),
            _written(out, 2 * wide * channels),
            (INTEGER, int(threads), 0),
        )

    def _tensor_root(self, *given: Any) -> int:
        address, size, leaf, floats, prefix, prefix_size, digests, root = given
        kept = ctypes.create_string_buffer(prefix, max(len(prefix), 1))
        return self._call(
            1,
            _read(address, size),
            *((INTEGER, int(value), 0) for value in (size, leaf, floats)),
            _read(kept, prefix_size),
            (INTEGER, prefix_size, 0),
            _written(digests, 32 * (-(-size // leaf) + 1)),
            _written(root, 32),
        )


class _Function:
    """Mimics a ctypes function, whose argument and result types may be declared."""

    restype: Any = None
    argtypes: Any = None

    def __init__(self, called: Callable[..., int]) -> None:
        self._called = called

    def __call__(self, *given: Any) -> int:
        return self._called(*given)


def _reach(sizes: Sequence[int], strides: Sequence[int]) -> int:
    return 1 + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))


def _parts(dims: Sequence[int]) -> list[tuple[Sequence[int], Sequence[int]]]:
    """Sizes and strides, three times one after the other."""
    found, at = [], 0
    while at < len(dims):
        count = dims[at]
        found.append((dims[at + 1 : at + 1 + count], dims[at + 1 + count : at + 1 + 2 * count]))
        at += 1 + 2 * count
    return found


def _address(x: Any) -> int:
    return x if isinstance(x, int) else ctypes.addressof(x)


def _read(x: Any, size: int) -> Argument:
    return (READ, 0, -1) if x is None else (READ, _address(x), size)


def _written(x: Any, size: int) -> Argument:
    return WRITTEN, _address(x), size


@contextmanager
def emulated(form: Form, source: Path) -> Iterator[Emulated]:
    """Compiles the form's library from this source. Raises SystemExit if that fails."""
    with tempfile.TemporaryDirectory() as folder:
        binary = Path(folder, "kernel")
        command = [COMPILER, "-O3", "-std=gnu11", "-static", "-fopenmp", "-ffp-contract=off", *form.flags]
        command += [f'-DKERNEL="{source}"', f"-D{form.define}", "-o", str(binary), str(SERVER), "-lm"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{form.name} does not compile:\n{done.stderr}")
        library = Emulated(binary)
        try:
            yield library
        finally:
            library.close()


def admitted(form: Form, library: Emulated) -> Any:
    """The kernel, after the checks before any kernel's first use. Raises Unusable."""
    given = cast(ctypes.CDLL, library)
    if form.define == "PRODUCT":
        return product_kernel.checked(given)
    if form.define == "WINDOWS":
        return windows_kernel.checked(given)
    return sha_kernel.checked(given)


def tried(form: Form, kernel: Any, seeds: int) -> int:
    """Runs the bit tests of this machine's kernel; returns their number. Raises AssertionError."""
    if form.define == "PRODUCT":
        tests = [
            *(partial(products.test_products_have_the_definition_s_bits, kernel, n) for n in range(seeds)),
            *(partial(products.test_the_largest_sums_do_not_overflow, kernel, n) for n in (1.0, -1.0)),
            partial(products.test_exponents_may_lie_in_any_order, kernel),
        ]
    elif form.define == "WINDOWS":
        tests = [
            *(partial(windows.test_sums_over_any_view_are_exact, kernel, n) for n in range(seeds)),
            *(
                partial(windows.test_the_largest_sums_do_not_overflow, kernel, turned)
                for turned in (False, True)
            ),
        ]
    else:
        tests = [
            *(
                partial(hashes.test_every_size_of_a_leaf_and_of_a_row, kernel, key)
                for key in (b"", hashes.KEY)
            ),
            *(partial(hashes.test_any_nan_anywhere_is_hashed_in_its_one_form, kernel, n) for n in NANS),
            partial(hashes.test_bytes_need_no_alignment, kernel),
        ]
    threads = torch.get_num_threads()
    for test in tests:
        test()
        torch.set_num_threads(threads)
    return len(tests)


def found(form: Form, right: str, wrong: str) -> bool:
    """True if a kernel with this fault is refused."""
    with tempfile.TemporaryDirectory() as folder:
        source = planted(Path(folder), form.source, right, wrong)
        with emulated(form, source) as library, suppress(Unusable):
            admitted(form, library)
            return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=80, help="random products, and views, of each form")
    parser.add_argument("--form", action="append", choices=[form.name for form in FORMS], help="default: all")
    chosen = parser.parse_args()
    if missing := [name for name in (COMPILER, EMULATOR) if shutil.which(name) is None]:
        raise SystemExit(f"NOT proven: there is no {' and no '.join(missing)} (see the top of this script)")
    unseen = 0
    for form in (form for form in FORMS if form.name in (chosen.form or [form.name])):
        with emulated(form, form.source) as library:
            count = tried(form, admitted(form, library), chosen.seeds)
        print(f"{form.name}: admitted, {count} tests of bits passed", flush=True)
        for right, wrong in form.faults:
            seen = found(form, right, wrong)
            unseen += not seen
            print(f"  planted {wrong!r}: {'found' if seen else 'NOT FOUND'}", flush=True)
    if unseen:
        raise SystemExit(f"{unseen} planted faults were not found")


if __name__ == "__main__":
    main()
