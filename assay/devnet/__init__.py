"""A whole market on this machine: its chain, its processes, and the record of both."""
