#!/bin/sh
# A directory on this node for each volume, as a `local` PersistentVolume. README.md tells how it is
# configured; the contract with the flex provisioner is in docs/.
set -eu

# BASE_PATH, NODE_PATHS and MODE are the parameters `base-path`, `node-paths` and `mode`. Every text in here may come
# from somebody else: it is only ever used in quotes, but for the list of paths, in which nothing is expanded.
set -f
mode=${MODE:-0777}
id=${CLAIM_UUID:-}
sid=${SNAPSHOT_ID:-}

fail() {
    exec flex-pv fail "$@"
}

is_id() {
    case $1 in '' | -* | *[!0-9a-f-]*) return 1 ;; esac
}

# The directories of this node.
bases=$(
    paths=${BASE_PATH:-/var/lib/flex-hostpath}
    printf '%s\n' "${NODE_PATHS:-}" | {
        while read -r node rest; do
            [ "$node" != "${POD_NODE:-}" ] || [ -z "$node" ] || paths=$rest
        done
        printf '%s' "$paths"
    }
)

# From here on one of them is meant.
use() {
    base=$1
    volume=$base/$id
    half=$base/.copying-$id
    snapshot=$base/.snapshot-$sid
}

# The one that has something of this name; the last of them if none has.
find() {
    for one in $bases; do
        use "$one"
        [ ! -e "$base/$1" ] || return 0
    done
    return 1
}

check() {
    case ${OPERATION:-} in
        list | capacity | delete-snapshot) ;;
        *) is_id "$id" || fail never "CLAIM_UUID is \`$id\`, which is not the UUID of a claim: nothing is done" ;;
    esac
    case ${OPERATION:-}$sid in
        snapshot* | delete-snapshot* | provision?*)
            is_id "$sid" || fail never "SNAPSHOT_ID is \`$sid\`, which is not the UUID of a snapshot: nothing is done"
            ;;
    esac
    case $mode in
        '' | *[!0-7]*) fail config "mode is \`$mode\`: it must be octal, such as 0770" ;;
    esac
    case ${OPERATION:-}$bases in
        provision) fail no-room "node-paths names no directory for node ${POD_NODE:-?}: it is to have no volumes" ;;
    esac
    for one in $bases; do
        use "$one"
        check_base
    done
}

check_base() {
    case $base/ in
        */../* | */./* | *//*) fail config "base-path is \`$base\`: write it without ., .. and a slash at its end" ;;
        /?*) ;;
        *) fail config "base-path is \`$base\`: it must be an absolute path on the node" ;;
    esac
    # Without the node's directory in the pod, a delete would find nothing and leave the data behind.
    [ -d "$base" ] || fail config "$base is not in this pod: mount it from the node at the same path," \
        "with the config's key pod-template (see configmaps/hostpath.yaml)"
    [ -w "$base" ] || fail config "$base is not writable for user $(id -u):" \
        "allow root with run-as-user: \"0\" in the config, or give that user the directory"
    for link in "$volume" "$snapshot"; do
        [ ! -L "$link" ] || fail never "$link is a symbolic link, which this image never makes: nothing is done"
    done
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

# The one with the most room.
roomiest() {
    most=-1
    for one in $bases; do
        use "$one"
        free
        [ "$free" -le "$most" ] || most=$free best=$base
    done
    use "$best"
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
    # What there is stays where it is, a copy goes where its blocks can be shared.
    if find "$id"; then
        :
    elif [ -n "${CLONE_OF:-}" ]; then
        is_id "$CLONE_OF" || fail never "CLONE_OF is \`$CLONE_OF\`, which is not the UUID of a volume: nothing is done"
        find "$CLONE_OF" || :
    elif [ -n "$sid" ]; then
        find ".snapshot-$sid" || :
    else
        roomiest
    fi
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

# Takes $1 away from each directory.
remove() {
    for one in $bases; do
        # Renamed first, so that a run that dies half-way leaves something that can only be rubbish.
        if [ -e "$one/$1" ]; then
            why=$(mv "$one/$1" "$one/.deleting-$2" 2>&1) || fail retry "on node ${POD_NODE:-?}: $why"
        fi
        why=$(rm -rf "$one/.deleting-$2" "$one/.copying-$2" 2>&1) || fail retry "on node ${POD_NODE:-?}: $why"
    done
}

# A snapshot is a copy that nobody can mount. It needs the room for what is in the volume, which only the copying tells.
snapshot() {
    if find ".snapshot-$sid"; then return 0; fi
    find "$id" || :
    case ${VOLUME_SOURCE:-} in
        *"\"path\":\"$volume\""*) ;;
        *) fail never "the volume is not at $volume: it was made with another base-path (${VOLUME_SOURCE:-})" ;;
    esac
    copied "$volume" "$snapshot" "$base/.copying-$sid"
}

# A directory has no size of its own: as in provision, the size is a promise, made when there is room.
expand() {
    find "$id" || :
    [ -d "$volume" ] || fail never "$volume is not on node ${POD_NODE:-?}: what is lost cannot grow"
    room_for $((SIZE_BYTES - OLD_SIZE_BYTES))
}

# A line for each volume, and for what a delete or a copy that died left. Other names are none of ours.
list() {
    for one in $bases; do
        [ -r "$one" ] || fail retry "on node ${POD_NODE:-?}: $one cannot be read"
    done
    for one in $bases; do
        names=$(ls -1A "$one" 2>&1) || exit
        printf '%s\n' "$names" | while IFS= read -r name; do
            state=volume of=${name#.deleting-}
            of=${of#.copying-}
            [ "$name" = "$of" ] || state=rubbish
            if is_id "$of" && [ -d "$one/$name" ] && [ ! -L "$one/$name" ]; then
                echo "$state $of - $one/$name"
            fi
        done
    done
    echo end
}

# Directories of one file system have their room together.
capacity() {
    sum=0 most=0 seen=
    for one in $bases; do
        use "$one"
        device=$(stat -c %d "$base" 2>&1) || fail retry "on node ${POD_NODE:-?}: $device"
        case " $seen " in *" $device "*) continue ;; esac
        seen="$seen $device"
        free
        sum=$((sum + free))
        [ "$free" -le "$most" ] || most=$free
    done
    [ "$sum" != "$most" ] || exec flex-pv capacity --bytes "$sum"
    exec flex-pv capacity --bytes "$sum" --maximum-volume-size "$most"
}

check
case ${OPERATION:-} in
    provision) provision ;;
    delete) remove "$id" "$id" ;;
    expand) expand ;;
    list) list | flex-pv list ;;
    capacity) capacity ;;
    snapshot) snapshot ;;
    delete-snapshot) remove ".snapshot-$sid" "$sid" ;;
    *) fail never "OPERATION is \`${OPERATION:-}\`: this image can provision, delete, expand, list, tell its capacity and make snapshots" ;;
esac
