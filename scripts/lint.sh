#!/usr/bin/env bash
# Everything that can be said about the sources without running the product. All checks run, also after one has failed; the
# last lines say which failed and which could not be run.
#
# Installs what is missing by its Debian package (shellcheck), has helm from helm.sh beside this script, and takes kubectl
# from the cluster of the tests.
#
#   FLEX_LINT_DENY=1   install cargo-deny if it is missing, whatever it takes (minutes)
#   CI=…               install cargo-deny if it is missing and 10 minutes are enough
set -uo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
PATH=$PATH:/usr/local/go/bin:$HOME/.cargo/bin
readonly chart=deploy/helm/flex-provisioner
# With the target of the tests, so that nothing is built once more.
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

# cargo-deny takes minutes to build on a small machine, so it is only installed where that is wanted.
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

# Dependencies that nothing uses. The program takes less than a minute to build.
unused_dependencies() {
    cargo machete --version >/dev/null 2>&1 || {
        say "lint: building cargo-machete"
        CARGO_BUILD_TARGET='' cargo install cargo-machete --locked --quiet
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
        [[ -f $file ]] || continue
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

# The module of the cluster is left out: what it checks is all of Kubernetes, minutes for two small files.
go_vet() {
    local module status=0
    for module in testing/csi-driver testing/csi-driver/mock; do
        (cd "$module" && CGO_ENABLED=0 GOFLAGS=-buildvcs=false go vet -trimpath .) || status=1
    done
    return "$status"
}

# The cluster of the tests holds all of Kubernetes in one binary, kubectl among it.
kubernetes() {
    local built
    built=$(testing/cluster/setup.sh --control-plane | tail -n 1) && [[ -x $built/kubernetes ]] && echo "$built/kubernetes"
}

# Both ways of installation, each brought by kustomize into one order and spelling. Kustomize does not know that admission
# policies are of no namespace and gives them one, which the API server drops.
normal() { # DIRECTORY-WITH-KUSTOMIZATION
    "$kubernetes" kubectl kustomize "$1" |
        awk '/^kind: /{policy = /AdmissionPolicy/} !(policy && /^  namespace: /)'
}

kustomize() {
    local base
    base=$(realpath --relative-to="$work/kustomize" deploy/kustomize)
    printf 'resources: [%s]\nsortOptions: {order: legacy}\n' "$base" >"$work/kustomize/kustomization.yaml"
    normal "$work/kustomize" >"$work/kustomize.yaml" && [[ -s $work/kustomize.yaml ]] || return
    # The same with all that is optional.
    cp "$work/kustomize/kustomization.yaml" "$work/kustomize-all"
    printf 'components: [%s/network-policy]\n' "$base" >>"$work/kustomize-all/kustomization.yaml"
    normal "$work/kustomize-all" >"$work/kustomize-all.yaml" && grep -q NetworkPolicy "$work/kustomize-all.yaml"
}

# An overlay with nothing but another namespace, over the orchestrator and over a shipped config, leaves no object, subject or
# text in the namespace of before. (Names of objects and the image may be called flex-provisioner.)
kustomize_elsewhere() {
    local base left
    base=$(realpath --relative-to="$work/elsewhere" deploy/kustomize)
    cp configmaps/hostpath.yaml "$work/elsewhere/" || return
    printf 'namespace: elsewhere\nresources: [%s, hostpath.yaml]\n' "$base" >"$work/elsewhere/kustomization.yaml"
    "$kubernetes" kubectl kustomize "$work/elsewhere" >"$work/elsewhere.yaml" || return
    left=$(grep -nE '(namespace: *|system:serviceaccounts?:)flex-provisioner|namespace[ =]flex-provisioner' "$work/elsewhere.yaml")
    [[ -z $left ]] || { say "an overlay with another namespace leaves: $left"; return 1; }
    # The account of the orchestrator is a subject three times, that of the image once.
    [[ $(grep -A2 'kind: ServiceAccount' "$work/elsewhere.yaml" | grep -c '  namespace: elsewhere') == 4 ]] ||
        { say "an overlay with another namespace loses subjects"; return 1; }
}

# A helm that was built by `go install` takes the cluster for an old one unless told.
template() { # ARGUMENTS...
    "$helm" template flex-provisioner "$chart" --namespace flex-provisioner --kube-version 1.36.0 "$@"
}

chart_lint() {
    "$helm" lint --strict --quiet "$chart" >&2
}

# The chart with some values is what kustomize made.
same() { # NAME-OF-WHAT-KUSTOMIZE-MADE ARGUMENTS...
    local made=$1
    shift
    template --set namespace.create=true "$@" >"$work/chart/all.yaml" || return
    printf 'resources: [all.yaml]\nsortOptions: {order: legacy}\n' >"$work/chart/kustomization.yaml"
    normal "$work/chart" >"$work/chart.yaml" || return
    diff -u --label deploy/kustomize --label "$chart" "$work/$made.yaml" "$work/chart.yaml" >&2
}

chart_is_kustomize() {
    cmp deploy/kustomize/policies.yaml "$chart/files/policies.yaml" >&2 || return
    same kustomize || return
    same kustomize-all --set networkPolicy.enabled=true
}

# Every value at once: the templates must still make objects that kustomize can read.
chart_values() {
    template --values "$chart/ci/all-values.yaml" >"$work/values/all.yaml" || return
    printf 'resources: [all.yaml]\n' >"$work/values/kustomization.yaml"
    normal "$work/values" >"$work/values.yaml" || return
    local wanted
    while read -r wanted; do
        grep -qF -- "$wanted" "$work/values.yaml" || { say "the chart with all values lacks: $wanted"; return 1; }
    done < <(sed -n 's/^# renders: //p' "$chart/ci/all-values.yaml")
}

# docs/internals/tests.md and the promises of SECURITY.md name tests: each must be there.
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

# Users and admins do not read tests: what shows them that something holds is said in words.
no_named_tests() {
    local file name tests status=0
    tests=$(grep -rhEA4 '#\[(tokio::)?test[](]' --include='*.rs' src tests provisioner-images crates | grep -oE 'fn \w+\(')
    for file in README.md docs/{command-line,config,contract,operations,troubleshooting}.md; do
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

# The glossary says of each word where it is at home in the code.
glossary() {
    local file status=0
    while read -r file; do
        [[ -f $file ]] || { say "docs/glossary.md names $file, which is not there"; status=1; }
    done < <(grep -oE '[a-z_/-]+\.rs' docs/glossary.md | sort -u)
    return "$status"
}

json() {
    local file status=0
    while IFS= read -r -d '' file; do
        python3 -m json.tool "$file" >/dev/null || { say "$file is not JSON"; status=1; }
    done < <(git ls-files -z 'deploy/**/*.json')
    return "$status"
}

mapfile -t fuzzers < <(basename --suffix .rs fuzz/fuzz_targets/*.rs | sed 's/^/--bin=/')
mkdir "$work/kustomize" "$work/kustomize-all" "$work/elsewhere" "$work/chart" "$work/values"
check "cargo fmt" cargo fmt --all --check
check "cargo clippy" cargo clippy --workspace --all-targets --locked -- -D warnings
check "cargo clippy of tests with stages of their own" \
    cargo clippy --workspace --locked --test cinder --test faults --test whole_faults --test soak -- -D warnings
check "cargo clippy of the fuzzers" cargo clippy --workspace --features fuzz/libfuzzer --locked "${fuzzers[@]}" -- -D warnings
deny
check "parts of pages that the code prints" cargo test --quiet --workspace --locked --test pages
check "unused dependencies" unused_dependencies
check "one version of Rust" rust_version
check "arrows between modules" scripts/floors.py
check "shellcheck" shell
check "gofmt" go_format
check "go vet" go_vet
install_package python3 python3
check "json" json
check "tests that pages name" named_tests
check "pages for users name no tests" no_named_tests
check "links" scripts/links.py
check "planted circles between files" scripts/floors.py --self-test
check "decisions" decisions
check "glossary" glossary
if kubernetes=$(kubernetes); then
    readonly kubernetes
    check "kustomize" kustomize
    check "kustomize with another namespace" kustomize_elsewhere
    if helm=$(scripts/helm.sh); then
        readonly helm
        check "helm lint" chart_lint
        check "the chart renders what kustomize renders" chart_is_kustomize
        check "the chart with all values" chart_values
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
