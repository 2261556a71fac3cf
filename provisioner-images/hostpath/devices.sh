# shellcheck shell=sh
# shellcheck disable=SC2154  # provision.sh sets the variables
# Block volumes of this image: a file with all blocks in the directory of the volume, and a loop device for it.
# `provision.sh` reads this file, and sets the variables `devices`, `base` and `bases`.

# Sets `loops` to the loop devices whose file's path ends with this pattern. The kernel writes this path for the open
# file. A pod that has the device can change the name that losetup shows, but not this path.
find_loops() {
    loops=
    blocks=$(ls /sys/block 2>&1) || fail retry "on node ${POD_NODE:-?}: $blocks"
    for block in $blocks; do
        case $block in loop*) ;; *) continue ;; esac
        file=
        { read -r file <"/sys/block/$block/loop/backing_file"; } 2>/dev/null || :
        # shellcheck disable=SC2254  # a pattern, of our own words and an id
        case $file in */$1 | */$1" (deleted)") loops="$loops /dev/$block" ;; esac
    done
}

# Attaches the image file of the volume $1 to a device, and names the device by a link that vanishes when the node
# restarts. After the restart another file may get the number of the device, and a volume that named the number would give
# its pods the data of others.
attach() {
    name=$1
    why=$(mkdir -p "$devices" 2>&1) || fail retry "on node ${POD_NODE:-?}: $why"
    find_loops "$name/disk"
    if [ -z "$loops" ]; then
        why=$(cd "$base" && losetup -f "$name/disk" 2>&1) || fail retry "on node ${POD_NODE:-?}: $why"
        find_loops "$name/disk"
    fi
    # Another process may have attached the file just now. Both keep the device that has the name, else the first.
    linked=$(readlink "$devices/$name" 2>/dev/null) || linked=
    first=
    for loop in $loops; do
        if [ -z "$first" ] || [ "$loop" = "$linked" ]; then first=$loop; fi
    done
    [ -n "$first" ] || fail retry "on node ${POD_NODE:-?}: $name/disk has no loop device"
    hold "$first"
    # From here on, no other file can get the number of the device.
    find_loops "$name/disk"
    case " $loops " in
        *" $first "*) ;;
        *)
            let_go "${first##*/}"
            fail retry "on node ${POD_NODE:-?}: $first is not the device of $name/disk any more"
            ;;
    esac
    for loop in $loops; do
        [ "$loop" != "$first" ] || continue
        losetup -d "$loop" 2>/dev/null || :
        let_go "${loop##*/}"
    done
    if [ "$linked" != "$first" ]; then
        name_device
    fi
    # The volume may have been deleted meanwhile.
    [ -e "$base/$name/disk" ] || rm -f "$devices/$name"
}

# Holds the device open by a second device, which no pod gets. A pod can detach the device that it has. The number would
# then go to the next file, and the pod, or the volume's name, would lead there. A device that is held stays until both
# are detached.
hold() {
    find_loops ".hold-$name-${1##*/}"
    [ -z "$loops" ] || return 0
    node=$devices/.hold-$name-${1##*/}
    why=$(
        exec 2>&1
        IFS=: read -r major minor <"/sys/block/${1##*/}/dev"
        rm -f "$node" && mknod "$node" b "$major" "$minor" && losetup -r -f "$node"
    ) || fail retry "on node ${POD_NODE:-?}: $1 cannot be held open: $why"
}

# Links the volume `name` to its device, and removes links of other volumes to that device.
name_device() {
    why=$(ln -sfn "$first" "$devices/$name" 2>&1) || fail retry "on node ${POD_NODE:-?}: $why"
    links=$(ls -l "$devices" 2>&1) || fail retry "on node ${POD_NODE:-?}: $links"
    printf '%s\n' "$links" | while IFS= read -r line; do
        case $line in *" -> $first") ;; *) continue ;; esac
        other=${line% -> *}
        other=${other##* }
        [ "$other" = "$name" ] || rm -f "${devices:?}/$other"
    done
}

# Detaches the device $1 of the volume `name`. A device in use vanishes with its last user. The hold ends last, so that
# the number does not become another file's before.
release() {
    why=$(losetup -d "$1" 2>&1) || fail retry "on node ${POD_NODE:-?}: $why"
    let_go "${1##*/}"
}

# Ends all holds of the devices $1, a pattern, of the volume `name`.
let_go() {
    find_loops ".hold-$name-$1"
    for loop in $loops; do
        why=$(losetup -d "$loop" 2>&1) || fail retry "on node ${POD_NODE:-?}: $why"
    done
    for node in $(ls -A "$devices" 2>/dev/null || :); do
        # shellcheck disable=SC2254  # a pattern, as above
        case $node in ".hold-$name-"$1) rm -f "$devices/$node" ;; esac
    done
}

# Detaches the devices of the volume $1, whose directory is now .deleting-$2 in the directory $3. A process may hold a
# device open. It loses the blocks at once, and can take none again. The volume ends when the process lets go.
detach() {
    name=$1
    rm -f "$devices/$name"
    find_its "$2"
    [ ! -f "$3/.deleting-$2/disk" ] || why=$( (: >"$3/.deleting-$2/disk") 2>&1) || fail retry "on node ${POD_NODE:-?}: $why"
    for loop in $its; do
        why=$(losetup -c "$loop" 2>&1) || [ ! -e "/sys/block/${loop##*/}/loop" ] || fail retry "on node ${POD_NODE:-?}: $why"
        release "$loop"
    done
    let_go 'loop*'
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        find_its "$2"
        [ -n "$its" ] || return 0
        sleep 0.1
    done
    fail retry "on node ${POD_NODE:-?} a process has$its open, the device of the deleted volume: end the pods that had the volume"
}

# Sets `its` to the devices of the volume `name`, also under the name .deleting-$1.
find_its() {
    find_loops "$name/disk"
    its=$loops
    find_loops ".deleting-$1/disk"
    its=$its$loops
}

# Gives the image file in the directory $1 its size, with all blocks, so that the promised space exists. Sizes are whole
# pages, because a device has no half sectors.
sized() {
    size=0
    [ ! -f "$1/disk" ] || size=$(stat -c %s "$1/disk")
    [ "$size" -lt "$SIZE_BYTES" ] || return 0
    why=$(fallocate -l $(((SIZE_BYTES + 4095) / 4096 * 4096)) "$1/disk" 2>&1) || {
        # Blocks that are not enough would only take the room of others.
        truncate -s "$size" "$1/disk" || :
        fail retry "on node ${POD_NODE:-?}: $why"
    }
}

# Flushes the device of the volume $1 to its file.
flushed() {
    [ -n "$devices" ] || return 0
    find_loops "$1/disk"
    for loop in $loops; do
        blockdev --flushbufs "$loop" || fail retry "on node ${POD_NODE:-?}: the data written to $loop cannot be flushed"
    done
}

# Attaches all image files. After a restart of the node, no file has a device. A DaemonSet runs this function on each node.
# A volume that fails stops no other volume.
attach_all() {
    [ -n "$devices" ] || fail config "devices is not set: there is nothing to attach"
    count=0 failed=
    for one in $bases; do
        use "$one"
        names=$(ls -1A "$one" 2>&1) || {
            not_attached "$one" "$names"
            continue
        }
        for found in $names; do
            if is_id "$found" && [ -f "$one/$found/disk" ]; then attach_one "$found"; fi
        done
    done
    [ "$count" = 0 ] || fail retry "on node ${POD_NODE:-?}: all volumes are attached but $count:$failed"
}

# Attaches the volume $1 in a shell of its own, which `fail` ends. In a condition, the shell would ignore `set -e`.
attach_one() {
    set +e
    why=$(
        set -e
        exec 2>&1
        attach "$1"
    )
    code=$?
    set -e
    [ "$code" = 0 ] || not_attached "$1" "$why"
}

# Notes that $1 could not be attached, with the reason $2. The message has the first five names, the log has all.
not_attached() {
    echo "$1 is not attached: $2" >&2
    count=$((count + 1))
    case $count in
        1) failed=" $1 ($2)" ;;
        [2-5]) failed="$failed, $1" ;;
        6) failed="$failed, …" ;;
    esac
}
