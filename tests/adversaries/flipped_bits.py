"""Damages every kind of file that a node keeps, one fault at a time, and checks what the node does.

Faults: one flipped bit; a cut; a sector (512 bytes) that was never written, or has its earlier content; a
whole file that is missing or has its earlier content. What the node then reads is compared with what was
written: `harmless` if equal, `mended` if equal except for what the node recovers by itself, `told` if it is
an error that names the next step. `WRONG` (another value without an error) and `RAW` (any other exception)
must not occur.

Contract: the same number of faults and seed give the same faults, spread evenly over the kinds and over each
kind's files. Not guaranteed: that two faults at once are noticed.
"""

from __future__ import annotations

import random
import shutil
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from assay.protocol.errors import AssayError
from tests.adversaries.disk_subjects import Subject

SECTOR = 512
KINDS = ("flip",) * 7 + ("cut", "sector", "lost")
OUTCOMES = ("harmless", "mended", "told", "WRONG", "RAW")
Files = dict[str, bytes]
"""A folder's files, by their path in it."""


@dataclass(frozen=True)
class Tried:
    """One fault and its outcome."""

    subject: str
    fault: str
    outcome: str
    why: str = ""


def files_of(folder: Path) -> Files:
    """All files below a folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


class Bench:
    """One kind of record in its own folder."""

    def __init__(self, subject: Subject, folder: Path) -> None:
        self.subject = subject
        self._work = folder / "tried"
        written = folder / "written"
        written.mkdir(parents=True)
        self._earlier: list[Files] = [{}]
        subject.write(written, lambda: self._earlier.append(files_of(written)))
        self.files = files_of(written)
        assert any(self.files.values()), f"{subject.name} wrote nothing"
        self._lay(self.files)
        self.truth = subject.read(self._work)

    def _lay(self, files: Files) -> None:
        shutil.rmtree(self._work, ignore_errors=True)
        self._work.mkdir()
        for name, data in files.items():
            path = self._work / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    def damaged(self, rng: random.Random) -> tuple[str, Files]:
        """A fault in words, and the files with it. Something is different in them."""
        names = [name for name, data in self.files.items() if data]
        while True:
            name, kind = rng.choice(names), rng.choice(KINDS)
            data = self.files[name]
            before = rng.choice(self._earlier).get(name)
            at = rng.randrange(len(data))
            if kind == "flip":
                bit = rng.randrange(8)
                fault, after = (
                    f"bit {bit} of byte {at}",
                    data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :],
                )
            elif kind == "cut":
                fault, after = f"cut to {at} bytes", data[:at]
            elif kind == "sector":
                start = at // SECTOR * SECTOR
                old = (before or b"")[start : start + SECTOR].ljust(len(data[start : start + SECTOR]), b"\0")
                fault = f"sector at {start} as before"
                after = data[:start] + old[: len(data) - start] + data[start + SECTOR :]
            elif len(self._earlier) == 1:
                continue
            elif before is None:
                return f"{name}: gone", {n: d for n, d in self.files.items() if n != name}
            else:
                fault, after = "as it was before", before
            if after != data:
                return f"{name}: {fault}", {**self.files, name: after}

    def tries(self, rng: random.Random) -> Tried:
        """One fault."""
        fault, files = self.damaged(rng)
        self._lay(files)
        name = self.subject.name
        try:
            found = self.subject.read(self._work)
        except AssayError as error:
            return Tried(name, fault, "told" if error.hint else "RAW", f"{error.message}; {error.hint}")
        except Exception:  # noqa: BLE001 - any other is what is looked for
            return Tried(name, fault, "RAW", traceback.format_exc())
        if found == self.truth:
            return Tried(name, fault, "harmless")
        if self.subject.lost(self.truth, found):
            return Tried(name, fault, "mended")
        return Tried(name, fault, "WRONG", f"{found!r}"[:2_000])


def campaign(subjects: Sequence[Subject], faults: int, seed: int, folder: Path) -> list[Tried]:
    """`faults` faults, evenly over the subjects."""
    tried = []
    for number, subject in enumerate(subjects):
        bench = Bench(subject, folder / str(number))
        rng = random.Random(f"{seed}/{subject.name}")
        share = faults // len(subjects) + (number < faults % len(subjects))
        tried += [bench.tries(rng) for _ in range(share)]
    return tried


def summary(tried: Sequence[Tried]) -> str:
    """A table of outcomes by subject."""
    counts = Counter((one.subject, one.outcome) for one in tried)
    names = list(dict.fromkeys(one.subject for one in tried))
    lines = [f"{'kind':20}" + "".join(f"{outcome:>10}" for outcome in OUTCOMES)]
    for name in [*names, "all"]:
        row = (sum(n for (s, o), n in counts.items() if o == out and name in (s, "all")) for out in OUTCOMES)
        lines.append(f"{name:20}" + "".join(f"{n:>10,}" for n in row))
    return "\n".join(lines)
