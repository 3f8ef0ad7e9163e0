"""The pure protocol and the deployed contracts, driven by the same events and compared after each."""
