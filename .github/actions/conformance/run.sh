#!/usr/bin/env bash
# Takes flex-provisioner and flex-pv from a release, and runs conformance. action.yml describes the variables.
set -euo pipefail

fail() { # WHAT
    echo "::error::$*" >&2
    exit 1
}

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
[[ $VERSION =~ ^v[0-9][0-9A-Za-z.-]*$ ]] || fail "version is '$VERSION', and must be a tag such as v0.1.0"
[[ $SHA256 =~ ^[0-9a-f]{64}$ ]] || fail "sha256 is '$SHA256', and must be the checksum of SHA256SUMS, which the notes of the release have"
[[ -n $COMMAND || -n $CONFIG ]] || fail "name a config, or a command that names one"
case $(uname -m) in
    x86_64) arch=amd64 ;;
    aarch64) arch=arm64 ;;
    *) fail "there is no release for the processor $(uname -m)" ;;
esac

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

take() { # FILE OF THE RELEASE
    curl --proto '=https,file' --fail --silent --show-error --location --retry 3 --output "$work/$1" "$RELEASES/$VERSION/$1" ||
        fail "the release $VERSION has no $1, or cannot be reached"
}

take SHA256SUMS
sha256sum --check --status <<<"$SHA256  $work/SHA256SUMS" ||
    fail "SHA256SUMS of the release $VERSION has the checksum $(sha256sum "$work/SHA256SUMS" | cut -d' ' -f1), not that of the input sha256"
mkdir "$work/bin"
for program in kubectl-flex flex-pv; do
    archive=$program-linux-$arch.tar.gz
    grep -qE "^[0-9a-f]{64} [ *](\./)?${archive//./\\.}\$" "$work/SHA256SUMS" || fail "the release $VERSION has no $archive"
    take "$archive"
    (cd "$work" && grep -E " [ *](\./)?${archive//./\\.}\$" SHA256SUMS | sha256sum --check --status --strict) ||
        fail "$archive has another checksum than the release says"
    tar --extract --gzip --file "$work/$archive" --directory "$work/bin" --no-same-owner
done
ln -s kubectl-flex "$work/bin/flex-provisioner"
PATH=$work/bin:$PATH

words=(flex-provisioner conformance --config "$CONFIG")
[[ -z $COMMAND ]] || words=("$COMMAND")
mapfile -t more < <(sed '/^[[:space:]]*$/d' <<<"$ARGUMENTS")
status=0
"${words[@]}" --junit "$REPORT" "${more[@]}" ${PROGRAM:+"$PROGRAM"} || status=$?
if [[ -s $REPORT && -n ${GITHUB_STEP_SUMMARY:-} ]]; then
    python3 "$here/summary.py" "$REPORT" >>"$GITHUB_STEP_SUMMARY"
fi
exit "$status"
