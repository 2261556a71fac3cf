#!/usr/bin/env bash
# Tests that work in progress survives an upgrade from an older version and the way back, on a control plane without nodes.
#
#   FROM=v0.1.0   the older version: a tag or a commit of this repository; the default is the newest tag. Volumes of a
#                 commit whose adoption mark is another one (ADR 76) count as restored, so the test fails from there.
export FLEX_PROFILE=dev
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

need_root "a test with a real Kubernetes"
export RUST_BACKTRACE=0

from=${FROM:-$(git describe --tags --abbrev=0 2>/dev/null || true)}
[[ -n $from ]] || fail "there is no tag, and FROM is not set" "FROM names the version to come from: FROM=COMMIT make test-upgrade"
commit=$(git rev-parse --verify --quiet "$from^{commit}") ||
    fail "FROM is $from, which is no tag and no commit here" "\`git log --oneline\` lists the commits; a shallow clone lacks most of them"

# The older sources and their build. The build stays, so that the next call builds no dependency again.
source=$root/target/upgrade/source
# Before the orchestrator had a program of its own, it was a command of the tool.
older=flex-provisioner
if git grep --quiet 'name = "flex-orchestrator"' "$commit" -- Cargo.toml; then older=flex-orchestrator; fi
export FLEX_ORCHESTRATOR_OLD=$root/target/upgrade/build/$CARGO_BUILD_TARGET/${programs##*/}/$older

ends_with all_passed
all_passed() { echo "the upgrade from $from ($commit) and the way back passed"; }

build_older() {
    rm -rf "$source"
    mkdir -p "$source"
    # Cargo sees by the times of files whether they have changed. Files of the archive have the time of the commit.
    git archive "$commit" | tar --extract --touch --directory "$source"
    (cd "$source" && CARGO_TARGET_DIR=$root/target/upgrade/build \
        cargo build --locked --profile "$profile" --package flex-provisioner --bin "$older")
}

stage 'setup' scripts/setup.sh --test
stage "the version $from" build_older
stage 'this version' cargo build --profile "$profile" --workspace --bin flex-orchestrator
export FLEX_PROVISIONER=$programs/flex-provisioner
stage 'build the test' cargo test --workspace --no-run --test upgrade
budget=120 stage 'upgrade and way back' cargo test --workspace --test upgrade -- --nocapture
