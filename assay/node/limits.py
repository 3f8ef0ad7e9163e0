"""Limits on the size of jobs that a node accepts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ResourceLimits:
    """Maximum sizes that this node fetches and runs; the operator's choice, not consensus."""

    dataset_bytes: int
    """Bytes of the records; the tree over them may take as much memory again."""
    state_bytes: int
    step_bytes: int
    step_operations: int
    memory_bytes: int
    """Memory of a step. Larger steps, up to `step_bytes`, are replayed streamed (``program.streamed``)."""

    @property
    def cache_bytes(self) -> int:
        """Budget of the state cache in memory: a sixteenth of the memory of a step."""
        return self.memory_bytes // 16
