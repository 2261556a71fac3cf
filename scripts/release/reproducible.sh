#!/usr/bin/env bash
# Builds the release of the last commit twice, in two folders, and compares: both must have the same bytes.
#
#   reproducible.sh [options of release.sh]
# shellcheck source=scripts/release/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

work=$(mktemp -d)
clean() {
    local folder
    for folder in "$work"/*/; do git worktree remove --force "$folder" || true; done
    rm -rf "$work"
}
trap clean EXIT

for folder in first second-with-a-longer-name; do
    git worktree add --quiet --detach "$work/$folder" HEAD
    say "building in $work/$folder"
    "$work/$folder/scripts/release/release.sh" "$@" || fail "the release could not be built (the output is above)"
done
if ! diff --unified=0 --label first "$work/first/dist/SHA256SUMS" --label second "$work"/second*/dist/SHA256SUMS; then
    fail "two builds of one commit differ in these files" "find what they have from the clock, the folder or the order of work"
fi
say "two builds have the same bytes: $(wc -l <"$work/first/dist/SHA256SUMS") files"
