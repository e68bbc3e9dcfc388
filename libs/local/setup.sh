#!/usr/bin/env bash
# Makes a checkout ready: checks what must be there, installs the Python packages into .venv, fetches the JVM parts.
# Quiet when there is nothing to do. Exit code 2: something is missing, and what was missing has been said.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

missing=()
need() { missing+=("$1"); }

# The distribution's Python comes first: it is built with profile-guided optimisation, which a self-built one often is not.
python=""
for candidate in "${STARLING_PYTHON:-}" /usr/bin/python3.11 python3.11 python3; do
  if [ -n "$candidate" ] && command -v "$candidate" >/dev/null 2>&1 &&
    [ "$("$candidate" -c 'import sys; print("%d.%d" % sys.version_info[:2])')" = "3.11" ]; then
    python="$candidate"
    "$candidate" -c 'import ensurepip, venv' >/dev/null 2>&1 && break
  fi
done
if [ -z "$python" ]; then
  need "Python 3.11 is not there: install it (Debian: apt-get install python3.11 python3.11-venv) or name it in STARLING_PYTHON."
elif ! "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then
  need "Python 3.11 has no venv module: install it (Debian: apt-get install python3.11-venv)."
fi

java="${JAVA_HOME:+$JAVA_HOME/bin/}java"
if ! command -v "$java" >/dev/null 2>&1; then
  need "Java 17 is not there: install it (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME."
else
  # Java names JAVA_TOOL_OPTIONS, where it is set, in a line before that of its version.
  version="$("$java" -version 2>&1 | sed -nE 's/.* version "([0-9]+).*/\1/p')"
  [ "$version" = "17" ] || need "Java 17 is needed, but $java is version ${version:-unknown}: install 17 and set JAVA_HOME to it."
fi
command -v mvn >/dev/null 2>&1 || need "Maven is not there: install it (Debian: apt-get install maven)."

free_kib="$(df -Pk . | awk 'NR==2 {print $4}')"
[ "$free_kib" -ge $((3 * 1024 * 1024)) ] || need "Only $((free_kib / 1024)) MiB of disk are free here: about 3 GiB are needed, make room."

if [ "${#missing[@]}" -gt 0 ]; then
  printf 'setup: %s\n' "${missing[@]}" >&2
  exit 2
fi

# Two makes at once must not install over one another.
exec 9>.setup.lock
flock 9

# What Maven brings needs none of our packages, and it waits for the network while pip is at work.
PYTHONPATH=libs/local "$python" -m starling_local.runtime &
fetching=$!

wanted="$(cat pyproject.toml constraints.txt | sha256sum | cut -c1-16)"
if [ "$(cat .venv/.installed 2>/dev/null || true)" != "$wanted" ]; then
  echo "setup: installing Python packages into .venv (about 700 MB the first time) ..."
  [ -x .venv/bin/python ] || "$python" -m venv .venv
  log="$(mktemp)"
  if ! .venv/bin/python -m pip install --quiet --disable-pip-version-check \
    --constraint constraints.txt --editable '.[dev]' >"$log" 2>&1; then
    wait "$fetching" || true
    tail -n 20 "$log" >&2
    echo "setup: pip could not install the packages (see above; is a package index reachable?)." >&2
    rm -f "$log"
    exit 2
  fi
  rm -f "$log"
  echo "$wanted" >.venv/.installed
fi

failed=0
.venv/bin/python libs/local/compile_native.py || failed=$?
wait "$fetching" || failed=$?
exit "$failed"
