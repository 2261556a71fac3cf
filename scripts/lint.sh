#!/usr/bin/env bash
# Checks the sources without running the product. All checks run, also after one has failed. The last lines say which
# failed and which could not be run.
#
# Installs shellcheck by its Debian package if it is missing, has helm, promtool and actionlint from the scripts beside
# this one, and takes kubectl from the cluster of the tests.
#
#   FLEX_LINT_DENY=1   install cargo-deny if it is missing, whatever it takes (minutes)
#   CI=…               install cargo-deny if it is missing and 10 minutes are enough
set -uo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
PATH=$PATH:/usr/local/go/bin:$HOME/.cargo/bin
readonly chart=deploy/helm/flex-provisioner
# The checks use the target of the tests, and build as these do, so that cargo builds nothing twice.
export CARGO_INCREMENTAL=${CARGO_INCREMENTAL:-0}
# shellcheck source=scripts/static.sh
source scripts/static.sh
work=$(mktemp -d)
readonly work
trap 'rm -rf "$work"' EXIT

failed=()
skipped=()

say() { printf '%s\n' "$*" >&2; }

check() { # NAME COMMAND...
    local name=$1 started=$SECONDS
    shift
    say "lint: $name"
    local before=${#skipped[@]}
    if "$@"; then
        ((${#skipped[@]} > before)) || say "lint: $name: passed in $((SECONDS - started)) s"
    else
        say "lint: $name: FAILED"
        failed+=("$name")
    fi
}

install_package() { # PROGRAM PACKAGE
    command -v "$1" >/dev/null && return
    say "lint: installing the Debian package $2"
    { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$2"; } \
        </dev/null >&2
}

# Installs cargo-deny if the caller wants that: it takes minutes to build on a small machine.
ensure_deny() {
    cargo deny --version >/dev/null 2>&1 && return
    if [[ -n ${FLEX_LINT_DENY:-} ]]; then
        say "lint: building cargo-deny"
        cargo install cargo-deny --locked
    elif [[ -n ${CI:-} ]]; then
        say "lint: building cargo-deny, for 10 minutes at most"
        timeout 600 cargo install cargo-deny --locked
    else
        return 1
    fi
}

# Advisories come from a repository on GitHub, which not every machine reaches; the rest needs no network.
advisories() {
    cargo deny --log-level error check advisories >"$work/advisories" 2>&1 && return
    if grep -q 'failed to fetch advisory database' "$work/advisories"; then
        say "lint: cargo deny advisories was NOT RUN: the advisory database cannot be fetched from here"
        skipped+=("cargo deny advisories")
        return
    fi
    cat "$work/advisories" >&2
    return 1
}

# Finds dependencies that nothing uses. The program for it takes less than a minute to build.
unused_dependencies() {
    cargo machete --version >/dev/null 2>&1 || {
        say "lint: building cargo-machete"
        env -u CARGO_BUILD_TARGET -u "${static_flags//-/_}" cargo install cargo-machete --locked --quiet
    } || return
    cargo machete .
}

# Cargo.toml and the README name the same version of Rust.
rust_version() {
    local version
    version=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
    grep -q "Rust $version" README.md || { say "README.md does not name Rust $version, which Cargo.toml asks for"; return 1; }
    ! grep -n '^rust-version = ' ./*/Cargo.toml ./*/*/Cargo.toml || { say "the version of Rust stands in the Cargo.toml of the workspace alone"; return 1; }
}

deny() {
    if ensure_deny; then
        check "cargo deny licences, bans, sources" cargo deny --log-level error check licenses bans sources
        check "cargo deny advisories" advisories
    else
        say "lint: cargo deny was NOT RUN: cargo-deny is missing (FLEX_LINT_DENY=1 installs it, which takes minutes)"
        skipped+=("cargo deny")
    fi
}

# Shell scripts by their ending or their first line.
shell_scripts() {
    local file first
    while IFS= read -r -d '' file; do
        # A template is no script before it is filled in.
        [[ -f $file && $file != */templates/*.txt ]] || continue
        IFS= read -r first <"$file" 2>/dev/null || first=
        if [[ $file == *.sh || $first =~ ^'#!'.*[/\ ](ba|da)?sh($|\ ) ]]; then printf '%s\0' "$file"; fi
    done < <(git ls-files -z)
}

shell() {
    install_package shellcheck shellcheck && shell_scripts | xargs -0 shellcheck
}

go_format() {
    local wrong
    wrong=$(git ls-files -z '*.go' | xargs -0 gofmt -l) || return
    [[ -z $wrong ]] || { say "run gofmt -w on: $wrong"; return 1; }
}

# The check leaves out the programs of Kubernetes: it would check all of Kubernetes for a few small files, which takes minutes.
go_vet() {
    local module status=0
    for module in testing/csi-driver testing/csi-driver/mock testing/e2e-suite/verdict; do
        (cd "$module" && CGO_ENABLED=0 GOFLAGS=-buildvcs=false go vet -trimpath .) || status=1
    done
    (cd examples/helpers && CGO_ENABLED=0 GOWORK=off go vet provision.go flexpv.go) || status=1
    return "$status"
}

# The cluster of the tests holds all of Kubernetes in one binary, kubectl among it.
kubernetes() {
    local built
    built=$(testing/cluster/setup.sh --control-plane | tail -n 1) && [[ -x $built/kubernetes ]] && echo "$built/kubernetes"
}

# Compares both ways of installation, after kustomize has given them the same order and spelling. Kustomize does not know
# that admission policies have no namespace, and adds a namespace, which the API server drops.
normal() { # DIRECTORY-WITH-KUSTOMIZATION
    "$kubernetes" kubectl kustomize "$1" |
        awk '/^kind: /{policy = /AdmissionPolicy/} !(policy && /^  namespace: /)'
}

kustomize() {
    local base
    base=$(realpath --relative-to="$work/kustomize" deploy/kustomize)
    printf 'resources: [%s]\nsortOptions: {order: legacy}\n' "$base" >"$work/kustomize/kustomization.yaml"
    normal "$work/kustomize" >"$work/kustomize.yaml" && [[ -s $work/kustomize.yaml ]] || return
    # The same with all optional parts.
    cp "$work/kustomize/kustomization.yaml" "$work/kustomize-all"
    printf 'components: [%s/network-policy]\n' "$base" >>"$work/kustomize-all/kustomization.yaml"
    normal "$work/kustomize-all" >"$work/kustomize-all.yaml" && grep -q NetworkPolicy "$work/kustomize-all.yaml" || return
    # Older versions of Kubernetes get the same objects, without the kinds that they do not serve.
    "$kubernetes" kubectl kustomize deploy/kustomize-before-1.36 >"$work/before.yaml" &&
        grep -q ValidatingAdmissionPolicy "$work/before.yaml" && ! grep -q Mutating "$work/before.yaml"
}

# Checks an overlay that only sets another namespace, over the orchestrator and over a shipped config. It must leave no
# object, subject or text with the old namespace. (Objects and the image may have the name flex-provisioner.)
kustomize_elsewhere() {
    local base left
    base=$(realpath --relative-to="$work/elsewhere" deploy/kustomize)
    cp configmaps/hostpath.yaml "$work/elsewhere/" || return
    printf 'namespace: elsewhere\nresources: [%s, hostpath.yaml]\n' "$base" >"$work/elsewhere/kustomization.yaml"
    "$kubernetes" kubectl kustomize "$work/elsewhere" >"$work/elsewhere.yaml" || return
    left=$(grep -nE '(namespace: *|system:serviceaccounts?:)flex-provisioner|namespace[ =]flex-provisioner' "$work/elsewhere.yaml")
    [[ -z $left ]] || { say "an overlay with another namespace leaves: $left"; return 1; }
    # The account of the orchestrator is a subject three times. The accounts of the image and of scripts are subjects once.
    [[ $(grep -A2 'kind: ServiceAccount' "$work/elsewhere.yaml" | grep -c '  namespace: elsewhere') == 5 ]] ||
        { say "an overlay with another namespace loses subjects"; return 1; }
}

# Checks that `make manifests` renders the same as kustomize, without kubectl, and that quickstart.yaml can be read.
install_files() {
    local registry=registry.example/team
    scripts/manifests.sh --registry "$registry" --out "$work/install" || return
    sed "s#localhost/flex-provisioner/#$registry/#" "$work/kustomize.yaml" >"$work/expected.yaml"
    printf 'resources: [install.yaml]\nsortOptions: {order: legacy}\n' >"$work/install/kustomization.yaml"
    normal "$work/install" >"$work/install.yaml" || return
    diff -u --label deploy/kustomize --label install.yaml "$work/expected.yaml" "$work/install.yaml" >&2 || return
    printf 'resources: [quickstart.yaml]\n' >"$work/install/kustomization.yaml"
    normal "$work/install" >"$work/quickstart.yaml" && grep -q 'name: flex-local' "$work/quickstart.yaml"
}

# Helm from `go install` assumes an old cluster unless a flag names the version.
template() { # ARGUMENTS...
    "$helm" template flex-provisioner "$chart" --namespace flex-provisioner --kube-version 1.36.0 "$@"
}

chart_lint() {
    local values
    "$helm" lint --strict --quiet "$chart" >&2 || return
    for values in "$chart"/ci/*-values.yaml; do
        "$helm" lint --strict --quiet --values "$values" "$chart" >&2 || return
    done
}

# Removes the labels that name a release of Helm: kustomize does not write them.
without_release() {
    grep -vE '^ +(app\.kubernetes\.io/(instance|managed-by|version)|helm\.sh/chart): '
}

# Checks that the chart with these values renders the same objects as kustomize.
same() { # NAME-OF-WHAT-KUSTOMIZE-MADE ARGUMENTS...
    local made=$1
    shift
    template --no-hooks --set namespace.create=true "$@" >"$work/chart/all.yaml" || return
    printf 'resources: [all.yaml]\nsortOptions: {order: legacy}\n' >"$work/chart/kustomization.yaml"
    normal "$work/chart" | without_release >"$work/chart.yaml" || return
    diff -u --label deploy/kustomize --label "$chart" "$work/$made.yaml" "$work/chart.yaml" >&2
}

chart_is_kustomize() {
    same kustomize || return
    same kustomize-all --set networkPolicy.enabled=true
}

# Renders every value at once: the templates must still make objects that kustomize can read.
chart_values() {
    template --values "$chart/ci/all-values.yaml" >"$work/values/all.yaml" || return
    printf 'resources: [all.yaml]\n' >"$work/values/kustomization.yaml"
    normal "$work/values" >"$work/values.yaml" || return
    local wanted
    while read -r wanted; do
        grep -qF -- "$wanted" "$work/values.yaml" || { say "the chart with all values lacks: $wanted"; return 1; }
    done < <(sed -n 's/^# renders: //p' "$chart/ci/all-values.yaml")
    while read -r wanted; do
        ! grep -nF -- "$wanted" "$work/values.yaml" >&2 || { say "the chart with all values has: $wanted"; return 1; }
    done < <(sed -n 's/^# not: //p' "$chart/ci/all-values.yaml")
    validate --plugin-name example/second --provisioner-name second.example --config-namespace storage-a,storage-b \
        "$work/values.yaml"
}

# Uses the build of the tests: for one package alone, cargo would build its libraries again, with fewer features.
validate() { # ARGUMENTS...
    cargo build --quiet --locked --workspace --features flex-provisioner/testing --bin flex-provisioner &&
        "${CARGO_TARGET_DIR:-target}/$CARGO_BUILD_TARGET/debug/flex-provisioner" validate "$@" >&2
}

# Renders a class of each preset: the orchestrator must accept the config that the chart makes.
chart_presets() {
    local preset values=$chart/ci/preset-values.yaml
    for preset in "$chart"/files/presets/*.yaml; do
        preset=$(basename "$preset" .yaml)
        grep -qx "    preset: $preset" "$values" || { say "$values has no class of the preset $preset; write one"; return 1; }
        grep -q "^| \`$preset\` |" docs/helm.md || { say "docs/helm.md does not list the preset $preset"; return 1; }
    done
    template --values "$values" >"$work/presets/all.yaml" || return
    printf 'resources: [all.yaml]\n' >"$work/presets/kustomization.yaml"
    normal "$work/presets" >"$work/presets.yaml" || return
    [[ $(grep -cE '^kind: (Deployment|DaemonSet|Job|Pod)$' "$work/presets.yaml") == \
        $(grep -c '  kubernetes.io/os: linux$' "$work/presets.yaml") ]] ||
        { say "a pod of the chart may run on nodes with another system than Linux"; return 1; }
    validate "$work/presets.yaml"
}

# Checks what the number of pods changes, and who may use the SCC of OpenShift.
chart_choices() {
    template >"$work/one.yaml" && template --set replicas=2 >"$work/two.yaml" || return
    ! grep -E 'PodDisruptionBudget|podAntiAffinity' "$work/one.yaml" >&2 ||
        { say "one pod has a PodDisruptionBudget or an affinity"; return 1; }
    [[ $(grep -cE '^kind: PodDisruptionBudget$|^        podAntiAffinity:$' "$work/two.yaml") == 2 ]] ||
        { say "two pods lack a PodDisruptionBudget or an affinity"; return 1; }
    template --set openshift.scc=true,classes.local.preset=hostpath --set classes.shared.preset=nfs \
        --set classes.shared.config.server=a,classes.shared.config.export=/b \
        --show-only templates/openshift.yaml >"$work/scc.yaml" || return
    [[ $(sed -n '/^subjects:/,$s/^  name: //p' "$work/scc.yaml" | sort | tr '\n' ' ') == 'default local-provisioner ' ]] ||
        { say "the SCC is not for the class of hostpath and its DaemonSet alone"; return 1; }
}

# Checks that two flags make a whole class, without a kind that the cluster does not serve.
chart_class() {
    local kind
    local class=(--set classes.local.preset=hostpath --set classes.local.default=true --show-only templates/classes.yaml)
    local cluster=(--api-versions apiregistration.k8s.io/v1)
    template "${class[@]}" >"$work/class.yaml" || return
    for kind in ConfigMap ServiceAccount ClusterRoleBinding StorageClass VolumeSnapshotClass; do
        grep -qx "kind: $kind" "$work/class.yaml" || { say "two flags for a class make no $kind"; return 1; }
    done
    validate "$work/class.yaml" || return
    template "${class[@]}" "${cluster[@]}" >"$work/class.yaml" || return
    ! grep -x 'kind: VolumeSnapshotClass' "$work/class.yaml" >&2 ||
        { say "a cluster without VolumeSnapshotClasses gets one"; return 1; }
    template "${class[@]}" "${cluster[@]}" --api-versions snapshot.storage.k8s.io/v1/VolumeSnapshotClass >"$work/class.yaml" ||
        return
    grep -qx 'kind: VolumeSnapshotClass' "$work/class.yaml" ||
        { say "a cluster with VolumeSnapshotClasses gets none"; return 1; }
    # Delete runs need the account of a class that serves no new claims.
    template "${class[@]}" --set classes.local.newClaims=false >"$work/class.yaml" || return
    [[ $(sed -n 's/^kind: //p' "$work/class.yaml" | sort | tr '\n' ' ') == 'ClusterRoleBinding DaemonSet ServiceAccount ' ]] ||
        { say "a class without new claims has other objects than its account, binding and DaemonSet"; return 1; }
}

# Checks that the chart answers wrong values with an error that says what to do.
chart_refuses() {
    local line values words answer status=0
    while read -r line; do
        words=${line#* :: } values=${line%% :: *}
        values=${values%"${values##*[! ]}"}
        if answer=$(template --set "$values" 2>&1); then
            say "the chart takes $values"
            status=1
        elif ! grep -qF -- "$words" <<<"$answer"; then
            say "the chart refuses $values, but its answer lacks: $words"
            say "$answer"
            status=1
        fi
    done < <(grep -v '^#' "$chart/ci/refused.txt")
    return "$status"
}

# docs/internals/tests.md and the promises of SECURITY.md name tests. Each of these tests must exist.
readonly test_name='([a-z]+::)?[a-z0-9]+(_[a-z0-9]+){2,}'

named_tests() {
    local file name status=0
    for file in docs/internals/tests.md SECURITY.md; do
        while read -r name; do
            grep -rqE "fn ${name##*::}\(" --include='*.rs' src tests provisioner-images crates ||
                { say "$file names the test $name, which is not there"; status=1; }
        done < <(grep -oE "$test_name" "$file" | sort -u)
    done
    return "$status"
}

# Pages for users and admins name no tests, because these readers do not read the source.
no_named_tests() {
    local file name tests status=0
    tests=$(grep -rhEA4 '#\[(tokio::)?test[](]' --include='*.rs' src tests provisioner-images crates | grep -oE 'fn \w+\(')
    for file in README.md provisioner-images/README.md docs/{README,command-line,comparison,config,contract,helm,operations,script,troubleshooting}.md \
        docs/{tutorials,how-to,explanation}/*.md provisioner-images/*/README.md; do
        while read -r name; do
            if grep -qF "fn ${name##*::}(" <<<"$tests"; then say "$file names the test $name"; status=1; fi
        done < <(grep -oE "$test_name" "$file" | sort -u)
    done
    return "$status"
}

# Each decision has its number, date and status, and a line in the index.
decisions() {
    local file name status=0 header='^Date: 20[0-9]{2}-[0-9]{2}-[0-9]{2}\. Status: (accepted|proposed|superseded by \[)'
    for file in docs/adr/[0-9]*.md; do
        name=${file##*/}
        [[ $(head -n 1 "$file") == "# $((10#${name%%-*})). "* ]] || { say "$file does not begin with its number"; status=1; }
        sed -n 3p "$file" | grep -qE "$header" || { say "$file has no date and status in its third line"; status=1; }
        grep -qF "]($name)" docs/adr/README.md || { say "docs/adr/README.md does not list $name"; status=1; }
    done
    return "$status"
}

# The glossary names for each word a file of the source. Each file must exist.
# The glossary names files by their whole path, and ARCHITECTURE also by the end of it.
glossary() {
    local page file files status=0
    files=$(git ls-files '*.rs')
    for page in docs/glossary.md ARCHITECTURE.md; do
        while read -r file; do
            grep -q -E "(^|/)${file//./\\.}\$" <<<"$files" || { say "$page names $file, which is not there"; status=1; }
        done < <(grep -oE '[a-z_/-]+\.rs' "$page" | sort -u)
    done
    return "$status"
}

json() {
    local file status=0
    while IFS= read -r -d '' file; do
        python3 -m json.tool "$file" >/dev/null || { say "$file is not JSON"; status=1; }
    done < <(git ls-files -z 'deploy/**/*.json')
    return "$status"
}

# The moving picture of the README is drawn from its transcript, and its provisioner is accepted. `make recording` makes both
# from a run, and `make recording CHECK=1` compares them with one.
recording() {
    python3 -B scripts/recording/draw_test.py || return
    [[ -f docs/recording.json && -f docs/recording.svg ]] || { say "docs/recording.json or .svg is missing: run \`make recording\`"; return 1; }
    scripts/recording/draw.py <docs/recording.json | cmp - docs/recording.svg ||
        { say "run scripts/recording/draw.py <docs/recording.json >docs/recording.svg"; return 1; }
    validate scripts/recording/drawer.yaml
}

# The rules themselves, and the series that fire each alert or do not.
alerts() {
    local promtool
    promtool=$(scripts/promtool.sh) || return
    "$promtool" check rules deploy/dashboards/alerts.yaml >&2 && "$promtool" test rules deploy/dashboards/alerts.test.yaml >&2
}

# The program comes from its Go module. Where that cannot be had, the check of digests and rights still runs.
workflows() {
    local actionlint
    actionlint=$(scripts/actionlint.sh) || {
        say "lint: actionlint was NOT RUN: it could not be built"
        skipped+=("actionlint")
        return
    }
    "$actionlint" >&2
}

action_for_vendors() {
    install_package curl curl && scripts/conformance_action_test.sh
}

mapfile -t fuzzers < <(basename --suffix .rs fuzz/fuzz_targets/*.rs | sed 's/^/--bin=/')
mkdir "$work/kustomize" "$work/kustomize-all" "$work/elsewhere" "$work/chart" "$work/values" "$work/presets"
check "cargo fmt" cargo fmt --all --check
check "cargo clippy" cargo clippy --workspace --all-targets --locked -- -D warnings
check "cargo clippy of tests with stages of their own" \
    cargo clippy --workspace --locked --test upgrade --test cinder --test e2e --test faults --test whole_faults --test soak -- -D warnings
check "cargo clippy of the fuzzers" cargo clippy --workspace --features fuzz/libfuzzer --locked "${fuzzers[@]}" -- -D warnings
deny
check "parts of pages that the code prints" cargo test --quiet --workspace --locked --test pages
check "unused dependencies" unused_dependencies
short_files() {
    # The file of the CSI specification is generated.
    local long
    long=$(git ls-files '*.rs' '*.py' '*.sh' | grep -v '/csi\.v1\.rs$' | xargs wc -l | awk '$2 != "total" && $1 > 500')
    [[ -z $long ]] || { printf 'these files have more than 500 lines: divide them by what they do\n%s\n' "$long"; return 1; }
}
# CONTRIBUTING promises that `cargo test --lib` works on a Mac. The servers of the tests work on Linux alone.
pure_tests_need_no_linux() {
    local tree
    tree=$(cargo tree --locked --target aarch64-apple-darwin --edges normal,dev --prefix none --package flex-provisioner \
        --package flex-core --package flex-tool) || return
    ! grep -E '^(cluster|ganesha|openstack|orchestrator|scripted-csi) ' <<<"$tree"
}
check "pure tests need no Linux" pure_tests_need_no_linux
check "one version of Rust" rust_version
check "one version of this project" scripts/version.sh --check
install_package python3 python3
check "files of at most 500 lines" short_files
check "arrows between modules" scripts/layers.py
check "shellcheck" shell
check "gofmt" go_format
check "go vet" go_vet
check "json" json
check "alerts" alerts
check "what the chart takes from other files" python3 scripts/chart.py --check
check "tests that pages name" named_tests
check "pages for users name no tests" no_named_tests
check "names of failed tests" scripts/failed_test.sh
check "rights and digests of workflows" scripts/workflows.py
check "planted mistakes in workflows" scripts/workflows.py --self-test
check "workflows" workflows
check "versions of the manual" scripts/pages_test.sh
check "the look at a registry" scripts/push_test.sh
check "the action for vendors" action_for_vendors
check "the scripts of a release" scripts/release/release_test.sh
check "links" scripts/links.py
check "pages of the manual" scripts/book.py --check
check "planted circles between files" scripts/layers.py --self-test
check "the moving picture" recording
check "decisions" decisions
check "glossary" glossary
if kubernetes=$(kubernetes); then
    readonly kubernetes
    check "kustomize" kustomize
    check "kustomize with another namespace" kustomize_elsewhere
    check "the files of make manifests" install_files
    if helm=$(scripts/helm.sh); then
        readonly helm
        check "helm lint" chart_lint
        check "the chart renders what kustomize renders" chart_is_kustomize
        check "the chart with all values" chart_values
        check "the chart makes a class by two flags" chart_class
        check "the chart with each preset" chart_presets
        check "the chart with several pods and on OpenShift" chart_choices
        check "the chart refuses wrong values" chart_refuses
    else
        failed+=("helm could not be built")
    fi
else
    failed+=("kubectl could not be had")
fi

if ((${#skipped[@]})); then say "lint: NOT RUN: ${skipped[*]}"; fi
if ((${#failed[@]})); then
    say "lint: FAILED:$(printf ' [%s]' "${failed[@]}")"
    exit 1
fi
say "lint: passed"
