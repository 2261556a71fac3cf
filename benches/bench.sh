#!/usr/bin/env bash
# Measures one claim on an idle cluster, and many claims at one time. Each measurement runs on a fresh cluster, first with
# default client limits and then with raised limits. Then measures many claims on a control plane with a simulated node.
# Writes build/bench; the results with raised limits are in build/bench/raised. Nothing else should run on the machine.
# After the build, the measurements on clusters take about 13 minutes, and those with the simulated node more than half an
# hour.
#
#   LIMITS="default raised"    which limits
#   RUNS=15                    how often a claim is measured by itself; a quarter of that with raised limits, which do
#                              not matter for one claim
#   BATCHES=200,1000           sizes of bursts in batches
#   SCALE=no                   leaves out the simulated node
#   BURSTS=10,100,1000,10000   sizes of bursts on the simulated node, in batches
#   EACH=10,100,1000           sizes of bursts on the simulated node, with a pod for each claim
#   STANDING=50000             among how many claims and volumes the orchestrator starts; 0 leaves this measurement out
#   DRAIN=10000                how many volumes are deleted at once while new claims arrive; 0 leaves this measurement out
#   BENCH_CLUSTER=bench        the cluster's name
#   PEER=PROGRAM               an external provisioner that is on this machine (csi-provisioner). With the CSI driver of the
#                              tests, it provisions the same bursts on the same cluster, and the ratio is printed
#   OUT=build/bench            the directory for all results
#   POLICIES=1000              measures only this: bursts of so many claims in batches with the bindings of the admission
#                              policies and without, in turns on one control plane. Prints the API server's CPU time for
#                              each claim and the difference in percent; takes about 10 minutes for 1,000 claims
#   WATCHING=1000              measures only this: bursts of so many claims in batches while ten `status --watch` run and while
#                              none does, in turns on one control plane; prints the API server's CPU time for each claim, and
#                              the share of one watcher
#   PROFILES=DIRECTORY         with POLICIES: writes a profile of the API server in each burst there
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/../scripts/lib.sh"

name=${BENCH_CLUSTER:-bench} out=${OUT:-build/bench} runs=${RUNS:-15}
# Without the program no cluster was started. Building the program alone takes minutes, because its dependencies then differ.
down() { if [[ -x $programs/flex-cluster ]]; then flex_cluster --name "$name" down; fi; }
end() {
    local status=$?
    trap - EXIT
    down || status=1
    exit "$status"
}
trap end EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

if [[ ${POLICIES:-0} != 0 ]]; then
    scripts/setup.sh && build
    [[ -z ${PROFILES:-} ]] || mkdir -p "$PROFILES"
    "$programs/flex-scale" --orchestrator "$programs/flex-orchestrator" --out "$out" --policies "$POLICIES" \
        ${PROFILES:+--profiles "$PROFILES"}
    exit
fi
if [[ ${WATCHING:-0} != 0 ]]; then
    scripts/setup.sh && build
    "$programs/flex-scale" --orchestrator "$programs/flex-orchestrator" --watching "$WATCHING"
    exit
fi
peer=()
if [[ -n ${PEER:-} ]]; then
    [[ -x $PEER ]] || fail "PEER is \`$PEER\`, which is no program" "name the program of an external provisioner"
    peer=(--peer "$PEER" --peer-driver "$(testing/csi-driver/build.sh | tail -1)/csi-driver")
fi
down
for limits in ${LIMITS-default raised}; do
    into=$out times=$runs
    if [[ $limits != default ]]; then into=$out/$limits times=$(((runs + 3) / 4)); fi
    began=$SECONDS
    LIMITS=$limits scripts/cluster-up.sh "$name" flex-bench flex-scale >/dev/null
    say "measuring with $limits limits"
    "$programs/flex-bench" --cluster "$name" --limits "$limits" --root "$root" --out "$into" --runs "$times" \
        ${BATCHES:+--batches "$BATCHES"} "${peer[@]}" "$@"
    down
    say "with $limits limits: $((SECONDS - began)) s"
done
if [[ ${SCALE:-yes} != no ]]; then
    [[ -n ${LIMITS-default raised} ]] || { scripts/setup.sh && build; }
    began=$SECONDS
    "$programs/flex-scale" --orchestrator "$programs/flex-orchestrator" --out "$out" ${BURSTS:+--bursts "$BURSTS"} \
        ${EACH:+--each "$EACH"} ${STANDING:+--standing "$STANDING"} ${DRAIN:+--drain "$DRAIN"}
    say "many claims on a simulated node: $((SECONDS - began)) s"
fi
