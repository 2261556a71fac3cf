#!/bin/sh
# A provisioner whose volumes are directories. It keeps the contract; the tests break it in one place at a time.
set -eu
[ "$OPERATION" != batch ] || exec flex-pv each -- "$0"
flex-pv parameters base-path
base=${BASE_PATH:-/srv/volumes}
id=${CLAIM_UUID:-}
sid=${SNAPSHOT_ID:-}
volume=$base/$id
half=$base/.half-$id
snapshot=$base/.snapshot-$sid
half_snapshot=$base/.half-$sid
case $OPERATION in delete) ids=$id ;; *) ids=$id${CLONE_OF:-}$sid ;; esac
case $ids in *[!0-9a-f-]*) exec flex-pv fail never "an id is no UUID" ;; esac
case $OPERATION:$id in delete:) exec flex-pv fail never "the run has no id" ;; esac
case $OPERATION in
provision)
    if [ ! -d "$volume" ]; then
        flex-pv remove "$half"
        if [ -n "$CLONE_OF" ]; then
            flex-pv copy "$base/$CLONE_OF" "$half"
        elif [ -n "$sid" ]; then
            flex-pv copy "$snapshot" "$half"
        else
            mkdir "$half"
            chmod 0777 "$half"
        fi
        flex-pv rename "$half" "$volume"
    fi
    exec flex-pv create --copied --local "$volume"
    ;;
delete) exec flex-pv remove "$volume" "$half" ;;
expand | modify) [ -d "$volume" ] || exec flex-pv fail never "the volume is lost" ;;
snapshot)
    if [ ! -d "$snapshot" ]; then
        flex-pv remove "$half_snapshot"
        flex-pv copy "$volume" "$half_snapshot"
        flex-pv rename "$half_snapshot" "$snapshot"
    fi
    ;;
delete-snapshot) exec flex-pv remove "$snapshot" "$half_snapshot" ;;
list)
    names=$(ls "$base")
    { for name in $names; do echo "volume $name - $base/$name"; done; echo end; } | flex-pv list
    ;;
capacity) exec flex-pv capacity --bytes 100Gi ;;
*) exec flex-pv fail never "this program cannot $OPERATION" ;;
esac
