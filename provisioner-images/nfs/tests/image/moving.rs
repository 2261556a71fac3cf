//! Tests of directories that another provisioner made on the server.

use std::fs;
use std::os::unix::fs::symlink;

use ganesha::{Ganesha, Options};
use image_run::Ended;

use crate::run::{ONE, Run, TWO};

/// Makes a directory with a file, as the NFS subdir external provisioner left it.
fn left(server: &Ganesha, path: &str) {
    fs::create_dir_all(server.directory().join(path).join("deep")).unwrap();
    fs::write(server.directory().join(path).join("deep/file"), path).unwrap();
}

/// Runs for the volume at a path, whose source and record name that path.
fn at(run: &Run, path: &str, operation: &str) -> Ended {
    let path = format!("{}/{path}", Ganesha::EXPORT);
    let source = format!(r#"{{"nfs":{{"server":"127.0.0.1","path":"{path}"}}}}"#);
    run.clone().with("VOLUME_SOURCE", &source).with("MOVED_IN_PATH", &path).of(operation)
}

#[test]
fn a_directory_that_moved_in_grows_is_listed_and_is_deleted() {
    let server = Ganesha::start(Options::default());
    let run = Run::new(&server, ONE);
    let name = format!("team-old-pvc-{ONE}");
    left(&server, &name);
    left(&server, "team-other");
    // Before it moves in, nothing is deleted.
    at(&run, &name, "delete").failed(65, "nothing is deleted");
    for _ in 0..2 {
        at(&run, &name, "move-in").well();
    }
    assert!(run.list().out.contains(&name));
    at(&run.clone().with("OLD_SIZE_BYTES", "1048576"), &name, "expand").well();
    at(&Run::new(&server, TWO), &name, "move-in").failed(65, "belongs to volume");
    at(&run, "team-other", "move-in").failed(65, "has the directory");
    for _ in 0..2 {
        at(&run, &name, "delete").well();
        assert_eq!(server.list(""), ["team-other"]);
    }
}

#[test]
fn a_directory_that_moved_out_is_nobody_s_again() {
    let server = Ganesha::start(Options::default());
    let run = Run::new(&server, ONE);
    left(&server, "old");
    at(&run, "old", "move-in").well();
    at(&run, "other", "move-out").failed(65, "nothing is done");
    for _ in 0..2 {
        at(&run, "old", "move-out").well();
    }
    at(&run, "old", "delete").failed(65, "nothing is deleted");
    at(&Run::new(&server, TWO), "old", "move-in").well();
    assert!(server.directory().join("old/deep/file").exists());
}

#[test]
fn only_a_directory_that_others_made_moves_in() {
    let server = Ganesha::start(Options::default());
    let run = Run::new(&server, ONE);
    run.provision().well();
    left(&server, &format!("{}/inner", run.directory()));
    left(&server, "real");
    fs::write(server.directory().join("file"), "x").unwrap();
    symlink("real", server.directory().join("link")).unwrap();
    let other = Run::new(&server, TWO);
    at(&other, "missing", "move-in").failed(65, "nothing that could move in");
    at(&other, &run.directory(), "move-in").failed(65, "belongs to volume");
    at(&other, &format!("{}/inner", run.directory()), "move-in").failed(65, "belongs to volume");
    for path in ["file", "link", "link/deep", ".flex-provisioner", ".flex-provisioner/x", "real/..", "a b"] {
        let ended = at(&other, path, "move-in");
        assert!([65, 78].contains(&ended.code), "{path}: {ended:?}");
    }
    // The record and the volume name different directories.
    let source = format!(r#"{{"nfs":{{"server":"127.0.0.1","path":"{}/real"}}}}"#, Ganesha::EXPORT);
    let differs = other.clone().with("VOLUME_SOURCE", &source).with("MOVED_IN_PATH", &format!("{}/x", Ganesha::EXPORT));
    differs.of("move-in").failed(65, "is not the path of the volume");
    other.clone().with("VOLUME_SOURCE", &source).of("move-in").failed(65, "nothing is done");
}

/// The deletion of the outer one would delete the inner one, too.
#[test]
fn no_directory_moves_into_another_volume_or_around_one() {
    let server = Ganesha::start(Options::default());
    left(&server, "team/inner");
    at(&Run::new(&server, ONE), "team/inner", "move-in").well();
    at(&Run::new(&server, TWO), "team", "move-in").failed(65, "has files in common with team/inner");
    at(&Run::new(&server, TWO), "team/inner/deep", "move-in").failed(65, "is in team/inner");
    // Nothing is left of the refused ones.
    at(&Run::new(&server, ONE), "team/inner", "move-out").well();
    at(&Run::new(&server, TWO), "team", "move-in").well();
    let nested = Run::new(&server, ONE).with("SUBDIRECTORY", "team/${pvc.name}");
    let refused = nested.provision().failed(65, "would be in team, which belongs to another volume");
    assert!(!refused.termination_message.contains(TWO) && refused.log.contains(TWO), "{refused:?}");
    at(&Run::new(&server, TWO), "team", "move-out").well();
    nested.provision().well();
}

#[test]
fn a_run_works_only_on_the_directory_that_both_records_name() {
    let server = Ganesha::start(Options::default());
    let run = Run::new(&server, ONE);
    left(&server, "old");
    at(&run, "old", "move-in").well();
    let differs = run.clone().with("MOVED_IN_PATH", &format!("{}/other", Ganesha::EXPORT));
    differs.clone().of("delete").failed(65, "names old: nothing is done");
    differs.with("OLD_SIZE_BYTES", "1").of("expand").failed(65, "names old: nothing is done");
    assert!(server.directory().join("old/deep/file").exists());
}
