#!/usr/bin/env bash
# Packs the programs of one system into archives with the licence, and, for the tool, completions and pages of the manual.
#
#   programs.sh --system OS-ARCH --programs FOLDER --out FOLDER [--speaking TOOL]
#
#   --system      such as linux-arm64: a part of each archive's name
#   --programs    the folder with flex-provisioner and, if the system has it, flex-pv
#   --speaking    a flex-provisioner that runs on this machine and prints the completions; the default is the packed one
#
# The tool goes into two archives, because krew wants the file kubectl-flex, and takes no links.
# shellcheck source=scripts/release/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

system='' programs='' out='' speaking='' folders=()
read_flags "programs.sh --system OS-ARCH --programs FOLDER --out FOLDER [--speaking TOOL]" \
    system programs out \?speaking -- "$@"

# Prints the ending of programs on this system.
ending() { if [[ $system == windows-* ]]; then echo .exe; fi; }

begin() { # PROGRAM NAME: makes the folder of an archive
    mkdir "$work/$2"
    cp "$programs/$1$(ending)" "$work/$2/$2$(ending)"
    chmod 0755 "$work/$2/$2$(ending)"
    cp LICENSE "$work/$2/LICENSE"
    folders+=("$2")
}

# Lets the tool print its completions under a name, by which they belong to this name, and its pages of the manual.
texts() { # NAME
    local shell into=$work/$1 called
    called=$work/called/$1$(ending)
    mkdir -p "$work/called" "$into/completions"
    cp "$speaking" "$called"
    chmod 0755 "$called"
    for shell in bash zsh fish powershell elvish; do
        "$called" completion "$shell" >"$into/completions/$1.$shell"
    done
    "$called" man "$into/man"
    [[ -n $(ls "$into/man") ]] || fail "$speaking man wrote no pages"
    if [[ $1 == kubectl-flex ]]; then
        "$called" completion kubectl >"$into/completions/kubectl_complete-flex"
        chmod 0755 "$into/completions/kubectl_complete-flex"
    fi
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"
speaking=${speaking:-$programs/flex-provisioner$(ending)}
for name in kubectl-flex flex-provisioner; do
    begin flex-provisioner "$name"
    texts "$name"
done
if [[ -e $programs/flex-pv$(ending) ]]; then begin flex-pv flex-pv; fi
for name in "${folders[@]}"; do
    scripts/release/archive.py "$out/$name-$system.tar.gz" "$work/$name"
    say "wrote $out/$name-$system.tar.gz"
done
