#!/usr/bin/env bash
# Runs Helm at a fixed version: `tools/helm.sh lint helm/starling`. HELM_MAJOR=4 takes Helm 4; STARLING_HELM names another binary.
# The first run builds it from its Go module, which takes minutes, into ~/.cache/starling/tools. Go's caches are removed again,
# unless STARLING_GO_CACHE names a directory for them, by which a second build is faster.
# Exit code 2: a prerequisite is missing; standard error names it and the cure.
set -euo pipefail
[ -z "${STARLING_HELM:-}" ] || exec "$STARLING_HELM" "$@"

case "${HELM_MAJOR:-3}" in
  # `go install` alone leaves version 1.20 of Kubernetes, for which a chart is rendered without a cluster.
  3) version=v3.22.0 flags="-X helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor=1 -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=34" ;;
  # The patch release whose Kubernetes modules are those of Helm 3 above: with a common cache they are compiled once.
  4) version=v4.3.0 flags="" ;;
  *) echo "helm: HELM_MAJOR=$HELM_MAJOR: it must be 3 or 4." >&2; exit 2 ;;
esac
module="helm.sh/helm/${version%%.*}"
directory="${XDG_CACHE_HOME:-$HOME/.cache}/starling/tools"
binary="$directory/helm-$version"
if [ ! -x "$binary" ]; then
  command -v go >/dev/null 2>&1 || {
    echo "helm: Go is missing: install Go 1.26 or later, or set STARLING_HELM to the path of a helm ${version%%.*} binary." >&2
    exit 2
  }
  mkdir -p "$directory"
  exec 9>"$directory/.lock"
  flock 9
  if [ ! -x "$binary" ]; then
    echo "helm: building Helm $version from its Go module (minutes, once) ..." >&2
    build="$(mktemp -d)"
    trap 'rm -rf "$build"' EXIT
    caches="${STARLING_GO_CACHE:-$build}"
    CGO_ENABLED=0 GOBIN="$build/bin" GOMODCACHE="$caches/modules" GOCACHE="$caches/cache" GOFLAGS="-modcacherw -trimpath" \
      go install -ldflags "-s -w $flags" "$module/cmd/helm@$version" >"$build/log" 2>&1 || {
      tail -n 20 "$build/log" >&2
      echo "helm: the build failed (see above; is a Go module proxy reachable?)." >&2
      exit 2
    }
    mv "$build/bin/helm" "$binary"
    trap - EXIT
    rm -rf "$build"
  fi
  flock -u 9
fi
exec "$binary" "$@"
