# shellcheck shell=bash
# Installs Debian packages on the machine of a developer. The scripts that make a machine ready source this file.

readonly policy=/usr/sbin/policy-rc.d
readonly policy_mark='# Written while the flex-provisioner installs packages.'

apt() { DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 "$@"; }

# Installs packages, and starts none of their services, neither now nor when the machine starts again: the tests start
# copies of their own. Debian asks the file policy-rc.d whether a service may start. A file of somebody else stays as it
# is. This function takes over a file that an interrupted installation has left, and removes the file at the end.
install_packages() ( # PACKAGE...
    # Another script of this project may install packages, too.
    exec 8>"${TMPDIR:-/tmp}/flex-provisioner-packages.lock"
    flock 8
    if [[ ! -e $policy ]] || grep -qxF "$policy_mark" "$policy"; then
        trap 'rm -f "$policy"' EXIT
        printf '#!/bin/sh\n%s\nexit 101\n' "$policy_mark" >"$policy"
        chmod 0755 "$policy"
    fi
    {
        # A source that is not reachable matters only if a package is from there. The installation then fails.
        apt update -qq || say "apt-get update had errors; going on with the lists that are there"
        # Apt names the installed version of a package that it replaces, so these are the new packages alone.
        mapfile -t new < <(apt install -s --no-install-recommends "$@" | sed -nE 's/^Inst ([^ ]+) \(.*/\1/p')
        apt install -qq --no-install-recommends "$@" >/dev/null
    } </dev/null >&2
    status=$?
    ((${#new[@]} == 0 || status != 0)) || disable_services "${new[@]}" >&2
    return "$status"
)

# Disables the services of packages. Debian enables them when it installs a package.
disable_services() { # PACKAGE...
    local units
    command -v systemctl >/dev/null || return 0
    mapfile -t units < <(dpkg -L "$@" |
        sed -nE 's#^(/usr)?/lib/systemd/system/([^/@]+\.(service|socket|timer|path|target))$#\2#p' | sort -u)
    ((${#units[@]} == 0)) || systemctl --quiet disable "${units[@]}" ||
        say "these services of new packages stay enabled: ${units[*]}"
}
