"""The rules of the market as pure functions: no input or output, no clock, no floats, no third-party code.

Normative text: ``docs/protocol.md``. Everything here is mirrored by the contracts and tested against them.
"""
