# Prints the objects of YAML files as `kubectl apply -f` needs them.
#
#   namespace      the namespace for objects that need one and name none, as kustomize sets it; may be empty
#   mutating       `no` leaves out MutatingAdmissionPolicies, which Kubernetes before 1.36 does not serve
#   pull_secret    the Secret by which pods pull images, if there is one
#   labels         the labels of all objects and pod templates, as `KEY=VALUE KEY=VALUE`, as kustomize adds them
#
# The files have block style, and two spaces for a level.

FNR == 1 && NR > 1 { finish() }
/^---/ { finish(); next }
# The line for editors names a file of the repository.
/^# yaml-language-server: / { next }
{ lines[++count] = $0 }
/^kind: / { kind = $2 }
/^[a-z]/ { top = $1 }
/^  namespace: / && top == "metadata:" { named = 1 }
/^  labels:/ && top == "metadata:" { labelled = 1 }
END { finish() }

function finish(    i, empty) {
    empty = 1
    for (i = 1; i <= count; i++) if (lines[i] !~ /^#/ && lines[i] != "") empty = 0
    if (!empty && !(mutating == "no" && kind ~ /^MutatingAdmissionPolicy/)) show()
    count = named = labelled = 0
    kind = top = ""
}

function show(    i, inside) {
    print "---"
    for (i = 1; i <= count; i++) {
        print lines[i]
        if (lines[i] ~ /^[a-z]/) inside = lines[i]
        if (lines[i] ~ /^  name: / && inside == "metadata:" && lacks_namespace()) print "  namespace: " namespace
        if (lines[i] ~ /^  name: / && inside == "metadata:" && !labelled && labels != "") {
            print "  labels:"
            label(i, "    ")
        }
        if (lines[i] ~ /^  labels:/ && inside == "metadata:") label(i, "    ")
        if (lines[i] == "      labels:" && inside == "spec:") label(i, "        ")
        if (pull_secret != "") pulls(lines[i], inside)
    }
}

# Prints the labels that do not follow in the list of an object.
function label(i, indent,    pairs, n, j, k, pair, there) {
    n = split(labels, pairs, " ")
    for (k = 1; k <= n; k++) {
        split(pairs[k], pair, "=")
        there = 0
        for (j = i + 1; j <= count && index(lines[j], indent) == 1; j++) {
            if (index(lines[j], indent pair[1] ":") == 1) there = 1
        }
        if (!there) print indent pair[1] ": " pair[2]
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
    if (kind == "ConfigMap" && line == "data:" && runs_pods()) print "  image-pull-secrets: " pull_secret
}

# Tells whether the ConfigMap is a provisioner config, whose image its pods pull.
function runs_pods(    i) {
    for (i = 1; i <= count; i++) if (lines[i] ~ /^  (image|script): /) return 1
    return 0
}
