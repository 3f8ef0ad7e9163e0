"""A whole market on this machine: its chain, its processes, and their record."""
