"""Runs heavy work in worker processes, each with a device and without keys, chain access or network."""
