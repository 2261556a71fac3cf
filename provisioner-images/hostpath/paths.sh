# shellcheck shell=sh
# shellcheck disable=SC2154,SC2034  # provision.sh sets and uses the variables
# Directories with names by a pattern of the admin, and the owner of new directories. `provision.sh` reads this file, and
# sets the variables `alone`, `base`, `bases`, `devices`, `dir`, `id` and `volume`.

pattern=${PATH_PATTERN:-}
owner=${OWNER:-}
group=${GROUP:-}

check_paths() {
    for number in "$owner" "$group"; do
        case $number in
            *[!0-9]* | ???????????*) fail config "owner and group are \`$owner\` and \`$group\`: they must be numbers" ;;
        esac
    done
    [ -z "$pattern" ] || [ -z "$alone" ] ||
        fail config "path-pattern needs the whole base path: remove storage-mounts from the config"
    [ -z "$pattern" ] || [ -z "$devices" ] ||
        fail config "path-pattern is for directories: remove devices or path-pattern from the config"
}

# Sets `name` to the recorded path of the volume $1 below the base path, or to $2 if there is no record.
recorded() {
    name=$2
    link=$base/.flex-provisioner/volume-$1
    [ -z "$1" ] || [ ! -L "$link" ] || name=$(readlink "$link") || fail retry "on node ${POD_NODE:-?}: $link cannot be read"
}

# Selects the directory in which the volume has a record.
find_record() {
    for one in $bases; do
        use "$one"
        [ ! -L "$base/.flex-provisioner/volume-$id" ] || return 0
    done
    return 1
}

# Selects the path of a volume that does not exist yet, and records it.
take_path() {
    if [ -n "$pattern" ] || [ "$name" != "$dir" ]; then
        name=$(flex-pv path take -- "$base" "$pattern") || exit
        volume=$base/$name
    fi
}

# Gives a new directory its owner and group.
own() {
    [ -n "$owner$group" ] || return 0
    why=$(chown "$owner${group:+:$group}" "$volume" 2>&1) ||
        fail config "$volume cannot get the owner \`$owner\` and the group \`$group\`: $why;" \
            "the container needs the capability CHOWN"
}

# Checks that the records of the volume lead to where the volume is.
check_records() {
    [ -z "$moved" ] || return 0
    for one in $bases; do
        use "$one"
        case $name:${VOLUME_SOURCE:-} in
            "$dir":* | *: | *"\"path\":\"$volume\""*) ;;
            *) fail never "the record of the volume names $volume, but the volume is elsewhere ($VOLUME_SOURCE): nothing is done" ;;
        esac
    done
}

# Checks that the volume has no name by a pattern: a run that sees only the directory of its id would leave that one
# behind. Another id is no such name. A hostile image may have written it, and the run removes the directory of its own.
check_name() {
    for one in $bases; do
        path=${VOLUME_SOURCE:-}
        path=${path#*"\"path\":\"$one/"}
        [ "$path" != "${VOLUME_SOURCE:-}" ] || continue
        path=${path%%[/\"]*}
        [ "$path" = "$id" ] || is_uuid "$path" ||
            fail config "the volume has another name than its id ($VOLUME_SOURCE): remove storage-mounts from the config"
    done
}

# Removes the volume. A record ends after its directory.
delete() {
    check_records
    [ -z "$alone" ] || [ -n "$moved" ] || check_name
    remove "$dir" "$id"
    [ -z "$alone$moved" ] || return 0
    for one in $bases; do
        use "$one"
        [ "$name" != "$dir" ] || continue
        remove_in "$one" "$name" "$id"
        flex-pv path free -- "$one" "$id" || exit
    done
}

# Prints the lines of volumes that have a record.
list_records() {
    [ ! -d "$1/.flex-provisioner" ] || flex-pv path list -- "$1" || exit
}
