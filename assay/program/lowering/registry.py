"""Registry of lowering rules for ATen operations.

A rule takes the context, the traced node and the node's arguments with traced tensors replaced by views. It
returns a view, a tuple of views, or None for results that nothing may read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Rule = Callable[..., Any]

RULES: dict[Any, Rule] = {}


def lowers(*names: str) -> Callable[[Rule], Rule]:
    """Registers a rule for operations named like ``"add.Tensor"``."""

    def register(rule: Rule) -> Rule:
        for name in names:
            packet, _, overload = name.partition(".")
            RULES[getattr(getattr(torch.ops.aten, packet), overload or "default")] = rule
        return rule

    return register
