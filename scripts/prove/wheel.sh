#!/usr/bin/env bash
# Builds the wheel, from the checkout and from a source distribution of it, which has to give the same; installs it as a
# user does and uses it outside the checkout: a devnet, a job that is posted, trained and fetched, and a second market
# with the files for a block explorer. Node.js and npm are hidden from it; Anvil is
# taken from PATH or from contracts/node_modules, and its absence has to be explained.
# Usage: scripts/prove/wheel.sh [FOLDER]   (default: a temporary one, removed at the end)
# PYTHON: the interpreter. TORCH: a version installed beforehand, with transformers, which has to stay (default: the
# version of requirements.lock, alone). ENVIRONMENT: a virtual environment to install into instead of a new one.
set -euo pipefail
cd "$(dirname "$0")/../.."
checkout=$PWD
folder=${1:-$(mktemp -d)}
[ -n "${1:-}" ] || trap 'rm -rf "$folder"' EXIT
python=${PYTHON:-python3.11}

mkdir -p "$folder/source" "$folder/bin"
git ls-files -z -- . ':!tests' ':!docs' | xargs -0 cp --parents --no-dereference --target-directory "$folder/source"
"$python" -m venv "$folder/build"
"$folder/build/bin/pip" wheel --quiet --no-deps --wheel-dir "$folder/direct" "$folder/source"
"$folder/build/bin/pip" install --quiet "setuptools>=77"
(cd "$folder/source" && "$folder/build/bin/python" -c "from setuptools.build_meta import build_sdist as b; b('$folder')" \
  >/dev/null)
"$folder/build/bin/pip" wheel --quiet --no-deps --wheel-dir "$folder" "$folder"/assay_market-*.tar.gz
"$folder/build/bin/python" scripts/prove/same_wheels.py "$folder"/direct/*.whl "$folder"/*.whl

environment=${ENVIRONMENT:-$folder/env}
pip=("$environment/bin/python" -m pip --quiet --disable-pip-version-check)
if [ -z "${ENVIRONMENT:-}" ]; then
  "$python" -m venv "$environment"
  "${pip[@]}" install "torch==${TORCH:-$(grep -oP '^torch==\K[0-9.]*' requirements.lock)}" ${TORCH:+transformers}
fi
before=$("$environment/bin/python" -c 'import torch; print(torch.__version__)')
"${pip[@]}" install "$(ls "$folder"/assay_market-*.whl)[examples]"
"${pip[@]}" check
[ "$("$environment/bin/python" -c 'import torch; print(torch.__version__)')" = "$before" ]

for tool in node npm; do
  printf '#!/bin/sh\necho "%s was run" >&2\nexit 97\n' "$tool" >"$folder/bin/$tool"
  chmod +x "$folder/bin/$tool"
done
anvil=$(command -v anvil || ls "$checkout"/contracts/node_modules/@foundry-rs/anvil-*/bin/anvil)
export PATH="$folder/bin:/usr/bin:/bin" ASSAY_HOME="$folder/home"
unset PYTHONPATH
cd "$folder"
assay=("$environment/bin/assay" --yes)
"$environment/bin/python" -c 'import assay.protocol as p; assert "site-packages" in p.__file__, p.__file__'
if "${assay[@]}" devnet up >no-anvil.log 2>&1 || ! grep -q Foundry no-anvil.log; then
  echo "without Anvil, devnet up does not say how to get it:" && cat no-anvil.log && exit 1
fi
ln -s "$anvil" bin/anvil
trap '"${assay[@]}" devnet down >/dev/null 2>&1 || true; [ -n "${1:-}" ] || rm -rf "$folder"' EXIT
"${assay[@]}" devnet up --solvers 2 --verifiers 2 --whistleblowers 0
"${assay[@]}" job init job.toml --template mlp --data digits --rounds 1
"${assay[@]}" --account client job post job.toml --budget 150tok >post.log 2>&1 & # serves its files until it is ended
post=$!
for ((waited = 0; waited < 900; waited++)); do
  grep -q 'the job is closed' post.log && break
  kill -0 $post || break
  sleep 1
done
grep -q 'the job is closed' post.log || { cat post.log && exit 1; }
"${assay[@]}" job fetch latest --out model
kill $post
"${assay[@]}" --account client --deployment second.json deploy --profile devnet --label second
grep -q '"src/market/Vault.sol"' second-verification/standard-input.json
"${assay[@]}" devnet down
echo "the wheel works with $("$environment/bin/python" -V), PyTorch $before: $(ls "$folder"/assay_market-*.whl | xargs basename)"
