"""In-memory worlds for tests: chain, blocks, clock. Never imported outside `tests`."""
