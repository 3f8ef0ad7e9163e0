"""Keeps how far a member of a crew has come, in memory and on disk.

Contract: a saved progress is what was saved: its record has a checksum, and its tensors have the roots in the
record. It is there whole or not at all, whenever the process is killed. A damaged one counts as absent. The
latest two of a run are kept, since members who stop at any moment are at most one save apart.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from assay.disk import record
from assay.program.state import begin_roots
from assay.protocol import trees

log = logging.getLogger(__name__)
KIND = "assay/stage-progress/2"
KEPT = 2
_SAVE_AGAIN = "it is computed again from an earlier step"


Said = list[list[bytes]]
"""What each member says of the steps of a segment: its state's roots before and after each, as 64 bytes."""


def transcript(steps: Sequence[bytes]) -> bytes:
    """Root of one member's steps (docs/protocol.md, 8.5)."""
    return trees.root([trees.leaf(step) for step in steps])


@dataclass
class Told:
    """Roots that a member reports for its stage: of its own slots, of received tensors, of sent tensors."""

    slots: list[bytes]
    received: list[bytes]
    sent: list[bytes]

    @property
    def leaves(self) -> list[bytes]:
        """Leaves of the stage's state."""
        return [*self.slots, *self.received, *self.sent]


@dataclass
class Progress:
    """A member's results before step `step`."""

    step: int
    state: list[Tensor]
    """Tensors of the slots that it owns."""
    told: list[Told]
    """Every member's roots after the last step."""
    said: list[Said]
    """By segment, up to the one under way."""
    roots: list[bytes] = field(default_factory=list)
    """Roots of the whole state at the ends of segments so far."""
    indices: list[str] = field(default_factory=list)
    """CIDs of the states at the ends of segments, where this member publishes them."""


class SavedProgress:
    """The saved progress of one run in a folder; without a folder, none."""

    def __init__(self, folder: Path | None, run: bytes) -> None:
        self._folder, self._name = folder, run.hex()[:16]
        self._steps: list[int] = []
        for path in [] if folder is None else folder.glob(f"{self._name}-*.new"):
            path.unlink(missing_ok=True)  # left by a process that was killed while it saved
        for path in [] if folder is None else folder.glob(f"{self._name}-*.json"):
            self._steps.append(int(path.stem.rpartition("-")[2]))
        self._steps.sort()

    def steps(self) -> list[int]:
        """Steps before which a progress is saved, whole and undamaged."""
        self._steps = [step for step in self._steps if self.load(step) is not None]
        return self._steps

    def load(self, step: int) -> Progress | None:
        """The progress before a step; None if there is none or it is damaged."""
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        told, tensors = self._paths(step)
        body = record.read_or_quarantine(told, KIND, instead=_SAVE_AGAIN)
        if body is None:
            return None
        try:
            held = load_file(tensors)
            found = _decoded(body, [held[str(slot)] for slot in range(len(held))])
        except (OSError, SafetensorError, KeyError) as error:
            log.warning("%s cannot be read (%s): %s", tensors, error, _SAVE_AGAIN)
            return None
        if begin_roots(found.state)() != [bytes.fromhex(root) for root in body["own"]]:
            log.warning("%s is damaged: %s", tensors, _SAVE_AGAIN)
            return None
        return found

    def drop_after(self, step: int) -> None:
        """Deletes progress beyond a step with which all have begun: what is computed now leads elsewhere."""
        for later in [each for each in self._steps if each > step]:
            self._steps.remove(later)
            for path in self._paths(later):
                path.unlink(missing_ok=True)

    def save(self, progress: Progress, member: int) -> None:
        """Saves a progress durably, and deletes all but the latest ones."""
        if self._folder is None:
            return
        from safetensors.torch import save_file

        self._folder.mkdir(parents=True, exist_ok=True)
        told, tensors = self._paths(progress.step)
        fresh = tensors.with_name(tensors.name + ".new")
        save_file({str(slot): x.cpu() for slot, x in enumerate(progress.state)}, fresh)
        with fresh.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(fresh, tensors)
        record.write(told, KIND, _encoded(progress, member))
        self._steps = [*(step for step in self._steps if step != progress.step), progress.step]
        while len(self._steps) > KEPT:
            for path in self._paths(self._steps.pop(0)):
                with suppress(FileNotFoundError):
                    path.unlink()

    def _paths(self, step: int) -> tuple[Path, Path]:
        """Files of a progress: its record, which is written last, and its tensors."""
        assert self._folder is not None
        stem = f"{self._name}-{step}"
        return self._folder / f"{stem}.json", self._folder / f"{stem}.safetensors"


def _hex(roots: Sequence[bytes]) -> list[str]:
    return [root.hex() for root in roots]


def _unhex(roots: Sequence[str]) -> list[bytes]:
    return [bytes.fromhex(root) for root in roots]


def _encoded(progress: Progress, member: int) -> dict[str, Any]:
    return {
        "step": progress.step,
        "own": _hex(progress.told[member].slots),
        "told": [{key: _hex(roots) for key, roots in asdict(told).items()} for told in progress.told],
        "said": [[_hex(steps) for steps in said] for said in progress.said],
        "roots": _hex(progress.roots),
        "indices": progress.indices,
    }


def _decoded(body: dict[str, Any], state: list[Tensor]) -> Progress:
    return Progress(
        body["step"],
        state,
        [Told(**{key: _unhex(roots) for key, roots in told.items()}) for told in body["told"]],
        [[_unhex(steps) for steps in said] for said in body["said"]],
        _unhex(body["roots"]),
        list(body["indices"]),
    )
