#!/usr/bin/env bash
# Symbolic proofs about the contracts' money (contracts/test/symbolic), by halmos in an environment of its own. Fails
# unless every one is proven. Compiles with the repository's own solc; yices and z3 come with halmos, cvc5 beside it.
# Usage: scripts/prove/symbolic.sh [halmos arguments], e.g. --contract VaultSymbolic
set -euo pipefail
cd "$(dirname "$0")/../.."
tools="$PWD/.assay/tools/halmos-0.3.3-cvc5-1.4.2"
if [ ! -x "$tools/bin/halmos" ]; then
  "${PYTHON:-python3.11}" -m venv "$tools"
  "$tools/bin/pip" install --quiet halmos==0.3.3 cvc5==1.4.2
fi
forge=$(dirname "$(ls "$PWD"/contracts/node_modules/@foundry-rs/forge-*/bin/forge 2>/dev/null || command -v forge)")
export PATH="$forge:$PATH" FOUNDRY_PROFILE=symbolic ASSAY_SYMBOLIC="$tools/bin"
# The proofs rest on what the restated queries are called: first a hundred random ones, held to z3's bits.
[ $# -gt 0 ] || "$tools/bin/python" scripts/prove/check_smt_integers.py 100
cd contracts
exec "$tools/bin/halmos" --forge-build-out cache/symbolic/out --loop 40 --no-status \
  --solver-command "$tools/bin/python $PWD/../scripts/prove/smt.py" --solver-timeout-assertion "${TIMEOUT_MS:-300000}" \
  --solver-timeout-branching 100 --solver-threads "${THREADS:-2}" "$@"
