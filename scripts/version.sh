#!/usr/bin/env bash
# Prints the version of this checkout. People write it only into the Cargo.toml of the workspace.
#
#   version.sh            prints it
#   version.sh --check    fails if a file names another version, and says where
#   version.sh --write    writes the version into all of these files
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

version=$(sed -n '/^\[workspace\.package\]/,/^$/s/^version = "\(.*\)"$/\1/p' Cargo.toml)
readonly version
[[ -n $version ]] || { echo "version.sh: error: Cargo.toml has no version in [workspace.package]" >&2; exit 1; }

readonly chart=deploy/helm/flex-provisioner/Chart.yaml
readonly plugin=deploy/krew/flex.yaml
# Where the plugin's manifest names a version: by itself, and in the addresses of its archives.
readonly of_plugin='(^  version: |/releases/download/)v[0-9A-Za-z.-]+'
# Crates of ours for crates.io. Cargo asks for the version of each.
readonly of_crate='^(flex-[a-z]+ = \{ path = .*version = ")[^"]+'
# Images of ours with a version of three parts. Those of the cluster of the tests have a version of one part.
readonly image='(localhost/flex-provisioner/[a-z-]+):[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]*[0-9A-Za-z])?'

# Files that name an image of ours. Decisions and seeds of the fuzzers keep the version that was current then.
naming() {
    git grep -lE "$image" -- ':!docs/adr' ':!fuzz/corpus'
}

check() {
    local file status=0 wrong
    while read -r file; do
        wrong=$(grep -noE "$image" "$file" | grep -vE ":${version//./\\.}$") || continue
        printf '%s\n' "$wrong" | sed "s|^|$file:|; s|\$| is not of version $version|" >&2
        status=1
    done < <(naming)
    if grep -nE '^(version|appVersion):' "$chart" | grep -vE ": \"?${version//./\\.}\"?$" | sed "s|^|$chart:|" >&2; then
        echo "the chart is not of version $version" >&2
        status=1
    fi
    if grep -noE "$of_plugin" "$plugin" | grep -vE "v${version//./\\.}$" | sed "s|^|$plugin:|" >&2; then
        echo "the plugin of kubectl is not of version $version" >&2
        status=1
    fi
    if grep -noE "$of_crate" Cargo.toml | grep -vE "\"${version//./\\.}$" | sed "s|^|Cargo.toml:|" >&2; then
        echo "a crate of this project is asked for in another version" >&2
        status=1
    fi
    [[ $(grep -m 1 '^## ' CHANGELOG.md) == "## $version"* ]] ||
        { echo "CHANGELOG.md does not begin with version $version" >&2; status=1; }
    ((status == 0)) || echo "Cargo.toml has version $version; scripts/version.sh --write brings the others to it" >&2
    return "$status"
}

write() {
    local file
    while read -r file; do sed -i -E "s#$image#\\1:$version#g" "$file"; done < <(naming)
    sed -i -E "s/^(version|appVersion): .*/\\1: $version/" "$chart"
    sed -i -E "s#$of_plugin#\\1v$version#g" "$plugin"
    sed -i -E "s#$of_crate#\\1$version#" Cargo.toml
    cargo update --workspace --quiet
    [[ $(grep -m 1 '^## ' CHANGELOG.md) == "## $version"* ]] ||
        echo "version.sh: write a heading for $version into CHANGELOG.md yourself" >&2
}

case ${1:-} in
    '') echo "$version" ;;
    --check) check ;;
    --write) write ;;
    *) echo "version.sh: error: unknown argument $1; usage: version.sh [--check | --write]" >&2; exit 64 ;;
esac
