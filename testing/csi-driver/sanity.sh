#!/usr/bin/env bash
# Tests the CSI driver of the tests and the mock's hooks by their own tests. Then tests the driver by csi-sanity, the suite
# of kubernetes-csi: once with directories and once with block volumes, with topology and with secrets. Needs root, for
# mounts and loop devices.
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/../../scripts/lib.sh"
readonly here=testing/csi-driver

# The number of specs when this was written. Fewer specs mean that the driver lost a capability or the suite a part.
readonly least=76

need_root "a CSI driver"
driver=$($here/build.sh)/csi-driver
sanity=$($here/build.sh --sanity)/csi-sanity
readonly driver sanity
work=$(mktemp -d)
readonly work
server=

tidy_up() {
    local status=$?
    trap - EXIT
    if [[ -n $server ]]; then
        kill "$server" 2>/dev/null || true
        wait "$server" || status=1
    fi
    if ((status != 0)) && [[ -f $work/log ]]; then
        say "the driver's last words:"
        tail -n 30 "$work/log" >&2
    fi
    # After a failure something may still be mounted, whose content must not be removed.
    local mounts
    mapfile -t mounts < <(findmnt --list --noheadings --output TARGET | awk -v under="$work/" 'index($1, under) == 1' | tac)
    if ((${#mounts[@]})); then umount "${mounts[@]}" || status=1; fi
    rm -rf --one-file-system "$work"
    exit "$status"
}
trap tidy_up EXIT

start() {
    "$driver" serve --data "$work/data" --endpoint "unix://$work/csi.sock" --node-id node-1 \
        --segment zone=a,node=node-1 --segment zone=b,node=node-2 \
        --controller-secret token=controllers --node-secret token=nodes 2>"$work/log" &
    server=$!
    local waited
    for ((waited = 0; waited < 600; waited++)); do
        if [[ -S $work/csi.sock ]]; then return; fi
        kill -0 "$server" 2>/dev/null || break
        sleep 0.1
    done
    fail "the driver does not serve"
}

settings() {
    local call
    for call in CreateVolume DeleteVolume CreateSnapshot DeleteSnapshot ControllerExpandVolume ControllerModifyVolume; do
        echo "${call}Secret: {token: controllers}"
    done >"$work/secrets.yaml"
    for call in NodeStageVolume NodePublishVolume; do echo "${call}Secret: {token: nodes}"; done >>"$work/secrets.yaml"
    echo '{iops: "100", tier: fast}' >"$work/mutable.yaml"
}

suite() { # mount|block
    local passed
    timeout 600 "$sanity" --ginkgo.no-color --csi.endpoint "unix://$work/csi.sock" \
        --csi.mountdir "$work/mount" --csi.stagingdir "$work/staging" --csi.secrets "$work/secrets.yaml" \
        --csi.testvolumemutableparameters "$work/mutable.yaml" --csi.testvolumeaccesstype "$1" \
        --csi.testvolumesize $((32 << 20)) --csi.testvolumeexpandsize $((48 << 20)) >"$work/$1.out" 2>&1 || {
        cat "$work/$1.out" >&2
        fail "csi-sanity failed with volumes of access type $1 (its output is above)"
    }
    passed=$(sed -n 's/.* -- \([0-9]*\) Passed | 0 Failed.*/\1/p' "$work/$1.out")
    ((${passed:-0} >= least)) || {
        cat "$work/$1.out" >&2
        fail "csi-sanity passed ${passed:-no} specs with access type $1, and $least is the least (its output is above)"
    }
    say "csi-sanity, access type $1: $passed specs passed, 0 failed"
}

# `list` shows what a killed or a careless call would have left.
nothing_left() {
    "$driver" list --data "$work/data" | tr -d ' \n' | grep -qx '{"volumes":\[\],"snapshots":\[\],"leftovers":\[\]}' || {
        "$driver" list --data "$work/data" >&2
        fail "the driver still has volumes or snapshots (above) after a suite that deletes all"
    }
}

for module in $here $here/mock; do
    (cd "$module" && CGO_ENABLED=0 GOFLAGS=-buildvcs=false go test -trimpath -count 1 -timeout 600s .) >&2
done
settings
start
suite mount
if grep -q 'NO LOOP DEVICES' "$work/log"; then
    say "csi-sanity, access type block: NOT RUN, this machine has no loop devices"
else
    suite block
fi
nothing_left
