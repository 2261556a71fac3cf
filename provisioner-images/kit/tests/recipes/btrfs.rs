//! The recipe `btrfs` on a real Btrfs, in a file of this machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::api::path_text;
use super::cases::{self, Backend, id};
use super::conformance;
use super::desk::{Desk, SIZE, fill, system, unmount};

/// A file system of its own, which the test unmounts at its end.
struct Btrfs {
    desk: Desk,
    folder: tempfile::TempDir,
}

impl Btrfs {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = path_text(folder.path().to_owned());
        system(&format!(
            "cd {path}; truncate -s 1200M image; mkfs.btrfs -q image; mkdir base; mount -o loop image base
            btrfs quota enable base"
        ));
        let base = path_text(folder.path().join("base"));
        let programs = ["/usr/bin/btrfs", "/usr/bin/flock"].map(Path::new);
        Btrfs { desk: Desk::new("btrfs", &[("/var/lib/flex-btrfs", &base)], &programs), folder }
    }

    fn base(&self) -> PathBuf {
        self.folder.path().join("base")
    }

    fn volume(&self, id: &str) -> PathBuf {
        self.base().join(id)
    }
}

impl Drop for Btrfs {
    fn drop(&mut self) {
        unmount(&self.base());
    }
}

impl Backend for Btrfs {
    fn desk(&self) -> &Desk {
        &self.desk
    }

    /// Returns the ids of all subvolumes and quotas, and all names in the directory of the volumes.
    fn objects(&self) -> Vec<String> {
        let base = path_text(self.base());
        let quotas = system(&format!("btrfs qgroup show --sync {base} | grep -o '^0/[0-9]*'"));
        let subvolumes =
            system(&format!("btrfs subvolume list -d {base}; btrfs subvolume list {base} | cut -d' ' -f1-2"));
        let names = system(&format!("ls -A {base}"));
        [quotas, subvolumes, names].iter().flat_map(|text| text.lines()).map(str::to_owned).collect()
    }

    fn size(&self, id: &str) -> u64 {
        let shown = system(&format!("btrfs qgroup show -rf --raw {}", path_text(self.volume(id))));
        shown.lines().last().unwrap().split_whitespace().nth(3).unwrap().parse().unwrap()
    }

    fn write(&self, id: &str, text: &str) {
        fs::write(self.volume(id).join("file"), text).unwrap();
    }

    fn read(&self, id: &str) -> String {
        fs::read_to_string(self.volume(id).join("file")).unwrap()
    }
}

#[test]
fn btrfs_passes_the_cases_of_all_recipes() {
    let btrfs = Btrfs::new();
    cases::all(&btrfs);
}

#[test]
fn btrfs_passes_conformance() {
    let btrfs = Btrfs::new();
    conformance::passes(&btrfs, &["/var/lib/flex-btrfs"], &[]);
}

#[test]
fn a_btrfs_volume_takes_its_size_and_no_more() {
    let btrfs = Btrfs::new();
    assert_eq!(btrfs.desk.run("provision", &id(1), &[]).code, Some(0));
    let is_full = |file: &Path| {
        let error = fill(file, 200).expect_err("the volume takes 200 MiB");
        assert!(matches!(error.raw_os_error(), Some(28 | 122)), "{error}: ENOSPC and EDQUOT say that it is full");
        fs::metadata(file).unwrap().len()
    };
    let taken = is_full(&btrfs.volume(&id(1)).join("big"));
    assert!((SIZE * 3 / 4..=SIZE).contains(&taken), "{taken} of {SIZE} bytes were taken");
    // The same for a copy, which shares these bytes.
    let source = btrfs.desk.source(&id(1));
    let clone = [("CLONE_OF", id(1)), ("CLONE_OF_SOURCE", source), ("SIZE_BYTES", (2 * SIZE).to_string())];
    let clone: Vec<_> = clone.iter().map(|(name, value)| (*name, value.as_str())).collect();
    assert_eq!(btrfs.desk.run("provision", &id(2), &clone).code, Some(0));
    let added = is_full(&btrfs.volume(&id(2)).join("more"));
    assert!((SIZE * 3 / 4..=SIZE).contains(&added), "{added} bytes were added to {taken}, of {}", 2 * SIZE);
    // The first is larger, and takes more.
    let larger = [("SIZE_BYTES", (2 * SIZE).to_string()), ("OLD_SIZE_BYTES", SIZE.to_string())];
    let larger: Vec<_> = larger.iter().map(|(name, value)| (*name, value.as_str())).collect();
    assert_eq!(btrfs.desk.run("expand", &id(1), &larger).code, Some(0));
    assert!(is_full(&btrfs.volume(&id(1)).join("more")) >= SIZE * 3 / 4);
    assert_eq!(btrfs.desk.run("delete", &id(1), &[]).code, Some(0));
    assert_eq!(fs::metadata(btrfs.volume(&id(2)).join("big")).unwrap().len(), taken);
}

#[test]
fn a_btrfs_snapshot_takes_less_than_a_second_and_no_bytes_are_promised_twice() {
    let btrfs = Btrfs::new();
    let large = (600_u64 << 20).to_string();
    assert_eq!(btrfs.desk.run("provision", &id(1), &[("SIZE_BYTES", &large)]).code, Some(0));
    // A second one does not fit, though nothing is written yet.
    let ended = btrfs.desk.run("provision", &id(2), &[("SIZE_BYTES", &large)]);
    assert!(ended.code == Some(69) && ended.last_words.contains("node-1 has"), "{ended:?}");
    assert!(!btrfs.volume(&id(2)).exists());
    fill(&btrfs.volume(&id(1)).join("file"), 300).unwrap();
    let source = btrfs.desk.source(&id(1));
    let of = [("SNAPSHOT_ID", id(90)), ("VOLUME_SOURCE", source)];
    let of: Vec<_> = of.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let used = || {
        let base = path_text(btrfs.base());
        let used = system(&format!("btrfs filesystem sync {base} >&2; df -B1 --output=used {base} | tail -n 1"));
        used.trim().parse::<u64>().unwrap()
    };
    let before = used();
    // On a busy machine one of several runs is quick.
    let mut times = Vec::new();
    while times.last().is_none_or(|took| *took >= Duration::from_secs(1)) {
        assert!(times.len() < 200, "at least {:?} for a snapshot", times.iter().min());
        if !times.is_empty() {
            assert_eq!(btrfs.desk.run("delete-snapshot", &id(1), &of).code, Some(0));
        }
        let begun = Instant::now();
        assert_eq!(btrfs.desk.run("snapshot", &id(1), &of).code, Some(0));
        times.push(begun.elapsed());
    }
    assert!(used() - before < 30 << 20, "the snapshot has blocks of its own: {before} and {} bytes", used());
    let stored = btrfs.base().join(format!(".snapshot-{}", id(90)));
    assert!(fs::File::create(stored.join("x")).is_err(), "a snapshot cannot be written");
    assert!(fs::read(stored.join("file")).unwrap() == fs::read(btrfs.volume(&id(1)).join("file")).unwrap());
}

/// A volume needs the blocks that it shares with a snapshot once more, as soon as it writes others.
#[test]
fn a_btrfs_snapshot_takes_no_bytes_that_volumes_were_promised() {
    let btrfs = Btrfs::new();
    let size = (400_u64 << 20).to_string();
    for n in [1, 2] {
        assert_eq!(btrfs.desk.run("provision", &id(n), &[("SIZE_BYTES", &size)]).code, Some(0));
    }
    let file = btrfs.volume(&id(1)).join("file");
    fill(&file, 380).unwrap();
    let snapshot = || btrfs.desk.run("snapshot", &id(1), &[("SNAPSHOT_ID", &id(90)), ("SIZE_BYTES", &size)]);
    let ended = snapshot();
    assert!(ended.code == Some(69) && ended.last_words.contains("no volume was promised"), "{ended:?}");
    assert!(!btrfs.base().join(format!(".snapshot-{}", id(90))).exists());
    // A smaller one fits. After it each volume can still take all that it was promised.
    fill(&file, 100).unwrap();
    for _ in 0..2 {
        let ended = snapshot();
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }
    fill(&file, 390).expect("the volume with the snapshot was promised these bytes");
    fill(&btrfs.volume(&id(2)).join("file"), 390).expect("the other volume was promised these bytes");
}

/// A copy shares its blocks with its source, and both may write others. So the copy leaves few bytes to promise.
#[test]
fn a_repeated_run_finds_room_for_the_copy_that_it_has_made() {
    let btrfs = Btrfs::new();
    let size = (500_u64 << 20).to_string();
    assert_eq!(btrfs.desk.run("provision", &id(1), &[("SIZE_BYTES", &size)]).code, Some(0));
    fill(&btrfs.volume(&id(1)).join("file"), 480).unwrap();
    let source = btrfs.desk.source(&id(1));
    let of = [("CLONE_OF", id(1)), ("CLONE_OF_SOURCE", source), ("SIZE_BYTES", size.clone())];
    let of: Vec<_> = of.iter().map(|(name, value)| (*name, value.as_str())).collect();
    for _ in 0..2 {
        let ended = btrfs.desk.run("provision", &id(2), &of);
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }
    let ended = btrfs.desk.run("expand", &id(2), &[("SIZE_BYTES", &size), ("OLD_SIZE_BYTES", &size)]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let ended = btrfs.desk.run("snapshot", &id(1), &[("SNAPSHOT_ID", &id(90))]);
    assert_eq!(ended.code, Some(69), "all bytes are promised: {ended:?}");
}

#[test]
fn runs_at_one_time_do_not_promise_the_same_bytes() {
    let btrfs = Btrfs::new();
    let quarter = (280_u64 << 20).to_string();
    let run = |n| btrfs.desk.run("provision", &id(n), &[("SIZE_BYTES", &quarter)]).code.unwrap();
    let codes: Vec<_> = std::thread::scope(|scope| {
        let runs: Vec<_> = (0..8).map(|n| scope.spawn(move || run(n))).collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    });
    assert_eq!(codes.iter().filter(|code| **code == 0).count(), 3, "three of them fit: {codes:?}");
    assert!(codes.iter().all(|code| [0, 69].contains(code)), "{codes:?}");
}

/// Btrfs lets each user make subvolumes, with any name, and make them read-only.
#[test]
fn subvolumes_of_a_pod_do_not_hinder_its_deletion_and_name_no_others() {
    let btrfs = Btrfs::new();
    let before = btrfs.objects();
    for n in [1, 2] {
        assert_eq!(btrfs.desk.run("provision", &id(n), &[]).code, Some(0));
        btrfs.write(&id(n), "content");
    }
    let as_pod = |command: &str| {
        let mut shell = Command::new("bash");
        // The kubelet mounts the volume: its pod needs no right in the directory above.
        let (volume, inner) = (path_text(btrfs.volume(&id(1))), format!("set -e; {command}"));
        let user = "cd \"$1\"; exec setpriv --reuid 4711 --regid 4711 --clear-groups bash -c \"$2\"";
        shell.args(["-c", user, "bash", &volume, &inner]);
        assert!(shell.status().unwrap().success(), "{command}");
    };
    std::os::unix::fs::chown(btrfs.volume(&id(1)), Some(4711), Some(4711)).unwrap();
    let other = system(&format!("btrfs inspect-internal rootid {}", path_text(btrfs.volume(&id(2)))));
    let name = format!("a\n0/{} 0 0 999999999999 x\nID {} gen 9 top level 5 path x", other.trim(), other.trim());
    as_pod(&format!(
        "mkdir 'a\n0'; btrfs subvolume create '{name}'; mkdir '{name}/b'; btrfs subvolume create '{name}/b/c'"
    ));
    as_pod(&format!("ln -s {} '{name}/b/c/link'", path_text(btrfs.volume(&id(2)))));
    as_pod(&format!("for s in '{name}/b/c' '{name}'; do btrfs property set -ts \"$s\" ro true; done"));
    let free = btrfs.desk.run("capacity", "", &[]);
    let free = flex_contract::capacity::Answer::read(&free.last_words).unwrap().bytes;
    assert!(free > 10 * SIZE, "the name promises nothing: {free}");
    for _ in 0..2 {
        let ended = btrfs.desk.run("delete", &id(1), &[]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }
    assert_eq!(btrfs.read(&id(2)), "content");
    assert_eq!(btrfs.desk.run("delete", &id(2), &[]).code, Some(0));
    super::host::until("all is as before", || match btrfs.objects() {
        left if left == before => Ok(()),
        left => Err(format!("{left:?}")),
    });
}

/// Checks that no run succeeds on a node without its storage.
#[track_caller]
fn no_run_succeeds(btrfs: &Btrfs) {
    for operation in ["provision", "delete", "expand", "snapshot", "delete-snapshot", "list", "capacity"] {
        let ended = btrfs.desk.run(operation, &id(1), &[("SNAPSHOT_ID", &id(90))]);
        assert!(ended.code == Some(75) && ended.output.contains("mount its disk"), "{operation}: {ended:?}");
    }
}

#[test]
fn without_its_file_system_no_run_of_btrfs_succeeds() {
    let btrfs = Btrfs::new();
    assert_eq!(btrfs.desk.run("provision", &id(1), &[]).code, Some(0));
    let folder = path_text(btrfs.folder.path().into());
    system(&format!("cd {folder}; umount base"));
    no_run_succeeds(&btrfs);
    // The directory below the mount is on the machine's own Btrfs, which has quotas, too.
    system(&format!(
        "cd {folder}; truncate -s 300M other; mkfs.btrfs -q other; mkdir machine; mount -o loop other machine
        btrfs quota enable machine; mkdir machine/base; mount --bind machine/base base"
    ));
    no_run_succeeds(&btrfs);
    assert_eq!(system(&format!("ls -A {folder}/base")), "");
    system(&format!("cd {folder}; umount base machine; mount -o loop image base"));
    assert_eq!(btrfs.desk.run("delete", &id(1), &[]).code, Some(0));
    system(&format!("btrfs quota disable {folder}/base"));
    let ended = btrfs.desk.run("provision", &id(2), &[]);
    assert!(ended.code == Some(78) && ended.last_words.contains("needs Btrfs"), "sizes would not hold: {ended:?}");
}
