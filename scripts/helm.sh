#!/usr/bin/env bash
# Prints where helm is. Builds it once from its Go module into ${FLEX_CACHE:-~/.cache/flex-provisioner}.
set -euo pipefail

PATH=$PATH:/usr/local/go/bin
cd "$(dirname "${BASH_SOURCE[0]}")/helm"
digest=$(cat go.mod go.sum | sha256sum | cut -c1-16)
readonly directory=${FLEX_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/flex-provisioner}/helm-$digest

if [[ ! -x $directory/helm ]]; then
    mkdir -p "$directory"
    # Tests run beside each other. A second test waits, and uses the program that the first has built.
    exec {lock}>"$directory/lock"
    flock "$lock"
fi
if [[ ! -x $directory/helm ]]; then
    echo "helm.sh: building helm into $directory" >&2
    CGO_ENABLED=0 GOFLAGS=-buildvcs=false go build -trimpath -o "$directory/helm.new" helm.sh/helm/v3/cmd/helm >&2
    mv "$directory/helm.new" "$directory/helm"
fi
echo "$directory/helm"
