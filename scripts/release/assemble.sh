#!/usr/bin/env bash
# Writes the parts of a release that follow from its archives and images: manifests, chart, krew's manifest, changes, sums.
# A build server calls it again after it has added archives of other systems.
#
#   assemble.sh --architectures 'amd64 arm64' --out DIR
#
# DIR has the archives, and what images.sh wrote, with the registry in images.txt. The variables FLEX_REVISION and SOURCE_DATE_EPOCH name the commit and its
# time; the default is the last commit.
# shellcheck source=scripts/release/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

architectures='' out=''
while (($# > 1)); do
    case $1 in
        --architectures) architectures=$2 ;;
        --out) out=$2 ;;
        *) fail "unknown argument $1" ;;
    esac
    shift 2
done
if (($# > 0)) || [[ -z $architectures || -z $out ]]; then
    fail "usage: assemble.sh --architectures 'amd64 arm64' --out DIR"
fi
version=$(scripts/version.sh)
registry=$(head -n 1 "$out/images.txt")
registry=${registry%/*}
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
FLEX_REVISION=${FLEX_REVISION:-$(git rev-parse HEAD)}
export SOURCE_DATE_EPOCH FLEX_REVISION

# Writes the files that install, with all images by digest.
write_manifests() {
    mkdir "$work/install"
    cp "$out/images.txt" "$work/install/"
    scripts/manifests.sh --registry "$registry" --version "$version" --out "$work/install"
    cp "$work/install"/{install,quickstart,claim}.yaml "$out/"
    rm "$work/install"/{install,quickstart,claim}.yaml "$work/install/images.txt"
    scripts/release/archive.py "$out/configs.tar.gz" "$work/install"
}

# Writes what CHANGELOG.md says about this version, with links that lead to its files.
write_changes() {
    local at
    at=$(repository)/blob/v$version
    awk -v heading="## $version" '/^## / { inside = ($0 == heading || index($0, heading " ") == 1) } inside' CHANGELOG.md |
        sed -E "s|\]\(([^):#][^):]*)\)|]($at/\1)|g" >"$out/CHANGES.md"
}

# Writes the sums of all files, and a statement of what they were made from.
write_sums() {
    (cd "$out" && find . -type f ! -name SHA256SUMS ! -name provenance.intoto.json -printf '%P\n' | LC_ALL=C sort |
        xargs -d '\n' sha256sum) >"$work/sums"
    scripts/release/provenance.py "$version" "$registry" "$architectures" <"$work/sums" >"$out/provenance.intoto.json"
    (cd "$out" && sha256sum provenance.intoto.json) | cat "$work/sums" - | LC_ALL=C sort -k 2 >"$out/SHA256SUMS"
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
scripts/release/krew.py "$version" "$out" >"$out/flex.yaml"
write_manifests
scripts/release/chart.sh --registry "$registry" --version "$version" --out "$out"
write_changes
write_sums
