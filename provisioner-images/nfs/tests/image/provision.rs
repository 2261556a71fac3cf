//! Tests of provision runs that succeed.

use std::fs;
use std::os::unix::fs::MetadataExt;

use ganesha::{Ganesha, Options};

use crate::run::{ONE, Run, TWO};

#[test]
fn a_directory_is_made_once() {
    let server = Ganesha::start(Options::default());
    let run = Run::new(&server, ONE);
    let first = run.provision();
    assert_eq!(first.code, 0, "{first:?}");
    assert_eq!(server.list(""), [run.directory()]);
    assert!(first.out.contains(&format!("path: {}/{}\n", Ganesha::EXPORT, run.directory())), "{}", first.out);
    assert!(first.out.contains("server: \"127.0.0.1\"\n"), "{}", first.out);

    fs::write(server.directory().join(run.directory()).join("kept"), "x").unwrap();
    let second = run.provision();
    assert_eq!((second.code, &second.out), (0, &first.out), "{second:?}");
    assert_eq!(server.list(""), [run.directory()]);
    assert_eq!(server.list(&run.directory()), ["kept"]);
}

#[test]
fn mode_and_owner_are_the_config_s() {
    let server = Ganesha::start(Options::default());
    let run = Run::new(&server, ONE).with("MODE", "2750").with("OWNER", "1234").with("GROUP", "5678");
    assert_eq!(run.provision().code, 0);
    let made = fs::metadata(server.directory().join(run.directory())).unwrap();
    assert_eq!((made.mode() & 0o7777, made.uid(), made.gid()), (0o2750, 1234, 5678));

    let run = Run::new(&server, TWO);
    assert_eq!(run.provision().code, 0);
    assert_eq!(fs::metadata(server.directory().join(run.directory())).unwrap().mode() & 0o7777, 0o777);
}

#[test]
fn a_pattern_may_have_folders_and_be_edited_between_attempts() {
    let server = Ganesha::start(Options::default());
    let run = Run::new(&server, ONE).with("SUBDIRECTORY", "${pvc.namespace}/${pvc.name} (${storage-class})");
    assert_eq!(run.provision().code, 0);
    assert!(server.directory().join("team/data (nfs)").is_dir());
    let edited = run.clone().with("SUBDIRECTORY", "elsewhere");
    let ended = edited.provision();
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(ended.out.contains("/team/data (nfs)\n"), "{}", ended.out);
    assert!(!server.directory().join("elsewhere").exists());
    assert_eq!(edited.delete().code, 0);
    assert!(!server.directory().join("team/data (nfs)").exists());
}

#[test]
fn both_minor_versions_of_nfs_4_work() {
    let server = Ganesha::start(Options::default());
    for version in ["4", "4.0", "4.1"] {
        let run = Run::new(&server, ONE).with("VERSION", version);
        let ended = run.provision();
        assert_eq!(ended.code, 0, "version {version}: {ended:?}");
        assert_eq!(server.list(""), [run.directory()], "version {version}");
        let ended = run.delete();
        assert_eq!(ended.code, 0, "version {version}: {ended:?}");
        assert!(server.list("").is_empty(), "version {version}");
    }
}

#[test]
fn many_runs_at_once_do_not_disturb_each_other() {
    let server = Ganesha::start(Options::default());
    let runs: Vec<Run> =
        (0..8).map(|n| Run::new(&server, &format!("c0ffee00-0000-4000-8000-00000000000{n}"))).collect();
    let all = |work: fn(&Run) -> i32| -> Vec<i32> {
        std::thread::scope(|scope| {
            let threads: Vec<_> = runs.iter().map(|run| scope.spawn(move || work(run))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    };
    assert_eq!(all(|run| run.provision().code), [0; 8]);
    assert_eq!(server.list("").len(), 8);
    assert_eq!(all(|run| run.delete_bound().code), [0; 8]);
    assert!(server.list("").is_empty());
}
