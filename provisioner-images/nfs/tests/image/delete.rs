//! Tests of delete runs, first and repeated, of volumes in each state.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};

use ganesha::{Ganesha, Options};

use crate::run::{ONE, PATIENCE, Run, TWO};

/// Counts the files in the directory of the records.
fn records(server: &Ganesha) -> usize {
    fs::read_dir(server.directory().join(".flex-provisioner")).map_or(0, Iterator::count)
}

#[test]
fn a_volume_is_deleted_with_all_data_of_its_users() {
    let server = Ganesha::start(Options::default());
    let run = Run::new(&server, ONE);
    assert_eq!(run.provision().code, 0);
    let volume = server.directory().join(run.directory());
    let outside = server.directory().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("precious"), "x").unwrap();
    // Deep, wide, foreign and locked directories, odd names, and links that lead out.
    let mut deep = volume.join("deep");
    for _ in 0..50 {
        fs::create_dir(&deep).unwrap();
        deep = deep.join("er");
    }
    fs::create_dir(volume.join("locked")).unwrap();
    fs::write(volume.join("locked/file"), "x").unwrap();
    std::os::unix::fs::chown(volume.join("locked"), Some(1000), Some(1000)).unwrap();
    fs::set_permissions(volume.join("locked"), fs::Permissions::from_mode(0o000)).unwrap();
    fs::create_dir(volume.join("wide")).unwrap();
    for n in 0..300 {
        fs::write(volume.join(format!("wide/{n}")), "x").unwrap();
    }
    fs::write(volume.join("a b\n\"c\" ${pvc.name} ä"), "x").unwrap();
    symlink(&outside, volume.join("absolute")).unwrap();
    symlink("../outside", volume.join("relative")).unwrap();

    let ended = run.delete_bound();
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(server.list(""), ["outside"]);
    assert!(outside.join("precious").exists(), "a link was followed");
    assert_eq!(records(&server), 0);
    let again = run.delete_bound();
    assert_eq!(again.code, 0, "{again:?}");
    assert!(outside.join("precious").exists());
}

#[test]
fn a_volume_that_never_existed_is_deleted_already() {
    let server = Ganesha::start(Options::default());
    let ended = Run::new(&server, ONE).delete();
    assert_eq!(ended.code, 0, "{ended:?}");
}

#[test]
fn a_delete_run_that_died_half_way_is_finished() {
    let server = Ganesha::start(Options::default());
    let run = Run::new(&server, ONE);
    assert_eq!(run.provision().code, 0);
    let volume = server.directory().join(run.directory());
    fs::write(volume.join("file"), "x").unwrap();
    let rubbish = server.directory().join(format!(".deleting-{ONE}"));
    fs::rename(&volume, &rubbish).unwrap();
    assert_eq!(run.delete_bound().code, 0);
    assert!(!rubbish.exists());
    assert_eq!(records(&server), 0);
}

#[test]
fn a_volume_made_again_after_half_a_delete_is_deleted_too() {
    let server = Ganesha::start(Options::default());
    let run = Run::new(&server, ONE);
    assert_eq!(run.provision().code, 0);
    let volume = server.directory().join(run.directory());
    fs::write(volume.join("file"), "x").unwrap();
    let rubbish = server.directory().join(format!(".deleting-{ONE}"));
    fs::rename(&volume, &rubbish).unwrap();
    assert_eq!(run.provision().code, 0);
    fs::write(volume.join("new"), "x").unwrap();
    let ended = run.delete();
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(!volume.exists() && !rubbish.exists());
    assert_eq!(records(&server), 0);
}

#[test]
fn a_provision_run_that_died_early_leaves_nothing() {
    let server = Ganesha::start(Options::default());
    let run = Run::new(&server, ONE);
    assert_eq!(run.provision().code, 0);
    // As if the run had died after its first record.
    fs::remove_dir(server.directory().join(run.directory())).unwrap();
    fs::remove_file(server.directory().join(format!(".flex-provisioner/volume-{ONE}"))).unwrap();
    assert_eq!(records(&server), 1);
    let ended = run.delete_patiently();
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(records(&server), 0);
}

#[test]
fn an_archive_keeps_the_data_and_frees_the_name() {
    let server = Ganesha::start(Options::default());
    let one = Run::new(&server, ONE).with("ON_DELETE", "archive").with("SUBDIRECTORY", "${pvc.name}");
    let two = Run::new(&server, TWO).with("ON_DELETE", "archive").with("SUBDIRECTORY", "${pvc.name}");
    for run in [&one, &two] {
        assert_eq!(run.provision().code, 0);
        fs::write(server.directory().join("data/file"), "x").unwrap();
        assert_eq!(run.delete().code, 0);
        assert_eq!(run.delete().code, 0);
    }
    let archived = [format!("archived-data-{ONE}"), format!("archived-data-{TWO}")];
    assert_eq!(server.list(""), archived);
    assert_eq!(server.list(&archived[0]), ["file"]);
    assert_eq!(records(&server), 0);
}

/// A tenant knows the id of another tenant's volume, and which name its archive will get.
#[test]
fn no_claim_gets_the_name_of_an_archive() {
    let server = Ganesha::start(Options::default());
    let value = |run: &Run, value: &str| {
        let metadata = format!(r#"{{"dir":"{value}"}}"#);
        run.clone().with("CLAIM_METADATA", &metadata)
    };
    for pattern in ["${metadata.dir}", "${metadata.dir}/${pvc.name}"] {
        let victim = Run::new(&server, ONE).with("ON_DELETE", "archive").with("SUBDIRECTORY", "${pvc.name}");
        assert_eq!(victim.provision().code, 0);
        let attacker = Run::new(&server, TWO).with("ON_DELETE", "archive").with("SUBDIRECTORY", pattern);
        for name in [format!("archived-data-{ONE}"), format!(".deleting-{ONE}"), format!("ARCHIVED-data-{ONE}")] {
            value(&attacker, &name).provision().failed(65, "a part");
        }
        assert_eq!(server.list(""), ["data"]);
        victim.delete().well();
        assert_eq!(server.list(""), [format!("archived-data-{ONE}")]);
        fs::remove_dir(server.directory().join(format!("archived-data-{ONE}"))).unwrap();
    }
}

#[test]
fn an_archive_replaces_nothing() {
    let server = Ganesha::start(Options::default());
    let run = Run::new(&server, ONE).with("ON_DELETE", "archive").with("SUBDIRECTORY", "${pvc.name}");
    assert_eq!(run.provision().code, 0);
    fs::write(server.directory().join("data/file"), "x").unwrap();
    // Somebody's empty directory has the name, or an archive of an earlier run of this volume.
    let present = server.directory().join(format!("archived-data-{ONE}"));
    fs::create_dir(&present).unwrap();
    fs::set_permissions(&present, fs::Permissions::from_mode(0o751)).unwrap();
    for _ in 0..2 {
        run.delete().well();
        assert_eq!(server.list(""), [format!("archived-data-{ONE}"), format!("archived-data-{ONE}.2")]);
    }
    assert_eq!(fs::metadata(present).unwrap().permissions().mode() & 0o777, 0o751);
    assert_eq!(server.list(&format!("archived-data-{ONE}.2")), ["file"]);
    assert_eq!(records(&server), 0);
}

#[test]
fn a_retained_directory_keeps_its_name() {
    let server = Ganesha::start(Options::default());
    for word in ["keep", "retain"] {
        let run = Run::new(&server, ONE).with("ON_DELETE", word).with("SUBDIRECTORY", "${pvc.name}");
        assert_eq!(run.provision().code, 0);
        assert_eq!(run.delete().code, 0);
        assert_eq!(run.delete().code, 0);
        assert_eq!(server.list(""), ["data"]);
    }
    let other = Run::new(&server, TWO).with("SUBDIRECTORY", "${pvc.name}").provision();
    assert_eq!(other.code, 65, "{other:?}");
}

/// A client that still has the volume puts links and files in place of its directories, all the time.
#[test]
fn no_exchange_during_the_deletion_leads_elsewhere() {
    let server = Ganesha::start(Options::default());
    let run = Run::new(&server, ONE);
    assert_eq!(run.provision().code, 0);
    let volume = server.directory().join(run.directory());
    let outside = server.directory().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("precious"), "x").unwrap();
    for n in 0..60 {
        fs::create_dir_all(volume.join(format!("{n}/real/deep"))).unwrap();
        symlink(&outside, volume.join(format!("{n}/way"))).unwrap();
        fs::write(volume.join(format!("{n}/file")), "x").unwrap();
    }
    let open_files = fs::canonicalize("/proc/self/fd").unwrap();
    let open = fs::File::open(&volume).unwrap();
    // The directory is open, whatever its name is by now.
    let volume = open_files.join(std::os::fd::AsRawFd::as_raw_fd(&open).to_string());
    let over = std::sync::atomic::AtomicBool::new(false);
    let exchanges = std::sync::atomic::AtomicUsize::new(0);
    let codes = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                for n in 0..60 {
                    let at = |name: &str| volume.join(format!("{n}/{name}"));
                    for other in ["way", "file"] {
                        // Each may fail, because the image deletes the same files.
                        let aside = fs::rename(at("real"), at("aside")).is_ok();
                        let in_place = fs::rename(at(other), at("real")).is_ok();
                        exchanges.fetch_add(usize::from(aside && in_place), std::sync::atomic::Ordering::Relaxed);
                        let _ = fs::rename(at("real"), at(other));
                        let _ = fs::rename(at("aside"), at("real"));
                    }
                }
            }
        });
        let began = std::time::Instant::now();
        while exchanges.load(std::sync::atomic::Ordering::Relaxed) == 0 && began.elapsed() < PATIENCE {
            std::thread::yield_now();
        }
        let codes: Vec<i32> = (0..3).map(|_| run.delete_bound().code).collect();
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        codes
    });
    assert!(exchanges.into_inner() > 0, "no file was exchanged");
    assert!(codes.iter().all(|code| [0, 75].contains(code)), "{codes:?}");
    assert!(outside.join("precious").exists(), "a link was followed");
    let ended = run.delete_bound();
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(server.list(""), ["outside"]);
}

/// Its name reaches the image as another one, which does not exist. The run must not repeat forever.
#[test]
fn a_name_that_cannot_be_removed_is_reported() {
    let server = Ganesha::start(Options::default());
    let run = Run::new(&server, ONE);
    assert_eq!(run.provision().code, 0);
    let volume = server.directory().join(run.directory());
    fs::write(volume.join(OsStr::from_bytes(b"odd-\xff")), "x").unwrap();
    fs::write(volume.join("plain"), "x").unwrap();
    let ended = run.delete_bound();
    assert!(ended.code == 75 && ended.termination_message.contains("UTF-8"), "{ended:?}");
    // As the message says.
    let rubbish = volume.parent().unwrap().join(format!(".deleting-{ONE}"));
    assert!(!rubbish.join("plain").exists());
    fs::remove_file(rubbish.join(OsStr::from_bytes(b"odd-\xff"))).unwrap();
    assert_eq!(run.delete_bound().code, 0);
}

/// The server exports the directory where its disk should be mounted.
#[test]
fn an_export_whose_disk_is_not_mounted_loses_nothing() {
    let mut server = Ganesha::start(Options { numeric_owners: true, ..Options::default() });
    let run = Run::new(&server, ONE);
    run.provision().well();
    let bound = run.clone().with("VOLUME_SOURCE", &run.source());
    let snapshot = |id: &str| bound.clone().with("SNAPSHOT_ID", id);
    snapshot(ONE).of("snapshot").well();
    let disk = server.directory().with_file_name("disk");
    server.stop();
    fs::rename(server.directory(), &disk).unwrap();
    fs::create_dir(server.directory()).unwrap();
    server.start_again();
    let restored = Run::new(&server, TWO).with("SNAPSHOT_ID", ONE);
    for (what, ended) in [
        ("delete", bound.delete()),
        ("expand", bound.expand()),
        ("snapshot", snapshot(TWO).of("snapshot")),
        ("delete-snapshot", snapshot(ONE).of("delete-snapshot")),
        ("clone", Run::new(&server, TWO).clone_of(&run).provision()),
        ("restore", restored.provision()),
    ] {
        assert!(ended.code == 75 && ended.termination_message.contains("is not mounted"), "{what}: {ended:?}");
    }
    assert_eq!(fs::read_dir(server.directory()).unwrap().count(), 0, "something was made below the mount point");
    server.stop();
    fs::remove_dir(server.directory()).unwrap();
    fs::rename(&disk, server.directory()).unwrap();
    server.start_again();
    while snapshot(ONE).of("delete-snapshot").code == 75 {
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    bound.delete_patiently().well();
    assert_eq!(server.list(""), [""; 0]);
}
