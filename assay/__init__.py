"""Assay: a market for machine-learning training compute in which nobody has to be trusted.

One name for everything that is installed: the rooms at the top of the checkout (`protocol`, `numerics`,
`chain`, ...) are imported as `assay.protocol`, `assay.numerics`, `assay.chain`. In a checkout they stand here
as links (docs/decisions/0029-rooms.md).
"""
