# shellcheck shell=bash
# What the scripts here share. Source it: `source "$(dirname "$0")/lib.sh"`. Changes into the project's root.
set -euo pipefail

# Whoever starts us may have closed standard input; programs that read it must not wait.
exec </dev/null

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin:/usr/local/go/bin:/usr/local/cargo/bin:${HOME:-/root}/.cargo/bin
export PATH

# All is built once here, and what would make the second time faster makes the first one slower.
export CARGO_INCREMENTAL=${CARGO_INCREMENTAL:-0}

# shellcheck source=scripts/static.sh
source scripts/static.sh
# `release` is what users get. Tests build `quick`, in a third of the time.
profile=${FLEX_PROFILE:-release}
# Where cargo puts the programs.
programs=${CARGO_TARGET_DIR:-$root/target}/$CARGO_BUILD_TARGET/$profile
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

# All programs in one go, so that cargo builds each dependency once and with one set of features; then the images.
build() { # without=PACKAGE leaves one out
    build_chosen --bins ${without:+--exclude "$without"}
}

# The same for these programs alone. Cargo still chooses the features for all.
build_only() { # PROGRAM...
    build_chosen "${@/#/--bin=}"
}

build_chosen() { # CARGO'S FLAG...
    [[ -x $programs/flex-provisioner ]] || say "building the programs of this project, some minutes on 2 cores the first time"
    cargo build --profile "$profile" --workspace "$@" >&2 ||
        fail "cargo could not build the programs (its output is above)" \
            "if it could not download: check that this machine reaches the registry that cargo is set up for, and run it again"
    provisioner-images/images.sh --no-build >/dev/null
}

# The digest by which a registry knows the image of an archive. Each archive of ours has one image.
digest_of() { # ARCHIVE
    local digest
    digest=$(tar --extract --to-stdout --file "$1" index.json | sed -n 's/.*"digest":"\(sha256:[0-9a-f]*\)".*/\1/p')
    [[ -n $digest ]] || fail "$1 is no OCI archive with one image" "remove it, and run \`make images\`"
    echo "$digest"
}

# As built last, or built now: to end a cluster nothing else must be built.
flex_cluster() {
    [[ -x $programs/flex-cluster ]] || cargo build --profile "$profile" --package cluster --bin flex-cluster >&2
    "$programs/flex-cluster" "$@"
}

# How a run of tests ends, whatever ends it: the tests' cluster goes, the stages are summed up, and what WORDS prints
# comes last if all went well.
ends_with() { # WORDS
    words=$1
    trap end_of_tests EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
}

end_of_tests() {
    local status=$? name
    trap - EXIT
    # One that has just begun has no session yet.
    for name in "${!beside[@]}"; do
        kill -- "-${beside[$name]}" 2>/dev/null || kill "${beside[$name]}" 2>/dev/null || true
    done
    # Without the program no cluster was started.
    if [[ -x $programs/flex-cluster ]]; then flex_cluster --tests down || status=1; fi
    summary
    if ((status == 0)); then "$words"; else echo "$me FAILED (exit code $status)"; fi
    exit "$status"
}

# Stages with their durations, and with what they may take on 2 cores if `budget` is set, and all of them if `whole` is;
# the summary goes last. A stage is a program or a function that calls none of `fail`'s callers in a condition: the shell
# does not stop at errors there.
stages=()
stage() { # NAME COMMAND...
    local name=$1 began=$SECONDS status=0
    shift
    printf '\n== %s\n' "$name" >&2
    "$@" || status=$?
    local took=$((SECONDS - began))
    if ((status != 0)); then
        stages+=("$(printf '%-28s failed after %4d s' "$name" "$took")")
        return "$status"
    fi
    stages+=("$(printf '%-28s %4d s%s' "$name" "$took" "$(within "$took")")")
    printf '== %s: %d s\n' "$name" "$took" >&2
}

# A stage beside the next ones, which wait more than they compute: a program or an exported function. It ends with
# `joined`, which shows what it said.
declare -A beside=() beside_log=()
beside() { # NAME COMMAND...
    local name=$1
    shift
    beside_log[$name]=$(mktemp)
    printf '\n== %s, beside what follows\n' "$name" >&2
    # In a session of its own, so that all of it ends with it, and so that its priority counts: the kernel may divide the
    # processor among sessions, and by `nice` only within each.
    setsid bash -euo pipefail -c '"$@"' "$me" "$@" >"${beside_log[$name]}" 2>&1 &
    beside[$name]=$!
}

# Waits for a stage that was begun beside others. What is counted is the wait.
joined() { # NAME
    local status=0
    wait "${beside[$1]}" || status=$?
    unset "beside[$1]"
    cat "${beside_log[$1]}"
    rm -f "${beside_log[$1]}"
    return "$status"
}

within() { # SECONDS
    [[ -n ${budget:-} ]] || return 0
    if (($1 > budget)); then echo " of $budget s: OVER ITS BUDGET"; else echo " of $budget s"; fi
}

summary() {
    local line
    printf '\n'
    for line in "${stages[@]}"; do printf '%s\n' "$line"; done
    printf '%-28s %4d s%s\n' 'all of it' "$SECONDS" "$(budget=${whole:-} within "$SECONDS")"
}
