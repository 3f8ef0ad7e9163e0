#!/usr/bin/env bash
# What can be said of deploy/ without running it: systemd reads the unit, and the compose file is one by the
# compose specification's schema (kept in a package of PyPI). Each check must also refuse a file with a mistake.
# Not shown by this: that a container or a service starts.
# Usage: scripts/prove/deploy.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

verify() { # the unit of a role, of which the program is one that is there
  sed "s#/opt/assay/.venv/bin/assay#/bin/true#; $2" deploy/systemd/assay@.service >"$work/assay@$1.service"
  said="$(systemd-analyze verify --man=no "$work/assay@$1.service" 2>&1)" || said="$said (failed)"
}
if command -v systemd-analyze >/dev/null; then
  for role in solver verifier whistle; do
    verify "$role" ""
    [ -z "$said" ] || { echo "assay@$role.service: $said"; exit 1; }
  done
  verify bad "s/^Restart=always/Restart=allways/"
  [ -n "$said" ] || { echo "systemd-analyze takes anything"; exit 1; }
  echo "systemd reads the unit of each role, and refuses a mistake in it"
else
  echo "systemd-analyze is not here: the unit was not read"
fi

tools="$PWD/.assay/tools/compose-1.29.2"
if [ ! -d "$tools" ]; then
  .venv/bin/python -m pip install --quiet --no-deps --target "$tools" docker-compose==1.29.2 jsonschema==3.2.0 \
    attrs pyrsistent six setuptools==69.5.1
fi
PYTHONPATH="$tools" .venv/bin/python - "$tools/compose/config/compose_spec.json" <<'PYTHON'
import json
import sys
import warnings

warnings.simplefilter("ignore")
import jsonschema
import yaml

with open(sys.argv[1]) as schema, open("deploy/compose.yaml") as file:
    check, document = jsonschema.Draft7Validator(json.load(schema)), yaml.safe_load(file)
errors = [f"{'/'.join(map(str, error.path))}: {error.message}" for error in check.iter_errors(document)]
document["services"]["solver"]["restart"] = [7]
if errors or check.is_valid(document):
    sys.exit("\n".join(errors) or "the schema takes anything")
print("the compose file is one by the specification's schema, which refuses a mistake in it")
PYTHON
