"""Scenarios: a market in which somebody cheats, run from the first block to the checked model."""
