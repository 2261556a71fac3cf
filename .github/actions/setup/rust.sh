#!/usr/bin/env bash
# Installs the version of Rust that Cargo.toml asks for. Takes rustup by its checksum where the machine has none.
set -euo pipefail

# renovate: datasource=github-tags depName=rust-lang/rustup
readonly rustup=1.28.2
# The checksum of rustup-init for x86_64-unknown-linux-gnu.
readonly sha256=20a06e644b0d9bd2fbdbfd52d42540bdde820ea7df86e92e533c073da0cdd43c

version=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
bin=${CARGO_HOME:-$HOME/.cargo}/bin
PATH=$bin:$PATH
if ! command -v rustup >/dev/null; then
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    curl --proto '=https' --tlsv1.2 --fail --silent --show-error --location --output "$work/rustup-init" \
        "https://static.rust-lang.org/rustup/archive/$rustup/x86_64-unknown-linux-gnu/rustup-init"
    echo "$sha256  $work/rustup-init" | sha256sum --check --quiet
    chmod +x "$work/rustup-init"
    "$work/rustup-init" -y --no-modify-path --profile minimal --default-toolchain none
fi
rustup toolchain install "$version" --profile minimal --component clippy --component rustfmt
rustup default "$version"
[[ -z ${GITHUB_PATH:-} ]] || echo "$bin" >>"$GITHUB_PATH"
