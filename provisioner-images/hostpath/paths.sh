# shellcheck shell=sh
# shellcheck disable=SC2154,SC2034  # provision.sh sets and uses the variables
# The names of the parameters, directories with names by a pattern of the admin, and the owner of new directories.
# `provision.sh` reads this file, and sets the variables `alone`, `base`, `bases`, `devices`, `dir`, `id` and `volume`.

pattern=${PATH_PATTERN:-}
owner=${OWNER:-}
group=${GROUP:-}
eol='
'

# Checks the names of the parameters. `flex-pv parameters` judges them. If this image knows all, no process is needed.
check_parameters() {
    parameters='base-path node-paths devices mode owner group path-pattern'
    given=${PARAMETER_NAMES:-}
    while [ -n "$given" ]; do
        case " $parameters " in
            *" ${given%%,*} "*) ;;
            *)
                # shellcheck disable=SC2086  # a list of words
                flex-pv parameters $parameters || exit
                return 0
                ;;
        esac
        case $given in *,*) given=${given#*,} ;; *) given= ;; esac
    done
}

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
    check_found
    remove "$dir" "$id"
    [ -z "$alone$moved" ] || return 0
    for one in $bases; do
        use "$one"
        [ "$name" != "$dir" ] || continue
        remove_in "$one" "$name" "$id"
        flex-pv path free -- "$one" "$id" || exit
    done
}

# Checks that the volume is gone, if this run finds nothing to delete. The record may be lost, or the config may not name
# the volume's base path any more: then the data would stay behind without a word.
check_found() {
    [ -z "$alone$moved" ] || return 0
    case ${VOLUME_SOURCE:-} in *'"path":"'*) ;; *) return 0 ;; esac
    path=${VOLUME_SOURCE#*'"path":"'}
    path=${path%%\"*}
    known=
    for one in $bases; do
        use "$one"
        # The run deletes the directory of its id, whatever the source names: a hostile image may have written the source.
        [ ! -e "$volume" ] && [ ! -e "$one/.deleting-$id" ] && [ "$path" != "${devices:-$one}/$id" ] || return 0
        case $path in "${devices:-$one}"/*) known=$one rest=${path#"${devices:-$one}/"} ;; esac
    done
    [ -n "$known" ] ||
        fail config "the volume is $path, which is in none of the directories of node ${POD_NODE:-?} (${devices:-$bases}):" \
            "nothing is deleted; name its directory in base-path, node-paths or devices again"
    # No volume of this id has the name of another id.
    ! is_uuid "${rest%%/*}" || return 0
    # An earlier delete run has removed the directory, and then the record.
    { [ ! -e "$path" ] && [ ! -L "$path" ]; } ||
        fail never "no record in $known/.flex-provisioner says that $path is this volume: nothing is deleted;" \
            "restore the record from a backup, or make it with: ln -s $rest $known/.flex-provisioner/volume-$id;" \
            "or remove the directory on node ${POD_NODE:-?} by hand"
}

# Prints the lines of volumes that have a record.
list_records() {
    [ ! -d "$1/.flex-provisioner" ] || flex-pv path list -- "$1" || exit
}

# Checks whether the directory $2 in $1 has its name by a pattern: it is that of a record, or a folder around such ones.
is_by_pattern() {
    [ ! -d "$1/.flex-provisioner/folders/$2" ] || return 0
    case $records$eol in *" - $1/$2$eol"*) return 0 ;; *) return 1 ;; esac
}
