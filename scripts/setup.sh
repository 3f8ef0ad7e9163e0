#!/usr/bin/env bash
# Installs what the project needs, in independent parts, each behind a stamp that the Makefile compares with the lock
# files:  setup.sh python    .venv with the versions of requirements.lock, and the project itself, editable
#         setup.sh contracts contracts/node_modules with the versions of package-lock.json
#         setup.sh hardhat   tests/hardhat/node_modules, only for `make second-chain`
# PYTHON chooses the interpreter (3.11 or newer); package indexes and proxies are whatever pip and npm are configured with.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
  echo "setup: $1" >&2
  exit 1
}

find_python() {
  local candidate
  for candidate in ${PYTHON:-} python3.11 python3.12 python3.13 python3; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  fail "no Python 3.11 or newer found, so nothing was installed; install one, or name it: make setup PYTHON=/path/to/python3.11"
}

setup_python() {
  local python pip
  if [ ! -x .venv/bin/python ]; then
    python=$(find_python)
    echo "setup: creating .venv with $("$python" --version)"
    "$python" -m venv .venv || fail "could not create .venv; on Debian and Ubuntu install the python3-venv package, then run make setup again"
  fi
  pip=(.venv/bin/python -m pip --disable-pip-version-check --quiet)
  echo "setup: installing Python packages (torch is the large one)"
  # torch by itself first: its build and its dependencies depend on the platform. All else is checked by hash.
  "${pip[@]}" install "$(grep -o '^torch==[0-9.]*' requirements.lock)"
  "${pip[@]}" install --require-hashes --no-deps -r requirements.lock
  "${pip[@]}" install --no-deps --no-build-isolation --editable .
  touch .venv/.assay-installed
}

setup_contracts() {
  command -v node >/dev/null && command -v npm >/dev/null || fail "node and npm are needed for Foundry and solc, and are not on PATH; install Node.js 20 or newer, then run make setup again"
  echo "setup: installing Foundry, solc and the Solidity libraries"
  (cd contracts && npm ci --loglevel=error)
  contracts/bin/foundry forge --version >/dev/null
  contracts/bin/solc --version >/dev/null
  touch contracts/node_modules/.assay-installed
}

setup_hardhat() {
  command -v npm >/dev/null || fail "npm is needed for Hardhat's node and is not on PATH; install Node.js 20 or newer"
  echo "setup: installing Hardhat's node (300 MB), for tests alone"
  (cd tests/hardhat && npm ci --loglevel=error)
  touch tests/hardhat/node_modules/.assay-installed
}

case "${1:-}" in
  python) setup_python ;;
  contracts) setup_contracts ;;
  hardhat) setup_hardhat ;;
  *) fail "usage: scripts/setup.sh python|contracts|hardhat" ;;
esac
