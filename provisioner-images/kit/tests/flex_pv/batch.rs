//! A batch whose members are shell scripts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use flex_contract::batch::{MemberFailure, read_outcomes, split};
use flex_contract::request::RunRequest;

use super::tool::{ENVIRONMENT, Ended, flex_pv};

/// A directory with the list of a batch, in which its scripts may leave files.
pub struct Batch {
    /// HOME of its scripts.
    pub folder: tempfile::TempDir,
}

impl Batch {
    /// Makes a batch of this many claims, which are named `data-1` and so on.
    pub fn of(count: usize) -> Self {
        let mut env: BTreeMap<String, String> =
            ENVIRONMENT.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let mut request = |n: usize| {
            let id = format!("c0ffee00-0000-4000-8000-{n:012}");
            env.extend([
                ("PVC_NAME".to_owned(), format!("data-{n}")),
                ("PV_NAME".to_owned(), format!("pvc-{id}")),
                ("CLAIM_UUID".to_owned(), id),
            ]);
            RunRequest::from_env(|name| env.get(name).cloned()).unwrap()
        };
        let requests: Vec<RunRequest> = (1..=count).map(&mut request).collect();
        let batch = Self { folder: tempfile::tempdir().unwrap() };
        std::fs::write(batch.list(), split(&requests).lines.join("\n")).unwrap();
        batch
    }

    fn list(&self) -> PathBuf {
        self.folder.path().join("batch")
    }

    /// Returns the variables of the run beside those of the test, with the directory as HOME.
    pub fn environment(&self) -> [(&'static str, String); 7] {
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        let none = String::new;
        [
            ("OPERATION", "batch".to_owned()),
            ("BATCH", text(&self.list())),
            ("HOME", text(self.folder.path())),
            ("FLEX_PV", env!("CARGO_BIN_EXE_flex-pv").to_owned()),
            ("CLAIM_UUID", none()),
            ("PV_NAME", none()),
            ("PVC_NAME", none()),
        ]
    }

    /// Runs a shell script for each member.
    pub fn run(&self, options: &[&str], script: &str) -> Ended {
        let arguments = [&["each"], options, &["--", "/bin/sh", "-c", script]].concat();
        let environment = self.environment();
        let environment: Vec<_> = environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
        flex_pv(&arguments, &environment, "")
    }

    /// Counts the files that scripts have left.
    pub fn files(&self, prefix: &str) -> usize {
        let names = std::fs::read_dir(self.folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_str().unwrap().starts_with(prefix)).count()
    }
}

/// Sorts the outcomes by the list: members may end in any order.
pub fn outcomes(message: &str) -> Vec<(usize, i32, String)> {
    let failed = read_outcomes(message).unwrap_or_else(|| panic!("no outcomes: {message:?}"));
    let mut failed: Vec<_> =
        failed.into_iter().map(|MemberFailure { member, code, message: texts }| (member, code, texts)).collect();
    failed.sort();
    failed
}

/// Makes the outcome of a failed member.
pub fn failed(member: usize, code: i32, texts: &str) -> (usize, i32, String) {
    (member, code, texts.to_owned())
}
