#!/usr/bin/env bash
# Checks that `make push` builds nothing for a registry that cannot be used, and says what to do.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

mkdir "$work/scripts" "$work/bin"
cp scripts/{push,registry,lib,static,stages}.sh "$work/scripts/"
printf '#!/bin/sh\n' >"$work/scripts/setup.sh"
printf '#!/bin/sh\necho it builds >&2; exit 1\n' >"$work/scripts/images.sh"
# `skopeo` answers as the test says: to `list-tags` with $ANSWER, and to `login --get-login` with $LOGIN.
cat >"$work/bin/skopeo" <<'PROGRAM'
#!/bin/sh
case "$*" in
    login*) exit "$LOGIN" ;;
    *) [ -z "$ANSWER" ] || { echo "level=fatal msg=\"$ANSWER\"" >&2; exit 1; } ;;
esac
PROGRAM
chmod +x "$work"/scripts/*.sh "$work/bin/skopeo"

says() { # ANSWER LOGIN TEXT
    local said
    said=$(ANSWER=$1 LOGIN=$2 PATH=$work/bin:$PATH "$work/scripts/push.sh" --registry registry.example/team --version 1 2>&1) &&
        { echo "push.sh succeeds with: $1"; exit 1; }
    [[ $said == *"$3"* && ($3 == *'it builds' || $said != *'it builds'*) ]] || { echo "push.sh says to '$1': $said"; exit 1; }
}
says '' 1 'it builds'
says 'fetching tags list: invalid status code from registry 404 (Not Found)' 1 'it builds'
says 'invalid status code from registry 403 (Forbidden)' 0 'it builds'
says 'invalid status code from registry 403 (Forbidden)' 1 'skopeo login registry.example'
says 'unable to retrieve auth token: invalid username/password: unauthorized' 1 'skopeo login registry.example'
says 'pinging container registry x: http: server gave HTTP response to HTTPS client' 1 'INSECURE=1'
says 'pinging container registry x: x509: certificate signed by unknown authority' 1 'certs.d/registry.example/ca.crt'
says 'pinging container registry x: dial tcp: connect: connection refused' 1 'check the name and the port'
