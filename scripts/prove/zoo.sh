#!/usr/bin/env bash
# Models of other people's libraries, traced as they are written, and the road from a transformers folder to a job and
# back. The libraries are these tests' needs alone: they are installed into .assay/tools/zoo, beside what .venv has.
# Usage: scripts/prove/zoo.sh [PYTEST ARGUMENTS...]   (default: everything, tests marked slow too)
# ENVIRONMENT: one that is there already, in place of .assay/tools/zoo.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=${ENVIRONMENT:-.assay/tools/zoo}
libraries=(transformers==5.24.0 torchvision timm==1.0.31 diffusers==0.42.1 peft==0.21.2)

if [ ! -x "$folder/bin/python" ]; then
  "$(readlink -f .venv/bin/python)" -m venv "$folder"
  there=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
  echo "import site; site.addsitedir('$there')" > "$folder/lib/$(basename "$(dirname "$there")")/site-packages/beside.pth"
  held=$(mktemp)
  grep -oE '^(torch|numpy|safetensors)==[0-9.]*' requirements.lock > "$held" # so that none of them is replaced
  "$folder/bin/python" -m pip install --quiet --disable-pip-version-check -c "$held" "${libraries[@]}"
  rm "$held"
fi
[ $# -gt 0 ] || set -- tests/zoo/test_published.py tests/unit/training/test_pretrained.py
PYTHONPATH="$PWD" HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 "$folder/bin/python" -m pytest -q -p no:cacheprovider \
  -m "slow or not slow" "$@"
