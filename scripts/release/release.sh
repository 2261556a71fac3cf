#!/usr/bin/env bash
# Builds a whole release into dist/, as `make release` does, and checks it. Publishes nothing.
#
#   release.sh [--version VERSION] [--registry HOST/PATH] [--architectures 'amd64 arm64'] [--out DIR] [--no-build]
#
#   --version         must be that of Cargo.toml, the one place where people write it
#   --registry        where the images and the chart will be; the default is in Cargo.toml
#   --architectures   the processors; the default is 'amd64 arm64'
#   --out             where to write; the default is dist, and what was there before is removed
#   --no-build        takes the programs as they are
#
# An image whose Dockerfile runs programs of other processors needs a machine that emulates these. Elsewhere the release has
# this image for fewer processors, and the script ends with an error that names it.
# shellcheck source=scripts/release/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

version=$(scripts/version.sh) registry=$(default_registry) architectures='amd64 arm64' out=dist compile=yes

read_arguments() { # ARGUMENT...
    while (($#)); do
        case $1 in
            --no-build) compile='' ;;
            --version | --registry | --architectures | --out)
                (($# > 1)) || fail "$1 has no value"
                # An empty value is that of a variable of the Makefile that nobody has set.
                case $1=$2 in
                    --*=) ;;
                    --version=*) wanted=$2 ;;
                    --registry=*) registry=$2 ;;
                    --architectures=*) architectures=$2 ;;
                    --out=*) out=$2 ;;
                esac
                shift
                ;;
            *) fail "unknown argument $1" "usage: make release VERSION=$version [REGISTRY=…] [ARCHITECTURES='amd64 arm64']" ;;
        esac
        shift
    done
}

wanted=$version
read_arguments "$@"
[[ ${wanted#v} == "$version" ]] ||
    fail "Cargo.toml has version $version, not $wanted" "write it there, and run scripts/version.sh --write"
scripts/version.sh --check || exit 1
# A name that a registry would refuse is refused before anything is built.
check_registry() { # REGISTRY
    local chosen=$1
    # shellcheck source=scripts/registry.sh
    source scripts/registry.sh
    read_options "make release VERSION=$version REGISTRY=registry.example.org/team" --registry "$chosen"
}
(check_registry "$registry") || exit 1
[[ -n $architectures ]] || fail "no architecture is given"
for architecture in $architectures; do scripts/release/cross.sh --target "$architecture" >/dev/null || exit 1; done

# Only a folder of an earlier release is removed.
[[ ! -e $out || $out == dist || -e $out/SHA256SUMS ]] || fail "$out is there, and is no release" "name another folder"

SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
FLEX_REVISION=$(git rev-parse HEAD)
if [[ -n $(git status --porcelain) ]]; then
    say "warning: files differ from the last commit, so that this is no release that others can build again"
    FLEX_REVISION+=-changed
fi
export SOURCE_DATE_EPOCH FLEX_REVISION

programs_of() { # ARCHITECTURE
    echo "${CARGO_TARGET_DIR:-target}/$(scripts/release/cross.sh --target "$1")/release"
}

# Compiles all programs of the archives and images. cargo-auditable, where it is, writes the crates into each program.
compile() {
    local architecture programs cargo=(cargo)
    if cargo auditable --version >/dev/null 2>&1; then cargo+=(auditable); fi
    mapfile -t programs < <(provisioner-images/images.sh --list | cut -d' ' -f2- | tr ' ' '\n' | sort -u)
    for architecture in $architectures; do
        say "compiling for $architecture, some minutes"
        scripts/release/cross.sh "$architecture" "${cargo[@]}" build --locked --profile release --workspace \
            "${programs[@]/#/--bin=}" >&2 || fail "the programs for $architecture could not be built (the output is above)"
    done
}

# Packs the programs. The tool of this machine's processors speaks for those of others.
pack_programs() {
    local architecture native speaking=()
    native=$(programs_of "$(dpkg --print-architecture)")/flex-provisioner
    if [[ -x $native ]]; then speaking=(--speaking "$native"); fi
    for architecture in $architectures; do
        scripts/release/programs.sh --system "linux-$architecture" --programs "$(programs_of "$architecture")" --out "$out" \
            "${speaking[@]}"
    done
}

# Writes the lists of the parts of each program.
list_parts() {
    local architecture program metadata
    mkdir "$out/sbom"
    for architecture in $architectures; do
        metadata=$work/metadata-$architecture.json
        cargo metadata --locked --format-version 1 \
            --filter-platform "$(scripts/release/cross.sh --target "$architecture")" >"$metadata"
        while read -r program; do
            scripts/release/sbom.py program "$program" <"$metadata" >"$out/sbom/$program-linux-$architecture.cdx.json"
        done < <(provisioner-images/images.sh --list | cut -d' ' -f2- | tr ' ' '\n' | sort -u)
    done
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
rm -rf "$out"
mkdir -p "$out"
scripts/setup.sh --images
if [[ -n $compile ]]; then compile; fi
pack_programs
list_parts
status=0
scripts/release/images.sh --registry "$registry" --architectures "$architectures" --out "$out" || status=$?
((status == 0 || status == 69)) || fail "the images could not be built (the output is above)"
scripts/release/assemble.sh --architectures "$architectures" --out "$out"
scripts/release/verify.sh "$out"
((status == 0)) || fail "the release in $out is whole, but has some images for fewer processors than $architectures" \
    "what this machine lacks is named above; ARCHITECTURES=amd64 asks for less"
say "the release $version is in $out; how to publish it: docs/how-to/release.md"
