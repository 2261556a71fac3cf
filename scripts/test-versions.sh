#!/usr/bin/env bash
# Runs a smoke of the integration tests on other versions of Kubernetes, and writes docs/reference/compatibility.md. Builds
# each version once, in about 5 minutes on 2 cores.
#
#   VERSIONS='1.33 1.37'   the minor versions; the default is the oldest and the newest with a module in
#                          testing/cluster/kubernetes/versions
export FLEX_PROFILE=dev
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

need_root "a test with a real Kubernetes"
export RUST_BACKTRACE=0

modules=testing/cluster/kubernetes/versions
page=docs/reference/compatibility.md
mapfile -t known < <(cd $modules && printf '%s\n' *.mod | sed 's/\.mod$//' | sort -V)
read -ra versions <<<"${VERSIONS:-${known[0]} ${known[-1]}}"

# Each line: the first version that has the feature, the target and the name of the test, and what it shows.
smoke() {
    cat <<'LIST'
1.33 api binding::a_volume_is_bound_as_soon_as_it_appears A volume is made and bound to its claim
1.33 api gate::a_run_that_a_former_leader_has_opened_goes_on An orchestrator that is killed continues its work
1.33 api lifecycle::a_standby_takes_over_at_once_after_a_graceful_stop A second replica takes over
1.33 api failures::exit_codes_and_termination_messages_reach_the_claim_and_decide_the_next_attempt A failure reaches the claim's events
1.33 api deletion::a_released_volume_is_deleted_by_its_record A released volume is deleted
1.33 api clones::an_image_gets_the_source_of_a_clone_which_is_protected_until_the_clone_is_bound A claim is cloned
1.33 api snapshots::a_snapshot_outlives_its_source_and_becomes_a_larger_claim A snapshot becomes a larger claim
1.33 e2e shipped::pods_write_and_read_volumes_of_hostpath_and_its_examples Pods write to volumes and read them
1.33 e2e shipped::a_volume_is_expanded_with_its_data_and_a_too_large_request_is_withdrawn A volume in use grows
1.33 e2e kinds::a_stateful_set_has_a_volume_for_each_replica A StatefulSet gets a volume for each replica
1.33 e2e script::a_config_map_alone_provisions_and_its_volume_is_deleted_without_it A ConfigMap with a script is a provisioner
1.33 e2e pools::a_pod_uses_a_pooled_volume A pod uses a pooled volume
1.34 api modify::a_volume_is_made_modified_and_deleted_with_the_attributes_of_its_claim A VolumeAttributesClass changes a volume
1.36 api hostile::the_shipped_policies_are_sound All admission policies are served
LIST
}

# Prints the lines of the smoke whose features a version has.
served() { # VERSION
    local since rest
    smoke | while read -r since rest; do
        if is_at_least "$1" "$since"; then echo "$since $rest"; fi
    done
}

is_at_least() { # VERSION SINCE
    [[ $(printf '%s\n' "$1" "$2" | sort -V | head -n 1) == "$2" ]]
}

results=$(mktemp -d)
ends_with all_passed
all_passed() {
    rm -rf "$results"
    echo "the smoke passed on ${versions[*]}; $page has the results"
}

# Runs the smoke on a version. Each version needs a cluster of its own.
run() { # VERSION
    local target status=0
    local -a names
    export KUBERNETES=$1
    for target in api e2e; do
        mapfile -t names < <(served "$1" | awk -v target="$target" '$2 == target { print $3 }')
        cargo test --workspace --no-fail-fast --test "$target" -- --exact "${names[@]}" | tee "$results/$1.$target" >&2 ||
            status=1
    done
    flex_cluster --tests down || status=1
    return "$status"
}

patch_release() { # MODULE
    awk '$1 == "k8s.io/kubernetes" { print substr($2, 2) }' "$1"
}

# Prints the cell of a test in the table: the result of its run.
cell() { # VERSION SINCE TARGET TEST
    is_at_least "$1" "$2" || { echo "needs $2" && return; }
    grep -q "^test $4 \.\.\. ok" "$results/$1.$3" && echo passed || echo failed
}

write_page() {
    local version since target test words columns='' line=''
    mkdir -p "${page%/*}"
    for version in "${versions[@]}"; do
        columns+=" $(patch_release "$modules/$version.mod") |"
        line+='---|'
    done
    {
        cat <<TEXT
# Versions of Kubernetes

\`make test\` runs all tests on Kubernetes $(patch_release testing/cluster/kubernetes/go.mod).
\`make test-versions\` runs the tests below on the oldest and the newest version that the project supports, and writes this page.
Each version is built from its Go modules, and is a real cluster with a node and pods.

| what |$columns
|---|$line
TEXT
        smoke | while read -r since target test words; do
            printf '| %s |' "$words"
            for version in "${versions[@]}"; do printf ' %s |' "$(cell "$version" "$since" "$target" "$test")"; done
            echo
        done
        cat <<'TEXT'

- Before 1.34, Kubernetes does not serve VolumeAttributesClasses, and a claim that names one waits.
- Before 1.36, Kubernetes does not serve MutatingAdmissionPolicies.
  [Operations](../operations.md#kubernetes-before-136) says what is lost, and how to install without them.
- `flex-provisioner check` tells what the version of your cluster lacks.
TEXT
    } >$page
}

for version in "${versions[@]}"; do
    [[ -f $modules/$version.mod ]] ||
        fail "there is no Go module for Kubernetes $version" "there is one for each of: ${known[*]}; $modules/add.sh adds another"
done
stage 'setup' scripts/setup.sh --test
stage 'programs, tests and images' build_with_tests
export FLEX_PROVISIONER=$programs/flex-provisioner
failed=0
for version in "${versions[@]}"; do
    KUBERNETES=$version stage "Kubernetes $version" testing/cluster/setup.sh
    stage "the tests on $version" run "$version" || failed=1
done
write_page
((failed == 0))
