# Prints the objects of YAML files as `kubectl apply -f` needs them.
#
#   namespace      the one for objects that have a namespace and name none, as kustomize sets it; none if it is empty
#   mutating       `no` leaves out MutatingAdmissionPolicies, which Kubernetes before 1.36 does not serve
#   pull_secret    the Secret by which pods pull images, if there is one
#
# The files have block style, and two spaces for a level.

FNR == 1 && NR > 1 { finish() }
/^---/ { finish(); next }
{ lines[++count] = $0 }
/^kind: / { kind = $2 }
/^[a-z]/ { top = $1 }
/^  namespace: / && top == "metadata:" { named = 1 }
END { finish() }

function finish(    i, empty) {
    empty = 1
    for (i = 1; i <= count; i++) if (lines[i] !~ /^#/ && lines[i] != "") empty = 0
    if (!empty && !(mutating == "no" && kind ~ /^MutatingAdmissionPolicy/)) show()
    count = named = 0
    kind = top = ""
}

function show(    i, inside) {
    print "---"
    for (i = 1; i <= count; i++) {
        print lines[i]
        if (lines[i] ~ /^[a-z]/) inside = lines[i]
        if (lines[i] ~ /^  name: / && inside == "metadata:" && lacks_namespace()) print "  namespace: " namespace
        if (pull_secret != "") pulls(lines[i], inside)
    }
}

function lacks_namespace() {
    if (namespace == "" || named) return 0
    return kind !~ /^(Namespace|StorageClass|ClusterRole|ClusterRoleBinding|.*AdmissionPolicy|.*AdmissionPolicyBinding)$/
}

function pulls(line, inside) {
    if (kind ~ /^(Deployment|DaemonSet)$/ && line == "    spec:") {
        print "      imagePullSecrets: [{name: " pull_secret "}]"
    }
    if (kind == "ConfigMap" && inside == "data:" && line ~ /^  image: /) print "  image-pull-secrets: " pull_secret
}
