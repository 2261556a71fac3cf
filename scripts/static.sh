# shellcheck shell=bash
# Source it where programs are built that go into images: those are FROM scratch, and hold programs that need no library of
# their surroundings. The target is named, so that the flag reaches our programs and no build scripts and macros.
export CARGO_BUILD_TARGET=${CARGO_BUILD_TARGET:-$(uname -m)-unknown-linux-gnu}
static_flags=CARGO_TARGET_${CARGO_BUILD_TARGET^^}_RUSTFLAGS
export "${static_flags//-/_}=-C target-feature=+crt-static"
