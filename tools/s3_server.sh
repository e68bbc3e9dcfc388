#!/usr/bin/env bash
# Runs versitygw, an S3 server over a directory, of a fixed version: `tools/s3_server.sh --access … --secret … posix DIRECTORY`.
# STARLING_S3_SERVER names another binary. The first run builds it from its Go module, which takes minutes, into ~/.cache/starling/tools.
# Go's caches are removed again.
#
#   tools/s3_server.sh --path   prints the path of the binary, and builds nothing: exit code 2 if it is missing
#
# tools/s3_server/go.mod fixes the version, and go.sum the sources. Exit code 2: a prerequisite is missing; standard error names it and the cure.
set -euo pipefail
sources="$(cd "$(dirname "$0")" && pwd)/s3_server"
version="$(sed -n 's|^require github.com/versity/versitygw ||p' "$sources/go.mod")"
directory="${XDG_CACHE_HOME:-$HOME/.cache}/starling/tools"
binary="${STARLING_S3_SERVER:-$directory/versitygw-$version}"
if [ "${1:-}" = --path ]; then
  [ -x "$binary" ] || {
    echo "s3-server: $binary is missing: run \`make s3-server\`, which builds it." >&2
    exit 2
  }
  echo "$binary"
  exit 0
fi
if [ -z "${STARLING_S3_SERVER:-}" ] && [ ! -x "$binary" ]; then
  command -v go >/dev/null 2>&1 || {
    echo "s3-server: Go is missing: install Go 1.26 or later, or set STARLING_S3_SERVER to the path of a versitygw binary." >&2
    exit 2
  }
  mkdir -p "$directory"
  # A lock of its own: other tools may be built meanwhile.
  exec 9>"$directory/.s3-server-lock"
  flock 9
  if [ ! -x "$binary" ]; then
    echo "s3-server: building versitygw $version from its Go module (minutes, once) ..." >&2
    build="$(mktemp -d)"
    trap 'rm -rf "$build"' EXIT
    (cd "$sources" && CGO_ENABLED=0 GOMODCACHE="$build/modules" GOCACHE="$build/cache" GOWORK=off GOFLAGS="-modcacherw -trimpath" \
      go build -ldflags "-s -w" -o "$build/versitygw" github.com/versity/versitygw/cmd/versitygw) >"$build/log" 2>&1 || {
      tail -n 20 "$build/log" >&2
      echo "s3-server: the build failed (see above; is a Go module proxy reachable?)." >&2
      exit 2
    }
    mv "$build/versitygw" "$binary"
    trap - EXIT
    rm -rf "$build"
  fi
  flock -u 9
fi
exec "$binary" "$@"
