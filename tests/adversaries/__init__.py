"""Liars over random programs: what they plant, and the games that must convict them."""
