#!/usr/bin/env bash
# Writes the manual as a website: a folder for the newest release of each minor version, such as 0.1, and `main` for the
# checkout. The first page leads to the newest version.
#
#   pages.sh FOLDER
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Prints the newest tag of each minor version. Tags of candidates, such as v0.2.0-rc.1, are no releases.
versions() {
    git tag --list 'v*' | grep -xE 'v[0-9]+\.[0-9]+\.[0-9]+' | sort --version-sort |
        awk -F. '{ newest[$1 "." $2] = $0; if (!seen[$1 "." $2]++) order[++count] = $1 "." $2 }
                 END { for (i = 1; i <= count; i++) print newest[order[i]] }' || true
}

[[ -n ${1:-} ]] || { echo "pages.sh: error: name the folder; usage: pages.sh FOLDER" >&2; exit 64; }
mkdir -p "$1"
site=$(realpath "$1")
mdbook=$(scripts/mdbook.sh)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

newest=main
while read -r tag; do
    minor=${tag#v}
    minor=${minor%.*}
    mkdir -p "$work/$tag"
    git archive "$tag" | tar --extract --directory "$work/$tag"
    # The preprocessor of the book looks at files from the root of its own checkout.
    (cd "$work/$tag" && "$mdbook" build --dest-dir "$site/$minor")
    newest=$minor
done < <(versions)
"$mdbook" build --dest-dir "$site/main"

{
    echo '<!doctype html><meta charset="utf-8"><title>Flex provisioner</title>'
    echo "<meta http-equiv=\"refresh\" content=\"0; url=$newest/\">"
    echo '<p>Manual of version'
    for folder in "$site"/*/; do
        name=$(basename "$folder")
        echo "<a href=\"$name/\">$name</a>"
    done
} >"$site/index.html"
