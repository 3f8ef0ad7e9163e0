"""Drills: nodes that cheat on purpose, and whole markets in which one does, on a devnet and nowhere else."""
