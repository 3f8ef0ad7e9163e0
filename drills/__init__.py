"""Drills: nodes that cheat on purpose, and scenarios with such nodes, on devnets only."""
