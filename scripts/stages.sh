# shellcheck shell=bash
# The stages of a run of tests: each is timed, and has a file with its output. The end names each failed test, and the
# command that repeats it alone. lib.sh sources this file.

: "${root:?lib.sh sources this file}" "${programs:?}" "${me:?}"

# Each stage writes its output to the file NAME.log here.
logs=$root/build/logs

# Sets the end of a run of tests, also after an error or a signal: deletes the cluster of the tests and prints the summary
# of the stages. If all stages succeeded, WORDS prints the last line.
ends_with() { # WORDS
    words=$1
    mkdir -p "$logs"
    trap end_of_tests EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
}

end_of_tests() {
    local status=$? name
    trap - EXIT
    # A stage that has just begun has no session yet.
    for name in "${!beside[@]}"; do
        kill -- "-${beside[$name]}" 2>/dev/null || kill "${beside[$name]}" 2>/dev/null || true
        unfinished+=("$name")
    done
    # Without the program, no cluster was started.
    if [[ -x $programs/flex-cluster ]]; then flex_cluster --tests down || status=1; fi
    summary
    if ((status == 0)); then "$words"; else
        warn_of_little_space 4 'a stage may need'
        for name in "${failed_stages[@]}"; do what_failed "$name"; done
        for name in "${unfinished[@]}"; do printf '\n%s was ended before its end; its output: %s\n' "$name" "$(log_of "$name")"; done
        echo "$me FAILED (exit code $status)"
    fi
    exit "$status"
}

log_of() { # NAME
    echo "$logs/${1//[^[:alnum:]]/-}.log"
}

# Prints which tests of a stage failed, and how to repeat each.
what_failed() { # NAME
    local log
    log=$(log_of "$1")
    printf '\nFAILED in the stage %s; its output: %s\n' "$1" "$log"
    awk -v programs="${programs#"$root/"}" -f scripts/failed.awk "$log"
}

# Runs a stage and notes its duration for the summary. `budget` is the time in seconds that the stage may take on 2 cores,
# `whole` the time of all stages. A stage is a program or a function. A stage must not use in a condition a function that
# calls `fail`: the shell does not stop at errors in conditions.
stages=() failed_stages=() unfinished=()
stage() { # NAME COMMAND...
    local name=$1 began=$SECONDS status=0 out copier
    shift
    printf '\n== %s\n' "$name" >&2
    exec {out}> >(exec tee "$(log_of "$name")")
    copier=$!
    # The command runs in this shell, because `joined` waits for a child of it.
    "$@" >&"$out" 2>&1 {out}>&- || status=$?
    exec {out}>&-
    # A program that the stage has left behind may hold the pipe open.
    timeout 5 tail --pid="$copier" --sleep-interval=0.1 -f /dev/null || true
    local took=$((SECONDS - began))
    if ((status != 0)); then
        stages+=("$(printf '%-34s failed after %4d s' "$name" "$took")")
        failed_stages+=("$name")
        return "$status"
    fi
    stages+=("$(printf '%-34s %4d s%s' "$name" "$took" "$(within "$took")")")
    printf '== %s: %d s\n' "$name" "$took" >&2
}

# Begins a stage that runs beside the next ones, because those wait more than they compute. The stage is a program or an
# exported function. `joined` waits for its end and prints its output.
declare -A beside=()
beside() { # NAME COMMAND...
    local name=$1
    shift
    printf '\n== %s, beside what follows; its output: %s\n' "$name" "$(log_of "$name")" >&2
    # The stage gets a session of its own, so that all its processes can be ended together, and so that its priority counts:
    # the kernel may divide the processor among sessions, and by `nice` only within each.
    setsid bash -euo pipefail -c '"$@"' "$me" "$@" >"$(log_of "$name")" 2>&1 &
    beside[$name]=$!
}

# Waits for a stage that was begun beside others. Its duration in the summary is this wait.
joined() { # NAME
    local status=0
    wait "${beside[$1]}" || status=$?
    unset "beside[$1]"
    cat "$(log_of "$1")"
    return "$status"
}

within() { # SECONDS
    [[ -n ${budget:-} ]] || return 0
    if (($1 > budget)); then echo " of $budget s: OVER ITS BUDGET"; else echo " of $budget s"; fi
}

summary() {
    local line
    printf '\n'
    for line in "${stages[@]}"; do printf '%s\n' "$line"; done
    printf '%-34s %4d s%s\n' 'all of it' "$SECONDS" "$(budget=${whole:-} within "$SECONDS")"
}
