#!/bin/sh
# A directory on this node for each volume, as a `local` PersistentVolume. README.md tells how it is
# configured; the contract with the flex provisioner is in docs/.
set -eu

# BASE_PATH and MODE are the parameters `base-path` and `mode`. Every text in here may come from
# somebody else: it is only ever used in quotes.
base=${BASE_PATH:-/var/lib/flex-hostpath}
mode=${MODE:-0777}
id=${CLAIM_UUID:-}
volume=$base/$id
rubbish=$base/.deleting-$id
half=$base/.copying-$id
sid=${SNAPSHOT_ID:-}
snapshot=$base/.snapshot-$sid

fail() {
    exec flex-pv fail "$@"
}

is_id() {
    case $1 in '' | -* | *[!0-9a-f-]*) return 1 ;; esac
}

check() {
    case ${OPERATION:-} in
        list | capacity | delete-snapshot) ;;
        *) is_id "$id" || fail never "CLAIM_UUID is \`$id\`, which is not the UUID of a claim: nothing is done" ;;
    esac
    case ${OPERATION:-}$sid in
        snapshot* | delete-snapshot* | provision?*)
            is_id "$sid" || fail never "SNAPSHOT_ID is \`$sid\`, which is not the UUID of a snapshot: nothing is done"
            [ ! -L "$snapshot" ] ||
                fail never "$snapshot is a symbolic link, which this image never makes: nothing is done"
            ;;
    esac
    case $base/ in
        */../* | */./* | *//*) fail config "base-path is \`$base\`: write it without ., .. and a slash at its end" ;;
        /?*) ;;
        *) fail config "base-path is \`$base\`: it must be an absolute path on the node" ;;
    esac
    case $mode in
        '' | *[!0-7]*) fail config "mode is \`$mode\`: it must be octal, such as 0770" ;;
    esac
    # Without the node's directory in the pod, a delete would find nothing and leave the data behind.
    [ -d "$base" ] || fail config "$base is not in this pod: mount it from the node at the same path," \
        "with the config's key pod-template (see configmaps/hostpath.yaml)"
    [ -w "$base" ] || fail config "$base is not writable for user $(id -u):" \
        "allow root with run-as-user: \"0\" in the config, or give that user the directory"
    [ ! -L "$volume" ] || fail never "$volume is a symbolic link, which this image never makes: nothing is done"
}

# Room for so many bytes more.
free() {
    space=$(stat -f -c '%a %S' "$base" 2>&1) || fail retry "on node ${POD_NODE:-?}: $space"
    free=$((${space% *} * ${space#* }))
}

room_for() {
    free
    [ "$free" -ge "$1" ] ||
        fail no-room "$base has $free bytes free on node ${POD_NODE:-?}, less than the $1 asked for"
}

# A copy $2 of the directory $1, made as $3. It gets its name when it is whole: a run that dies leaves none that looks so.
copied() {
    if [ ! -d "$1" ] || [ -L "$1" ]; then
        fail retry "$1, which is to be copied, is not on node ${POD_NODE:-?}"
    fi
    why=$(rm -rf "$3" 2>&1) || fail retry "on node ${POD_NODE:-?}: $why"
    # Not by cp: what is copied may be in use, and a link that somebody puts there must not lead to other volumes.
    flex-pv copy "$1" "$3" || exit
    why=$(mv "$3" "$2" 2>&1) || fail retry "on node ${POD_NODE:-?}: $why"
}

# A copy of the volume CLONE_OF.
copy() {
    is_id "$CLONE_OF" || fail never "CLONE_OF is \`$CLONE_OF\`, which is not the UUID of a volume: nothing is done"
    from=$base/$CLONE_OF
    case ${CLONE_OF_SOURCE:-} in
        *"\"path\":\"$from\""*) ;;
        *) fail never "the volume to copy is not at $from: it was made with another base-path (${CLONE_OF_SOURCE:-})" ;;
    esac
    copied "$from" "$volume" "$half"
}

provision() {
    [ "${VOLUME_MODE:-Filesystem}" = Filesystem ] ||
        fail never "volumeMode ${VOLUME_MODE:-} is not possible: this class makes directories, not block devices"
    [ -d "$volume" ] || room_for "$SIZE_BYTES"
    if [ -n "${CLONE_OF:-}${SNAPSHOT_ID:-}" ]; then
        if [ -d "$volume" ]; then
            :
        elif [ -n "${CLONE_OF:-}" ]; then
            copy
        else
            copied "$snapshot" "$volume" "$half"
        fi
        exec flex-pv create --local "$volume"
    fi
    if [ ! -d "$volume" ]; then
        why=$(mkdir "$volume" 2>&1) || fail retry "on node ${POD_NODE:-?}: $why"
    fi
    # After the mkdir and not by it: a run that died in between must not leave another mode behind.
    why=$(chmod "$mode" "$volume" 2>&1) || fail retry "on node ${POD_NODE:-?}: $why"
    exec flex-pv create --local "$volume"
}

delete() {
    # Renamed first, so that a run that dies half-way leaves something that can only be rubbish.
    if [ -e "$volume" ]; then
        why=$(mv "$volume" "$rubbish" 2>&1) || fail retry "on node ${POD_NODE:-?}: $why"
    fi
    why=$(rm -rf "$rubbish" "$half" 2>&1) || fail retry "on node ${POD_NODE:-?}: $why"
}

# A snapshot is a copy that nobody can mount. It needs the room for what is in the volume, which only the copying tells.
snapshot() {
    [ ! -d "$snapshot" ] || return 0
    case ${VOLUME_SOURCE:-} in
        *"\"path\":\"$volume\""*) ;;
        *) fail never "the volume is not at $volume: it was made with another base-path (${VOLUME_SOURCE:-})" ;;
    esac
    copied "$volume" "$snapshot" "$base/.copying-$sid"
}

delete_snapshot() {
    rubbish=$base/.deleting-$sid
    if [ -e "$snapshot" ]; then
        why=$(mv "$snapshot" "$rubbish" 2>&1) || fail retry "on node ${POD_NODE:-?}: $why"
    fi
    why=$(rm -rf "$rubbish" "$base/.copying-$sid" 2>&1) || fail retry "on node ${POD_NODE:-?}: $why"
}

# A directory has no size of its own: as in provision, the size is a promise, made when there is room.
expand() {
    [ -d "$volume" ] || fail never "$volume is not on node ${POD_NODE:-?}: what is lost cannot grow"
    room_for $((SIZE_BYTES - OLD_SIZE_BYTES))
}

# A line for each volume, and for what a delete or a copy that died left. Other names are none of ours.
list() {
    names=$(ls -1A "$base" 2>&1) || fail retry "on node ${POD_NODE:-?}: $names"
    printf '%s\n' "$names" | {
        while IFS= read -r name; do
            state=volume id=${name#.deleting-}
            id=${id#.copying-}
            [ "$name" = "$id" ] || state=rubbish
            if is_id "$id" && [ -d "$base/$name" ] && [ ! -L "$base/$name" ]; then
                echo "$state $id - $base/$name"
            fi
        done
        echo end
    } | flex-pv list
}

capacity() {
    free
    exec flex-pv capacity --bytes "$free"
}

check
case ${OPERATION:-} in
    provision) provision ;;
    delete) delete ;;
    expand) expand ;;
    list) list ;;
    capacity) capacity ;;
    snapshot) snapshot ;;
    delete-snapshot) delete_snapshot ;;
    *) fail never "OPERATION is \`${OPERATION:-}\`: this image can provision, delete, expand, list, tell its capacity and make snapshots" ;;
esac
