#!/bin/sh
# Everything that a GPU is to be asked, in eight minutes: scripts/gpu_check.py by the Python that has PyTorch.
# Usage: scripts/gpu_check.sh [OPTIONS of gpu_check.py]    PYTHON: the interpreter (default: .venv's, else python3)
here=$(dirname "$0")
[ -x "$here/../.venv/bin/python" ] && found="$here/../.venv/bin/python" || found=python3
exec "${PYTHON:-$found}" "$here/gpu_check.py" "$@"
