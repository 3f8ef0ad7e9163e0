"""Runs a role as a process: HTTP server, machine check, signals."""
