//! Tests of copies by the server: a front before the server does CLONE and COPY on its disk.

use std::fs;
use std::path::Path;

use ganesha::{Answer, Front, Ganesha, Options, Xattrs};
use rustix::fs::{XattrFlags, lgetxattr, llistxattr, lsetxattr};

use crate::run::{ONE, Run, TWO};

/// The status of an operation that a server does not know, and of one between two file systems.
const NOTSUPP: u32 = 10004;
const XDEV: u32 = 18;

/// Copies a volume with three files through the front. Returns the front and the log.
#[track_caller]
fn copied(clone: Answer, copy: Answer) -> (Front, String) {
    let server = Ganesha::start(Options::default());
    let origin = Run::new(&server, ONE);
    origin.provision().well();
    let front = Front::start(&server, clone, copy);
    let run = Run::new(&server, TWO).clone_of(&origin).with("PORT", &front.port().to_string());
    let files: Vec<(String, Vec<u8>)> = (0..3_u8).map(|n| (format!("file-{n}"), vec![n + 1; 2_500_001])).collect();
    for (name, content) in &files {
        fs::write(server.directory().join(origin.directory()).join(name), content).unwrap();
    }
    let ended = run.provision().well();
    for (name, content) in &files {
        let found = fs::read(server.directory().join(run.directory()).join(name)).unwrap();
        assert!(found == *content, "{name}: {} bytes; {}", found.len(), ended.log);
    }
    (front, ended.log)
}

#[test]
fn files_share_their_blocks_where_the_server_can() {
    let (front, log) = copied(Answer::Done, Answer::Done);
    assert_eq!((front.clones(), front.copies()), (3, 0), "{log}");
    assert!(log.contains("3 files share their blocks"), "{log}");
}

#[test]
fn the_server_copies_in_parts_where_it_cannot_clone() {
    let (front, log) = copied(Answer::Refused(XDEV), Answer::Done);
    // The server copies 1 MiB at one time.
    assert_eq!(front.copies(), 9, "{log}");
    assert!(log.contains("the server copied 3"), "{log}");
}

#[test]
fn a_server_that_does_neither_is_not_asked_for_each_file() {
    let (front, log) = copied(Answer::Refused(NOTSUPP), Answer::Refused(NOTSUPP));
    // Files that are copied at the same time ask at the same time.
    assert!((1..=3).contains(&front.clones()) && (1..=3).contains(&front.copies()), "{log}");
    assert!(log.contains("this image read and wrote 3"), "{log}");
}

#[test]
fn a_failure_inside_the_server_costs_no_data() {
    const IO: u32 = 5;
    let (front, log) = copied(Answer::Refused(IO), Answer::Refused(IO));
    assert_eq!((front.clones(), front.copies()), (3, 3), "{log}");
    assert!(log.contains("this image read and wrote 3"), "{log}");
}

/// A server answers a COPY from beyond the end of a file with success and no bytes.
#[test]
fn a_copy_of_a_file_that_is_shortened_meanwhile_ends() {
    const REST: usize = 1_500_000;
    let server = Ganesha::start(Options::default());
    let origin = Run::new(&server, ONE);
    origin.provision().well();
    let front = Front::start(&server, Answer::Refused(XDEV), Answer::Shortened(REST as u64));
    fs::write(server.directory().join(origin.directory()).join("file"), vec![7; 2_500_000]).unwrap();
    let run = Run::new(&server, TWO).clone_of(&origin).with("PORT", &front.port().to_string());
    let ended = run.provision().well();
    let found = fs::read(server.directory().join(run.directory()).join("file")).unwrap();
    assert!(found.len() == 2_500_000 && found[..REST].iter().all(|byte| *byte == 7), "{}", ended.log);
    assert!(found[REST..].iter().all(|byte| *byte == 0));
    assert_eq!(front.copies(), 3, "two parts, and the answer without bytes");
}

/// The front passes SEEK on to nfs-ganesha, which knows it.
#[test]
fn holes_cost_no_time() {
    use std::os::unix::fs::{FileExt, MetadataExt};
    let server = Ganesha::start(Options::default());
    let origin = Run::new(&server, ONE);
    origin.provision().well();
    let front = Front::start(&server, Answer::Refused(NOTSUPP), Answer::Refused(NOTSUPP));
    let file = server.directory().join(origin.directory()).join("file");
    let sparse = fs::File::create(&file).unwrap();
    sparse.write_all_at(b"middle", 1 << 40).unwrap();
    sparse.set_len((1 << 40) + (1 << 30)).unwrap();
    let run = Run::new(&server, TWO).clone_of(&origin).with("PORT", &front.port().to_string());
    let ended = run.provision().well();
    let copy = server.directory().join(run.directory()).join("file");
    let found = fs::metadata(&copy).unwrap();
    assert_eq!(found.len(), (1 << 40) + (1 << 30), "{}", ended.log);
    assert!(found.blocks() * 512 < 1 << 20, "{}", found.blocks());
    let mut middle = [0; 6];
    fs::File::open(&copy).unwrap().read_exact_at(&mut middle, 1 << 40).unwrap();
    assert_eq!(&middle, b"middle");
}

/// The front keeps extended attributes on the disk, as a server with RFC 8276 does.
#[test]
fn a_copy_has_the_extended_attributes_of_its_source() {
    let server = Ganesha::start(Options { numeric_owners: true, ..Options::default() });
    let origin = Run::new(&server, ONE);
    origin.provision().well();
    let from = server.directory().join(origin.directory());
    fs::create_dir(from.join("folder")).unwrap();
    fs::write(from.join("folder/file"), "x").unwrap();
    fs::write(from.join("plain"), "x").unwrap();
    let binary = [0, 255, 10, 0];
    for (name, key, value) in [
        ("", "user.of-the-volume", b"yes".as_slice()),
        ("folder", "user.colour", b"blue"),
        ("folder/file", "user.binary", &binary),
        ("folder/file", "user.empty", b""),
        ("folder/file", "user.large", &[b'x'; 3000]),
    ] {
        lsetxattr(from.join(name), key, value, XattrFlags::empty()).unwrap();
    }
    let front = Front::start_with(&server, Answer::Done, Answer::Done, Xattrs::OnDisk);
    let clone = Run::new(&server, TWO).clone_of(&origin).with("PORT", &front.port().to_string());
    clone.provision().well();
    let snapshot = origin.clone().with("SNAPSHOT_ID", ONE).with("PORT", &front.port().to_string());
    snapshot.of("snapshot").well();
    let kept = server.directory().join(format!(".flex-provisioner/snapshot-{ONE}"));
    for copy in [server.directory().join(clone.directory()), kept] {
        for name in ["", "folder", "folder/file", "plain"] {
            assert_eq!(xattrs(&copy.join(name)), xattrs(&from.join(name)), "{name}");
        }
        assert_eq!(xattrs(&copy.join("folder/file")).len(), 3);
    }
}

/// Returns the names and values of a file's extended attributes, sorted.
fn xattrs(file: &Path) -> Vec<(String, Vec<u8>)> {
    let mut names = vec![0_u8; 4096];
    let length = llistxattr(file, names.as_mut_slice()).unwrap();
    let names = String::from_utf8(names[..length].to_vec()).unwrap();
    let value = |name: &str| {
        let mut value = vec![0; 4096];
        let length = lgetxattr(file, name, value.as_mut_slice()).unwrap();
        value.truncate(length);
        (name.to_owned(), value)
    };
    let mut all: Vec<_> = names.split_terminator('\0').map(value).collect();
    all.sort();
    all
}

/// A copy without them would look complete.
#[test]
fn a_copy_waits_for_a_server_that_cannot_say_whether_it_has_extended_attributes() {
    const SERVER_FAULT: u32 = 10_006;
    let server = Ganesha::start(Options { numeric_owners: true, ..Options::default() });
    let origin = Run::new(&server, ONE);
    origin.provision().well();
    let front = Front::start_with(&server, Answer::Done, Answer::Done, Xattrs::Unknown(SERVER_FAULT));
    let clone = Run::new(&server, TWO).clone_of(&origin).with("PORT", &front.port().to_string());
    clone.provision().failed(75, "cannot copy");
    assert_eq!(server.list(""), [origin.directory()]);
}
