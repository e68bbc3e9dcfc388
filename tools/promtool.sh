#!/usr/bin/env bash
# Runs promtool of a fixed version of Prometheus: `tools/promtool.sh check rules helm/starling/rules/alerts.yaml`. STARLING_PROMTOOL names
# another binary. The first run builds it from its Go module, which takes minutes, into ~/.cache/starling/tools. Go's caches are removed again.
#
#   tools/promtool.sh --path   prints the path of the binary, and builds nothing: exit code 2 if it is missing
#
# tools/promtool/go.mod fixes the version, and go.sum the sources. Exit code 2: a prerequisite is missing; standard error names it and the cure.
set -euo pipefail
sources="$(cd "$(dirname "$0")" && pwd)/promtool"
version="$(sed -n 's|^require github.com/prometheus/prometheus ||p' "$sources/go.mod")"
directory="${XDG_CACHE_HOME:-$HOME/.cache}/starling/tools"
binary="${STARLING_PROMTOOL:-$directory/promtool-$version}"
if [ "${1:-}" = --path ]; then
  [ -x "$binary" ] || {
    echo "promtool: $binary is missing: run \`make promtool\`, which builds it." >&2
    exit 2
  }
  echo "$binary"
  exit 0
fi
if [ -z "${STARLING_PROMTOOL:-}" ] && [ ! -x "$binary" ]; then
  command -v go >/dev/null 2>&1 || {
    echo "promtool: Go is missing: install Go 1.26 or later, or set STARLING_PROMTOOL to the path of a promtool 3 binary." >&2
    exit 2
  }
  mkdir -p "$directory"
  # A lock of its own: other tools may be built meanwhile.
  exec 9>"$directory/.promtool-lock"
  flock 9
  if [ ! -x "$binary" ]; then
    echo "promtool: building promtool $version from its Go module (minutes, once) ..." >&2
    build="$(mktemp -d)"
    trap 'rm -rf "$build"' EXIT
    # Without service discovery, which neither rules nor queries need: half of the packages.
    (cd "$sources" && CGO_ENABLED=0 GOMODCACHE="$build/modules" GOCACHE="$build/cache" GOWORK=off GOFLAGS="-modcacherw -trimpath" \
      go build -tags remove_all_sd -ldflags "-s -w -X github.com/prometheus/common/version.Version=$version" \
      -o "$build/promtool" github.com/prometheus/prometheus/cmd/promtool) >"$build/log" 2>&1 || {
      tail -n 20 "$build/log" >&2
      echo "promtool: the build failed (see above; is a Go module proxy reachable?)." >&2
      exit 2
    }
    mv "$build/promtool" "$binary"
    trap - EXIT
    rm -rf "$build"
  fi
  flock -u 9
fi
exec "$binary" "$@"
