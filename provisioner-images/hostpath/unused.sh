# shellcheck shell=sh
# shellcheck disable=SC2154  # provision.sh sets the variables
# Empty directories that no volume uses: the kubelet makes them for runs that see only their own volume, and the keeper
# removes those of deleted volumes. `provision.sh` reads this file, and sets the variables `alone` and `bases`.

# If runs see only their own volumes, the kubelet makes each missing directory that need not exist, with the mode of the
# base path. A pod may give an empty volume this mode, too. So it counts only where the run does not know the directory.
nobodys() {
    # The mode has the sticky bit, which the shell itself can see.
    { [ -n "$alone" ] && [ -k "$1" ] && is_empty "$1"; } || return 1
    ! known "$1" || return 1
    case $(stat -c %a "$1" 2>/dev/null) in 1700 | 1000) return 0 ;; *) return 1 ;; esac
}

# Checks whether the kubelet has found the directory $1, and did not make it.
known() {
    set +f
    for exists in /run/flex-provisioner/existing/*; do
        # shellcheck disable=SC3013  # busybox knows it
        if [ "$exists" -ef "$1" ]; then
            set -f
            return 0
        fi
    done
    set -f
    return 1
}

# Checks whether the kubelet has made the directory $1 for this run. Of several, an earlier run may have used another.
fresh() {
    { [ -n "$alone" ] && is_empty "$1"; } || return 1
    case $bases in *[[:space:]]*) ;; *) return 0 ;; esac
    case $(stat -c %a "$1" 2>/dev/null) in 1700 | 1000 | 7[05][05]) return 0 ;; *) return 1 ;; esac
}

# Checks whether the directory $1 has no entry.
is_empty() {
    set +f
    for entry in "$1"/* "$1"/.[!.]* "$1"/..?*; do
        if [ -e "$entry" ] || [ -L "$entry" ]; then
            set -f
            return 1
        fi
    done
    set -f
}

# Checks whether a delete run has emptied the directory $2 of $1, and nobody has changed it since then.
deleted() {
    { [ -k "$1/.deleting-$2" ] && is_empty "$1/$2"; } || return 1
    marked=$(stat -c '%a %Z' "$1/.deleting-$2" 2>/dev/null) && changed=$(stat -c %Z "$1/$2" 2>/dev/null) || return 1
    [ "${marked% *}" = 1000 ] && [ "$changed" -le "${marked#* }" ]
}

# Checks whether the directory $2 of $1 is that of no volume: it is the mark of a delete run, or empty. Where there are
# several, the kubelet makes it in each, and the volume is in one. $3 is the state that its name says.
unused() {
    if [ "$3" = rubbish ]; then
        [ -k "$1/$2" ] && is_empty "$1/$2"
        return
    fi
    ! deleted "$1" "$2" || return 0
    nobodys "$1/$2" || return 1
    for other in $bases; do
        [ "$other" = "$1" ] || [ ! -d "$other/$2" ] || nobodys "$other/$2" || return 0
    done
    return 1
}
