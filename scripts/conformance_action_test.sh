#!/usr/bin/env bash
# Checks the action for vendors with a release in a folder: it runs only programs with the right checksum, passes their exit
# code on, and says in the summary which case failed.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
case $(uname -m) in aarch64) arch=arm64 ;; *) arch=amd64 ;; esac

release=$work/releases/v0.1.0
mkdir -p "$release" "$work/programs"
cat >"$work/programs/kubectl-flex" <<'PROGRAM'
#!/bin/sh
[ "$(basename "$0") $1 $2 $3 $4" = "flex-provisioner conformance --config my config.yaml --junit" ] || exit 3
command -v flex-pv >/dev/null || exit 4
[ "$6 $7 $8" = "--set region=the north ./program" ] || exit 5
cat >"$5" <<'XML'
<testsuites><testsuite name="conformance"><properties><property name="summary" value="contract 1: 1 of 2"/></properties>
<testcase name="volume-fits"/>
<testcase name="delete-gone"><failure message="a | b &lt;img src=x&gt; [c](http://d)">done: x
mend: Delete it.</failure></testcase>
<testcase name="expand"><skipped message="no capability"/></testcase></testsuite></testsuites>
XML
exit 1
PROGRAM
printf '#!/bin/sh\n' >"$work/programs/flex-pv"
chmod +x "$work/programs"/*
for program in kubectl-flex flex-pv; do
    tar -czf "$release/$program-linux-$arch.tar.gz" -C "$work/programs" "$program"
done
(cd "$release" && sha256sum -- *.tar.gz >SHA256SUMS)
sum=$(sha256sum "$release/SHA256SUMS" | cut -d' ' -f1)

action() { # NAME=VALUE...
    : >"$work/summary"
    env RELEASES="file://$work/releases" VERSION=v0.1.0 SHA256="$sum" COMMAND='' CONFIG='my config.yaml' PROGRAM=./program \
        ARGUMENTS=$'--set\nregion=the north\n' REPORT="$work/report.xml" GITHUB_STEP_SUMMARY="$work/summary" "$@" \
        .github/actions/conformance/run.sh
}

refuses() { # WORDS NAME=VALUE...
    local words=$1 answer status=0
    shift
    answer=$(action "$@" 2>&1) || status=$?
    [[ $status == 1 && $answer == *"$words"* ]] || { echo "not refused ($words): $status: $answer"; exit 1; }
    [[ ! -s $work/report.xml ]] || { echo "the program has run, although: $words"; exit 1; }
}

refuses 'and must be a tag' VERSION=../v0.1.0
refuses 'and must be the checksum of SHA256SUMS' SHA256=
refuses 'not that of the input sha256' SHA256="${sum//[0-9]/a}"
refuses 'name a config' CONFIG=
refuses 'cannot be reached' VERSION=v0.2.0

status=0
action || status=$?
[[ $status == 1 ]] || { echo "the exit code of the program was lost: $status"; exit 1; }
diff -u --label expected --label found - "$work/summary" <<'SUMMARY'
### Conformance: contract 1: 1 of 2

1 passed, 1 failed, 1 skipped

| failed | why |
|---|---|
| delete-gone | a \| b &lt;img src=x&gt; \[c\](http://d)<br>mend: Delete it. |

| skipped | why |
|---|---|
| expand | no capability |
SUMMARY

# A flipped byte.
rm "$work/report.xml"
archive=$release/flex-pv-linux-$arch.tar.gz
printf 'X' | dd of="$archive" bs=1 seek=20 conv=notrunc status=none
refuses 'has another checksum than the release says'
