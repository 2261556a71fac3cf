//! Mistakes of the shell in copies and in the other operations of a config, and programs of the shell that are right.

use flex_desk::conformance::Case;

use super::lines::{
    BASE, CLONE, COPY_SNAPSHOT, CREATE, DELETE, DELETE_SNAPSHOT, EXPAND, LIST, MAKE, NAMES, NO_SNAPSHOT, RESTORE,
    SNAPSHOT, VOLUME,
};
use super::row::{By, Edits, Only, Row};

/// Each mistake, with the case that must find it.
pub(super) const WRONG: &[Row] = &[
    (
        "takes a size that the volume has for a failure",
        By(Case::Expand),
        &[(EXPAND, "expand) mkdir \"$volume/larger\" ;;\nmodify)")],
    ),
    (
        "makes the volume anew when it grows",
        By(Case::Expand),
        &[(EXPAND, "expand) rm -rf \"$volume\"; mkdir \"$volume\"; chmod 0777 \"$volume\" ;;\nmodify)")],
    ),
    ("makes empty clones", By(Case::CloneContent), &[(r#"if [ -n "$CLONE_OF" ]; then"#, "if false; then")]),
    ("makes hard links for a clone", Only(Case::CloneContent), &[(CLONE, r#"cp -al "$base/$CLONE_OF" "$half""#)]),
    ("makes a link for a clone", By(Case::CloneContent), &[(CLONE, r#"ln -s "$base/$CLONE_OF" "$half""#)]),
    ("loses modes and owners", By(Case::CloneContent), &[(CLONE, r#"cp -r "$base/$CLONE_OF" "$half""#)]),
    (
        "copies no hidden files",
        By(Case::CloneContent),
        &[(
            CLONE,
            r#"mkdir "$half"
            chmod 0777 "$half"
            cp -a "$base/$CLONE_OF"/* "$half""#,
        )],
    ),
    (
        "copies a clone under its last name",
        Only(Case::CloneKilled),
        &[(
            CLONE,
            r#"mkdir "$volume"
            cp -a "$base/$CLONE_OF/." "$volume" || {
                flex-pv remove "$volume"
                exec flex-pv fail retry "the copy failed"
            }
            exec flex-pv create --copied --local "$volume""#,
        )],
    ),
    (
        "creates a clone before its content",
        By(Case::CloneKilled),
        &[(
            CLONE,
            r#"mkdir "$volume"
            chmod 0777 "$volume"
            flex-pv create --copied --local "$volume"
            cp -a "$base/$CLONE_OF/." "$volume"
            exit"#,
        )],
    ),
    ("makes empty snapshots", By(Case::SnapshotRestore), &[(COPY_SNAPSHOT, r#"mkdir "$half_snapshot""#)]),
    (
        "makes hard links for a snapshot",
        Only(Case::SnapshotRestore),
        &[(COPY_SNAPSHOT, r#"cp -al "$volume" "$half_snapshot""#)],
    ),
    (
        "gives the snapshot itself to the first volume",
        By(Case::SnapshotRestore),
        &[(
            RESTORE,
            r#"mv "$snapshot" "$half"
            cp -al "$half" "$snapshot""#,
        )],
    ),
    ("makes a snapshot that is there once more", By(Case::SnapshotAgain), &[(NO_SNAPSHOT, "if true; then")]),
    // Two seconds before the mistake, so that no kill at a time comes after it.
    (
        "takes a snapshot that is there for a failure",
        Only(Case::SnapshotAgain),
        &[(
            NO_SNAPSHOT,
            r#"[ ! -d "$snapshot" ] || exec flex-pv fail never "it exists"
    sleep 2
    if [ ! -d "$snapshot" ]; then"#,
        )],
    ),
    (
        "makes a snapshot under its last name",
        Only(Case::SnapshotKilled),
        &[(
            SNAPSHOT,
            r#"        mkdir "$snapshot"
        cp -a "$volume/." "$snapshot" || {
            flex-pv remove "$snapshot"
            exec flex-pv fail retry "the copy failed"
        }"#,
        )],
    ),
    (
        "restores under the last name",
        By(Case::SnapshotKilled),
        &[(
            RESTORE,
            r#"mkdir "$volume"
            cp -a "$snapshot/." "$volume" || {
                flex-pv remove "$volume"
                exec flex-pv fail retry "the copy failed"
            }
            exec flex-pv create --copied --local "$volume""#,
        )],
    ),
    (
        "keeps the snapshots of a volume in it",
        By(Case::SnapshotOutlives),
        &[("snapshot=$base/.snapshot-$sid", "snapshot=$base/${SNAPSHOT_OF:-$id}/.snapshot-$sid")],
    ),
    (
        "deletes the snapshots with a volume",
        By(Case::SnapshotOutlives),
        &[(DELETE, r#"delete) rm -rf "$base"/.snapshot-*; exec flex-pv remove "$volume" "$half" ;;"#)],
    ),
    (
        "deletes all snapshots with one",
        By(Case::SnapshotOutlives),
        &[(DELETE_SNAPSHOT, r#"delete-snapshot) rm -rf "$base"/.snapshot-*; exec flex-pv remove "$half_snapshot" ;;"#)],
    ),
    ("lists snapshots", By(Case::SnapshotOutlives), &[(NAMES, r#"names=$(ls -A "$base" | sed 's/^.snapshot-//')"#)]),
    (
        "takes a class that the volume has for a failure",
        By(Case::Modify),
        &[(EXPAND, "modify) mkdir \"$volume/fast\" ;;\nexpand)")],
    ),
    (
        "prints a capacity that nobody reads",
        By(Case::Capacity),
        &[("capacity) exec flex-pv capacity --bytes 100Gi ;;", "capacity) echo 100Gi ;;")],
    ),
    ("lists one volume", By(Case::ListWhole), &[(NAMES, r#"names=$(ls "$base" | tail -n 1)"#)]),
    ("lists its volumes as kept", Only(Case::ListWhole), &[("volume $name - ", "kept $name - ")]),
    (
        "lists nothing before it lists all",
        By(Case::ListOrNothing),
        &[(
            NAMES,
            r#"printf 'flex-list 1\nflex-list end 0\n'
    names=$(ls "$base")"#,
        )],
    ),
    (
        "lists an index, which it then writes anew",
        Only(Case::ListOrNothing),
        &[
            (
                CREATE,
                r#"grep -qsx "$id" "$base/.index" || echo "$id" >>"$base/.index"
    exec flex-pv create --copied --local "$volume""#,
            ),
            (NAMES, r#"names=$(cat "$base/.index" 2>/dev/null || :)"#),
            (
                LIST,
                r#"do [ ! -d "$base/$name" ] || echo "volume $name - $base/$name"; done; echo end; } | flex-pv list
    : >"$base/.index"
    for name in $(ls "$base"); do stat "$base/$name" >/dev/null && echo "$name" >>"$base/.index"; done"#,
            ),
        ],
    ),
    ("has no batches", By(Case::Batch), &[(r#"[ "$OPERATION" != batch ] || exec flex-pv each -- "$0""#, "")]),
    ("names its storage by the claim", By(Case::PoolNames), &[(VOLUME, "volume=$base/$PVC_NAME")]),
    (
        "makes a link with the name of the claim",
        Only(Case::PoolNames),
        &[(
            CREATE,
            r#"ln -sfn "$id" "$base/.claim-$PVC_NAMESPACE-$PVC_NAME"
    exec flex-pv create --copied --local "$volume""#,
        )],
    ),
];

/// Mistakes that no case can know. The manual has them, with the reasons.
pub(super) const UNKNOWABLE: &[(&str, Edits)] = &[
    (
        "gives a volume a mode or an owner with which the pods of its users cannot write",
        &[(
            MAKE,
            r#"mkdir "$half"
            chmod 0700 "$half""#,
        )],
    ),
    (
        "says that all nodes reach a volume that one node has",
        &[(CREATE, r#"exec flex-pv create --copied --on-this-node=false --host-path "$volume""#)],
    ),
    (
        "gives a secret to another program as an argument",
        &[(
            CREATE,
            r#"env true "$ARRAY_PASSWORD"
    exec flex-pv create --copied --local "$volume""#,
        )],
    ),
    (
        "loses times of files, or fills their holes",
        &[(CLONE, r#"cp -a --no-preserve=timestamps --sparse=never "$base/$CLONE_OF" "$half""#)],
    ),
    ("reports more free bytes than there are", &[("--bytes 100Gi", "--bytes 1Pi")]),
];

/// The cases that look at copies and at what is left.
const ABOUT_COPIES: &[Case] = &[
    Case::StorageFails,
    Case::HostileContent,
    Case::CloneContent,
    Case::CloneKilled,
    Case::SnapshotRestore,
    Case::SnapshotKilled,
    Case::SnapshotOutlives,
];
const ABOUT_STORAGE: &[Case] = &[
    Case::CalledAgain,
    Case::KilledAtChild,
    Case::KilledAtTimes,
    Case::EightAtOnce,
    Case::Interleaved,
    Case::StorageFails,
    Case::DeleteGone,
    Case::NextVolumeEmpty,
    Case::DeleteHalfMade,
    Case::DeleteKilled,
    Case::ListWhole,
];

/// Programs that keep the contract in another way, with cases that could take it for a mistake.
pub(super) const RIGHT: &[(&str, &[Case], Edits)] = &[
    (
        "holds a lock of all volumes for its whole run, in a file that stays",
        ABOUT_STORAGE,
        &[(
            BASE,
            r#"base=${BASE_PATH:-/srv/volumes}
exec 9>"$base/.lock"
flock 9"#,
        )],
    ),
    (
        "renames a volume before it removes it",
        ABOUT_STORAGE,
        &[(
            DELETE,
            r#"delete)
    if [ -d "$volume" ]; then
        flex-pv remove "$base/.deleting-$id"
        flex-pv rename "$volume" "$base/.deleting-$id"
    fi
    exec flex-pv remove "$base/.deleting-$id" "$half"
    ;;"#,
        )],
    ),
    (
        "copies by cp",
        ABOUT_COPIES,
        &[
            (CLONE, r#"cp -a "$base/$CLONE_OF" "$half""#),
            (RESTORE, r#"cp -a "$snapshot" "$half""#),
            (COPY_SNAPSHOT, r#"cp -a "$volume" "$half_snapshot""#),
        ],
    ),
];
