//! Where the storage of the runs on a desk is, and what the cases see of it.

use std::path::PathBuf;

use super::commands::Commands;
use crate::on_node::OnNode;

/// The storage of the runs on a desk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Storage {
    /// Directories of this machine in place of paths of the node.
    pub on_node: Vec<OnNode>,
    /// The storage is neither in directories of the node nor in those of the desk: a server, a cloud or a driver has it.
    pub is_external: bool,
    /// The directory of this machine with the files of external storage, where it is known.
    pub files: Option<PathBuf>,
    /// The commands of a person that write and read the content of volumes.
    pub commands: Option<Commands>,
}

impl Storage {
    /// Checks whether the storage outlives a case. Cases then have ids of their own, and delete what they have made by runs.
    pub fn is_shared(&self) -> bool {
        self.is_external || !self.on_node.is_empty()
    }

    /// Checks whether the cases see the files of volumes.
    pub fn has_files(&self) -> bool {
        !self.is_external || self.files.is_some()
    }

    /// Returns the directories of this machine in which the storage may be, beside those of the desk.
    pub fn directories(&self) -> Vec<PathBuf> {
        let on_node = self.on_node.iter().map(|one| &one.directory);
        on_node.chain(&self.files).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn storage_outlives_a_case_unless_it_is_the_desks_own() {
        let on_node = vec![OnNode { path: "/dev".into(), directory: "/dev".into() }];
        for (what, storage, is_shared, has_files, directories) in [
            ("of the desk", Storage::default(), false, true, 0),
            ("of this machine", Storage { on_node: on_node.clone(), ..Storage::default() }, true, true, 1),
            ("external", Storage { is_external: true, ..Storage::default() }, true, false, 0),
            (
                "of a driver",
                Storage { on_node: on_node.clone(), is_external: true, ..Storage::default() },
                true,
                false,
                1,
            ),
            (
                "external and here",
                Storage { is_external: true, files: Some("/s".into()), on_node, commands: None },
                true,
                true,
                2,
            ),
        ] {
            let found = (storage.is_shared(), storage.has_files(), storage.directories().len());
            assert_eq!(found, (is_shared, has_files, directories), "{what}");
        }
    }
}
