#!/usr/bin/env bash
# Packs a release from programs and images that fakes.py makes, and checks that verify.sh passes it, and refuses each kind of
# damage. Compiles nothing, and needs no network and no root.
# shellcheck source=scripts/release/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

registry=localhost:5000/team
version=$(scripts/version.sh)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# helm.sh finds this in place of a helm that it would build.
export FLEX_CACHE=$work/cache SOURCE_DATE_EPOCH=1700000000 FLEX_REVISION=0123456789abcdef
fakes() { scripts/release/fakes.py "$@"; }

fake_helm() {
    local directory
    directory=$FLEX_CACHE/helm-$(cat scripts/helm/go.mod scripts/helm/go.sum | sha256sum | cut -c1-16)
    mkdir -p "$directory"
    cat >"$directory/helm" <<'SH'
#!/bin/sh
# helm package --version VERSION --app-version VERSION --destination DIR CHART
[ "$1" = lint ] || tar -czf "$7/flex-provisioner-$3.tgz" -C "${8%/*}" flex-provisioner
SH
    chmod +x "$directory/helm"
}

# Builds programs and images of some processors, as release.sh and images.sh do from real ones.
parts() { # OUT ARCHITECTURE...
    local out=$1 architecture name programs program digest
    mkdir -p "$out/sbom" "$out/images"
    cat >"$work/tool" <<'SH'
#!/bin/sh
[ "$1" = completion ] && echo "completion of ${0##*/} for $2" && exit
mkdir -p "$2" && echo .TH >"$2/flex-provisioner.1"
SH
    for architecture in "${@:2}"; do
        mkdir "$work/$architecture"
        for program in flex-provisioner flex-pv; do
            fakes program "$architecture" "$version" "$work/$architecture/$program"
        done
        fakes image "$architecture" "$work/$architecture/image.tar"
        scripts/release/programs.sh --system "linux-$architecture" --programs "$work/$architecture" --out "$out" \
            --speaking "$work/tool"
        fakes metadata | scripts/release/sbom.py program fake >"$work/$architecture/program.json"
        scripts/release/sbom.py image "$work/$architecture/image.tar" shell "$version" \
            "$work/$architecture/program.json" >"$work/$architecture/image.json"
    done
    while read -r name programs; do
        for architecture in "${@:2}"; do
            for program in $programs; do
                cp "$work/$architecture/program.json" "$out/sbom/$program-linux-$architecture.cdx.json"
            done
            cp "$work/$architecture/image.json" "$out/sbom/image-$name-$architecture.cdx.json"
        done
        digest=$(scripts/release/index.py "$out/images/$name.tar" "$registry/$name:$version" "$work"/*/image.tar)
        echo "$registry/$name:$version@$digest" >>"$out/images.txt"
    done < <(provisioner-images/images.sh --list)
}

assemble() { scripts/release/assemble.sh --architectures 'amd64 arm64' --out "$1"; }

# Computes the sums again, so that a check other than that of the sums has to find the damage.
sum_again() { # DIST
    (cd "$1" && find . -type f ! -name SHA256SUMS -printf '%P\n' | xargs -d '\n' sha256sum) >"$work/sums"
    mv "$work/sums" "$1/SHA256SUMS"
}

# Damages a copy of the release. verify.sh must refuse it with these words.
refused() { # WORDS COMMAND... (in the copy)
    local words=$1 said
    shift
    rm -rf "$work/copy"
    cp -R "$work/dist" "$work/copy"
    (cd "$work/copy" && "$@")
    if said=$(scripts/release/verify.sh "$work/copy" 2>&1); then fail "verify.sh passes a release after: $*"; fi
    grep -qF -- "$words" <<<"$said" || fail "after \`$*\`, verify.sh lacks: $words" "$said"
}

flip() { # FILE: changes one bit of its middle byte
    python3 -c 'import sys; f = open(sys.argv[1], "r+b"); b = bytearray(f.read()); b[len(b) // 2] ^= 1; f.seek(0); f.write(b)' "$1"
}

changed() { # SED'S SCRIPT FILE: with new sums
    sed -i "$1" "$2"
    sum_again .
}

packed_again() { # ARCHIVE COMMAND...: in the folder of its files, with new sums
    local archive=$PWD/$1 into=$work/again
    shift
    rm -rf "$into"
    mkdir "$into"
    tar -xzf "$archive" -C "$into"
    (cd "$into" && "$@")
    (cd "$into" && tar -czf "$archive" -- *)
    sum_again .
}

fake_helm
parts "$work/dist" amd64 arm64 2>"$work/said" || { cat "$work/said"; exit 1; }
assemble "$work/dist" 2>"$work/said" || { cat "$work/said"; exit 1; }
# Archives of a Mac, which has no flex-pv, join later.
mkdir "$work/mac"
cp "$work/arm64/flex-provisioner" "$work/mac/"
scripts/release/programs.sh --system darwin-arm64 --programs "$work/mac" --out "$work/dist" --speaking "$work/tool" 2>/dev/null
assemble "$work/dist" 2>"$work/said" || { cat "$work/said"; exit 1; }
scripts/release/verify.sh "$work/dist" 2>"$work/said" || { cat "$work/said"; exit 1; }
grep -q 'image shell: amd64 arm64' "$work/said" || fail "an image is not for both kinds of processors"

# The same input gives the same bytes.
cp "$work/dist/SHA256SUMS" "$work/first"
assemble "$work/dist" 2>/dev/null
diff "$work/first" "$work/dist/SHA256SUMS" || fail "a second call writes other bytes"

# The list of a program says which crates are in it.
scopes=$(python3 - "$work/dist/sbom/flex-pv-linux-arm64.cdx.json" <<'PY'
import json, sys
print(*(one["name"] + ":" + one["scope"] for one in json.load(open(sys.argv[1]))["components"]))
PY
)
expected='builds:excluded fake:required inside:required macro:excluded of_macro:excluded'
[[ $scopes == "$expected" ]] || fail "the crates of a program are $scopes"
grep -q '"pkg:deb/debian/jq@1%3A1.6-2%2Bdeb12?arch=arm64&distro=debian-12"' "$work/dist/sbom/image-shell-arm64.cdx.json" ||
    fail "the parts of an image lack its Debian package"

# Each architecture has its name of cargo, and no other one is taken.
[[ $(scripts/release/cross.sh --target arm64) == aarch64-unknown-linux-gnu ]] || fail "cross.sh does not know arm64"
! scripts/release/cross.sh riscv64 true 2>/dev/null || fail "cross.sh compiles for an architecture that no release has"

# krew's manifest has the archives that are there, and no others.
for system in linux-arm64 darwin-arm64; do
    grep -q "kubectl-flex-$system" "$work/dist/flex.yaml" || fail "flex.yaml lacks $system"
done
! grep -q 'darwin-amd64\|"0000' "$work/dist/flex.yaml" || fail "flex.yaml names an archive that is not there"

refused 'a file is not what SHA256SUMS says' flip kubectl-flex-linux-arm64.tar.gz
refused 'a file is not what SHA256SUMS says' flip install.yaml
refused 'the image shell is not that of images.txt' eval 'flip images/shell.tar; sum_again .'
refused 'files and SHA256SUMS differ' touch more
refused 'files and SHA256SUMS differ' sed -i '/flex-pv-linux-arm64.tar.gz$/d' SHA256SUMS
refused 'another sha256 than kubectl-flex-linux-amd64.tar.gz' changed 's/sha256: "./sha256: "x/' flex.yaml
refused 'says nothing about claim.yaml' changed '1i # more' claim.yaml
refused 'which is not in images.txt' changed 's/@sha256:....../@sha256:aaaaaa/' install.yaml
refused 'the image shell is not that of images.txt' changed '/shell/s/@sha256:....../@sha256:aaaaaa/' images.txt
refused 'which is not in images.txt' changed 's/digest: sha256:....../digest: sha256:aaaaaa/' values.yaml
refused "CHANGES.md is not of version" changed '1d' CHANGES.md
refused 'a list of parts is no CycloneDX' changed 's/CycloneDX/Cyclone/' sbom/flex-pv-linux-amd64.cdx.json
refused 'the parts of the image nfs for arm64 are not listed' eval 'rm sbom/image-nfs-arm64.cdx.json; sum_again .'
refused 'lacks LICENSE' packed_again flex-pv-linux-arm64.tar.gz rm LICENSE
refused 'lacks completions/kubectl-flex.zsh' packed_again kubectl-flex-linux-amd64.tar.gz rm completions/kubectl-flex.zsh
refused 'has no page of the manual' packed_again flex-provisioner-linux-arm64.tar.gz rm man/flex-provisioner.1
refused 'holds a program of other processors' packed_again flex-pv-linux-arm64.tar.gz cp "$work/amd64/flex-pv" flex-pv
refused "the chart's appVersion is not" packed_again "flex-provisioner-$version.tgz" \
    sed -i 's/^appVersion: .*/appVersion: 9.9.9/' flex-provisioner/Chart.yaml
refused 'the chart names an image that only the building machine has' packed_again "flex-provisioner-$version.tgz" \
    sed -i 's/^  registry: .*/  registry: localhost/' flex-provisioner/values.yaml
refused 'configs names an image that only the building machine has' packed_again configs.tar.gz \
    sed -i "s#$registry/#localhost/flex-provisioner/#" configmaps/nfs.yaml
if [[ $(dpkg --print-architecture 2>/dev/null) == amd64 ]]; then
    fakes program amd64 9.9.9 "$work/other"
    refused 'is of another version' packed_again flex-pv-linux-amd64.tar.gz cp "$work/other" flex-pv
fi
say "passed"
