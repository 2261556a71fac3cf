#!/usr/bin/env bash
# Prints where mdbook is. Without one, builds it once from its crate into ${FLEX_CACHE:-~/.cache/flex-provisioner}, which
# takes minutes.
set -euo pipefail

PATH=$PATH:$HOME/.cargo/bin
# renovate: datasource=crate depName=mdbook
readonly version=0.5.4
readonly directory=${FLEX_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/flex-provisioner}/mdbook-$version

if command -v mdbook; then exit; fi
if [[ ! -x $directory/bin/mdbook ]]; then
    echo "mdbook.sh: building mdbook $version into $directory" >&2
    # This project's target and flags are for programs in images.
    env -u CARGO_BUILD_TARGET cargo install --quiet --locked --version "$version" --root "$directory" mdbook >&2
fi
echo "$directory/bin/mdbook"
