"""Writes assay/fitness/digests.json: the definition's results for every exercise and template.

Takes minutes of CPU time. Usage: `scripts/generate/digests.py`.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from assay.fitness import digests

if __name__ == "__main__":
    digests.write(partial(print, flush=True))
