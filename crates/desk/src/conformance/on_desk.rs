//! A fresh desk for a case.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::rc::Rc;

use super::cuts::Cuts;
use super::fronted::Fronted;
use super::leftovers::Leftovers;
use super::patience::Repeats;
use super::storage::Storage;
use super::tree::Tree;
use crate::desk::{Desk, DeskError, Tools};
use crate::setting::Setting;

/// The parts of a desk for a case.
#[derive(Clone)]
pub struct Parts {
    /// The setting of its runs.
    pub setting: Setting,
    /// The programs.
    pub tools: Tools,
    /// The storage.
    pub storage: Storage,
    /// The stand-ins of programs.
    pub cuts: Cuts,
    /// The beginning of the ids of the case.
    pub prefix: String,
    /// The front before the server of the storage, if there is one.
    pub front: Option<Rc<Fronted>>,
}

/// A fresh desk, with the stand-ins of programs.
pub struct OnDesk {
    /// The desk.
    pub desk: Desk,
    /// The parts of the desk.
    pub parts: Parts,
    /// The notes about storage that runs may have left.
    pub left: RefCell<Leftovers>,
    /// The notes about runs that were repeated.
    pub repeats: Repeats,
    /// The number of the last attempt, by operation and id.
    pub attempts: RefCell<BTreeMap<(&'static str, String), u32>>,
    /// The desks that the case has made beside this one.
    pub beside: RefCell<Vec<Rc<OnDesk>>>,
    folder: tempfile::TempDir,
}

impl OnDesk {
    /// Makes a fresh desk in a directory.
    ///
    /// # Errors
    /// If this machine does not allow it.
    pub async fn new(parts: Parts, folder: &Path, repeats: Repeats) -> Result<Self, DeskError> {
        let folder = tempfile::Builder::new().prefix("case-").tempdir_in(folder)?;
        let desk = Desk::new(folder.path(), parts.tools.clone()).await?;
        desk.api.permit(&parts.setting.rights);
        let (left, attempts, beside) = (RefCell::default(), RefCell::default(), RefCell::default());
        Ok(OnDesk { desk, parts, left, repeats, attempts, beside, folder })
    }

    /// Makes another fresh desk beside this one, with another setting.
    ///
    /// # Errors
    /// If this machine does not allow it.
    pub async fn again(&self, setting: &Setting) -> Result<Rc<Self>, DeskError> {
        let parts = Parts { setting: setting.clone(), ..self.parts.clone() };
        let desk = Rc::new(OnDesk::new(parts, self.folder.path(), self.repeats.clone()).await?);
        self.beside.borrow_mut().push(desk.clone());
        Ok(desk)
    }

    /// Reads everything that is stored; nothing if the files of the storage cannot be seen.
    pub fn tree(&self) -> Tree {
        let Parts { storage, setting, .. } = &self.parts;
        if !storage.has_files() {
            return Tree::default();
        }
        let mut tree = Tree::read(self.desk.storage());
        self.add_shared(&mut tree);
        if setting.recipe.storage_mounts.is_empty() { tree } else { tree.without_unused() }
    }

    /// Adds the files of the case in directories that others use, too.
    fn add_shared(&self, tree: &mut Tree) {
        let Parts { storage, prefix, .. } = &self.parts;
        storage.directories().iter().for_each(|directory| tree.add_own(directory, prefix));
    }

    /// Removes the directories that belong to nobody from those that others use, as the keeper of a node does. Returns the
    /// files of the case that are left there.
    pub fn remove_unused(&self) -> Vec<String> {
        let mut tree = Tree::default();
        self.add_shared(&mut tree);
        if !self.parts.setting.recipe.storage_mounts.is_empty() {
            tree.unused().iter().for_each(|path| drop(fs::remove_dir(path)));
            tree = tree.without_unused();
        }
        tree.with(&self.parts.prefix).iter().map(|path| path.display().to_string()).collect()
    }
}
