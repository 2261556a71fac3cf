//! The examples in `docs/contract.md`, run as scripts on a directory of the test.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use super::api::path_text;

const ID: &str = "c0ffee00-0000-4000-8000-000000000001";
const OTHER: &str = "c0ffee00-0000-4000-8000-000000000002";
const SNAPSHOT: &str = "c0ffee00-0000-4000-8000-00000000000e";

/// A directory with volumes, and the first script of a section of the page.
struct Example {
    folder: tempfile::TempDir,
    script: String,
}

impl Example {
    /// Reads the script below a title. Its volumes are in a directory of the test in place of `base`.
    fn new(title: &str, base: &str) -> Self {
        let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/contract.md")).unwrap();
        let (_, section) = page.split_once(&format!("\n## {title}\n")).expect("the page has the title");
        let (_, code) = section.split_once("```sh\n").expect("the section has a script");
        let (code, _) = code.split_once("\n```").unwrap();
        let whole = match code.contains("case $OPERATION in") {
            true => code.to_owned(),
            false => format!("case $OPERATION in\n{code}\nesac"),
        };
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("base").join(ID)).unwrap();
        fs::write(folder.path().join("base").join(ID).join("file"), "content").unwrap();
        assert!(whole.contains(base), "{whole}");
        let script = whole.replace(base, &path_text(folder.path().join("base")));
        Example { folder, script }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("base").join(name)
    }

    fn run(&self, operation: &str, id: &str, snapshot: &str) -> Output {
        let tools = Path::new(env!("CARGO_BIN_EXE_flex-pv")).parent().unwrap();
        let mut shell = Command::new("sh");
        shell.args(["-euc", &self.script]).env("PATH", format!("{}:/usr/bin:/bin", tools.display()));
        shell.env("FLEX_TERMINATION_LOG", self.folder.path().join("log")).stdin(Stdio::null());
        shell.envs([("OPERATION", operation), ("CLAIM_UUID", id), ("CLONE_OF", ""), ("SNAPSHOT_ID", snapshot)]);
        shell.output().unwrap()
    }
}

/// A directory of volumes has other names, too.
#[test]
fn the_list_of_the_page_has_the_volumes_and_no_other_names() {
    let example = Example::new("List", "/export");
    for other in [OTHER, "lost+found", &format!(".half-{ID}"), &format!(".snapshot-{SNAPSHOT}")] {
        fs::create_dir(example.path(other)).unwrap();
    }
    let output = example.run("list", "", "");
    assert!(output.status.success(), "{output:?}");
    let list = String::from_utf8(output.stdout).unwrap();
    let entries = flex_contract::listing::read(&list).unwrap();
    let places: Vec<_> = entries.iter().map(|entry| (entry.id.as_str(), entry.place.clone())).collect();
    assert_eq!(places, [ID, OTHER].map(|id| (id, path_text(example.path(id)))));
    fs::remove_dir_all(example.path("")).unwrap();
    let output = example.run("list", "", "");
    assert_eq!(output.status.code(), Some(75), "{output:?}");
}

/// A person may have written the handle of a snapshot.
#[test]
fn the_snapshots_of_the_page_are_named_by_uuids_alone() {
    let example = Example::new("Snapshot", "/data");
    let stored = example.path(&format!(".snapshot-{SNAPSHOT}"));
    for _ in 0..2 {
        let output = example.run("snapshot", ID, SNAPSHOT);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(fs::read_to_string(stored.join("file")).unwrap(), "content");
    }
    for hostile in [format!("{SNAPSHOT}/../{ID}"), format!("{SNAPSHOT}/file"), "..".into(), String::new()] {
        let output = example.run("delete-snapshot", ID, &hostile);
        assert!(!output.status.success(), "{hostile}: {output:?}");
        assert!(example.path(ID).join("file").exists() && stored.join("file").exists(), "{hostile}");
    }
    for _ in 0..2 {
        let output = example.run("delete-snapshot", ID, SNAPSHOT);
        assert!(output.status.success() && !stored.exists(), "{output:?}");
    }
    assert!(example.path(ID).join("file").exists());
}
