"""The most that a node takes on for one job."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ResourceLimits:
    """The most that this node is willing to fetch and run; operator's choice, not consensus."""

    dataset_bytes: int
    """Of the records; the tree over them may take as much of memory again."""
    state_bytes: int
    step_bytes: int
    step_operations: int

    @property
    def cache_bytes(self) -> int:
        """What a node keeps of states in memory beside what it is at: a sixteenth of the memory of a step."""
        return self.step_bytes // 16
