"""A decoder policy and its GRPO training programs.

Contract: a `Policy`'s functions are PyTorch that can be lowered; `stepped` is one optimiser step on any loss
of the parameters. ``training.actors`` builds a job from these programs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from assay.program.execute import Executor, StepContext
from assay.program.isa import Program
from assay.program.lowering import lower_step
from assay.program.lowering.dataless import NO_RECORD
from assay.program.lowering.tracing import trace_step
from assay.training.grpo import Decoder, Shape, answers_known
from assay.training.optimisers import Named, Optimiser
from assay.training.verifiable import Verifiable


class _Calling(nn.Module):
    """A function of a net as a module, for `functional_call`."""

    def __init__(self, net: Decoder, function: Callable[..., Any]) -> None:
        super().__init__()
        self.net = net
        self._function = function

    def forward(self, *given: Any) -> Any:
        return self._function(self.net, *given)


class Policy:
    """A decoder for a task, with its initial parameters by name."""

    def __init__(self, task: Verifiable, shape: Shape, seed: int = 0) -> None:
        self.task = task
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.net = Decoder(shape, task.vocabulary)
        self.params = {n: p.detach().clone() for n, p in self.net.named_parameters()}
        self.names = list(self.params)

    def named(self, tensors: Sequence[Tensor]) -> dict[str, Tensor]:
        """The first tensors as parameters."""
        return dict(zip(self.names, tensors, strict=False))

    def called(self, params: Named, method: Callable[..., Any], *given: Any) -> Any:
        """Calls a function of the net with these parameters."""
        return functional_call(_Calling(self.net, method), {f"net.{n}": p for n, p in params.items()}, given)

    def stepped(
        self, optimiser: Optimiser, state: Sequence[Tensor], loss_of: Callable[[Named], Tensor]
    ) -> tuple[list[Tensor], Tensor]:
        """[θ, optimiser] after a step, and its loss."""
        count, slots = len(self.names), list(optimiser.genesis(self.params))
        params = {n: p.detach().requires_grad_() for n, p in self.named(state[:count]).items()}
        with torch.enable_grad():
            loss = loss_of(params)
            grads = torch.autograd.grad(loss, list(params.values()))
        held = dict(zip(slots, state[count:], strict=True))
        after, rest = optimiser.update(
            {n: p.detach() for n, p in params.items()}, dict(zip(self.names, grads, strict=True)), held
        )
        return [*after.values(), *(rest[n] for n in slots)], loss.detach()

    def start(self, optimiser: Optimiser) -> list[Tensor]:
        """[θ, optimiser] before the first step."""
        return [*self.params.values(), *optimiser.genesis(self.params).values()]

    def warm_program(self, optimiser: Optimiser, rows: int, seed: int = 0) -> Program:
        """[θ, optimiser, loss] → the same after a supervised step on `rows` drawn problems."""
        task, start = self.task, self.start(optimiser)

        def warm(state: list[Tensor], batch: Tensor) -> list[Tensor]:
            drawn = task.drawn(rows)
            made, loss = self.stepped(
                optimiser, state[:-1], lambda p: -self.called(p, answers_known, task, drawn).mean()
            )
            return [*made, loss]

        traced = trace_step(warm, [*start, torch.zeros(())], NO_RECORD)
        return lower_step(traced, params=len(self.names), seed=seed)

    def warmed(
        self, optimiser: Optimiser, rows: int, steps: int, each: Callable[[int], None] = lambda _: None
    ) -> list[Tensor]:
        """θ after supervised steps from the initial parameters; `each` is called with the number done."""
        state = [*self.start(optimiser), torch.zeros(())]
        if steps:
            run = Executor(self.warm_program(optimiser, rows))
            for step in range(steps):
                state = list(run.step(state, StepContext(None, bytes(32), 0, step)))
                each(step + 1)
        return state[: len(self.names)]
