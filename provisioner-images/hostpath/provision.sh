#!/bin/sh
# A provisioner image: a directory on this node for each volume, as a `local` PersistentVolume. With `devices`, the
# directory has an image file, and its loop device is the volume. README.md describes the config; the contract with the
# flex provisioner is in docs/.
set -eu

# BASE_PATH, NODE_PATHS, MODE and DEVICES are the parameters `base-path`, `node-paths`, `mode` and `devices`. paths.sh
# has those of names and owners. A stranger may have written any text into them. So the script uses them only in quotes,
# except for the list of paths, which the shell does not expand.
set -f
mode=${MODE:-0777}
devices=${DEVICES:-}
id=${CLAIM_UUID:-}
# The path of a directory that this image did not make, as the volume's record names it. Only this variable and the
# records of paths.sh give a directory another name than the id.
moved=${MOVED_IN_PATH:-}
dir=$id
# The id whose record names the directory.
own_id=$id
[ -z "$moved" ] || own_id=
# The directory that a clone copies, and its id, in the same way.
original=
original_id=
sid=${SNAPSHOT_ID:-}
# With `storage-mounts` in the config, the directory of this run's volume is a mount point, and the pod has no other.
alone=${STORAGE_MOUNTS:-}

fail() {
    exec flex-pv fail "$@"
}

# shellcheck source=provisioner-images/hostpath/devices.sh
. "${0%/*}/devices.sh"
# shellcheck source=provisioner-images/hostpath/paths.sh
. "${0%/*}/paths.sh"
# shellcheck source=provisioner-images/hostpath/unused.sh
. "${0%/*}/unused.sh"

is_id() {
    case $1 in '' | -* | *[!0-9a-f-]*) return 1 ;; esac
}

# Checks whether $1 has the form of a UUID, with any digits, and no hyphen between them.
is_uuid() {
    case $1 in
        *-*-*-*-*-*) return 1 ;;
        ????????-????-????-????-????????????) is_id "$1" ;;
        *) return 1 ;;
    esac
}

# Checks the path of a directory that has moved in, and that the source of its volume has the same path. The name of the
# directory must differ from all names that this image gives: ids, and names that begin with a dot.
check_moved() {
    case ${1##*/} in
        '' | [.-]* | *[!A-Za-z0-9._-]*) fail never "$1 has a name that cannot move in: nothing is done" ;;
    esac
    ! is_uuid "${1##*/}" || fail never "$1 has the name of a volume of this image: nothing is done"
    case $2 in
        *"\"path\":\"$1\""*) ;;
        *) fail never "the record of the volume names $1, but the volume is elsewhere ($2): nothing is done" ;;
    esac
    [ -z "$devices" ] || fail never "$1 is a directory: it cannot be a volume of a class of block devices"
}

# Lists the directories of this node. Each process costs a member of a batch about a millisecond, so a single directory
# needs no process.
bases=${BASE_PATH:-/var/lib/flex-hostpath}
case ${NODE_PATHS:+listed}$bases in
    listed* | *[[:space:]]*)
        bases=$(
            paths=$bases
            printf '%s\n' "${NODE_PATHS:-}" | {
                while read -r node rest; do
                    [ "$node" != "${POD_NODE:-}" ] || [ -z "$node" ] || paths=$rest
                done
                printf '%s' "$paths"
            }
        )
        ;;
esac

# Selects one of the directories.
use() {
    base=$1
    half=$base/.copying-$id
    snapshot=$base/.snapshot-$sid
    # A record gives a directory another name than its id.
    recorded "$original_id" "$original"
    source=$base/$name source_name=$name
    recorded "$own_id" "$dir"
    volume=$base/$name
}

# Selects the directory that contains the volume, the source of its copy or its snapshot, or the last if none does.
find() {
    for one in $bases; do
        use "$one"
        case $1 in
            made) ! has "$volume" || fresh "$volume" || return 0 ;;
            volume) ! has "$volume" || return 0 ;;
            source) ! has "$source" || return 0 ;;
            snapshot) ! has "$snapshot" || return 0 ;;
        esac
    done
    return 1
}

# Checks whether $1 exists, and is neither unused nor an unfinished copy.
has() {
    [ -e "$1" ] && [ ! -e "$1/.flex-partial" ] && ! nobodys "$1"
}

check() {
    case ${OPERATION:-} in
        list | capacity | delete-snapshot | attach) ;;
        *) is_id "$id" || fail never "CLAIM_UUID is \`$id\`, which is not the UUID of a claim: nothing is done" ;;
    esac
    case ${OPERATION:-}$sid in
        snapshot* | delete-snapshot* | provision?*)
            is_id "$sid" || fail never "SNAPSHOT_ID is \`$sid\`, which is not the UUID of a snapshot: nothing is done"
            ;;
    esac
    case ${OPERATION:-}${CLONE_OF:-} in
        provision?*)
            is_id "$CLONE_OF" || fail never "CLONE_OF is \`$CLONE_OF\`, which is not the UUID of a volume: nothing is done"
            ;;
    esac
    check_paths
    case $mode in
        '' | *[!0-7]*) fail config "mode is \`$mode\`: it must be octal, such as 0770" ;;
    esac
    case $devices/ in
        / | /dev/[!/.]*) ;;
        *) fail config "devices is \`$devices\`: it must be a directory below /dev, such as /dev/flex-hostpath" ;;
    esac
    case $devices/ in
        */../* | */./* | *//*) fail config "devices is \`$devices\`: write it without ., .. and a slash at its end" ;;
    esac
    [ -z "$devices" ] || [ -z "$alone" ] ||
        fail config "block devices need the whole base path: remove storage-mounts from the config"
    case $alone:$mode in
        :*) ;;
        *:*1[0-7][0-7][0-7]) fail config "mode is \`$mode\`: this first digit marks empty directories that belong to nobody, so use another mode" ;;
    esac
    [ -z "$devices" ] || [ -c /dev/loop-control ] || fail config "/dev/loop-control is not in this pod:" \
        "mount the node's /dev, and make the container privileged (see configmaps/hostpath-block.yaml)"
    # The volume to copy may have moved in, too.
    original=${CLONE_OF:-}
    original_id=$original
    case ${OPERATION:-}${CLONE_OF_MOVED_IN_PATH:-} in
        provision?*)
            original_id=
            check_moved "$CLONE_OF_MOVED_IN_PATH" "${CLONE_OF_SOURCE:-}"
            only_in "${CLONE_OF_MOVED_IN_PATH%/*}"
            original=${CLONE_OF_MOVED_IN_PATH##*/}
            ;;
    esac
    case ${OPERATION:-}:$moved in
        move-in: | move-out:) fail never "MOVED_IN_PATH is empty: nothing is done" ;;
        list:* | capacity:* | delete-snapshot:* | attach:* | *:) ;;
        provision:*) fail never "MOVED_IN_PATH is \`$moved\` in a run that makes a volume: nothing is done" ;;
        *)
            check_moved "$moved" "${VOLUME_SOURCE:-}"
            only_in "${moved%/*}"
            dir=${moved##*/}
            ;;
    esac
    case ${OPERATION:-}$bases in
        provision) fail no-room "node-paths names no directory for node ${POD_NODE:-?}: the node gets no volumes" ;;
    esac
    for one in $bases; do
        use "$one"
        check_base
    done
}

# Selects the directory $1, which has the storage that moved in. $1 must be one of this image's directories.
only_in() {
    for one in $bases; do
        [ "$one" != "$1" ] || bases=$one
    done
    [ "$bases" = "$1" ] ||
        fail config "$1 is not among the directories of this node: name it in base-path or node-paths"
}

check_base() {
    case $base/ in
        */../* | */./* | *//*) fail config "base-path is \`$base\`: write it without ., .. and a slash at its end" ;;
        /?*) ;;
        *) fail config "base-path is \`$base\`: it must be an absolute path on the node" ;;
    esac
    # Without the node's directory in the pod, a delete run would find nothing and leave the data behind.
    case $alone:${OPERATION:-} in
        :*) in_pod "$base" "$base" ;;
        *:list | *:capacity | *:move-in) mounted "$base" "$base" ;;
        *:move-out) ;;
        *:delete-snapshot) in_pod "$snapshot" "$base" ;;
        *:snapshot)
            in_pod "$snapshot" "$base"
            mounted "$volume" "$base"
            ;;
        *) in_pod "$volume" "$base" ;;
    esac
    for link in "$volume" "$snapshot"; do
        [ ! -L "$link" ] || fail never "$link is a symbolic link, which this image never makes: nothing is done"
    done
}

# Checks that the pod has the directory $1. For that, $2 must be mounted.
mounted() {
    [ -d "$1" ] || fail config "$1 is not in this pod: mount $2 from the node at the same path," \
        "with the config's key pod-template (see configmaps/hostpath.yaml)"
}

# Checks that the directory can also be written.
in_pod() {
    mounted "$1" "$2"
    [ -w "$1" ] || fail config "$1 is not writable for user $(id -u):" \
        "allow root with run-as-user: \"0\" in the config, or give that user the directory"
}

# Sets `free` to the free bytes.
free() {
    at=$base
    if [ -n "$alone" ] && [ -d "$volume" ]; then at=$volume; fi
    space=$(stat -f -c '%a %S' "$at" 2>&1) || fail retry "on node ${POD_NODE:-?}: $space"
    free=$((${space% *} * ${space#* }))
}

room_for() {
    free
    [ "$free" -ge "$1" ] ||
        fail no-room "$base has $free bytes free on node ${POD_NODE:-?}, less than the $1 asked for"
}

# Selects the directory with the most free bytes. If there is only one directory, a later step checks its space.
roomiest() {
    case $bases in *[[:space:]]*) ;; *) use "$bases" && return ;; esac
    most=-1
    for one in $bases; do
        use "$one"
        free
        [ "$free" -le "$most" ] || most=$free best=$base
    done
    use "$best"
}

# Copies the directory $1 to $2, under the name $3. The copy gets its own name when it is complete, so that a run that
# dies leaves nothing that looks complete.
copied() {
    if [ -n "$alone" ]; then
        # The copy is made in its place, and is marked as unfinished until it is complete.
        flex-pv copy "$1" "$2" || exit
        return
    fi
    if [ -L "$1" ] || ! has "$1"; then
        fail retry "$1, the source of the copy, is not on node ${POD_NODE:-?}"
    fi
    # A run that saw only this directory may have left it empty, or as an unfinished copy.
    [ ! -d "$2" ] || flex-pv remove "$2" || exit
    # `rm`, `cp` and `mv` are not safe: the directory may be in use, and a link that somebody puts there must not lead
    # to other volumes.
    flex-pv remove "$3" || exit
    flex-pv copy "$1" "$3" || exit
    flex-pv rename "$3" "$2" || exit
}

# Copies the volume CLONE_OF.
copy() {
    case ${CLONE_OF_SOURCE:-} in
        *"\"path\":\"${devices:-$base}/$source_name\""*) ;;
        *) fail never "the volume to copy is not at ${devices:-$base}/$source_name: it was made with another base-path (${CLONE_OF_SOURCE:-})" ;;
    esac
    flushed "$CLONE_OF"
    copied "$source" "$volume" "$half"
}

provision() {
    case ${VOLUME_MODE:-Filesystem}:$devices in
        Filesystem: | Block:/*) ;;
        Filesystem:*) fail never "volumeMode Filesystem is not possible: this class makes block devices (\`devices\`)" ;;
        *) fail never "volumeMode ${VOLUME_MODE:-} is not possible: this class makes directories, not block devices" ;;
    esac
    # An existing volume stays where it is. A copy is made where its blocks can be shared.
    found=
    if find made; then
        found=yes
    elif find_record; then
        :
    elif [ -n "${CLONE_OF:-}" ]; then
        find source || :
    elif [ -n "$sid" ]; then
        find snapshot || :
    else
        roomiest
    fi
    [ -n "$alone" ] || private
    if [ ! -d "$volume" ] || [ -z "$found" ]; then
        cleared
        room_for "$SIZE_BYTES"
        take_path
        make
    elif [ -n "$alone" ] && [ -n "${CLONE_OF:-}$sid" ]; then
        # The volume may be an unfinished copy.
        make
    fi
    if [ -n "$devices" ]; then
        sized "$volume"
        attach "$id"
    elif [ -z "${CLONE_OF:-}$sid" ]; then
        own
        # `chmod` sets the mode, and not `mkdir`, so that a run that died in between leaves no other mode behind.
        why=$(chmod "$mode" "$volume" 2>&1) || fail retry "on node ${POD_NODE:-?}: $why"
    fi
    # This run or an earlier one has filled a volume that has a data source. The path is that of the directory, or of the
    # link to its device.
    exec flex-pv create --copied --local "${devices:-$base}/$name"
}

# Removes what a run that was killed has left of this volume's copy, which would take its room.
cleared() {
    [ ! -e "$half" ] || flex-pv remove "$half" || exit
    [ -n "${CLONE_OF:-}$sid" ] && [ -e "$volume/.flex-partial" ] || return 0
    flex-pv remove "$volume" || exit
}

# Lets only root enter the directory of all volumes. A volume's own mode is for the pods that have the volume.
private() {
    case $(stat -c %a "$base") in *00) return 0 ;; esac
    why=$(chmod 0700 "$base" 2>&1) ||
        fail config "other users of node ${POD_NODE:-?} can enter $base, and this run cannot change that: $why;" \
            "give the directory to the run's user, with mode 0700"
}

# Makes the volume with its content, or not at all.
make() {
    if [ -n "${CLONE_OF:-}" ]; then
        copy
    elif [ -n "$sid" ]; then
        copied "$snapshot" "$volume" "$half"
    elif [ -n "$devices" ]; then
        flex-pv remove "$half" || exit
        why=$(mkdir "$half" 2>&1) || fail retry "on node ${POD_NODE:-?}: $why"
        sized "$half"
        flex-pv rename "$half" "$volume" || exit
    elif [ -z "$alone" ]; then
        [ ! -d "$volume" ] || flex-pv remove "$volume" || exit
        why=$(mkdir "$volume" 2>&1) || fail retry "on node ${POD_NODE:-?}: $why"
    fi
}

# Removes $1 from each directory.
remove() {
    for one in $bases; do
        if [ -n "$alone" ]; then
            flex-pv remove "$one/$1" || exit
        else
            remove_in "$one" "$1" "$2"
        fi
    done
}

# Removes $2 from the directory $1. A process that had the volume may still hold it open: nothing here follows a link.
remove_in() {
    # The directory is renamed first, so that a run that dies half-way leaves only recognisable rubbish.
    if [ -e "$1/$2" ]; then
        flex-pv remove "$1/.deleting-$3" || exit
        flex-pv rename "$1/$2" "$1/.deleting-$3" || exit
    fi
    [ -z "$devices" ] || detach "$2" "$3" "$1"
    flex-pv remove "$1/.deleting-$3" "$1/.copying-$3" || exit
}

# Copies the volume to a place that nobody can mount. The copy needs space for the content of the volume. How much, only
# the copying shows.
snapshot() {
    # In runs that see only their own volume, the directory may be an unfinished copy, which `copied` notices.
    if [ -z "$alone" ] && find snapshot; then return 0; fi
    find volume || :
    case ${VOLUME_SOURCE:-} in
        *"\"path\":\"${devices:-$base}/$name\""*) ;;
        *) fail never "the volume is not at ${devices:-$base}/$name: it was made with another base-path (${VOLUME_SOURCE:-})" ;;
    esac
    flushed "$id"
    copied "$volume" "$snapshot" "$base/.copying-$sid"
}

# Expands the volume. A directory has no size of its own. As in provision runs, the size is a promise, which the script
# makes if there is space.
expand() {
    find volume || :
    if [ ! -d "$volume" ] || ! has "$volume"; then
        fail never "$volume is not on node ${POD_NODE:-?}: a lost volume cannot grow"
    fi
    if [ -z "$devices" ]; then
        room_for $((SIZE_BYTES - OLD_SIZE_BYTES))
    else
        size=$(stat -c %s "$volume/disk" 2>&1) || fail never "on node ${POD_NODE:-?}: $size"
        # The present blocks, such as those of a run that died, need no space.
        [ "$size" -ge "$SIZE_BYTES" ] || room_for $((SIZE_BYTES - size))
        sized "$volume"
        attach "$id"
        why=$(losetup -c "$first" 2>&1) || fail retry "on node ${POD_NODE:-?}: $why"
    fi
}

# Checks that a directory which this image did not make exists. Changes nothing.
move_in() {
    use "$bases"
    if [ ! -d "$volume" ] || [ -e "$volume/.flex-partial" ] || deleted "$base" "$name"; then
        fail never "$volume is not on node ${POD_NODE:-?}: there is nothing that could move in"
    fi
    flex-pv path check -- "$base" "$id" "$dir" || exit
}

# Prints a line for each volume, and for the leftovers of an unfinished delete or copy. Other names are not this image's.
list() {
    for one in $bases; do
        [ -r "$one" ] || fail retry "on node ${POD_NODE:-?}: $one cannot be read"
    done
    for one in $bases; do
        names=$(ls -1A "$one" 2>&1) || exit
        records=$(list_records "$one") || exit
        printf '%s\n' "$names" | while IFS= read -r name; do
            # A name by a pattern says nothing: users choose it. The record says which volume the directory is.
            ! is_by_pattern "$one" "$name" || continue
            state=volume of=${name#.deleting-}
            of=${of#.copying-}
            [ "$name" = "$of" ] || state=rubbish
            # Other provisioners name their directories pvc-UUID_NAMESPACE_CLAIM.
            case $name in
                pvc-????????-????-????-????-????????????_*)
                    of=${name#pvc-}
                    of=${of%%_*}
                    ;;
            esac
            # Volumes with a record follow.
            [ ! -L "$one/.flex-provisioner/volume-$of" ] || [ "$state" = rubbish ] || continue
            if is_uuid "$of" && [ -d "$one/$name" ] && [ ! -L "$one/$name" ]; then
                unused "$one" "$name" "$state" || echo "$state $of - $one/$name"
            fi
        done
        [ -z "$records" ] || printf '%s\n' "$records"
    done
    echo end
}

# Adds up the free bytes. Directories of one file system share them.
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

check_parameters
check
case ${OPERATION:-} in
    provision) provision ;;
    delete) delete ;;
    move-in) move_in ;;
    # Nothing on the node says that the directory has moved in.
    move-out) ;;
    expand) expand ;;
    list) list | flex-pv list ;;
    capacity) capacity ;;
    snapshot) snapshot ;;
    delete-snapshot) remove ".snapshot-$sid" "$sid" ;;
    attach) attach_all ;;
    *) fail never "OPERATION is \`${OPERATION:-}\`: this image can provision, delete, expand, list, tell its capacity and make snapshots" ;;
esac
