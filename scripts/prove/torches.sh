#!/usr/bin/env bash
# Numerics and compiled steps on other versions of PyTorch: the stored fitness digests, the unit tests of numerics and of
# compiled forms. Each version has an environment of its own outside the repository, removed before the next one.
# Usage: scripts/prove/torches.sh [VERSION...]   (default: the oldest and the newest that pyproject.toml admits and pip has)
# FOLDER: where the environments lie (default: a temporary folder). ENVIRONMENT: one that is there already, kept.
# QUICK=1: fewer digests. TESTS: what pytest runs (default: tests/unit/program/compiled tests/unit/numerics).
set -euo pipefail
cd "$(dirname "$0")/../.."
tests=${TESTS:-tests/unit/program/compiled tests/unit/numerics}
folder=${FOLDER:-$(mktemp -d)}

try() { # an environment's interpreter
  PYTHONPATH="$PWD" "$1" -c 'import torch; print("PyTorch", torch.__version__, flush=True)'
  PYTHONPATH="$PWD" OMP_NUM_THREADS=1 "$1" -m assay --home "$folder/home" --device cpu solver bench $([ -n "${QUICK:-}" ] || echo --full)
  # shellcheck disable=SC2086
  PYTHONPATH="$PWD" "$1" -m pytest -q -p no:cacheprovider -m "not slow and not gpu" $tests
}

if [ -n "${ENVIRONMENT:-}" ]; then
  try "$ENVIRONMENT/bin/python"
  exit
fi
if [ $# -eq 0 ]; then
  known=$(.venv/bin/python -m pip index versions torch 2>/dev/null | sed -n 's/^Available versions: //p' | tr -d ' ' | tr ',' '\n')
  admitted=$(echo "$known" | grep -E '^2\.1[1-5]\.' | grep -v + | sort -V)
  set -- "$(echo "$admitted" | head -1)" "$(echo "$admitted" | tail -1)"
fi
for version; do
  "${PYTHON:-python3.11}" -m venv "$folder/$version"
  "$folder/$version/bin/pip" install --quiet --disable-pip-version-check --no-cache-dir "torch==$version"
  "$folder/$version/bin/pip" install --quiet --disable-pip-version-check ".[dev]"
  try "$folder/$version/bin/python"
  rm -rf "${folder:?}/$version"
done
