"""Plays disputes off chain: replays, traces, moves, and evidence for the arbiter."""
