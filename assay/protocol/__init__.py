"""Implements the rules of the market as pure functions: no I/O, no clock, no floats, no third-party code.

Normative text: ``docs/protocol.md``. The contracts mirror everything here and are tested against it.
"""
