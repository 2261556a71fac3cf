//! The cases: a stable id for each, what it does, why, and how to mend a program that fails it.
//!
//! `docs/reference/conformance.md` is printed from here.

use flex_core::config::capability;

/// Declares the cases, with the comment of each as its documentation.
macro_rules! cases {
    ($($(#[doc = $doc:literal])+ $variant:ident = $id:literal, $needs:expr, $why:literal, $mend:literal;)*) => {
        /// A case, by its stable id.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Case {
            $($(#[doc = $doc])+ $variant,)*
        }

        impl Case {
            /// All cases, in the order in which they run.
            pub const ALL: &[Case] = &[$(Case::$variant),*];

            /// Returns the id.
            pub fn id(self) -> &'static str {
                match self { $(Case::$variant => $id),* }
            }

            /// Returns the capability that the config must declare.
            pub fn needs(self) -> Option<&'static str> {
                match self { $(Case::$variant => $needs),* }
            }

            /// Returns what the case does, as lines of Markdown.
            pub fn what(self) -> &'static [&'static str] {
                match self { $(Case::$variant => &[$($doc),+]),* }
            }

            /// Returns why the contract asks for it, as Markdown.
            pub fn why(self) -> &'static str {
                match self { $(Case::$variant => $why),* }
            }

            /// Returns how to mend a program that fails, as Markdown.
            pub fn mend(self) -> &'static str {
                match self { $(Case::$variant => $mend),* }
            }
        }
    };
}

cases! {
    /// A provision run exits 0, and its PersistentVolume has every field of the contract.
    VolumeFits = "volume-fits", None,
        "The orchestrator binds no volume that does not fit its claim.",
        "`flex-pv create` writes all fields. Without it, compare with the table in [the contract](../contract.md#the-persistentvolume).";
    /// The log of a provision run that exits 0 has no complaint about a read-only file system or a missing permission.
    Rights = "rights", None,
        "The pod runs as user 65532 with a read-only root. A program that ignores a failed write loses data, and no message says so.",
        "Write to `/tmp` or to a mount of the config. In a shell, begin with `set -eu`.";
    /// A provision run is called again with the same `CLAIM_UUID`. The second run makes the same volume, and leaves
    /// the storage unchanged.
    CalledAgain = "called-again", None,
        "The orchestrator repeats a run after each failure of node, network or orchestrator.",
        "Look for the storage of `CLAIM_UUID` first, and keep what is there.";
    /// A provision run is killed before each process that it starts, and then repeated.
    KilledAtChild = "killed-at-child", None,
        "A node can die between any two steps.",
        "Make each step so that it can be done again: `mkdir -p`, and a rename for what must be whole.";
    /// A provision run is killed at many times, and then repeated.
    KilledAtTimes = "killed-at-times", None,
        "A node can die within a step, too.",
        "As for `killed-at-child`.";
    /// A provision run is killed when the API gets the volume, before and after it stores the volume, and then repeated.
    KilledAtCreate = "killed-at-create", None,
        "The answer of the API can be lost.",
        "Take a volume that exists with the same storage for a success, as `flex-pv create` does.";
    /// The storage is compared at the moment when the volume exists, and at the end of the run.
    VolumeIsLast = "volume-is-last", None,
        "The claim can be bound, and a pod can start, as soon as the volume exists.",
        "Create the PersistentVolume as the last act: `exec flex-pv create …`.";
    /// Provision runs for eight volumes work at one time.
    EightAtOnce = "eight-at-once", None,
        "Runs for different volumes run at the same time.",
        "Name everything by `CLAIM_UUID`, also temporary names, and lock what all volumes share.";
    /// A run gets an operation that no image knows. It exits with 64 (or 65, as `flex-pv fail never` does), and changes nothing.
    UnknownOperation = "unknown-operation", None,
        "Later versions may add operations.",
        "End with `*) exec flex-pv fail never \"it cannot $OPERATION\" ;;`.";
    /// Claims ask for one byte, and for 8 EiB. The run makes a volume that fits, or fails without a volume.
    Sizes = "sizes", None,
        "Users may ask for any size that the config does not refuse.",
        "Compute with 64 bits, and end with 69 where the storage has no room.";
    /// The user and the annotations of the claim have texts such as `../x` and `$(touch x)`. No such text becomes a path or a command.
    /// With the capability `snapshot`, runs get a `SNAPSHOT_ID` that leads from a snapshot to a volume, such as `ID/../ID`. No
    /// volume is made from it, and nothing is deleted. The delete run of the claim, with the same `SNAPSHOT_ID`, succeeds.
    HostileTexts = "hostile-texts", None,
        "Users write these texts. A person may have written the handle of a snapshot.",
        "Quote each variable, name nothing by texts of users, and refuse an id that is no UUID, as `flex-pv ids` does. In a delete run, check `CLAIM_UUID` alone.";
    /// The API refuses the volume. The run fails, and says why in at most 4096 bytes.
    LastWords = "last-words", None,
        "The last words are the event that the user reads. The kubelet cuts longer ones.",
        "Do not ignore the exit code of `flex-pv create`, and write one or two sentences by `flex-pv fail`.";
    /// The last words of failed runs contain no Secret of the config.
    NoSecretInWords = "no-secret-in-words", None,
        "Every account that may read the claim can read the last words.",
        "Use `flex-pv fail`, which masks secrets, and write no environment into the message.";
    /// A provision run gets SIGTERM. It ends within 10 seconds, and a repeated run succeeds.
    EndsAfterSigterm = "ends-after-sigterm", None,
        "After 10 seconds, the kubelet kills the run.",
        "Handle SIGTERM by ending at once: the next run continues.";
    /// A delete run exits 0, and the storage has no trace of the volume.
    DeleteGone = "delete-gone", None,
        "Storage that stays costs money, and nobody knows of it.",
        "Delete everything that bears the `CLAIM_UUID`.";
    /// A delete run is called again. It exits 0.
    DeleteTwice = "delete-twice", None,
        "The orchestrator repeats a delete run until it hears of a success.",
        "Storage that is gone already is a success: `flex-pv remove`.";
    /// A delete run for an id that never had storage exits 0, and changes nothing.
    DeleteUnknown = "delete-unknown", None,
        "If a claim is deleted half-way, a delete run follows on every node where an attempt ran.",
        "As for `delete-twice`.";
    /// A provision run is killed before it creates the volume. The delete run that follows has no `VOLUME_SOURCE`, exits 0, and leaves no trace.
    DeleteHalfMade = "delete-half-made", None,
        "An attempt that made no volume may have left storage.",
        "Find the storage by `CLAIM_UUID`, and delete temporary names, too.";
    /// The claim of a volume has another name and namespace in the delete run. The run deletes the storage of `CLAIM_UUID`.
    DeleteById = "delete-by-id", None,
        "The claim's variables can name another claim, and can be empty, for example after a restored backup.",
        "Use only `CLAIM_UUID`, the parameters and `VOLUME_SOURCE` in delete runs.";
    /// A delete run is killed before each process that it starts, and then repeated. It leaves no trace.
    DeleteKilled = "delete-killed", None,
        "A node can die during a deletion.",
        "Rename the storage to a temporary name that has the id, and delete that name in each run.";
    /// A volume grows to twice its size, and the run is called again.
    Expand = "expand", Some(capability::EXPAND),
        "The storage can have the size already, after a repeated run or a smaller request.",
        "Storage that has the size already, or more, is a success.";
    /// A clone has the content of its source.
    CloneContent = "clone-content", Some(capability::CLONE),
        "An empty volume in place of a clone loses the user's data.",
        "Copy `CLONE_OF` before `flex-pv create --copied`.";
    /// A run for a clone is killed before each process that it starts. Whenever the volume exists, the copy is whole.
    CloneKilled = "clone-killed", Some(capability::CLONE),
        "A repeated run must not take half a copy for a volume.",
        "Copy under another name, and rename when the copy is whole: `flex-pv copy`, `flex-pv rename`.";
    /// A volume that is restored from a snapshot has the content of the time of the snapshot.
    SnapshotRestore = "snapshot-restore", Some(capability::SNAPSHOT),
        "A snapshot must not change with its volume.",
        "Copy the content, or use the snapshots of your storage.";
    /// Snapshot and delete-snapshot runs are called again, and a snapshot that never existed is deleted. All exit 0, and no trace stays.
    SnapshotAgain = "snapshot-again", Some(capability::SNAPSHOT),
        "The orchestrator repeats these runs, too.",
        "Name the snapshot by `SNAPSHOT_ID`, and take one that is gone for a success.";
    /// A modify run is called again, and then with the attributes from before. All exit 0.
    Modify = "modify", Some(capability::MODIFY),
        "After a failure the user may return to the old class.",
        "Set every property, whatever its state is.";
    /// A capacity run prints one valid answer, and changes nothing.
    Capacity = "capacity", Some(capability::CAPACITY),
        "The scheduler relies on it.",
        "`flex-pv capacity --bytes N`.";
    /// A list run prints exactly the volumes that exist, and changes nothing. If the storage is not on
    /// this machine, the list may have further volumes.
    ListWhole = "list-whole", Some(capability::LIST),
        "The orchestrator reports volumes that a list lacks as lost.",
        "Print each volume by the `CLAIM_UUID` that it was made with.";
    /// A list run is killed before each process that it starts. The output of a killed run is no valid list.
    ListOrNothing = "list-or-nothing", Some(capability::LIST),
        "Half a list looks like lost volumes.",
        "Print `flex-list end COUNT` last, or use `flex-pv list`.";
    /// One run makes three volumes.
    Batch = "batch", Some(capability::BATCH),
        "A batch saves a pod for each claim.",
        "`ENTRYPOINT [\"flex-pv\", \"each\", \"--\", \"/program\"]`, or read [the list](../contract.md#batches-without-flex-pv).";
    /// A volume is made for a claim whose names occur neither in the storage nor in the volume source.
    PoolNames = "pool-names", Some(capability::POOL),
        "A pooled volume gets its claim later.",
        "Name the storage only by `CLAIM_UUID`.";
}

impl Case {
    /// Returns the case with an id.
    pub fn find(id: &str) -> Option<Case> {
        Case::ALL.iter().copied().find(|case| case.id() == id)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_case_has_an_id_of_its_own_and_is_documented() {
        let ids: BTreeSet<&str> = Case::ALL.iter().map(|case| case.id()).collect();
        assert_eq!(ids.len(), Case::ALL.len());
        for case in Case::ALL {
            assert_eq!(Case::find(case.id()), Some(*case));
            for text in case.what().last().into_iter().copied().chain([case.why(), case.mend()]) {
                assert!(text.trim_end().ends_with(['.', ')']), "{}: {text}", case.id());
            }
        }
    }
}
