"""Lowers a traced graph of ATen operations to a program of the instruction set.

docs/lowering.md has the rules and the fixed orders.
"""

from assay.program.lowering.context import Choose, ProductSite, single
from assay.program.lowering.graph import Lowered, lower, lower_step

__all__ = ["Choose", "Lowered", "ProductSite", "lower", "lower_step", "single"]
