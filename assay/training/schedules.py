"""Learning rate schedules as functions of a step counter in the state.

Contract: every operation exists in programs, on an f32 scalar; the counter is exact up to 2^24 steps. Not
guaranteed: the last bit of another implementation of the same schedule.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from assay.protocol.errors import Stop
from assay.training.lazy_torch import torch

if TYPE_CHECKING:
    from torch import Tensor


Decay = Literal["constant", "linear", "cosine", "exponential", "wsd"]
_LAST = 0.2
"""Share of the steps after the warm-up in which "wsd" decays."""


@dataclass(frozen=True)
class Schedule:
    """A linear warm-up, then a decay from 1 to `floor` between `warmup_steps` and `total_steps`: linear, as a
    half wave of cosine, exponential, or ("wsd": warm-up, stable, decay) linear in their last fifth alone.

    Steps are the optimiser's, of one shard, counted over all rounds: rounds · stepsPerRound in a whole job
    without micro-steps.
    """

    warmup_steps: int = 0
    decay: Decay = "constant"
    total_steps: int = 0
    floor: float = 0.0

    def __post_init__(self) -> None:
        if self.decay not in get_args(Decay):
            raise Stop(
                f"there is no decay {self.decay!r}",
                hint=f"choose one of {', '.join(get_args(Decay))}; for another schedule give"
                " Recipe(optimiser=...) an object of your own (docs/training.md)",
            )
        if self.decay == "exponential" and self.floor <= 0:
            raise Stop("an exponential decay cannot end at 0", hint="write a floor, such as 0.1")
        if self.decay != "constant" and self.total_steps <= self.warmup_steps:
            raise Stop(
                f"a {self.decay} decay over {self.total_steps} steps ends within its warm-up of"
                f" {self.warmup_steps}",
                hint="lower warmup_steps, or raise rounds: total_steps 0 is rounds times steps a round",
            )

    @property
    def constant(self) -> bool:
        """True if the rate never changes, so that no counter is needed."""
        return not self.warmup_steps and self.decay == "constant"

    def factor(self, step: Tensor) -> Tensor:
        """Factor of the learning rate at f32 scalar `step` (0 at the first step)."""
        warmed = torch.clamp((step + 1) / self.warmup_steps, max=1.0) if self.warmup_steps else None
        if self.decay == "constant":
            return torch.ones_like(step) if warmed is None else warmed
        length = self.total_steps - self.warmup_steps
        progress = torch.clamp((step - self.warmup_steps) / length, min=0.0, max=1.0)
        left = 1 - progress
        if self.decay == "cosine":
            left = (torch.cos(progress * math.pi) + 1) * 0.5
        if self.decay == "wsd":
            left = torch.clamp(left / _LAST, max=1.0)
        if self.decay == "exponential":
            decayed = torch.exp(progress * math.log(self.floor))
            return decayed if warmed is None else warmed * decayed
        decayed = left * (1 - self.floor) + self.floor
        return decayed if warmed is None else warmed * decayed
