//! Tests of the records of named directories.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::*;

const PATTERN: &str = "${pvc.namespace}/${pvc.name}";

fn id(n: u32) -> String {
    format!("c0ffee00-0000-4000-8000-{n:012}")
}

/// Returns the run that makes a volume for the claim `team/NAME`.
fn request(n: u32, name: &str) -> RunRequest {
    RunRequest::from_env(|variable| match variable {
        "OPERATION" => Some("provision".into()),
        "CLAIM_UUID" | "PVC_UID" => Some(id(n)),
        "PV_NAME" => Some(format!("pvc-{}", id(n))),
        "PVC_NAMESPACE" | "STORAGE_CLASS" => Some("team".into()),
        "PVC_NAME" => Some(name.into()),
        "SIZE_BYTES" | "ATTEMPT" => Some("1".into()),
        _ => None,
    })
    .unwrap()
}

fn base() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path().join("base");
    fs::create_dir(&base).unwrap();
    (folder, base)
}

fn made(base: &Path, n: u32, name: &str) -> String {
    let path = take(base, PATTERN, &request(n, name)).unwrap();
    fs::create_dir(base.join(&path)).unwrap();
    path
}

fn count(base: &Path) -> usize {
    fs::read_dir(base).unwrap().count()
}

#[test]
fn a_path_stays_that_of_its_volume_until_it_is_free() {
    let (_folder, base) = base();
    assert_eq!(made(&base, 1, "data"), "team/data");
    // The pattern has changed.
    assert_eq!(take(&base, "other/${pv.name}", &request(1, "data")).unwrap(), "team/data");
    let failure = take(&base, PATTERN, &request(2, "data")).unwrap_err();
    assert!(failure.code == 75 && !failure.message.contains(&id(1)), "{failure}");
    let failure = free(&base, &id(1)).unwrap_err();
    assert!(failure.code == 75 && failure.message.contains("exists"), "{failure}");
    // Another volume's record does not go.
    free(&base, &id(2)).unwrap();
    fs::remove_dir(base.join("team/data")).unwrap();
    for _ in 0..2 {
        free(&base, &id(1)).unwrap();
        assert_eq!(count(&base), 0, "nothing is left");
    }
    assert_eq!(take(&base, PATTERN, &request(2, "data")).unwrap(), "team/data");
}

#[test]
fn no_volume_is_in_that_of_another_one() {
    let (_folder, base) = base();
    made(&base, 1, "data");
    for pattern in ["${pvc.namespace}", "team/data/${pv.name}"] {
        let failure = take(&base, pattern, &request(2, "x")).expect_err(pattern);
        assert!(failure.code == 75 && failure.message.contains("overlap"), "{pattern}: {failure}");
    }
    assert_eq!(take(&base, "team/database", &request(2, "x")).unwrap(), "team/database");
}

#[test]
fn what_somebody_else_made_is_not_used() {
    let (folder, base) = base();
    fs::create_dir_all(base.join("theirs/data")).unwrap();
    symlink(folder.path(), base.join("link")).unwrap();
    fs::write(base.join("file"), "x").unwrap();
    for pattern in ["theirs", "theirs/data", "theirs/${pv.name}", "link", "link/x", "link/base/x", "file", "file/x"] {
        let failure = take(&base, pattern, &request(1, "data")).expect_err(pattern);
        assert_eq!(failure.code, 65, "{pattern}: {failure}");
        assert_eq!(count(&base), 3, "{pattern}");
    }
    // A folder of this program stays its own, also while other files in it keep it.
    made(&base, 1, "data");
    fs::write(base.join("team/README"), "x").unwrap();
    fs::remove_dir(base.join("team/data")).unwrap();
    free(&base, &id(1)).unwrap();
    assert_eq!(made(&base, 2, "data"), "team/data");
}

#[test]
fn folders_go_with_their_last_volume() {
    let (_folder, base) = base();
    for (n, path) in [(1, "a/b/c/one"), (2, "a/b/two"), (3, "a/b/c/three")] {
        take(&base, path, &request(n, "x")).unwrap();
        fs::create_dir(base.join(path)).unwrap();
    }
    // The record of a volume whose directory a run has not made yet keeps its folders, too.
    fs::remove_dir(base.join("a/b/c/three")).unwrap();
    fs::remove_dir(base.join("a/b/c/one")).unwrap();
    free(&base, &id(1)).unwrap();
    assert!(base.join("a/b/c").is_dir());
    free(&base, &id(3)).unwrap();
    assert!(!base.join("a/b/c").exists() && base.join("a/b/two").is_dir());
    fs::remove_dir(base.join("a/b/two")).unwrap();
    free(&base, &id(2)).unwrap();
    assert_eq!(count(&base), 0);
}

/// A process may die after each of its steps.
#[test]
fn a_half_taken_path_is_completed_or_freed() {
    let (_folder, base) = base();
    let record = |path: &str| {
        fs::create_dir_all(base.join(RECORDS)).unwrap();
        symlink(path, base.join(RECORDS).join(format!("{VOLUME}{}", id(1)))).unwrap();
    };
    record("team/data");
    assert!(list(&base).unwrap().starts_with("rubbish"));
    assert_eq!(take(&base, PATTERN, &request(1, "other")).unwrap(), "team/data");
    assert!(base.join("team").is_dir());
    free(&base, &id(1)).unwrap();
    assert_eq!(count(&base), 0);
    record("team/data");
    fs::create_dir_all(base.join(mirror("team"))).unwrap();
    free(&base, &id(1)).unwrap();
    assert_eq!(count(&base), 0);
    fs::create_dir_all(base.join(RECORDS)).unwrap();
    assert_eq!(made(&base, 1, "data"), "team/data");
    let listed = list(&base).unwrap();
    assert_eq!(listed, format!("volume {} - {}/team/data\n", id(1), base.display()));
}

#[test]
fn of_many_runs_at_one_time_one_gets_the_path() {
    let (_folder, base) = base();
    let taken: Vec<bool> = std::thread::scope(|scope| {
        let runs: Vec<_> = (0..16)
            .map(|n| {
                scope.spawn({
                    let base = &base;
                    move || take(base, ["team", PATTERN, "team/data/deep"][n as usize % 3], &request(n, "data")).is_ok()
                })
            })
            .collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    });
    assert_eq!(taken.iter().filter(|it| **it).count(), 1, "{taken:?}");
}

#[test]
fn a_record_that_leads_elsewhere_is_refused() {
    for path in ["../x", "/etc", "a/../../x", ".flex-provisioner", "a//b", "a b", "ä", "a\"b", &id(3)] {
        let (_folder, base) = base();
        fs::create_dir(base.join(RECORDS)).unwrap();
        symlink(path, base.join(RECORDS).join(format!("{VOLUME}{}", id(1)))).unwrap();
        assert_eq!(take(&base, PATTERN, &request(1, "data")).expect_err(path).code, 65);
        assert_eq!(free(&base, &id(1)).expect_err(path).code, 65);
        assert_eq!(count(&base), 1);
    }
}

#[test]
fn a_name_of_a_claim_is_plain_text() {
    for (pattern, code) in [
        (".hidden/${pvc.name}", 78),
        ("${pvc.name} x", 78),
        ("ä/${pvc.name}", 78),
        ("${pvc.name}/../x", 78),
        ("${pvc.uid}", 65),
        ("-${pvc.name}", 78),
    ] {
        let (_folder, base) = base();
        assert_eq!(take(&base, pattern, &request(1, "data")).expect_err(pattern).code, code, "{pattern}");
        assert_eq!(count(&base), 0, "{pattern}");
    }
    let (long, longest, deep) = ("x".repeat(256), "x".repeat(255), vec!["x"; 501].join("/"));
    for name in [".x", "-x", "a b", "a:b", "ä", "a\"b", "a\\b", "$(x)", "*", &long] {
        let (_folder, base) = base();
        let failure = take(&base, PATTERN, &request(1, name)).expect_err(name);
        assert_eq!(failure.code, 65, "{name}: {failure}");
        assert_eq!(count(&base), 0, "{name}");
    }
    let (_folder, base) = base();
    assert_eq!(take(&base, PATTERN, &request(1, &longest)).unwrap(), format!("team/{longest}"));
    assert!(take(&base, &deep, &request(2, "data")).is_err());
}

#[test]
fn a_directory_of_a_volume_does_not_move_in() {
    let (_folder, base) = base();
    made(&base, 1, "data");
    for (n, path) in [(2, "team"), (2, "team/data"), (2, "team/data/x"), (1, "team")] {
        assert_eq!(check(&base, &id(n), path).expect_err(path).code, 65);
    }
    check(&base, &id(1), "team/data").unwrap();
    check(&base, &id(2), "elsewhere").unwrap();
}
