//! The recipe `nfs-kernel` with the real `exportfs`, which has directories of the test in place of those of the machine.
//! Nothing is served: the kernel of the machine may have no NFS server.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use super::api::path_text;
use super::cases::{self, Backend, id};
use super::conformance;
use super::desk::{Desk, SIZE, system, unmount};
use super::host::Host;

/// Runs `exportfs` where the machine's own lists are hidden. As on a new server, `/etc` has no directory `exports.d`.
const EXPORTFS: &str = r#"#!/bin/sh
exec unshare --mount sh -c '
mount --bind FOLDER/etc /etc && mount --bind FOLDER/state /var/lib/nfs && exec /usr/sbin/exportfs "$@"' sh "$@"
"#;

struct Server {
    desk: Desk,
    folder: tempfile::TempDir,
    _host: Host,
}

impl Server {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let of = |name: &str| path_text(folder.path().join(name));
        system(&format!(
            "cd {}; mkdir data etc state tools; touch etc/exports state/etab; truncate -s 1G image; mkfs.ext4 -q image
            mount -o loop image data; touch data/.flex",
            path_text(folder.path().into())
        ));
        fs::write(of("tools/exportfs"), EXPORTFS.replace("FOLDER", &path_text(folder.path().into()))).unwrap();
        fs::set_permissions(of("tools/exportfs"), fs::Permissions::from_mode(0o755)).unwrap();
        let (data, exports) = (of("data"), of("etc/exports.d"));
        let replace = [("/srv/nfs", data.as_str()), ("/etc/exports.d", &exports)];
        let mut desk = Desk::new("nfs-kernel", &replace, &[Path::new("/usr/bin/ssh")]);
        let counted = ["mkdir", "chmod", "mv", "exportfs", "sync", "rm"];
        let host = Host::start(&mut desk, &counted, Path::new(&of("tools")), &[]);
        Server { desk, folder, _host: host }
    }

    fn volume(&self, id: &str) -> std::path::PathBuf {
        self.folder.path().join("data").join(id)
    }

    /// Returns the directories that are exported, with the clients of each.
    fn exported(&self) -> Vec<String> {
        let text = fs::read_to_string(self.folder.path().join("state/etab")).unwrap();
        let mut exports: Vec<_> = text.lines().map(|line| line.split(',').next().unwrap().to_owned()).collect();
        exports.sort();
        exports
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        unmount(&self.folder.path().join("data"));
    }
}

impl Backend for Server {
    fn desk(&self) -> &Desk {
        &self.desk
    }

    fn objects(&self) -> Vec<String> {
        let folder = path_text(self.folder.path().into());
        let files = system(&format!("cd {folder}; ls -A data; [ ! -e etc/exports.d ] || ls -A etc/exports.d"));
        files.lines().map(str::to_owned).chain(self.exported()).collect()
    }

    /// A directory has no size of its own.
    fn size(&self, id: &str) -> u64 {
        assert!(self.volume(id).is_dir());
        0
    }

    fn write(&self, id: &str, text: &str) {
        fs::write(self.volume(id).join("file"), text).unwrap();
    }

    fn read(&self, id: &str) -> String {
        fs::read_to_string(self.volume(id).join("file")).unwrap()
    }

    fn has_sizes(&self) -> bool {
        false
    }
}

#[test]
fn nfs_kernel_passes_the_cases_of_all_recipes() {
    let server = Server::new();
    cases::all(&server);
}

#[test]
fn nfs_kernel_passes_conformance() {
    let server = Server::new();
    conformance::passes(&server, &[], &[&format!("--external-storage={}", server.desk.replacement("/srv/nfs"))]);
}

#[test]
fn a_directory_is_exported_to_the_clients_of_the_config_alone() {
    let server = Server::new();
    assert_eq!(server.desk.run("provision", &id(1), &[]).code, Some(0));
    let path = path_text(server.volume(&id(1)));
    assert_eq!(server.exported(), [format!("{path}\t192.0.2.0/24(rw")]);
    let spec = &server.desk.volume(&id(1))["spec"];
    assert_eq!(spec["nfs"], serde_json::json!({ "server": "192.0.2.10", "path": path }));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&server.volume(&id(1))), mode(&server.folder.path().join("data"))), (0o777, 0o711));
    let conf = server.folder.path().join(format!("etc/exports.d/flex-{}.exports", id(1)));
    assert_eq!(mode(&conf), 0o600);
    let ended = server.desk.run("provision", &id(2), &[("EXPORT_OPTIONS", "rw,nonsense")]);
    assert!(ended.code == Some(75) && ended.last_words.contains("unknown keyword"), "{ended:?}");
    assert_eq!(server.desk.run("delete", &id(2), &[]).code, Some(0));
    let huge = (SIZE * 1000).to_string();
    let ended = server.desk.run("provision", &id(2), &[("SIZE_BYTES", &huge)]);
    assert!(ended.code == Some(69) && ended.last_words.contains("free bytes"), "{ended:?}");
    let ended = server.desk.run("expand", &id(1), &[("SIZE_BYTES", &huge), ("OLD_SIZE_BYTES", "0")]);
    assert_eq!(ended.code, Some(69), "{ended:?}");
    // A link in a volume leads nowhere when it is deleted.
    let outside = server.folder.path().join("data/outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("kept"), "x").unwrap();
    symlink(&outside, server.volume(&id(1)).join("link")).unwrap();
    assert_eq!(server.desk.run("delete", &id(1), &[]).code, Some(0));
    assert!(outside.join("kept").exists() && server.exported().is_empty());
}

#[test]
fn an_unmounted_directory_of_nfs_kernel_is_no_storage() {
    let server = Server::new();
    assert_eq!(server.desk.run("provision", &id(1), &[]).code, Some(0));
    let root = path_text(server.folder.path().into());
    system(&format!("umount {root}/data"));
    cases::without_its_storage_nothing_succeeds(&server, "touch");
    assert_eq!(system(&format!("ls -A {root}/data")), "");
    system(&format!("cd {root}; mount -o loop image data"));
    assert!(server.volume(&id(1)).is_dir());
}

#[test]
fn what_a_deletion_has_left_does_not_stop_the_next() {
    let server = Server::new();
    let before = server.objects();
    assert_eq!(server.desk.run("provision", &id(1), &[]).code, Some(0));
    fs::create_dir_all(server.volume(&format!(".deleting-{}", id(1))).join("half")).unwrap();
    let ended = server.desk.run("delete", &id(1), &[]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(server.objects(), before);
}
