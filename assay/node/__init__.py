"""Implements what all roles share: the node's loop, market reads, auditing by replay, upkeep, playing
challenges."""
