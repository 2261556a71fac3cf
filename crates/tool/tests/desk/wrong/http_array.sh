#!/bin/sh
# A provisioner for an HTTP array, by curl. It keeps the contract; the tests break it in one place at a time.
set -eu
flex-pv parameters array-url
flex-pv ids
id=${CLAIM_UUID:-}
sid=${SNAPSHOT_ID:-}

# Prints the answer of the array.
ask() { # METHOD PATH [BODY]
    printf 'header = "Authorization: Bearer %s"\n' "$ARRAY_TOKEN" |
        curl -fsS -m 30 -K - -H 'Accept: text/plain' -X "$1" ${3:+--data "$3"} "$ARRAY_URL$2"
}
must() { # METHOD PATH [BODY]
    ask "$@" || exec flex-pv fail retry "the array cannot $1 $2"
}

# Prints the id of the object with a name, as soon as it is ready, or nothing.
find_ready() { # KIND NAME
    while found=$(must GET "/$1?name=$2") || exit; do
        case $found in *' creating '*) sleep 0.05 ;; *) break ;; esac
    done
    echo "${found%% *}"
}
must_find() { # KIND NAME
    one=$(find_ready "$1" "$2") || exit
    [ -n "$one" ] || exec flex-pv fail never "the source $2 is lost"
    echo "$one"
}
remove() { # KIND NAME
    found=$(must GET "/$1?name=$2")
    for one in $(printf '%s\n' "$found" | cut -d ' ' -f 1); do must DELETE "/$1/$one"; done
}

case $OPERATION in
provision)
    one=$(find_ready volumes "$id")
    if [ -z "$one" ]; then
        from=''
        if [ -n "${CLONE_OF:-}" ]; then
            source=$(must_find volumes "$CLONE_OF")
            from=",\"volume\":$source"
        elif [ -n "$sid" ]; then
            source=$(must_find snapshots "$sid")
            from=",\"snapshot\":$source"
        fi
        must POST /volumes "{\"name\":\"$id\",\"bytes\":$SIZE_BYTES$from}" >/dev/null
        one=$(must_find volumes "$id")
    fi
    exec flex-pv create --copied --nfs "array.example:/volumes/$one"
    ;;
delete) remove volumes "$id" ;;
expand)
    found=$(must GET "/volumes?name=$id")
    # shellcheck disable=SC2086 # The words of a line.
    set -- $found
    [ "$3" -ge "$SIZE_BYTES" ] || must PATCH "/volumes/$1" "{\"bytes\":$SIZE_BYTES}" >/dev/null
    ;;
snapshot)
    one=$(find_ready snapshots "$sid")
    if [ -z "$one" ]; then
        source=$(must_find volumes "$id")
        must POST /snapshots "{\"name\":\"$sid\",\"volume\":$source}" >/dev/null
        must_find snapshots "$sid" >/dev/null
    fi
    ;;
delete-snapshot) remove snapshots "$sid" ;;
list)
    found=$(must GET /volumes)
    {
        printf '%s\n' "$found" | while read -r one _ bytes name; do
            [ -z "$one" ] || echo "volume $name $bytes /volumes/$one"
        done
        echo end
    } | flex-pv list
    ;;
*) exec flex-pv fail never "this program cannot $OPERATION" ;;
esac
