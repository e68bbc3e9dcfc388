#!/usr/bin/env bash
# Installs the client generators into out/clients, at the versions of package-lock.json and requirements.txt. Quiet when that is done.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
root="$(git rev-parse --show-toplevel 2>/dev/null || (cd ../../../.. && pwd))"
out="$root/out/clients"
command -v npm >/dev/null 2>&1 || { echo "clients: npm is missing: install Node.js 20 or later." >&2; exit 2; }

wanted="$(cat package.json package-lock.json requirements.txt | sha256sum | cut -c1-16)"
[ "$(cat "$out/.installed" 2>/dev/null || true)" != "$wanted" ] || exit 0
mkdir -p "$out"
echo "clients: installing the generators into out/clients ..."
cp package.json package-lock.json "$out/"
(cd "$out" && npm ci --silent --no-audit --no-fund)
[ -x "$out/venv/bin/python" ] || "$root/.venv/bin/python" -m venv "$out/venv"
"$out/venv/bin/python" -m pip install --quiet --disable-pip-version-check --requirement requirements.txt
echo "$wanted" >"$out/.installed"
