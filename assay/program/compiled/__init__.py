"""Compiled execution: a step fused by `torch.compile`, with the bits of the reference."""
