"""Reads job files, writes them from templates, and builds what a client publishes and posts."""
