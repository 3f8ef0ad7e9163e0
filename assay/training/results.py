"""Names of parameters that are a job's result instead of model weights.

Contract: separate from the modules that trace such jobs, so that reading a result need not import the tracer.
"""

from __future__ import annotations

LOSS = "evaluation.loss"
"""f32 scalar: mean loss over the records so far (``training.evaluation``)."""
TOKENS = "inference.tokens"
"""i32 [prompts, length]: generated text (``training.inference``)."""
REWARD = "grpo.reward"
"""f32 scalar: mean reward of the last round's rollouts (``training.actors``)."""
SCALARS = (LOSS, REWARD)
RESULTS = (*SCALARS, TOKENS)
NOTHING = -1
"""In `TOKENS`: no byte."""
