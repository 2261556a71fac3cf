#!/usr/bin/env bash
# Checks a release: that nothing is damaged or missing, and that its parts name each other rightly. Ends with 1 if anything is
# wrong, after it has named all that is.
#
#   verify.sh [DIR]      the default is dist
# shellcheck source=scripts/release/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

dist=${1:-dist}
wrong=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

bad() {
    say "error: $*"
    wrong=1
}

# Each file has its sum, and each sum its file.
sums() {
    (cd "$dist" && sha256sum --check --strict --quiet SHA256SUMS) >&2 || bad "a file is not what SHA256SUMS says"
    (cd "$dist" && find . -type f ! -name SHA256SUMS -printf '%P\n') | LC_ALL=C sort >"$work/there"
    sed 's/^[0-9a-f]*  //' "$dist/SHA256SUMS" | LC_ALL=C sort >"$work/listed"
    diff --unified=0 --label SHA256SUMS --label "$dist" "$work/listed" "$work/there" >&2 || bad "files and SHA256SUMS differ"
    local name
    while read -r name; do
        bad "provenance.intoto.json says nothing about $name"
    done < <(awk -F '"' 'NR == FNR { if ($2 == "sha256") known[$4]; next }
        !(substr($0, 1, 64) in known) && !/provenance.intoto.json$/ { print substr($0, 67) }' \
        "$dist/provenance.intoto.json" "$dist/SHA256SUMS")
}

# Prints the number of the processors that a program of Linux is for, as its header has it.
machine_of() { # PROGRAM
    [[ $(head -c 4 "$1" | od -An -tx1 | tr -d ' ') == 7f454c46 ]] || return 0
    od -An -j 18 -N 2 -tu1 "$1" | awk '{ print $1 + 256 * $2 }'
}

# A program of this machine's processors says its version.
says_version() { # PROGRAM
    local said
    said=$("$1" --version 2>&1) || true
    [[ $said == *" $version" ]] || bad "${1##*/} is of another version than $version: $said"
}

# An archive holds a program of its processors, the licence, and for the tool completions and pages of the manual.
archive() { # ARCHIVE
    local file=${1##*/} into=$work/${1##*/} name system needed
    name=${file%%-linux-*} name=${name%%-darwin-*} name=${name%%-windows-*}
    system=${file#"$name-"} system=${system%.tar.gz}
    mkdir "$into"
    tar --extract --gzip --file "$1" --directory "$into" 2>/dev/null || { bad "$file is no archive"; return; }
    local contents=(LICENSE)
    [[ $name == flex-pv ]] || contents+=("completions/$name.bash" "completions/$name.zsh" "completions/$name.fish" man)
    for needed in "${contents[@]}"; do [[ -s $into/$needed ]] || bad "$file lacks $needed"; done
    [[ $name == flex-pv || -n $(find "$into/man" -name '*.1' 2>/dev/null) ]] || bad "$file has no page of the manual"
    local program=$into/$name
    if [[ $system == windows-* ]]; then program+=.exe; fi
    [[ -x $program ]] || { bad "$file lacks the program $name"; return; }
    case $system in
        linux-amd64) [[ $(machine_of "$program") == 62 ]] || bad "$file holds a program of other processors" ;;
        linux-arm64) [[ $(machine_of "$program") == 183 ]] || bad "$file holds a program of other processors" ;;
    esac
    if [[ $system == linux-$(dpkg --print-architecture 2>/dev/null) ]]; then says_version "$program"; fi
}

archives() {
    local found=("$dist"/{kubectl-flex,flex-provisioner,flex-pv}-*.tar.gz) each
    for each in "${found[@]}"; do if [[ -f $each ]]; then archive "$each"; else bad "there is no ${each##*/}"; fi; done
    scripts/release/krew.py "$version" "$dist" --check "$dist/flex.yaml" || bad "flex.yaml is not of these archives"
}

# Each image is that of the list, and has its list of parts.
images() {
    local name kinds architecture
    scripts/release/index.py --check "$dist" >"$work/images" || bad "an image is not that of images.txt"
    while read -r name kinds; do
        say "image $name: $kinds"
        for architecture in $kinds; do
            [[ -f $dist/sbom/image-$name-$architecture.cdx.json ]] || bad "the parts of the image $name for $architecture are not listed"
        done
    done <"$work/images"
    while read -r name _; do
        grep -q "/$name:$version@sha256:" "$dist/images.txt" || bad "images.txt lacks $name of version $version"
    done < <(provisioner-images/images.sh --list)
    python3 - "$dist"/sbom/*.cdx.json <<'PY' || bad "a list of parts is no CycloneDX"
import json, sys
for path in sys.argv[1:]:
    if json.load(open(path)).get("bomFormat") != "CycloneDX":
        sys.exit(f"{path} has another format")
PY
}

# What people apply names the images of this release, by digest, and no others.
manifests() {
    local file image
    tar --extract --gzip --file "$dist/configs.tar.gz" --one-top-level="$work/configs" || bad "configs.tar.gz is no archive"
    while read -r image; do
        grep -qxF "$image" "$dist/images.txt" || bad "a file installs $image, which is not in images.txt"
    done < <(grep -hoE '^ *-? ?image: .*' "$dist"/{install,quickstart,claim}.yaml | sed -E 's/.*image: *//; s/"//g' | sort -u)
    for file in "$dist"/{install,quickstart,claim,values}.yaml "$work/configs"; do
        [[ -e $file ]] || bad "${file##*/} is missing"
        ! grep -rnE 'localhost/' "$file" >&2 || bad "${file##*/} names an image that only the building machine has"
    done
    [[ $(head -n 1 "$dist/CHANGES.md") == "## $version"* ]] || bad "CHANGES.md is not of version $version"
}

chart() {
    local chart=$dist/flex-provisioner-$version.tgz into=$work/chart digest
    mkdir "$into"
    tar --extract --gzip --file "$chart" --directory "$into" || { bad "the chart of version $version is missing"; return; }
    for key in version appVersion; do
        grep -qE "^$key: \"?${version//./\\.}\"?\$" "$into/flex-provisioner/Chart.yaml" || bad "the chart's $key is not $version"
    done
    ! grep -rnE 'localhost/|registry: localhost$' "$into" >&2 || bad "the chart names an image that only the building machine has"
    while read -r digest; do
        grep -qF "@$digest" "$dist/images.txt" || bad "values.yaml has $digest, which is not in images.txt"
    done < <(grep -oE 'sha256:[0-9a-f]{64}' "$dist/values.yaml")
}

[[ -f $dist/SHA256SUMS ]] || fail "$dist/SHA256SUMS is missing" "\`make release\` writes it"
version=$(sed -n 's/^  version: v//p' "$dist/flex.yaml")
[[ -n $version ]] || fail "$dist/flex.yaml names no version"
sums
archives
images
manifests
chart
((wrong == 0)) || fail "$dist is not a whole release of version $version (see above)"
say "$dist is a whole release of version $version"
