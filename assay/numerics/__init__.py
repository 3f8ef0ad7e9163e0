"""Order-free arithmetic: bit-exact functions of PyTorch tensors, and on Python integers in ``scalar``.

Contract: docs/arithmetic.md defines each result. An instruction's row in ``program.isa`` names its functions.
Imports nothing: ``scalar`` needs no PyTorch.
"""
