#!/usr/bin/env bash
# Runs kube-score of a fixed version: `tools/helm.sh template … | tools/kube_score.sh score -`. STARLING_KUBE_SCORE names
# another binary. The first run builds it from its Go module, which takes minutes, into ~/.cache/starling/tools. Go's caches are removed again.
#
#   tools/kube_score.sh --path   prints the path of the binary, and builds nothing: exit code 2 if it is missing
#
# tools/kube_score/go.mod fixes the version, and go.sum the sources. Exit code 2: a prerequisite is missing; standard error names it and the cure.
set -euo pipefail
sources="$(cd "$(dirname "$0")" && pwd)/kube_score"
version="$(sed -n 's|^require github.com/zegl/kube-score ||p' "$sources/go.mod")"
directory="${XDG_CACHE_HOME:-$HOME/.cache}/starling/tools"
binary="${STARLING_KUBE_SCORE:-$directory/kube-score-$version}"
if [ "${1:-}" = --path ]; then
  [ -x "$binary" ] || {
    echo "kube-score: $binary is missing: run \`make kube-score\`, which builds it." >&2
    exit 2
  }
  echo "$binary"
  exit 0
fi
if [ -z "${STARLING_KUBE_SCORE:-}" ] && [ ! -x "$binary" ]; then
  command -v go >/dev/null 2>&1 || {
    echo "kube-score: Go is missing: install Go 1.26 or later, or set STARLING_KUBE_SCORE to the path of a kube-score binary." >&2
    exit 2
  }
  mkdir -p "$directory"
  # A lock of its own: other tools may be built meanwhile.
  exec 9>"$directory/.kube-score-lock"
  flock 9
  if [ ! -x "$binary" ]; then
    echo "kube-score: building kube-score $version from its Go module (minutes, once) ..." >&2
    build="$(mktemp -d)"
    trap 'rm -rf "$build"' EXIT
    (cd "$sources" && CGO_ENABLED=0 GOMODCACHE="$build/modules" GOCACHE="$build/cache" GOWORK=off GOFLAGS="-modcacherw -trimpath" \
      go build -ldflags "-s -w" -o "$build/kube-score" github.com/zegl/kube-score/cmd/kube-score) >"$build/log" 2>&1 || {
      tail -n 20 "$build/log" >&2
      echo "kube-score: the build failed (see above; is a Go module proxy reachable?)." >&2
      exit 2
    }
    mv "$build/kube-score" "$binary"
    trap - EXIT
    rm -rf "$build"
  fi
  flock -u 9
fi
exec "$binary" "$@"
