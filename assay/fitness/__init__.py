"""Whether a machine computes what the definition says: stored digests, and the comparison with them.

``digests.json`` holds what the reference gives on a processor, for every operation (``fitness.exercise``) and
for 100 training steps of each template (``fitness.samples``). Needs PyTorch, NumPy and the standard
library.
"""
