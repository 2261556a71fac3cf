#!/usr/bin/env bash
# Runs the CSI driver at the kubelet of a whole cluster that is up, in the foreground, until somebody ends it. It runs as
# root with the kubelet's own directory, so that pods mount its volumes. It first prints the CSIDriver object, which you
# apply once with kubectl.
#
#   at-kubelet.sh CLUSTER [OPTION...]    options are those of `csi-driver serve`; --name and --data may be among them
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly here

fail() {
    printf 'at-kubelet: error: %s\n' "$@" >&2
    exit 1
}

(($# > 0)) || fail "no cluster is named; usage: at-kubelet.sh CLUSTER [OPTION...]"
readonly state=/run/flex-cluster/$1/state.json
shift
[[ -r $state ]] || fail "there is no $state: is that cluster up?" "flex-cluster up --name NAME starts one"

field() { # NAME, of those that stand alone on a line at the first level
    sed -n "s/^  \"$1\": \"\(.*\)\",\$/\1/p" "$state"
}

root=$(field root)
node=$(field node)
[[ -n $root && -n $node ]] || fail "$state tells of no node: a cluster without nodes has no kubelet"
driver=$("$here/build.sh" | tail -n 1)/csi-driver

name=csi.test.flex-provisioner.io
arguments=("$@")
for ((at = 0; at < $#; at++)); do
    case ${arguments[at]} in
        --name) name=${arguments[at + 1]:-} ;;
        --name=*) name=${arguments[at]#--name=} ;;
    esac
done

cat <<END
{"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "$name"}, "spec": {"attachRequired": false}}
END
# The data is removed with the cluster. If an option is on the command line twice, the later one counts.
exec "$driver" serve --node-id "$node" --data "$root/csi/$name" --endpoint "unix://$root/kubelet/plugins/$name/csi.sock" \
    --registration "$root/kubelet/plugins_registry" "$@"
