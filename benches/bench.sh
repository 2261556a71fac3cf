#!/usr/bin/env bash
# Measures one claim on an idle cluster, fresh and with default limits, and writes docs/bench. About 6 minutes
# beyond building; nothing else should run on the machine.
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/../scripts/lib.sh"

end() {
    local status=$?
    trap - EXIT
    flex_cluster --name bench down || status=1
    exit "$status"
}
trap end EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

flex_cluster --name bench down
scripts/cluster-up.sh bench >/dev/null
"$release/flex-bench" --cluster bench --root "$root" --out docs/bench "$@"
flex_cluster --name bench down
"$release/flex-scale" --orchestrator "$release/flex-provisioner" --out docs/bench ${BURSTS:+--bursts "$BURSTS"} \
    ${STANDING:+--standing "$STANDING"}
