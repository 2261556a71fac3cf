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

# Prints where this project and its images are, once they are published. Cargo.toml alone names both places.
repository() { sed -n 's/^repository = "\(.*\)"$/\1/p' Cargo.toml; }
default_registry() { sed -n '/^\[workspace\.metadata\.release\]/,/^$/s/^registry = "\(.*\)"$/\1/p' Cargo.toml; }
