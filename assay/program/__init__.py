"""Programs: a job's training step as data.

A program is a list of nodes from a small closed instruction set (docs/protocol.md, section 2). This package
traces it from PyTorch, validates, stores and executes it, commits to its execution, and answers a dispute's
questions about it.
"""
