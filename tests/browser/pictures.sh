#!/usr/bin/env bash
# The documents' pictures of the dashboard, of a real market in which a solver lies. Usage: pictures.sh [FOLDER]
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=${1:-docs/pictures}
CHROMIUM=$(command -v "${CHROMIUM:-chromium}")
export CHROMIUM
command -v pngquant >/dev/null || { echo "pictures: there is no pngquant; apt-get install pngquant" >&2; exit 1; }
[ -d tests/browser/node_modules/puppeteer-core ] || (cd tests/browser && npm ci --loglevel=error)

home=$(mktemp -d)
.venv/bin/python -m drills --home "$home/market" run one-ulp --fresh --quick --dashboard >"$home/said" 2>&1 &
market=$!
trap 'kill "$market" 2>/dev/null && wait "$market"; rm -rf "$home"' EXIT
url=""
until [ -n "$url" ]; do
  kill -0 "$market" || { cat "$home/said" >&2; exit 1; }
  sleep 1
  url=$(sed -n 's|^dashboard *\(http://[0-9.:]*\).*|\1|p' "$home/said")
done
echo "pictures: of the market at $url"
node tests/browser/pictures.mjs "$url" "$folder"
