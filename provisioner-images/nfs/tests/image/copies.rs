//! Tests of clones, snapshots and restored volumes, with a server that neither clones nor copies.

use std::ffi::OsStr;
use std::fs::{self, FileTimes};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use flex_contract::listing::{State, read};
use ganesha::{Ganesha, Options};

use crate::exports::sha256;
use crate::late::rounds;
use crate::run::{ONE, Run, TWO};

pub const SNAPSHOT: &str = "c0ffee00-0000-4000-8000-00000000000a";

/// Ends another thread when this one ends, however it ends.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A volume with some content, and the run for a copy of it.
pub struct Site {
    pub server: Ganesha,
    pub origin: Run,
    pub copy: Run,
}

impl Site {
    pub fn start() -> Self {
        let server = Ganesha::start(Options { numeric_owners: true, ..Options::default() });
        let origin = Run::new(&server, ONE);
        origin.provision().well();
        let copy = Run::new(&server, TWO).clone_of(&origin);
        Self { server, origin, copy }
    }

    /// Lets the server forget what it knows about files that the test changes on its disk.
    pub fn forget(&mut self) {
        self.server.stop();
        self.server.start_again();
    }

    pub fn origin(&self) -> std::path::PathBuf {
        self.server.directory().join(self.origin.directory())
    }

    pub fn copy(&self) -> std::path::PathBuf {
        self.server.directory().join(self.copy.directory())
    }

    /// Returns all names at the top of the export, with hidden ones.
    pub fn names(&self) -> Vec<String> {
        names(&self.server.directory())
    }

    /// Returns the records of volumes, and what else is in their folder, without the tombstones of deleted snapshots.
    pub fn records(&self) -> Vec<String> {
        let all = names(&self.server.directory().join(".flex-provisioner"));
        all.into_iter().filter(|name| name != "deleted-snapshots").collect()
    }
}

pub fn names(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).unwrap();
    let mut names: Vec<String> = entries.map(|it| it.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Returns what must be equal in a copy: kind, mode, owner, size, modification time, and the content or target.
fn shape(path: &Path) -> (u32, u32, u32, u64, (i64, i64), Vec<u8>) {
    let found = fs::symlink_metadata(path).unwrap();
    let content = match found.file_type() {
        kind if kind.is_symlink() => fs::read_link(path).unwrap().as_os_str().as_bytes().to_vec(),
        kind if kind.is_file() => fs::read(path).unwrap(),
        _ => Vec::new(),
    };
    let size = if found.is_dir() { 0 } else { found.size() };
    // nfs-ganesha sets no times of links.
    let times = if found.is_symlink() { (0, 0) } else { (found.mtime(), found.mtime_nsec()) };
    (found.mode(), found.uid(), found.gid(), size, times, content)
}

/// Makes files of all kinds.
fn populate(volume: &Path) {
    fs::create_dir_all(volume.join("a/b/c")).unwrap();
    fs::write(volume.join("a/b/c/deep"), "deep").unwrap();
    fs::write(volume.join("empty"), "").unwrap();
    // More than one part, and no multiple of it.
    let large: Vec<u8> = (0..3_000_001_u32).map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
    fs::write(volume.join("large"), large).unwrap();
    let sparse = fs::File::create(volume.join("sparse")).unwrap();
    sparse.write_all_at(b"middle", 8 << 20).unwrap();
    sparse.set_len(64 << 20).unwrap();
    fs::write(volume.join("a b\n\"c\" ä"), "odd").unwrap();
    fs::write(volume.join("program"), "#!/bin/sh\n").unwrap();
    chown(volume.join("program"), Some(1234), Some(5678)).unwrap();
    fs::set_permissions(volume.join("program"), fs::Permissions::from_mode(0o6751)).unwrap();
    symlink("/etc/passwd", volume.join("outside")).unwrap();
    symlink("../..", volume.join("a/up")).unwrap();
    fs::hard_link(volume.join("large"), volume.join("a/large too")).unwrap();
    fs::hard_link(volume.join("large"), volume.join("z")).unwrap();
    fs::hard_link(volume.join("outside"), volume.join("a/outside too")).unwrap();
    fs::create_dir(volume.join("locked")).unwrap();
    fs::write(volume.join("locked/file"), "x").unwrap();
    chown(volume.join("locked"), Some(1000), Some(1000)).unwrap();
    fs::set_permissions(volume.join("locked/file"), fs::Permissions::from_mode(0o000)).unwrap();
    fs::set_permissions(volume.join("locked"), fs::Permissions::from_mode(0o000)).unwrap();
    let old = FileTimes::new().set_modified(SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 5));
    fs::File::open(volume.join("a")).unwrap().set_times(old).unwrap();
    fs::File::open(volume.join("program")).unwrap().set_times(old).unwrap();
    fs::set_permissions(volume, fs::Permissions::from_mode(0o2770)).unwrap();
    chown(volume, Some(0), Some(4321)).unwrap();
}

#[track_caller]
fn assert_same(origin: &Path, copy: &Path) {
    for name in [
        "",
        "a",
        "a/b/c/deep",
        "a/up",
        "empty",
        "large",
        "sparse",
        "a b\n\"c\" ä",
        "program",
        "outside",
        "locked",
        "locked/file",
        "a/large too",
        "a/outside too",
    ] {
        assert_eq!(shape(&origin.join(name)), shape(&copy.join(name)), "{name:?}");
    }
    assert_eq!(names(origin), names(copy));
    let inode = |name: &str| fs::metadata(copy.join(name)).unwrap().ino();
    assert_eq!([inode("large"), inode("a/large too")], [inode("z"); 2], "one file has become several");
    assert_ne!(inode("large"), fs::metadata(origin.join("large")).unwrap().ino(), "the copy is the source");
    let inode = |name: &str| fs::symlink_metadata(copy.join(name)).unwrap().ino();
    assert_eq!(inode("outside"), inode("a/outside too"), "one link has become two");
    let blocks = fs::metadata(copy.join("sparse")).unwrap().blocks();
    assert!(blocks * 512 < 16 << 20, "the holes are filled: {blocks}");
}

#[test]
fn a_clone_has_all_files_of_its_source_and_is_a_volume_of_its_own() {
    let site = Site::start();
    populate(&site.origin());
    let ended = site.copy.provision().well();
    assert!(ended.out.contains(&format!("path: {}/{}\n", Ganesha::EXPORT, site.copy.directory())), "{ended:?}");
    assert_same(&site.origin(), &site.copy());
    fs::write(site.copy().join("mine"), "x").unwrap();
    site.copy.provision().well();
    assert!(site.copy().join("mine").exists(), "a complete copy was made again");
    assert!(!site.origin().join("mine").exists());
    site.origin.delete_patiently().well();
    assert!(site.copy().join("a/b/c/deep").exists());
    site.copy.delete_patiently().well();
    assert_eq!(site.names(), [".flex-provisioner"]);
    assert_eq!(site.records(), [""; 0]);
}

#[test]
fn a_snapshot_outlives_its_volume_and_is_restored() {
    let site = Site::start();
    populate(&site.origin());
    let snapshot = site.origin.clone().with("SNAPSHOT_ID", SNAPSHOT);
    let bound = snapshot.clone().with("VOLUME_SOURCE", &site.origin.source());
    bound.of("snapshot").well();
    let kept = site.server.directory().join(".flex-provisioner").join(format!("snapshot-{SNAPSHOT}"));
    assert_same(&site.origin(), &kept);
    fs::write(site.origin().join("later"), "x").unwrap();
    bound.of("snapshot").well();
    assert!(!kept.join("later").exists(), "a complete snapshot was made again");
    assert_eq!(fs::metadata(kept.parent().unwrap()).unwrap().mode() & 0o777, 0o700, "others can read snapshots");
    let listed = read(&site.origin.list().out).unwrap();
    assert_eq!(listed.len(), 1, "{listed:?}");

    site.origin.delete_patiently().well();
    let restored = Run::new(&site.server, TWO).with("SNAPSHOT_ID", SNAPSHOT);
    restored.provision().well();
    assert_same(&kept, &site.copy());
    for _ in 0..2 {
        snapshot.patiently("delete-snapshot").well();
    }
    assert!(!kept.exists());
    restored.delete_patiently().well();
    assert_eq!(site.records(), [""; 0]);
}

#[test]
fn a_deletion_of_a_snapshot_needs_no_volume() {
    let site = Site::start();
    let snapshot = site.origin.clone().with("SNAPSHOT_ID", SNAPSHOT);
    snapshot.of("snapshot").well();
    for name in ["CLAIM_UUID", "VOLUME_SOURCE"] {
        snapshot.clone().with(name, "").of("delete-snapshot").well();
    }
    assert!(!site.records().iter().any(|name| name.contains("snapshot-")), "{:?}", site.records());
}

#[test]
fn half_a_copy_is_no_volume_and_the_next_run_begins_again() {
    let mut site = Site::start();
    fs::write(site.origin().join("file"), "x").unwrap();
    site.copy.provision().well();
    // As if the run had died before the copy got its name.
    let half = site.server.directory().join(format!(".copying-{TWO}"));
    let died = |site: &Site, name: &str| {
        fs::create_dir(&half).unwrap();
        fs::rename(site.copy(), half.join(name)).unwrap();
        fs::write(half.join(name).join("leftover"), "x").unwrap();
    };
    died(&site, "0123456789abcdef");
    site.forget();
    let rubbish: Vec<_> = read(&site.copy.list().out).unwrap();
    let states: Vec<_> = rubbish.iter().map(|entry| (entry.state, entry.id.as_str())).collect();
    assert_eq!(states, [(State::Volume, ONE), (State::Rubbish, TWO)]);
    site.copy.provision().well();
    assert_eq!(names(&site.copy()), ["file"]);
    // As if the run that removes this had died, too.
    died(&site, "removed-0123456789abcdef");
    site.forget();
    site.copy.delete_patiently().well();
    assert_eq!(site.names(), [".flex-provisioner".to_owned(), site.origin.directory()]);
}

#[test]
fn after_any_death_a_copy_can_be_finished_and_deleted() {
    let site = Site::start();
    for n in 0..40 {
        fs::create_dir(site.origin().join(format!("{n}"))).unwrap();
        fs::write(site.origin().join(format!("{n}/file")), [b'x'; 5000]).unwrap();
    }
    let mut died = 0;
    for (step, time) in rounds(24, Duration::from_millis(10)) {
        if step >= 24 && died > 10 {
            break;
        }
        // No snapshot gets the id of a deleted one.
        let snapshot = site.origin.clone().with("SNAPSHOT_ID", &SNAPSHOT.replace("00a", &format!("{step:03}")));
        died += usize::from(site.copy.provision_killed_after(time));
        died += usize::from(snapshot.killed_after("snapshot", time));
        if step % 2 == 0 {
            site.copy.patiently("provision").well();
            assert_eq!(names(&site.copy()).len(), 40, "step {step}");
            snapshot.patiently("snapshot").well();
        }
        site.copy.delete_patiently().well();
        snapshot.patiently("delete-snapshot").well();
        assert_eq!(site.names(), [".flex-provisioner".to_owned(), site.origin.directory()], "step {step}");
        assert_eq!(site.records().len(), 2, "step {step}: {:?}", site.records());
    }
    assert!(died > 10, "only {died} runs were killed before their end: the steps are too long");
}

/// A client that has the volume puts links in place of its directories, all the time.
#[test]
fn no_exchange_during_the_copy_leads_elsewhere() {
    let site = Site::start();
    let outside = site.server.directory().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("secret"), "x").unwrap();
    for n in 0..60 {
        fs::create_dir_all(site.origin().join(format!("{n}/real"))).unwrap();
        fs::write(site.origin().join(format!("{n}/real/mine")), "x").unwrap();
        symlink(&outside, site.origin().join(format!("{n}/way"))).unwrap();
    }
    let over = AtomicBool::new(false);
    let exchanges = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                for n in 0..60 {
                    let at = |name: &str| site.origin().join(format!("{n}/{name}"));
                    fs::rename(at("real"), at("aside")).unwrap();
                    fs::rename(at("way"), at("real")).unwrap();
                    exchanges.fetch_add(1, Ordering::Relaxed);
                    fs::rename(at("real"), at("way")).unwrap();
                    fs::rename(at("aside"), at("real")).unwrap();
                }
            }
        });
        let _over = Over(&over);
        while exchanges.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        for _ in 0..4 {
            let code = site.copy.provision().code;
            assert!([0, 75, 78].contains(&code), "{code}");
            for place in [site.copy(), site.server.directory().join(format!(".copying-{TWO}"))] {
                let found = Command::new("find").arg(place).args(["-name", "secret"]).output().unwrap();
                assert!(found.stdout.is_empty(), "{}", String::from_utf8_lossy(&found.stdout));
            }
            let code = site.copy.delete_patiently().code;
            assert_eq!(code, 0);
        }
    });
    assert!(exchanges.into_inner() > 0, "no directory was exchanged");
}

#[test]
fn files_that_are_removed_meanwhile_cost_no_copy() {
    let site = Site::start();
    for n in 0..200 {
        fs::create_dir(site.origin().join(format!("{n}"))).unwrap();
        fs::write(site.origin().join(format!("{n}/stays")), "x").unwrap();
    }
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                for n in 0..200 {
                    let folder = site.origin().join(format!("{n}/goes"));
                    fs::create_dir(&folder).unwrap();
                    fs::write(folder.join("file"), "x").unwrap();
                    fs::remove_dir_all(&folder).unwrap();
                }
            }
        });
        let _over = Over(&over);
        for _ in 0..3 {
            let ended = site.copy.provision();
            let all_stay = (0..200).all(|n| site.copy().join(format!("{n}/stays")).exists());
            let deleted = site.copy.delete_patiently();
            assert!(ended.code == 0 && all_stay && deleted.code == 0, "{all_stay} {ended:?} {deleted:?}");
        }
    });
}

#[test]
fn pipes_and_sockets_are_left_out_and_counted() {
    let site = Site::start();
    let made = Command::new("mkfifo").arg(site.origin().join("pipe")).status().unwrap();
    assert!(made.success());
    let _socket = std::os::unix::net::UnixListener::bind(site.origin().join("socket")).unwrap();
    fs::write(site.origin().join("file"), "x").unwrap();
    let ended = site.copy.provision().well();
    assert!(ended.log.contains("2 pipes, sockets and devices are left out"), "{ended:?}");
    assert_eq!(names(&site.copy()), ["file"]);
}

#[test]
fn a_name_that_cannot_be_copied_is_reported_and_nothing_incomplete_is_made() {
    let site = Site::start();
    fs::create_dir(site.origin().join("folder")).unwrap();
    let odd = site.origin().join("folder").join(OsStr::from_bytes(b"odd-\xff"));
    fs::write(&odd, "x").unwrap();
    let ended = site.copy.provision().failed(75, "UTF-8");
    assert!(ended.termination_message.contains(&format!("{}/folder/odd-", site.origin.directory())), "{ended:?}");
    assert_eq!(site.names(), [".flex-provisioner".to_owned(), site.origin.directory()], "half a copy takes space");
    fs::remove_file(&odd).unwrap();
    symlink(OsStr::from_bytes(b"to-\xff"), site.origin().join("link")).unwrap();
    site.copy.provision().failed(75, "the target of the link");
    fs::remove_file(site.origin().join("link")).unwrap();
    site.copy.provision().well();
}

/// The server would give a copy another owner.
#[test]
fn an_owner_without_a_number_is_refused() {
    let mut server = Ganesha::start(Options::default());
    let origin = Run::new(&server, ONE);
    origin.provision().well();
    let file = server.directory().join(origin.directory()).join("file");
    fs::write(&file, "x").unwrap();
    // The user `daemon` of each machine.
    chown(&file, Some(1), Some(1)).unwrap();
    let ended = Run::new(&server, TWO).clone_of(&origin).provision().failed(78, "daemon@");
    assert!(ended.termination_message.contains("Only_Numeric_Owners"), "{ended:?}");
    // The volume itself has such an owner.
    fs::remove_file(&file).unwrap();
    server.stop();
    chown(server.directory().join(origin.directory()), Some(1), Some(1)).unwrap();
    server.start_again();
    Run::new(&server, TWO).clone_of(&origin).provision().failed(78, "daemon@");
    assert_eq!(server.names().len(), 1, "{:?}", server.names());
}

/// A run for another volume has claimed the folder after this run claimed its directory there.
#[test]
fn no_file_is_copied_into_the_directory_of_another_volume() {
    let mut site = Site::start();
    fs::write(site.origin().join("secret"), "x").unwrap();
    // The links of the records lead nowhere, and their names have the hash of the path.
    let records = site.server.directory().join(".flex-provisioner");
    let of_path = |path: &str| records.join(format!("path-{}", sha256(path)));
    symlink(TWO, of_path("team/data")).unwrap();
    symlink("team/data", records.join(format!("volume-{TWO}"))).unwrap();
    symlink(SNAPSHOT, of_path("team")).unwrap();
    site.forget();
    let ended = site.copy.provision().failed(65, "would be in team");
    assert!(!ended.log.contains("is copied"), "{ended:?}");
    let team = site.server.directory().join("team");
    assert_eq!(names(&team), [""; 0]);
    site.copy.delete_patiently().well();
    assert!(of_path("team").is_symlink(), "the record of another volume is gone");
}

#[test]
fn a_source_that_is_not_its_own_is_refused() {
    let site = Site::start();
    let refused = |run: Run, says: &str| {
        run.provision().failed(65, says);
        assert_eq!(site.names(), [".flex-provisioner".to_owned(), site.origin.directory()]);
    };
    let elsewhere = r#"{"nfs":{"server":"127.0.0.1","path":"/exports/other/x"}}"#;
    refused(site.copy.clone().with("CLONE_OF_SOURCE", elsewhere), "is not on");
    let another = format!(r#"{{"nfs":{{"server":"127.0.0.1","path":"{}/x"}}}}"#, Ganesha::EXPORT);
    refused(site.copy.clone().with("CLONE_OF_SOURCE", &another), "its record on the server names");
    refused(site.copy.clone().with("CLONE_OF", "../x"), "not the UUID");
    refused(site.copy.clone().with("CLONE_OF", SNAPSHOT), "has no directory");
    refused(Run::new(&site.server, TWO).with("SNAPSHOT_ID", SNAPSHOT), "is not on");
    refused(Run::new(&site.server, TWO).with("SNAPSHOT_ID", &format!("../{}", site.origin.directory())), "SNAPSHOT_ID");
    let other = Run::new(&site.server, TWO).with("SNAPSHOT_ID", SNAPSHOT);
    other.of("snapshot").failed(65, "has no directory");
    other.with("SNAPSHOT_ID", "..").of("delete-snapshot").failed(65, "SNAPSHOT_ID");
}

#[test]
fn a_copy_with_an_older_version_of_the_protocol_is_the_same() {
    let site = Site::start();
    populate(&site.origin());
    for version in ["4.0", "4.1"] {
        let copy = site.copy.clone().with("VERSION", version);
        copy.provision().well();
        assert_same(&site.origin(), &site.copy());
        copy.delete_patiently().well();
    }
}
