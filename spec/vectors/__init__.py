"""Generators of the vectors that forge, pytest and the second client share (tests/vectors)."""
