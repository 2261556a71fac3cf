# shellcheck shell=bash
# The functions that the scripts of a release share. Sourcing also changes into the project's root. It needs less of a
# machine than scripts/lib.sh, because a release is also packed on systems on which nothing else of this project runs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

me=$(basename "$0" .sh)

say() { printf '%s: %s\n' "$me" "$*" >&2; }

fail() { # WHAT IS WRONG, WHAT TO DO ABOUT IT...
    printf "$me: error: %s\n" "$@" >&2
    exit 1
}

# Reads the options of a script, `--NAME VALUE`, into the variables of these names. Each needs a value, unless a `?` stands
# before its name here.
read_flags() { # USAGE NAME... -- ARGUMENT...
    local usage=$1 name known=() needed=()
    shift
    while [[ $1 != -- ]]; do
        known+=("${1#\?}")
        if [[ $1 != \?* ]]; then needed+=("$1"); fi
        shift
    done
    shift
    while (($# > 1)); do
        name=${1#--}
        [[ $1 == --* && " ${known[*]} " == *" $name "* ]] || fail "unknown argument $1" "usage: $usage"
        printf -v "$name" %s "$2"
        shift 2
    done
    (($# == 0)) || fail "usage: $usage"
    for name in "${needed[@]}"; do [[ -n ${!name} ]] || fail "usage: $usage"; done
}

# Prints where this project and its images are, once they are published. Cargo.toml alone names both places.
repository() { sed -n 's/^repository = "\(.*\)"$/\1/p' Cargo.toml; }
default_registry() { sed -n '/^\[workspace\.metadata\.release\]/,/^$/s/^registry = "\(.*\)"$/\1/p' Cargo.toml; }
