//! A fresh desk for a case.

use std::path::Path;

use super::cuts::Cuts;
use crate::desk::{Desk, DeskError, Tools};

/// A fresh desk, with the stand-ins of programs.
pub struct OnDesk {
    /// The desk.
    pub desk: Desk,
    /// The stand-ins.
    pub cuts: Cuts,
    tools: Tools,
    folder: tempfile::TempDir,
}

impl OnDesk {
    /// Makes a fresh desk in a directory.
    ///
    /// # Errors
    /// If this machine does not allow it.
    pub async fn new(tools: &Tools, folder: &Path, cuts: &Cuts) -> Result<Self, DeskError> {
        let folder = tempfile::Builder::new().prefix("case-").tempdir_in(folder)?;
        let desk = Desk::new(folder.path(), tools.clone()).await?;
        Ok(OnDesk { desk, cuts: cuts.clone(), tools: tools.clone(), folder })
    }

    /// Makes another fresh desk beside this one.
    ///
    /// # Errors
    /// If this machine does not allow it.
    pub async fn again(&self) -> Result<Self, DeskError> {
        OnDesk::new(&self.tools, self.folder.path(), &self.cuts).await
    }
}
