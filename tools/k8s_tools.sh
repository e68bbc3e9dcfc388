#!/usr/bin/env bash
# Builds a control plane of Kubernetes and kubectl from their Go modules, and extracts custom resource definitions from others, for tests of the chart.
#
#   tools/k8s_tools.sh           builds what is missing, into ~/.cache/starling/tools: about ten minutes of two cores, once
#   tools/k8s_tools.sh --check   builds nothing
#
# Both compare each file with the SHA-256 beside it, and then print a line for each: its name, a space, its path.
# The go.mod files of tools/kubernetes fix the versions, and their go.sum files the sources. An interrupted build continues with the next
# binary; Go's caches are removed after the last one. Exit code 2: something is missing; standard error names it and the cure.
set -euo pipefail
sources="$(cd "$(dirname "$0")" && pwd)/kubernetes"
directory="${XDG_CACHE_HOME:-$HOME/.cache}/starling/tools"
caches="$directory/.kubernetes-build"

required() { # module of tools/kubernetes, module that it requires -> version
  sed -n "s|^require $2 ||p" "$sources/$1/go.mod"
}
etcd="$(required etcd go.etcd.io/etcd/server/v3)"
kubernetes="$(required control_plane k8s.io/kubernetes)"
minor="${kubernetes#v1.}"
minor="${minor%%.*}"
stamp="k8s.io/component-base/version"
flags="-X $stamp.gitVersion=$kubernetes -X $stamp.gitMajor=1 -X $stamp.gitMinor=$minor"
# name, version, module of tools/kubernetes, package, linker flags
binaries=(
  "etcd|$etcd|etcd|.|"
  "kube-apiserver|$kubernetes|control_plane|k8s.io/kubernetes/cmd/kube-apiserver|$flags"
  "kube-controller-manager|$kubernetes|control_plane|k8s.io/kubernetes/cmd/kube-controller-manager|$flags"
  "kube-scheduler|$kubernetes|control_plane|k8s.io/kubernetes/cmd/kube-scheduler|$flags"
  "kubectl|$kubernetes|control_plane|k8s.io/kubernetes/cmd/kubectl|$flags"
)

intact() { # file
  [ -s "$1" ] && [ -s "$1.sha256" ] && (cd "$directory" && sha256sum --check --status "$(basename "$1").sha256")
}

keep() { # new file, its place
  local name
  name="$(basename "$2")"
  # The sum first: an interruption between the two leaves a mismatch, which is built again.
  printf '%s  %s\n' "$(sha256sum "$1" | cut -d ' ' -f 1)" "$name" >"$2.sha256"
  mv "$1" "$2"
}

report() { # every file that is not intact; returns 1 if there is one
  local missing=0 name place
  while read -r name place; do
    if [ ! -e "$place" ]; then
      echo "k8s-tools: $name is missing at $place: run \`make k8s-tools\`, which builds it." >&2
      missing=1
    elif ! intact "$place"; then
      echo "k8s-tools: $place differs from its SHA-256 in $place.sha256: run \`make k8s-tools\`, which builds it again." >&2
      missing=1
    fi
  done <<<"$(places)"
  return "$missing"
}

places() { # name and path of every file
  local name version module version_of path
  for line in "${binaries[@]}"; do
    IFS='|' read -r name version _ <<<"$line"
    echo "$name $directory/$name-$version"
  done
  while read -r name module version_of _ path; do
    echo "$name $directory/$name-$version_of.yaml"
  done < <(definitions)
}

definitions() { # name, module, version, sum, path inside
  grep -v -e '^#' -e '^$' "$sources/definitions.txt"
}

run() { # a command of Go; its output appears only if it fails
  "$@" >"$caches/log" 2>&1 || {
    tail -n 20 "$caches/log" >&2
    echo "k8s-tools: \`$1 $2\` failed (see above; is a Go module proxy reachable?). What is built is kept: run this again to continue." >&2
    exit 2
  }
}

build() {
  command -v go >/dev/null 2>&1 || {
    echo "k8s-tools: Go is missing: install Go 1.26 or later. It builds the control plane." >&2
    exit 2
  }
  mkdir -p "$caches"
  export CGO_ENABLED=0 GOMODCACHE="$caches/modules" GOCACHE="$caches/cache" GOFLAGS="-modcacherw -trimpath" GOWORK=off
  local number=0 name version module package linker sum path archive
  for line in "${binaries[@]}"; do
    IFS='|' read -r name version module package linker <<<"$line"
    number=$((number + 1))
    intact "$directory/$name-$version" && continue
    echo "k8s-tools: building $name $version from its Go module ($number of ${#binaries[@]}; minutes, once) ..." >&2
    (cd "$sources/$module" && run go build -ldflags "-s -w $linker" -o "$caches/$name" "$package")
    keep "$caches/$name" "$directory/$name-$version"
  done
  while read -r name module version sum path; do
    intact "$directory/$name-$version.yaml" && continue
    echo "k8s-tools: fetching $name $version ..." >&2
    # Outside of every module, so that no go.mod raises the version.
    (cd "$caches" && run go mod download -json "$module@$version")
    grep -q "\"Sum\": \"$sum\"" "$caches/log" || {
      echo "k8s-tools: $module $version differs from the sum in tools/kubernetes/definitions.txt: $(grep '"Sum"' "$caches/log")." >&2
      exit 2
    }
    archive="$(sed -n 's/.*"Dir": "\(.*\)".*/\1/p' "$caches/log")"
    cp "$archive/$path" "$caches/definition.yaml"
    keep "$caches/definition.yaml" "$directory/$name-$version.yaml"
  done < <(definitions)
  rm -rf "$caches"
}

case "${1:-}" in
  "") ;;
  --check) report || exit 2 ;;
  *) echo "k8s-tools: $1: the only argument is --check." >&2; exit 2 ;;
esac
if [ -z "${1:-}" ] && { [ -d "$caches" ] || ! report 2>/dev/null; }; then
  mkdir -p "$directory"
  # A lock of its own: the tests may build Helm meanwhile.
  exec 9>"$directory/.kubernetes-lock"
  flock 9
  build
  flock -u 9
  report || exit 2
fi
places
