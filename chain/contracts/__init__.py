"""Adapter of the market's contracts: deployment, calls, events and views."""
