"""Lowering: a traced graph of ATen operations becomes a program of the instruction set.

The rules and the fixed orders it chooses are in docs/decisions/0004-lowering.md.
"""

from assay.program.lowering.graph import lower_step

__all__ = ["lower_step"]
