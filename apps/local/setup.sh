#!/usr/bin/env bash
# Prepares a checkout: checks the prerequisites, installs the Python packages into .venv, fetches the JVM programs.
# Prints nothing if the checkout is ready. Exit code 2: a prerequisite is missing; standard error names it and the cure.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

missing=()
need() { missing+=("$1"); }

# The distribution's Python comes first, because it is built with profile-guided optimisation.
python=""
for candidate in "${STARLING_PYTHON:-}" /usr/bin/python3.11 python3.11 python3; do
  if [ -n "$candidate" ] && command -v "$candidate" >/dev/null 2>&1 &&
    [ "$("$candidate" -c 'import sys; print("%d.%d" % sys.version_info[:2])')" = "3.11" ]; then
    python="$candidate"
    "$candidate" -c 'import ensurepip, venv' >/dev/null 2>&1 && break
  fi
done
if [ -z "$python" ]; then
  need "Python 3.11 is missing: install it (Debian: apt-get install python3.11 python3.11-venv) or set STARLING_PYTHON to its path."
elif ! "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then
  need "Python 3.11 has no venv module: install it (Debian: apt-get install python3.11-venv)."
fi

java="${JAVA_HOME:+$JAVA_HOME/bin/}java"
if ! command -v "$java" >/dev/null 2>&1; then
  need "Java 17 is missing: install it (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME."
else
  # Java prints JAVA_TOOL_OPTIONS, if set, in a line before its version.
  version="$("$java" -version 2>&1 | sed -nE 's/.* version "([0-9]+).*/\1/p')"
  [ "$version" = "17" ] || need "Java 17 is needed, but $java is version ${version:-unknown}: install 17 and set JAVA_HOME to it."
fi
command -v mvn >/dev/null 2>&1 || need "Maven is missing: install it (Debian: apt-get install maven)."

free_kib="$(df -Pk . | awk 'NR==2 {print $4}')"
[ "$free_kib" -ge $((3 * 1024 * 1024)) ] || need "Only $((free_kib / 1024)) MiB of disk space are free, but about 3 GiB are needed: free some space."

if [ "${#missing[@]}" -gt 0 ]; then
  printf 'setup: %s\n' "${missing[@]}" >&2
  exit 2
fi

# The lock keeps two runs from installing at the same time.
exec 9>.setup.lock
flock 9

# The fetch needs no installed package, so it runs in parallel with pip.
PYTHONPATH=apps/local "$python" -m starling_local.runtime &
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
    echo "setup: pip failed to install the packages (see above; is a package index reachable?)." >&2
    rm -f "$log"
    exit 2
  fi
  rm -f "$log"
  echo "$wanted" >.venv/.installed
fi

# The compiler keeps one core busy for minutes. Meanwhile the archives are made, by plain Python: what was compiled is gone first.
failed=0
.venv/bin/python apps/local/compile_native.py --check || .venv/bin/python apps/local/compile_native.py --clean
.venv/bin/python apps/local/compile_native.py &
compiling=$!
wait "$fetching" || failed=$?
[ "$failed" -ne 0 ] || .venv/bin/python -m starling_local.stack.archives || failed=$?
.venv/bin/python -m starling_spark.session.class_archive || failed=$?
wait "$compiling" || failed=$?
exit "$failed"
