#!/bin/sh
# Gives a node files of its own, in a mount namespace that was made for it. Below the paths of `own`, the node has the files
# of its disk, and not those of the machine. Otherwise a node would find the volumes of the other nodes.
#
#   node-mounts.sh STAGE DISK KEPT...   an empty directory for the work, the directory of the node's disk, and the
#                                       directories of the machine that the node has at the same path
set -eu

stage=$1 disk=$2
shift 2
own='/var/lib /var/log /srv /mnt'

# The namespace has a copy of each mount. A copy would keep a file system and a network in use that another cluster, or
# the machine, has removed.
copies=$(cut -d ' ' -f 5 /proc/self/mountinfo | sort -r)

# Once the paths are covered, the node cannot reach these files any more.
mkdir -p "$stage/disk"
mount --bind "$disk" "$stage/disk"
number=0
for kept in "$@"; do
    number=$((number + 1))
    mkdir -p "$stage/$number"
    mount --bind "$kept" "$stage/$number"
done

printf '%s\n' "$copies" | while IFS= read -r copy; do
    for path in $own /run/flex-cluster; do
        case $copy in
        "$path" | "$path"/*) umount -l "$(printf '%b' "$copy")" 2>/dev/null || true ;;
        esac
    done
done

for path in $own; do
    [ -d "$path" ] || continue
    mkdir -p "$stage/disk$path"
    mount --bind "$stage/disk$path" "$path"
done
number=0
for kept in "$@"; do
    number=$((number + 1))
    mkdir -p "$kept"
    mount --bind "$stage/$number" "$kept"
    umount "$stage/$number"
done
umount "$stage/disk"
