"""Shared by all commands: settings, amounts, output, and adapters of the ports."""
