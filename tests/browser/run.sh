#!/usr/bin/env bash
# Looks at the dashboard with a real browser; installs what that takes when asked. Usage: run.sh [FOLDER FOR PICTURES]
set -euo pipefail
cd "$(dirname "$0")/../.."

if ! command -v "${CHROMIUM:-chromium}" >/dev/null; then
  echo "browser: installing chromium with apt-get"
  apt-get install --yes --no-install-recommends chromium >/dev/null || {
    echo "browser: there is no chromium; install it, or name one: CHROMIUM=/path/to/chromium make browser" >&2
    exit 1
  }
fi
CHROMIUM=$(command -v "${CHROMIUM:-chromium}")
export CHROMIUM
[ -d tests/browser/node_modules/puppeteer-core ] || (cd tests/browser && npm ci --loglevel=error)

coproc SERVER { exec .venv/bin/python -m tests.browser.serve; }
trap 'kill "$SERVER_PID"' EXIT
read -r url <&"${SERVER[0]}"
node tests/browser/check.mjs "$url" "$@"
