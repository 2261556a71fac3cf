# shellcheck shell=bash
# Sets the flags for programs in images. Source this file before you build such programs. The images are FROM scratch, so
# their programs must need no shared library. The target is named, so that the flag applies to our programs, and not to
# build scripts and macros.
export CARGO_BUILD_TARGET=${CARGO_BUILD_TARGET:-$(uname -m)-unknown-linux-gnu}
static_flags=CARGO_TARGET_${CARGO_BUILD_TARGET^^}_RUSTFLAGS
export "${static_flags//-/_}=-C target-feature=+crt-static"
