//! The cases: a stable id for each, what it does, what must follow, why, and how to mend a program that fails it.
//!
//! `docs/reference/conformance.md` is printed from here.

use flex_core::config::capability;

/// Declares the cases, with the comment of each as its documentation.
macro_rules! cases {
    ($($(#[doc = $doc:literal])+ $variant:ident = $id:literal, $needs:expr, $expected:literal, $why:literal, $mend:literal;)*) => {
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

            /// Returns what a program that keeps the contract does then, as Markdown.
            pub fn expected(self) -> &'static str {
                match self { $(Case::$variant => $expected),* }
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
    /// A provision run makes a volume. Where the scheduler selects a node, and the run may be on any, its pod is on
    /// another one.
    VolumeFits = "volume-fits", None,
        "It exits 0, and its PersistentVolume has every field of the contract. Its node affinity, if it has one, does not exclude the selected node.",
        "The orchestrator binds no volume that does not fit its claim.",
        "`flex-pv create` writes all fields. Without it, compare with the table in [the contract](../contract.md#the-persistentvolume). If only the node of the run reaches the volume, the config needs `placement: selected-node`.";
    /// A provision run makes a volume.
    Rights = "rights", None,
        "If it exits 0, its log has no complaint about a read-only file system or a missing permission.",
        "The pod runs as user 65532 with a read-only root. A program that ignores a failed write loses data, and no message says so.",
        "Write to `/tmp` or to a mount of the config. In a shell, begin with `set -eu`.";
    /// A provision run is called again with the same `CLAIM_UUID`, and another `ATTEMPT` and `PROVISION_TS`, as all
    /// repeated runs have.
    CalledAgain = "called-again", None,
        "The second run makes the same volume, and leaves the storage unchanged, with what a user has written between the runs.",
        "The orchestrator repeats a run after each failure of node, network or orchestrator.",
        "Look for the storage of `CLAIM_UUID` first, and keep what is there. Name nothing by `ATTEMPT` or `PROVISION_TS`.";
    /// A provision run is killed before each process that it starts, and then repeated. The volume is deleted.
    KilledAtChild = "killed-at-child", None,
        "The repeated run succeeds. At the end, the storage has no more than after an undisturbed run and its deletion, whatever the names.",
        "A node can die between any two steps. What such a run leaves under a name that the next one does not know stays for ever.",
        "Make each step so that it can be done again: `mkdir -p`, and a rename for what must be whole. Give temporary names the `CLAIM_UUID`, not those of `mktemp`, and remove what has such a name.";
    /// A provision run is killed at many times, and then repeated. The volume is deleted.
    KilledAtTimes = "killed-at-times", None,
        "The repeated run succeeds. At the end, the storage has no more than after an undisturbed run and its deletion.",
        "A node can die within a step, too.",
        "Make each step so that it can be done again. Give temporary names the `CLAIM_UUID`, and remove what has such a name.";
    /// A provision run is killed when the API gets the volume, before and after it stores the volume, and then
    /// repeated.
    KilledAtCreate = "killed-at-create", None,
        "The repeated run succeeds.",
        "The answer of the API can be lost.",
        "Take a volume that exists with the same storage for a success, as `flex-pv create` does.";
    /// The storage is compared at the moment when the volume exists, and at the end of the run. With `--read-with` and
    /// `--write-with`, the volume is written and read at that moment.
    VolumeIsLast = "volume-is-last", None,
        "The run changes nothing after that moment. A clone or a restored volume is whole then.",
        "The claim can be bound, and a pod can start, as soon as the volume exists.",
        "Create the PersistentVolume as the last act: `exec flex-pv create …`.";
    /// Provision runs for eight volumes work at one time. With the capability `clone`, so do runs for four clones of
    /// two of them.
    EightAtOnce = "eight-at-once", None,
        "Each volume has storage of its own, and each clone the content of its source.",
        "Runs for different volumes run at the same time.",
        "Name everything by `CLAIM_UUID`, also temporary names, and lock what all volumes share.";
    /// A provision run stands still before some of the processes that it starts, while a run for another claim does all
    /// its work.
    Interleaved = "interleaved", None,
        "Both make their volumes, a list run has both, and one can be deleted without the other.",
        "The node may give another run all its time at any moment.",
        "Name everything by `CLAIM_UUID`, and lock what all volumes share from the moment when you read it, as by `flock`.";
    /// A run gets an operation that no image knows.
    UnknownOperation = "unknown-operation", None,
        "It exits with 64 (or 65, as `flex-pv fail never` does), and changes nothing.",
        "Later versions may add operations.",
        "End with `*) exec flex-pv fail never \"it cannot $OPERATION\" ;;`.";
    /// Claims ask for one byte, for 8 EiB, and for a size that is no multiple of anything.
    Sizes = "sizes", None,
        "Each run makes a volume that fits, or fails without a volume. List runs and devices tell at least the size that was asked for.",
        "Users may ask for any size that the config does not refuse.",
        "Compute with 64 bits, round up, and end with 69 where the storage has no room.";
    /// The user and the annotations of the claim have texts such as `../x` and `$(touch x)`. With the capability
    /// `snapshot`, runs get a `SNAPSHOT_ID` that leads from a snapshot to a volume, such as `ID/../ID`.
    HostileTexts = "hostile-texts", None,
        "No text becomes a path or a command. No volume is made from such an id, and nothing is deleted, but the delete run of the claim, with the same `SNAPSHOT_ID`, succeeds.",
        "Users write these texts. A person may have written the handle of a snapshot.",
        "Quote each variable, name nothing by texts of users, and refuse an id that is no UUID, as `flex-pv ids` does. In a delete run, check `CLAIM_UUID` alone.";
    /// The config has a parameter that no program reads.
    UnknownParameter = "unknown-parameter", None,
        "The provision run ends with 78, and makes nothing. A delete run with this parameter deletes its volume. A program for external storage may take the parameter, because it may hand parameters on.",
        "If a program ignores a misspelt name, the default applies in place of the parameter, and may delete data.",
        "Begin with `flex-pv parameters NAME… || exit`, or compare `PARAMETER_NAMES` as [the contract](../contract.md#names-that-the-image-does-not-read) says.";
    /// The config has another directory in place of that with its volumes: its mounts and texts, and the parameter that
    /// names the directory, else `base-path`.
    OtherPath = "other-path", None,
        "A volume is made and deleted there. A program without such a parameter is skipped.",
        "A program that ignores its parameter in one operation looks for its volumes in the wrong place, and leaves them.",
        "Read the parameter once, before all operations.";
    /// The storage is read-only, also when a provision run is tried again, or a run can write no large file, as on a
    /// full disk.
    StorageFails = "storage-fails", None,
        "A provision run creates no volume then, and ends in no attempt with 64 or 65. No part of a copy becomes a volume or a snapshot. A delete run that could not delete does not exit 0. The next runs, with the storage mended, succeed.",
        "After 64 and 65 the orchestrator waits until the claim changes, and after a delete run that exits 0 it forgets the storage.",
        "Check each step: `set -e`, or `|| exec flex-pv fail retry …`. Use `never` only for what the claim itself asks for.";
    /// With `--front`: the server of the storage acts, and its answer is lost, one request of each run after the other.
    /// The runs make, repeat, copy, list, grow and delete a volume.
    AnswerLost = "answer-lost", None,
        "Each run succeeds when it is repeated as on a cluster. Then every volume is there once, with its content, and after the deletion the server has nothing of it.",
        "A network can fail when the server has done its work. A client that then asks again for a new volume gets a second one, which nobody deletes.",
        "Give the object on the server a name with `CLAIM_UUID`. Before you make one, look for that name, also before you try again. Take \"it exists already\" at a creation and \"not found\" at a deletion for a success. Delete all that has the name.";
    /// With `--front`: the server answers 500 or 503 to one request of each run after the other, and then to all
    /// requests for 8 seconds, also when the run is tried again. If the client does not speak HTTP/1 without TLS, its
    /// line is closed in place of the answer.
    ServerFails = "server-fails", None,
        "No run ends with 64, 65 or 78 for that, or exits 0 without its work. The rest is as for `answer-lost`.",
        "A server that restarts answers so for a while. After 64, 65 or 78 the orchestrator waits until the claim changes, and after a delete run that exits 0 it forgets the storage.",
        "Check the status of each answer: `curl --fail` and `set -e`, or `raise_for_status()`. End with 75, by `flex-pv fail retry`. Only 404 says that something is not there. Keep passwords out of the message.";
    /// With `--front`: the line breaks in the middle of an answer, one request of each run after the other.
    LineCut = "line-cut", None,
        "Half a list is no list. The rest is as for `answer-lost`.",
        "Half an answer can look like a whole one to a program that reads lines.",
        "Read the whole answer, and check that it is whole, before you use any of it. `curl` says so by its exit code, which a pipe hides.";
    /// With `--front`: a run is killed when the server has acted on one of its requests, one after the other, and then
    /// repeated.
    KilledAtAnswer = "killed-at-answer", None,
        "What the server has made for a run is deleted at the end, whatever its name. The rest is as for `answer-lost`.",
        "A node can die between two requests. What the server has made under a name that no other run knows stays for ever.",
        "Give everything on the server a name with `CLAIM_UUID` or `SNAPSHOT_ID`, also what is there only for a while, and look for it first.";
    /// With `--front`: the first three answers to a run are two seconds late.
    ServerSlow = "server-slow", None,
        "The runs that make, list and delete a volume succeed within the `timeout` of the config, perhaps after further attempts. The rest is as for `answer-lost`.",
        "Busy servers are slow, and a request that seems lost may still be done.",
        "Wait for at least 30 seconds, and after that look for what the server has done.";
    /// The API refuses the volume.
    LastWords = "last-words", None,
        "The run fails, and says why in at most 4096 bytes.",
        "The last words are the event that the user reads. The kubelet cuts longer ones.",
        "Do not ignore the exit code of `flex-pv create`, and write one or two sentences by `flex-pv fail`.";
    /// The config has one more Secret. Runs fail, make a volume and delete it.
    NoSecretInWords = "no-secret-in-words", None,
        "The last words of failed runs contain no Secret of the config. The passwords, tokens and keys of the Secrets in the file of the config are in no log and in no PersistentVolume either.",
        "Every account that may read the claim can read the last words.",
        "Use `flex-pv fail`, which masks secrets, and write no environment into message and log. A volume names its Secret.";
    /// A provision run gets SIGTERM, and is then repeated.
    EndsAfterSigterm = "ends-after-sigterm", None,
        "It ends within 10 seconds, and the repeated run succeeds.",
        "After 10 seconds, the kubelet kills the run.",
        "Handle SIGTERM by ending at once: the next run continues.";
    /// A delete run follows a provision run.
    DeleteGone = "delete-gone", None,
        "It exits 0, and the storage has no trace of the volume.",
        "Storage that stays costs money, and nobody knows of it.",
        "Delete everything that bears the `CLAIM_UUID`.";
    /// A delete run is called again.
    DeleteTwice = "delete-twice", None,
        "It exits 0.",
        "The orchestrator repeats a delete run until it hears of a success.",
        "Storage that is gone already is a success: `flex-pv remove`.";
    /// A volume with the data of a user is deleted, and the next ones are made, with another id and with the same.
    NextVolumeEmpty = "next-volume-empty", None,
        "They are as empty as the first one was. After their deletion, the storage has no more than before.",
        "The next volume may belong to somebody else, who must not read the data.",
        "Make each volume anew. A device must be wiped, or its blocks must read as zeros.";
    /// A delete run has an id that never had storage.
    DeleteUnknown = "delete-unknown", None,
        "It exits 0, and changes nothing.",
        "If a claim is deleted half-way, a delete run follows on every node where an attempt ran.",
        "Storage that does not exist is a success: `flex-pv remove`.";
    /// A provision run is killed before it creates the volume, before each process that it starts, and at many times. A
    /// delete run follows, which has no `VOLUME_SOURCE` if there is no volume.
    DeleteHalfMade = "delete-half-made", None,
        "It exits 0, and leaves no trace.",
        "An attempt that made no volume may have left storage.",
        "Find the storage by `CLAIM_UUID`, and delete temporary names, too.";
    /// The claim of a volume has another name and namespace in the delete run.
    DeleteById = "delete-by-id", None,
        "The run deletes the storage of `CLAIM_UUID`.",
        "The claim's variables can name another claim, and can be empty, for example after a restored backup.",
        "Use only `CLAIM_UUID`, the parameters and `VOLUME_SOURCE` in delete runs.";
    /// A delete run has the `VOLUME_SOURCE` of another volume, or a `CLAIM_UUID` that is empty, or leads to another
    /// volume, such as `ID/../ID`.
    DeleteAlone = "delete-alone", None,
        "No other volume is changed, and a run without a real id does not exit 0.",
        "An empty variable in `rm -rf $base/$id` is the storage of all volumes. An image that is not trusted may have written the source.",
        "Find the storage by `CLAIM_UUID`, and check that it is a UUID, as `flex-pv ids` does.";
    /// A user has made links to another volume and to a file of the node. The volume is made again, copied and deleted.
    HostileContent = "hostile-content", None,
        "The links stay the same, also in copies and snapshots. No deletion follows them.",
        "Users make any links in their volumes. A run that follows them as root gives them files of others, or deletes these.",
        "Copy and remove with `flex-pv copy` and `flex-pv remove`. Neither `cp -L` nor `find -L`, nor `chmod -R` and `chown -R` in a volume in use.";
    /// A delete run is killed before each process that it starts, and then repeated.
    DeleteKilled = "delete-killed", None,
        "The repeated run exits 0, and leaves no trace.",
        "A node can die during a deletion.",
        "Rename the storage to a temporary name that has the id, and delete that name in each run.";
    /// A volume with the data of a user grows to twice its size, and the run is called again, also with a smaller size
    /// and with that of the claim.
    Expand = "expand", Some(capability::EXPAND),
        "Nothing is lost, and the size that list runs and devices tell is at least the one asked for, and never becomes smaller.",
        "The storage can have the size already, after a repeated run or a smaller request.",
        "Storage that has the size already, or more, is a success.";
    /// A volume is cloned that has a tree with owners, modes, links, hard links, holes and odd names. Users write into
    /// source and clone, and the source is deleted.
    CloneContent = "clone-content", Some(capability::CLONE),
        "The clone has the content of its source, and neither changes with the other. A clone may be larger than its source.",
        "An empty volume in place of a clone loses the user's data.",
        "Copy `CLONE_OF` before `flex-pv create --copied`, by `flex-pv copy` or `cp -a`, and with the hidden files.";
    /// A run for a clone is killed before each process that it starts, and at many times while it copies many files,
    /// and then repeated.
    CloneKilled = "clone-killed", Some(capability::CLONE),
        "Whenever the volume exists, the copy is whole. At the end, the storage has no more than after an undisturbed run and its deletion.",
        "A repeated run must not take half a copy for a volume.",
        "Copy under another name, and rename when the copy is whole: `flex-pv copy`, `flex-pv rename`.";
    /// A volume is restored from a snapshot, and once more after users have written into the volume and into the
    /// restored one.
    SnapshotRestore = "snapshot-restore", Some(capability::SNAPSHOT),
        "Both have the content of the time of the snapshot.",
        "A snapshot must not change with its volume.",
        "Copy the content, or use the snapshots of your storage.";
    /// Snapshot and delete-snapshot runs are called again, and a snapshot that never existed is deleted.
    SnapshotAgain = "snapshot-again", Some(capability::SNAPSHOT),
        "All exit 0, and no trace stays.",
        "The orchestrator repeats these runs, too.",
        "Name the snapshot by `SNAPSHOT_ID`, and take one that is gone for a success.";
    /// A snapshot run is killed before each process that it starts, and at many times, and then repeated or undone.
    /// Runs that restore the snapshot are killed, too.
    SnapshotKilled = "snapshot-killed", Some(capability::SNAPSHOT),
        "Whenever the volume exists, its content is whole. At the end, the storage has no more than after undisturbed runs.",
        "A repeated run must not take half a copy for a snapshot.",
        "Copy under another name, and rename when the copy is whole: `flex-pv copy`, `flex-pv rename`. Delete the temporary name in delete-snapshot runs, too.";
    /// A volume has two snapshots. One of them is deleted, and then the volume.
    SnapshotOutlives = "snapshot-outlives", Some(capability::SNAPSHOT),
        "A list run prints no snapshot, and neither deletion changes the content of the other snapshot. A delete run may fail while the volume has snapshots.",
        "A user who deletes a claim relies on its snapshots.",
        "Keep snapshots outside of the volume. If the storage cannot do that, let the delete run fail until the last one is gone.";
    /// Modify runs give a volume the VolumeAttributesClasses of the file, each of them twice. If the storage is not
    /// external, a run without class follows. If the file has no such class, the classes have a parameter that images
    /// accept.
    Modify = "modify", Some(capability::MODIFY),
        "All exit 0.",
        "After a failure the user may return to the old class.",
        "Set every property, whatever its state is.";
    /// A capacity run follows a provision run.
    Capacity = "capacity", Some(capability::CAPACITY),
        "It prints one valid answer, and changes nothing.",
        "The scheduler relies on it.",
        "`flex-pv capacity --bytes N`.";
    /// A list run follows two provision runs.
    ListWhole = "list-whole", Some(capability::LIST),
        "It prints exactly the volumes that exist, and changes nothing. If the storage is not on this machine, the list may have further volumes.",
        "The orchestrator reports volumes that a list lacks as lost.",
        "Print each volume by the `CLAIM_UUID` that it was made with.";
    /// A list run is killed before each process that it starts.
    ListOrNothing = "list-or-nothing", Some(capability::LIST),
        "The output of a killed run is no valid list.",
        "Half a list looks like lost volumes.",
        "Print `flex-list end COUNT` last, or use `flex-pv list`.";
    /// One run makes three volumes.
    Batch = "batch", Some(capability::BATCH),
        "All of them exist and fit, and a run for one of them alone succeeds.",
        "A batch saves a pod for each claim.",
        "`ENTRYPOINT [\"flex-pv\", \"each\", \"--\", \"/program\"]`, or read [the list](../contract.md#batches-without-flex-pv).";
    /// A volume is made for a claim with other names.
    PoolNames = "pool-names", Some(capability::POOL),
        "They occur neither in the storage nor in the volume source.",
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
            for text in case.what().last().into_iter().copied().chain([case.expected(), case.why(), case.mend()]) {
                assert!(text.trim_end().ends_with(['.', ')']), "{}: {text}", case.id());
            }
        }
    }
}
