"""Checks that a machine computes bit-exactly, by comparing it with stored digests.

``digests.json`` holds the reference's results on a CPU, for every operation (``fitness.exercise``) and for
100 training steps of each template (``fitness.samples``). Needs PyTorch, NumPy and the standard library.
"""
