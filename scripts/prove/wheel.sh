#!/usr/bin/env bash
# Builds a wheel, installs it into an empty environment and runs a scenario there, away from the checkout.
# Drills are in no wheel: of the checkout they alone are on the path.
# Needs `make setup` before (the wheel takes the compiled contracts along) and Anvil, which is taken from the checkout.
# Usage: scripts/prove/wheel.sh [FOLDER]   (default: a temporary one, removed at the end)
set -euo pipefail
cd "$(dirname "$0")/../.."
checkout=$PWD
folder=${1:-$(mktemp -d)}
[ -n "${1:-}" ] || trap 'rm -rf "$folder"' EXIT
make --no-print-directory setup
rm -rf build
.venv/bin/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir "$folder" .
"${PYTHON:-python3.11}" -m venv "$folder/env"
# torch by itself first, pinned: its dependencies depend on the platform
"$folder/env/bin/pip" install --quiet --disable-pip-version-check "$(grep '^torch==' requirements.lock)"
"$folder/env/bin/pip" install --quiet --disable-pip-version-check --constraint requirements.lock "$folder"/assay-*.whl
anvil=$(dirname "$(ls "$PWD"/contracts/node_modules/@foundry-rs/anvil-*/bin/anvil 2>/dev/null || command -v anvil)")
export PATH="$anvil:$PATH"
cd "$folder"
echo "of this project in site-packages: $(ls -d env/lib/python*/site-packages/assay*)"
env/bin/python -c 'import assay.protocol, sys; assert "site-packages" in assay.protocol.__file__, assay.protocol.__file__'
env/bin/python -m assay --help >/dev/null
ln -s "$checkout/drills" drills
env/bin/python -m drills run one-ulp --quick
