# shellcheck shell=bash
# Installs Debian packages on the machine of a developer. Sourced by the scripts that make a machine ready.

readonly policy=/usr/sbin/policy-rc.d
readonly policy_mark='# Written while the flex-provisioner installs packages.'

# Prints the names of all packages that are installed.
installed_packages() { dpkg-query -W -f '${db:Status-Abbrev}${Package}\n' | sed -n 's/^ii *//p' | sort; }

# Installs packages, and starts none of their services, neither now nor when the machine starts again: the tests start
# copies of their own. Debian asks the file policy-rc.d whether a service may start. A file of somebody else stays as it
# is. One that an interrupted installation has left is taken over, and removed at the end.
install_packages() ( # PACKAGE...
    if [[ ! -e $policy ]] || grep -qxF "$policy_mark" "$policy"; then
        trap 'rm -f "$policy"' EXIT
        printf '#!/bin/sh\n%s\nexit 101\n' "$policy_mark" >"$policy"
        chmod 0755 "$policy"
    fi
    before=$(installed_packages)
    {
        # A source that is not reachable matters only if a package is from there. The installation then fails.
        apt-get -o DPkg::Lock::Timeout=300 update -q ||
            say "apt-get update had errors; going on with the lists that are there"
        DEBIAN_FRONTEND=noninteractive \
            apt-get -o DPkg::Lock::Timeout=300 install -y -q --no-install-recommends "$@"
    } </dev/null >&2
    status=$?
    new=$(comm -13 <(echo "$before") <(installed_packages))
    # shellcheck disable=SC2086  # one argument for each package
    [[ -z $new ]] || disable_services $new >&2
    return "$status"
)

# Disables the services of packages. Debian enables them when it installs a package.
disable_services() { # PACKAGE...
    local units
    command -v systemctl >/dev/null || return 0
    mapfile -t units < <(dpkg -L "$@" | sed -nE 's#^(/usr)?/lib/systemd/system/([^/@]+\.(service|socket))$#\2#p' | sort -u)
    ((${#units[@]} == 0)) || systemctl --quiet disable "${units[@]}" ||
        say "these services of new packages stay enabled: ${units[*]}"
}
