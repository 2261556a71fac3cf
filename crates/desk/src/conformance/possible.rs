//! The part of each case that is possible in a place: pure decisions.

use super::case::Case;

/// The part of a case that is possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Possible {
    /// The case.
    Yes,
    /// The case, if a list run shows what the storage has.
    ByList,
    /// Nothing, with the reason.
    No(&'static str),
}

/// The reason for cases that stop a program between two of its processes.
const NO_STAND_INS: &str = "a cluster cannot stop a program before one of its processes";
/// The reason for cases that stop a program when it creates the volume.
const NO_HOLD: &str = "a cluster cannot stop the API server at the creation of a volume";
/// The reason for cases that make the API server refuse a volume.
const NO_REFUSAL: &str = "a cluster cannot make its API server refuse the volume";
/// The reason for cases that compare the files of volumes on external storage.
const NO_EXTERNAL_FILES: &str = "the command cannot see the files of a volume on external storage";
/// The reason for cases that need a list run, which the config does not have.
const NO_LIST: &str = "the storage cannot be seen: the config does not declare the capability list";
/// The reason for cases that compare the files of volumes.
const NO_FILES: &str = "the command cannot see the files of a cluster's volumes";
/// The reason for cases that change the config.
const NO_OTHER_CONFIG: &str = "the case changes the config, and a cluster has its own";
/// The reason for cases that let the storage fail.
const NO_FAILURE: &str = "the command cannot let storage fail that is elsewhere";
/// The reason for cases with a wrong volume source.
const NO_OWN_NAME: &str = "external storage may be known only by the source in the PersistentVolume";
/// The reason for cases with a front before the server of the storage.
const NO_FRONT: &str = "the command cannot stand between a cluster and its storage";
/// The reason for cases with another path of the node.
const NO_OTHER_PATH: &str = "external storage has no path of the node";

impl Case {
    /// Returns what a cluster can do of the case.
    pub fn on_cluster(self) -> Possible {
        match self {
            Case::KilledAtChild
            | Case::Interleaved
            | Case::DeleteKilled
            | Case::CloneKilled
            | Case::SnapshotKilled
            | Case::ListOrNothing => Possible::No(NO_STAND_INS),
            Case::UnknownParameter | Case::OtherPath => Possible::No(NO_OTHER_CONFIG),
            Case::StorageFails => Possible::No(NO_FAILURE),
            Case::AnswerLost | Case::ServerFails | Case::LineCut | Case::KilledAtAnswer | Case::ServerSlow => {
                Possible::No(NO_FRONT)
            }
            Case::NextVolumeEmpty | Case::HostileContent | Case::DeleteAlone | Case::SnapshotOutlives => {
                Possible::No(NO_FILES)
            }
            Case::KilledAtCreate | Case::VolumeIsLast | Case::DeleteHalfMade => Possible::No(NO_HOLD),
            Case::LastWords | Case::NoSecretInWords => Possible::No(NO_REFUSAL),
            Case::DeleteGone | Case::DeleteUnknown | Case::DeleteById => Possible::ByList,
            _ => Possible::Yes,
        }
    }

    /// Checks whether pods mount the volumes of the case on a cluster.
    pub fn mounts_on_cluster(self) -> bool {
        matches!(self, Case::CloneContent | Case::SnapshotRestore)
    }

    /// Checks whether the case needs a front before the server of the storage.
    pub fn needs_front(self) -> bool {
        matches!(self, Case::AnswerLost | Case::ServerFails | Case::LineCut | Case::KilledAtAnswer | Case::ServerSlow)
    }

    /// Checks whether the case is possible without files, if commands of a person write and read the content of volumes.
    pub fn with_commands(self) -> bool {
        matches!(
            self,
            Case::VolumeIsLast
                | Case::Interleaved
                | Case::NextVolumeEmpty
                | Case::CloneContent
                | Case::CloneKilled
                | Case::SnapshotRestore
                | Case::SnapshotKilled
                | Case::SnapshotOutlives
        )
    }

    /// Returns what is possible of the case on this machine with external storage, whose files the command cannot see.
    pub fn with_external_storage(self) -> Possible {
        match self {
            Case::VolumeIsLast
            | Case::Interleaved
            | Case::NextVolumeEmpty
            | Case::HostileContent
            | Case::CloneContent
            | Case::CloneKilled
            | Case::SnapshotRestore
            | Case::SnapshotKilled
            | Case::SnapshotOutlives => Possible::No(NO_EXTERNAL_FILES),
            Case::StorageFails => Possible::No(NO_FAILURE),
            Case::DeleteAlone => Possible::No(NO_OWN_NAME),
            Case::OtherPath => Possible::No(NO_OTHER_PATH),
            Case::DeleteGone | Case::DeleteUnknown | Case::DeleteHalfMade | Case::DeleteById | Case::DeleteKilled => {
                Possible::ByList
            }
            _ => Possible::Yes,
        }
    }
}

impl Possible {
    /// Returns why a case cannot be done by a config that has list runs, or none.
    pub fn prevented(self, has_list: bool) -> Option<&'static str> {
        match self {
            Possible::Yes => None,
            Possible::ByList => (!has_list).then_some(NO_LIST),
            Possible::No(why) => Some(why),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_prevented_where_it_could_not_see_what_it_decides_about() {
        let cluster: fn(Case) -> Possible = Case::on_cluster;
        let external: fn(Case) -> Possible = Case::with_external_storage;
        for (case, place, has_list, expected) in [
            (Case::VolumeFits, external, false, None),
            (Case::KilledAtChild, external, false, None),
            (Case::KilledAtCreate, external, false, None),
            (Case::LastWords, external, false, None),
            (Case::DeleteGone, external, true, None),
            (Case::DeleteGone, external, false, Some(NO_LIST)),
            (Case::DeleteHalfMade, external, true, None),
            (Case::DeleteKilled, external, false, Some(NO_LIST)),
            (Case::CloneContent, external, true, Some(NO_EXTERNAL_FILES)),
            (Case::CloneKilled, external, true, Some(NO_EXTERNAL_FILES)),
            (Case::SnapshotRestore, external, true, Some(NO_EXTERNAL_FILES)),
            (Case::VolumeIsLast, external, true, Some(NO_EXTERNAL_FILES)),
            (Case::VolumeFits, cluster, false, None),
            (Case::DeleteById, cluster, true, None),
            (Case::DeleteById, cluster, false, Some(NO_LIST)),
            (Case::KilledAtChild, cluster, true, Some(NO_STAND_INS)),
            (Case::CloneContent, cluster, false, None),
            (Case::SnapshotRestore, cluster, false, None),
        ] {
            assert_eq!(place(case).prevented(has_list), expected, "{}", case.id());
        }
    }

    #[test]
    fn commands_make_only_cases_possible_that_are_not_without_them() {
        for case in Case::ALL {
            let is_prevented = case.with_external_storage().prevented(true).is_some();
            assert!(is_prevented || !case.with_commands(), "{}", case.id());
            assert!(case.on_cluster() == Possible::No(NO_FRONT) || !case.needs_front(), "{}", case.id());
        }
    }

    #[test]
    fn no_case_that_compares_files_counts_without_them() {
        // These cases look only at files, so that they would pass on every storage without files.
        for case in [
            Case::VolumeIsLast,
            Case::NextVolumeEmpty,
            Case::HostileContent,
            Case::CloneContent,
            Case::CloneKilled,
            Case::SnapshotRestore,
            Case::SnapshotKilled,
            Case::SnapshotOutlives,
        ] {
            assert!(case.with_external_storage().prevented(true).is_some(), "{}", case.id());
        }
    }
}
