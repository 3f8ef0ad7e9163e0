"""Durable, checksummed files: records, databases and copies."""
