#!/usr/bin/env bash
# Runs a command, such as `cargo build`, so that the programs which it builds are static and for the processors of ARCH,
# amd64 or arm64. With --target, only prints cargo's name of these processors, which is also the folder of the programs.
#
#   cross.sh ARCH COMMAND...
#   cross.sh --target ARCH
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

fail() { # WHAT IS WRONG, WHAT TO DO ABOUT IT...
    printf 'cross.sh: error: %s\n' "$@" >&2
    exit 1
}

cpu_of() { # ARCH
    case $1 in
        amd64) echo x86_64 ;;
        arm64) echo aarch64 ;;
        *) fail "there is no architecture $1" "it is amd64 or arm64" ;;
    esac
}

# Finds the C compiler for other processors, which some crates need and which links.
find_compiler() { # CPU
    local triple=$1-linux-gnu upper=${CARGO_BUILD_TARGET^^} lower=${CARGO_BUILD_TARGET//-/_}
    if ! command -v "$triple-gcc" >/dev/null || [[ ! -e /usr/$triple/include/stdio.h ]]; then
        fail "a C compiler or C library for $architecture is missing" \
            "on Debian: apt-get install gcc-${triple//_/-} libc6-dev-$architecture-cross"
    fi
    export "CARGO_TARGET_${upper//-/_}_LINKER=$triple-gcc" "CC_$lower=$triple-gcc" "AR_$lower=$triple-ar"
}

# A compiler of Rust makes programs for other processors once it has their standard library. rustup brings it, and so does
# Debian 12, whose security archive has a new Rust.
find_library() {
    local library
    library=$(rustc --print target-libdir --target "$CARGO_BUILD_TARGET")
    compgen -G "$library/libstd-*.rlib" >/dev/null && return
    if command -v rustup >/dev/null; then rustup target add "$CARGO_BUILD_TARGET" >&2 || true; fi
    compgen -G "$library/libstd-*.rlib" >/dev/null ||
        fail "this Rust has no standard library for $CARGO_BUILD_TARGET" \
            "with rustup: rustup target add $CARGO_BUILD_TARGET" \
            "with the Rust of Debian 12: dpkg --add-architecture $architecture && apt-get update && \
apt-get install rustc-web libstd-rust-web-dev:$architecture" \
            "or leave these programs out: make release ARCHITECTURES=$(dpkg --print-architecture)"
}

(($# >= 2)) || fail "usage: cross.sh ARCH COMMAND... | cross.sh --target ARCH"
only_name=''
if [[ $1 == --target ]]; then only_name=yes; shift; fi
architecture=$1
cpu=$(cpu_of "$architecture")
export CARGO_BUILD_TARGET=$cpu-unknown-linux-gnu
if [[ -n $only_name ]]; then
    echo "$CARGO_BUILD_TARGET"
    exit
fi
shift
# shellcheck source=scripts/static.sh
source scripts/static.sh
[[ $cpu == "$(uname -m)" ]] || find_compiler "$cpu"
find_library
exec "$@"
