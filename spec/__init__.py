"""The executable specification: the market's contracts as pure functions from one state to the next.

For tests, the simulation and the reader. Nothing that ships imports it (import rule), and every rule in it is
tested against the deployed contracts (``tests/twin``).
"""
