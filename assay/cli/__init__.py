"""The ``assay`` command: the only reader of environment variables and configuration files, and the place
where ports meet their adapters."""

import os

# Huge pages for large tensors, where the system leaves the choice: a traced step takes 7 % less processor
# time (docs/decisions/0014-c-kernels.md). PyTorch asks at its first tensor; 0 says no.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
