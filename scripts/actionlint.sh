#!/usr/bin/env bash
# Prints where actionlint is. Builds it once from its Go module into ${FLEX_CACHE:-~/.cache/flex-provisioner}.
set -euo pipefail

PATH=$PATH:/usr/local/go/bin
# renovate: datasource=go depName=github.com/rhysd/actionlint
readonly version=v1.7.12
readonly directory=${FLEX_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/flex-provisioner}/actionlint-$version

if [[ ! -x $directory/actionlint ]]; then
    echo "actionlint.sh: building actionlint $version into $directory" >&2
    mkdir -p "$directory"
    GOBIN=$directory CGO_ENABLED=0 GOFLAGS=-buildvcs=false \
        go install -trimpath "github.com/rhysd/actionlint/cmd/actionlint@$version" >&2
fi
echo "$directory/actionlint"
