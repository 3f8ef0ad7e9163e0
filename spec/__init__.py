"""The executable specification: the market's contracts as pure functions from one state to the next.

Used by tests, the simulation and readers. An import rule keeps it out of everything that ships, and
``tests/twin`` tests each of its rules against the deployed contracts.
"""
