//! Mistakes of the shell in runs that make and delete volumes.

use flex_desk::conformance::Case;

use super::lines::{
    BASE, CHECK, CLONE, CREATE, DELETE, FIRST, HALF, IDS, LIST, MAKE, NAMES, NO_ID, NO_VOLUME, OTHERWISE, PROVISION,
    VOLUME,
};
use super::row::{By, Only, Row};

/// Each mistake, with the case that must find it.
pub(super) const WRONG: &[Row] = &[
    (
        "makes its volume too large",
        By(Case::VolumeFits),
        &[(CREATE, r#"exec flex-pv create --copied --size 100Gi --local "$volume""#)],
    ),
    (
        "says that another node has its volume",
        By(Case::VolumeFits),
        &[(
            CREATE,
            r#"exec flex-pv create --copied --on-this-node=false --affinity kubernetes.io/hostname=node-7 --local "$volume""#,
        )],
    ),
    ("goes on when it cannot write", Only(Case::Rights), &[(PROVISION, "provision)\n    touch /usr/mine || :")]),
    ("names its storage by the attempt", By(Case::CalledAgain), &[(VOLUME, "volume=$base/$id-${ATTEMPT:-1}")]),
    ("names its storage by the time", By(Case::CalledAgain), &[(VOLUME, "volume=$base/$id-${PROVISION_TS:-}")]),
    ("makes a volume that is there once more", By(Case::CalledAgain), &[(NO_VOLUME, "if true; then")]),
    (
        "empties the volume in a repeated run",
        By(Case::CalledAgain),
        &[(
            CREATE,
            r#"find "$volume" -mindepth 1 -delete
    exec flex-pv create --copied --local "$volume""#,
        )],
    ),
    (
        "gives all files the same mode in a repeated run",
        By(Case::CalledAgain),
        &[(
            CREATE,
            r#"chmod -R 0777 "$volume" 2>/dev/null || :
    exec flex-pv create --copied --local "$volume""#,
        )],
    ),
    // A second before the mistake, so that no kill at a time meets it.
    (
        "does not expect half a volume of an earlier run",
        Only(Case::KilledAtChild),
        &[(
            FIRST,
            r#"        sleep 1
        [ -z "$CLONE_OF$sid" ] || flex-pv remove "$half""#,
        )],
    ),
    ("expects nothing under its temporary name", By(Case::KilledAtChild), &[(FIRST, "        :")]),
    (
        "has a temporary name that the next run does not know",
        By(Case::KilledAtChild),
        &[(HALF, r#"half=$(mktemp -u "$base/.half-XXXXXX")"#)],
    ),
    (
        "keeps its lock when it is killed",
        By(Case::KilledAtTimes),
        &[(
            PROVISION,
            r#"provision)
    mkdir "$base/.lock" || exec flex-pv fail retry busy
    sleep 3
    rmdir "$base/.lock""#,
        )],
    ),
    (
        "takes its own directory for that of another",
        By(Case::KilledAtCreate),
        &[(
            PROVISION,
            r#"provision)
    [ ! -d "$volume" ] || exec flex-pv fail never "it exists""#,
        )],
    ),
    (
        "writes into the volume after it exists",
        Only(Case::VolumeIsLast),
        &[(
            CREATE,
            r#"flex-pv create --copied --local "$volume"
    touch "$volume/late""#,
        )],
    ),
    (
        "numbers its directories without a lock",
        By(Case::EightAtOnce),
        &[(
            PROVISION,
            r#"provision)
    n=$(cat "$base/.next" 2>/dev/null || echo 0)
    sleep 1
    echo $((n + 1)) >"$base/.next"
    mkdir -p "$base/$n"
    exec flex-pv create --copied --local "$base/$n""#,
        )],
    ),
    (
        "copies all clones under one temporary name",
        Only(Case::EightAtOnce),
        &[(
            CLONE,
            r#"half=$base/.half-clone
            flex-pv remove "$half"
            cp -a "$base/$CLONE_OF" "$half"
            sleep 2"#,
        )],
    ),
    (
        "rewrites an index that it has read before",
        Only(Case::Interleaved),
        &[
            (
                CREATE,
                r#"known=$(cat "$base/.index" 2>/dev/null || :)
    date >/dev/null
    case $known in *"$id"*) ;; *) printf '%s\n%s\n' "$known" "$id" >"$base/.index" ;; esac
    exec flex-pv create --copied --local "$volume""#,
            ),
            (NAMES, r#"names=$(sort -u "$base/.index" 2>/dev/null || :)"#),
            (
                LIST,
                r#"do [ ! -d "$base/$name" ] || echo "volume $name - $base/$name"; done; echo end; } | flex-pv list"#,
            ),
        ],
    ),
    (
        "removes what was not there when it began",
        By(Case::Interleaved),
        &[(
            PROVISION,
            r#"provision)
    known=$(ls "$base" | tr '\n' ' ')
    date >/dev/null
    for one in $(ls "$base"); do case " $known" in *" $one "*) ;; *) rm -rf "$base/$one" ;; esac; done"#,
        )],
    ),
    ("says nothing of an operation that it does not know", Only(Case::UnknownOperation), &[(OTHERWISE, "*) ;;")]),
    (
        "dies of a size of one byte",
        By(Case::Sizes),
        &[(PROVISION, "provision)\n    [ \"$SIZE_BYTES\" -gt 1 ] || exit 134")],
    ),
    ("lists another size", By(Case::Sizes), &[("volume $name - ", "volume $name 1048576 ")]),
    (
        "lets the text of a user become a command",
        By(Case::HostileTexts),
        &[(
            PROVISION,
            r#"provision)
    sh -c "echo \"a volume of $USERNAME\"" >/dev/null 2>&1 || :"#,
        )],
    ),
    // `flex-pv` refuses a path with `..`, and other programs do not.
    (
        "restores whatever path a person has written",
        By(Case::HostileTexts),
        &[(
            CHECK,
            r#"case $OPERATION:$sid in provision:?*) cp -r "$snapshot" "$volume" && exec flex-pv create --copied --local "$volume" ;; esac"#,
        )],
    ),
    (
        "deletes whatever path a person has written",
        By(Case::HostileTexts),
        &[(CHECK, r#"case $OPERATION in delete-snapshot) rm -rf "$snapshot" "$half_snapshot"; exit ;; esac"#)],
    ),
    (
        "can never delete a claim that it has refused for its snapshot",
        Only(Case::HostileTexts),
        &[(IDS, "ids=$id${CLONE_OF:-}$sid ;; *)")],
    ),
    (
        "deletes the snapshot of a claim with the claim",
        By(Case::HostileTexts),
        &[(DELETE, r#"delete) rm -rf "${sid:+$snapshot}"; exec flex-pv remove "$volume" "$half" ;;"#)],
    ),
    ("takes any parameter", By(Case::UnknownParameter), &[("flex-pv parameters base-path\n", "")]),
    ("ignores its parameter", By(Case::OtherPath), &[(BASE, "base=/srv/volumes")]),
    (
        "ignores its parameter in delete runs",
        Only(Case::OtherPath),
        &[(DELETE, r#"delete) exec rm -rf "/srv/volumes/$id" "/srv/volumes/.half-$id" ;;"#)],
    ),
    (
        "takes a failed deletion for a success",
        By(Case::StorageFails),
        &[(DELETE, r#"delete) flex-pv remove "$volume" "$half" || : ;;"#)],
    ),
    (
        "takes each failure for one that stays",
        By(Case::StorageFails),
        &[(FIRST, r#"        flex-pv remove "$half" || exec flex-pv fail never no"#)],
    ),
    (
        "asks for one more attempt, and takes the next failure for one that stays",
        By(Case::StorageFails),
        &[(
            FIRST,
            r#"        flex-pv remove "$half" || case $ATTEMPT in 1) exit 75 ;; *) exec flex-pv fail never no ;; esac"#,
        )],
    ),
    (
        "takes a failed copy for one that stays",
        By(Case::StorageFails),
        &[(CLONE, r#"flex-pv copy "$base/$CLONE_OF" "$half" || exec flex-pv fail never no"#)],
    ),
    (
        "takes a failed copy for a whole one",
        By(Case::StorageFails),
        &[(CLONE, r#"cp -a "$base/$CLONE_OF" "$half" || :"#)],
    ),
    (
        "does not hear that the API refuses its volume",
        Only(Case::LastWords),
        &[(CREATE, r#"flex-pv create --copied --local "$volume" || :"#)],
    ),
    (
        "fails without a word",
        By(Case::LastWords),
        &[(CREATE, r#"flex-pv create --copied --local "$volume" || { : >/dev/termination-log; exit 75; }"#)],
    ),
    (
        "writes a whole log into its last words",
        By(Case::LastWords),
        &[(CREATE, r#"flex-pv create --copied --local "$volume" || { seq 2000 >/dev/termination-log; exit 75; }"#)],
    ),
    (
        "writes its environment into its last words",
        By(Case::NoSecretInWords),
        &[(OTHERWISE, "*) env >/dev/termination-log; exit 64 ;;")],
    ),
    (
        "says its password",
        By(Case::NoSecretInWords),
        &[(OTHERWISE, r#"*) echo "login with $ARRAY_PASSWORD" >/dev/termination-log; exit 64 ;;"#)],
    ),
    (
        "prints its password",
        By(Case::NoSecretInWords),
        &[(
            CREATE,
            r#"echo "login with $ARRAY_PASSWORD"
    exec flex-pv create --copied --local "$volume""#,
        )],
    ),
    (
        "writes its password on the volume",
        By(Case::NoSecretInWords),
        &[(
            CREATE,
            r#"exec flex-pv create --copied --local "$volume" --annotation "example.com/login=$ARRAY_PASSWORD""#,
        )],
    ),
    (
        "tidies up for long after SIGTERM",
        By(Case::EndsAfterSigterm),
        &[(PROVISION, "provision)\n    trap 'sleep 20' TERM\n    sleep 3\n    sleep 3")],
    ),
    ("deletes nothing", By(Case::DeleteGone), &[(DELETE, "delete) ;;")]),
    (
        "takes storage that is gone for a failure",
        By(Case::DeleteTwice),
        &[(DELETE, r#"delete) exec rmdir "$volume" ;;"#)],
    ),
    (
        "takes storage that is gone before its volume for a failure",
        Only(Case::DeleteTwice),
        &[(
            DELETE,
            r#"delete)
    [ -z "$VOLUME_SOURCE" ] || [ -d "$volume" ] || exec flex-pv fail never "the volume is lost"
    exec flex-pv remove "$volume" "$half"
    ;;"#,
        )],
    ),
    (
        "keeps deleted volumes for a while",
        By(Case::NextVolumeEmpty),
        &[(DELETE, r#"delete) [ ! -d "$volume" ] || mv "$volume" "$base/.trash-$(date +%s%N)" ;;"#)],
    ),
    (
        "gives the data of a deleted volume to the next one",
        By(Case::NextVolumeEmpty),
        &[
            (
                DELETE,
                r#"delete)
    flex-pv remove "$half" "$base/.recycled"
    [ ! -d "$volume" ] || mv "$volume" "$base/.recycled"
    ;;"#,
            ),
            (
                MAKE,
                r#"mv "$base/.recycled" "$half" 2>/dev/null || mkdir "$half"
            chmod 0777 "$half""#,
            ),
        ],
    ),
    (
        "knows no volume without storage",
        By(Case::DeleteUnknown),
        &[(
            DELETE,
            r#"delete)
    [ -d "$volume" ] || [ -n "$VOLUME_SOURCE" ] || exec flex-pv fail never "there is no such volume"
    exec flex-pv remove "$volume" "$half"
    ;;"#,
        )],
    ),
    (
        "deletes nothing that has no volume",
        By(Case::DeleteHalfMade),
        &[(DELETE, r#"delete) [ -z "$VOLUME_SOURCE" ] || exec flex-pv remove "$volume" "$half" ;;"#)],
    ),
    (
        "leaves its temporary name",
        Only(Case::DeleteHalfMade),
        &[(DELETE, r#"delete) exec flex-pv remove "$volume" ;;"#)],
    ),
    (
        "deletes for the claim of its first day alone",
        By(Case::DeleteById),
        &[(DELETE, r#"delete) [ "$PVC_NAME" != data ] || exec flex-pv remove "$volume" "$half" ;;"#)],
    ),
    (
        "deletes what the source of the volume names",
        By(Case::DeleteAlone),
        &[(
            DELETE,
            r#"delete)
    path=${VOLUME_SOURCE##*path\":\"}
    path=${path%%\"*}
    exec rm -rf "${path:-$volume}" "$half"
    ;;"#,
        )],
    ),
    (
        "deletes everything without an id",
        By(Case::DeleteAlone),
        &[(NO_ID, r#"case $OPERATION in delete) rm -rf "$base/$id" || : ;; esac"#)],
    ),
    (
        "follows links in a deletion",
        By(Case::HostileContent),
        &[(DELETE, r#"delete) find -L "$volume" -delete 2>/dev/null || :; exec flex-pv remove "$volume" "$half" ;;"#)],
    ),
    (
        "copies what links lead to",
        By(Case::HostileContent),
        &[(CLONE, r#"cp -aL "$base/$CLONE_OF" "$half" 2>/dev/null || :"#)],
    ),
    (
        "forgets a volume that it has renamed",
        Only(Case::DeleteKilled),
        &[(
            DELETE,
            r#"delete)
    if [ -d "$volume" ]; then
        mv "$volume" "$base/.gone-$id"
        rm -rf "$base/.gone-$id"
    fi
    exec flex-pv remove "$half"
    ;;"#,
        )],
    ),
];
