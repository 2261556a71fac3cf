#!/usr/bin/env bash
# Prints where helm is. Builds it once from its Go module into ${FLEX_CACHE:-~/.cache/flex-provisioner}.
set -euo pipefail

PATH=$PATH:/usr/local/go/bin
# renovate: datasource=go depName=helm.sh/helm/v3
readonly version=v3.22.0
readonly directory=${FLEX_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/flex-provisioner}/helm-$version

if [[ ! -x $directory/helm ]]; then
    mkdir -p "$directory"
    # Tests run beside each other. A second test waits, and uses the program that the first has built.
    exec {lock}>"$directory/lock"
    flock "$lock"
fi
if [[ ! -x $directory/helm ]]; then
    echo "helm.sh: building helm $version into $directory" >&2
    GOBIN=$directory CGO_ENABLED=0 GOFLAGS=-buildvcs=false \
        go install -trimpath "helm.sh/helm/v3/cmd/helm@$version" >&2
fi
echo "$directory/helm"
