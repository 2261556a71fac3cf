#!/usr/bin/env bash
# Measures one claim on an idle cluster, fresh and with default limits, then many claims on a control plane with a
# simulated node, and writes docs/bench. The first takes about 6 minutes beyond building, the second more than half an
# hour; BURSTS=10,100 and STANDING=0 leave the long parts out. Nothing else should run on the machine.
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
