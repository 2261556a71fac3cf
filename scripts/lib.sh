# shellcheck shell=bash
# The functions and variables that the scripts share. To use them, write `source "$(dirname "$0")/lib.sh"`. Sourcing also
# changes into the project's root.
set -euo pipefail

# Standard input may be closed or never end. Programs that read it must not wait.
exec </dev/null

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin:/usr/local/go/bin:/usr/local/cargo/bin:${HOME:-/root}/.cargo/bin
export PATH

# The scripts build everything once. Incremental builds would make that first build slower.
export CARGO_INCREMENTAL=${CARGO_INCREMENTAL:-0}

# shellcheck source=scripts/static.sh
source scripts/static.sh
# Users get the profile `release`. Tests and the demo use `dev`, which builds in a fraction of the time.
profile=${FLEX_PROFILE:-release}
# The folder into which cargo writes the programs.
programs=${CARGO_TARGET_DIR:-$root/target}/$CARGO_BUILD_TARGET/${profile/#dev/debug}
export FLEX_PROFILE=$profile FLEX_PROGRAMS=$programs

me=$(basename "$0" .sh)

say() { printf '%s: %s\n' "$me" "$*" >&2; }

fail() { # WHAT IS WRONG, WHAT TO DO ABOUT IT...
    printf "$me: error: %s\n" "$@" >&2
    exit 1
}

need_root() { # FOR WHAT
    ((EUID == 0)) || fail "$1 needs root: network namespaces, containers and mounts are made" "run it again with sudo"
}

# Says where less disk space than this is free. It is a warning alone, because a machine that built before needs less.
warn_of_little_space() { # GIB FOR WHAT
    local path free
    for path in "${CARGO_TARGET_DIR:-$root}" "${HOME:-/root}" "${TMPDIR:-/tmp}"; do
        free=$(df --output=avail --block-size=1G "$path" 2>/dev/null | tail -n 1) || continue
        ((free < $1)) || continue
        say "warning: the file system of $path has $((free)) GiB free; $2 about $1 GiB"
        say "if a program says 'No space left on device', free some space there and run it again"
        return 0
    done
}

# Builds all programs by one call of cargo, which then builds each dependency once and with one set of features. Then
# builds the images.
build() {
    build_chosen --bins
}

# Does the same, and builds the tests, whose features are more. Those with a stage of their own are named.
build_with_tests() {
    build_chosen --bins --tests --test e2e --test cinder --test faults --test whole_faults --test soak
}

# Builds these programs alone, and the images. Cargo still chooses the features for all.
build_only() { # PROGRAM...
    build_chosen "${@/#/--bin=}"
}

build_chosen() { # CARGO'S FLAG...
    [[ -x $programs/flex-orchestrator ]] || say "building the programs of this project, some minutes on 2 cores the first time"
    # With the features of the tests, cargo builds each library once for both.
    [[ $profile == release ]] || set -- --features flex-provisioner/testing "$@"
    cargo build --profile "$profile" --workspace "$@" >&2 ||
        fail "cargo could not build the programs (its output is above)" \
            "if it could not download: check that this machine reaches the registry that cargo is set up for, and run it again"
    provisioner-images/images.sh --no-build >/dev/null
}

# Prints the digest that the image of an archive has in a registry. Each archive of ours has one image.
digest_of() { # ARCHIVE
    local digest
    digest=$(tar --extract --to-stdout --file "$1" index.json | sed -n 's/.*"digest":"\(sha256:[0-9a-f]*\)".*/\1/p')
    [[ -n $digest ]] || fail "$1 is no OCI archive with one image" "remove it, and run \`make images\`"
    echo "$digest"
}

# Runs `flex-cluster`. Builds it if it is missing, and nothing else, so that a cluster can always be ended.
flex_cluster() {
    [[ -x $programs/flex-cluster ]] || cargo build --profile "$profile" --package cluster --bin flex-cluster >&2
    "$programs/flex-cluster" "$@"
}

# Starts a cluster for this script alone, and ends it with the script, also after an error or a signal. PATH gets the programs
# and a kubectl of the cluster.
own_cluster() { # NAME
    own=$1 tools=$(mktemp -d)
    trap end_own_cluster EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    KUBECONFIG=$(scripts/cluster-up.sh "$own" | tail -n 1)
    printf '#!/bin/sh\nexec %q --name %s kubectl "$@"\n' "$programs/flex-cluster" "$own" >"$tools/kubectl"
    chmod +x "$tools/kubectl"
    PATH=$tools:$programs:$PATH
    export KUBECONFIG PATH
}

end_own_cluster() {
    local status=$?
    trap - EXIT
    rm -rf "$tools"
    flex_cluster --name "$own" down || status=1
    exit "$status"
}

# shellcheck source=scripts/stages.sh
source scripts/stages.sh
