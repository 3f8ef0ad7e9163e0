"""Lowering: a traced graph of ATen operations becomes a program of the instruction set.

The rules and the fixed orders it chooses are in docs/lowering.md.
"""

from assay.program.lowering.context import Choose, ProductSite, single
from assay.program.lowering.graph import Lowered, lower, lower_step

__all__ = ["Choose", "Lowered", "ProductSite", "lower", "lower_step", "single"]
