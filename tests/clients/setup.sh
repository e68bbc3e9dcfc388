#!/usr/bin/env bash
# Installs the published JavaScript clients into out/published-clients, at the versions of package-lock.json. Quiet when that is done.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
root="$(git rev-parse --show-toplevel 2>/dev/null || (cd ../.. && pwd))"
out="$root/out/published-clients"
command -v npm >/dev/null 2>&1 || { echo "clients: npm is missing: install Node.js 20 or later." >&2; exit 2; }
[ -x "${STARLING_CHROMIUM:-/usr/bin/chromium}" ] || {
  echo "clients: Chromium is missing: install it (Debian: apt-get install chromium) or set STARLING_CHROMIUM to its path." >&2
  exit 2
}

wanted="$(cat package.json package-lock.json | sha256sum | cut -c1-16)"
[ "$(cat "$out/.installed" 2>/dev/null || true)" != "$wanted" ] || exit 0
mkdir -p "$out"
echo "clients: installing the published clients into out/published-clients ..."
cp package.json package-lock.json "$out/"
# `npm ci` refuses a lock file that lacks the optional packages of other platforms.
(cd "$out" && npm install --no-save --silent --no-audit --no-fund)
echo "$wanted" >"$out/.installed"
