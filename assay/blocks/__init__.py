"""Content-addressed storage: blocks named by their SHA-256, kept on disk, served and fetched over HTTP.

Contract: no function of this package returns a block whose bytes do not match the CID that was asked
for.
Does not guarantee: that anybody keeps a block; only what is pinned in a reachable store stays
available.
Source: docs/decisions/0002-storage.md
"""
