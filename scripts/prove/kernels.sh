#!/usr/bin/env bash
# The GPU's kernels against the definition, bit for bit, by Triton's interpreter on a processor. Triton (a
# gigabyte, Linux alone) is kept apart from the environment that `make setup` makes.
# Usage: scripts/prove/kernels.sh [pytest arguments]; without any, the slow ones too.
set -euo pipefail
cd "$(dirname "$0")/../.."
tools="$PWD/.assay/tools/triton-3.9.0"
if [ ! -d "$tools/triton" ]; then
  .venv/bin/python -m pip install --quiet --no-deps --target "$tools" triton==3.9.0
fi
export PYTHONPATH="$PWD:$tools"
[ $# -gt 0 ] || set -- -m "slow or not slow"
exec .venv/bin/python -m pytest -q tests/unit/numerics/test_product_triton.py "$@"
