#!/usr/bin/env bash
# Checks that the newest release of each minor version has pages of its own sources, and that no candidate has.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

git init -q "$work"
mkdir "$work/scripts" "$work/bin"
cp scripts/pages.sh scripts/mdbook.sh "$work/scripts/"
cat >"$work/bin/mdbook" <<'PROGRAM'
#!/bin/sh
mkdir -p "$3" && pwd >"$3/index.html"
PROGRAM
chmod +x "$work/bin/mdbook"
git -C "$work" -c user.name=test -c user.email=test@example.org commit -q --allow-empty --message one
for tag in v0.1.0 v0.1.10 v0.1.9 v0.2.0 v0.3.0-rc.1; do git -C "$work" tag "$tag"; done
PATH=$work/bin:$PATH "$work/scripts/pages.sh" "$work/site"
found=$(cd "$work/site" && printf '%s ' */ && cat 0.1/index.html && sed -n 's/.*url=\(.*\)".*/\1/p' index.html)
[[ $found == '0.1/ 0.2/ main/ '*/v0.1.10$'\n0.2/' ]] || { echo "pages.sh makes of the tags: $found"; exit 1; }
