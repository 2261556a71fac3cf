#!/usr/bin/env bash
# Writes the Go module of another version of Kubernetes beside this script, or of a newer patch release.
#
#   add.sh 1.35.4     writes 1.35.mod and 1.35.sum
set -euo pipefail

fail() {
    printf 'add.sh: error: %s\n' "$@" >&2
    exit 1
}

release=${1:-}
[[ $release =~ ^1\.[0-9]+\.[0-9]+$ ]] || fail "the version is '$release'" "usage: add.sh 1.35.4"
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
minor=${release%.*} staging=v0.${release#1.}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# k8s.io/kubernetes takes some modules from its own source tree. Kubernetes publishes each as v0.MINOR.PATCH as well.
file=$(go mod download -json "k8s.io/kubernetes@v$release" | sed -n 's/^.*"GoMod": "\(.*\)",$/\1/p')
[[ -f $file ]] || fail "there is no module k8s.io/kubernetes@v$release" "go list -m -versions k8s.io/kubernetes shows those that there are"
{
    printf '// Written by add.sh %s.\n' "$release"
    printf 'module flex-provisioner/testing/cluster/kubernetes\n\ngo 1.26.0\n\ngodebug default=go1.26\n\n'
    printf 'require (\n\tk8s.io/component-base %s\n\tk8s.io/kubectl v0.0.0\n\tk8s.io/kubernetes v%s\n)\n\n' "$staging" "$release"
    printf 'replace (\n'
    sed -n 's#^[[:space:]]*\(k8s.io/[a-z0-9-]*\) => ./staging.*#\1#p' "$file" | while read -r name; do
        printf '\t%s => %s %s\n' "$name" "$name" "$staging"
    done
    printf ')\n'
} >"$work/go.mod"
cp -r "$here/../main.go" "$here/../pause" "$work/"
(cd "$work" && GOFLAGS=-mod=mod go mod tidy) >&2
cp "$work/go.mod" "$here/$minor.mod"
cp "$work/go.sum" "$here/$minor.sum"
echo "$here/$minor.mod"
