//! The recipe `iscsi` with a real target in user space. The tests read and write by a client in user space, too.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::api::path_text;
use super::cases::{self, Backend, id};
use super::conformance;
use super::desk::{Desk, system, unmount};
use super::host::{self, Host};

const PASSWORD: &str = "secret-of-16.chars";
const IQN: &str = "iqn.2026-01.example.storage";

/// A client, which ends with the value.
struct Client(Child);

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Target {
    desk: Desk,
    tgtd: Child,
    portal: String,
    socket: String,
    _host: Host,
}

impl Target {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap().keep();
        let of = |name: &str| path_text(folder.join(name));
        let (disks, tgt, socket) = (of("disks"), of("tgt"), of("socket"));
        fs::create_dir_all(format!("{tgt}/conf.d")).unwrap();
        // The disks have a file system of their own, because other tests change the free bytes of the machine's.
        system(&format!(
            "cd {}; truncate -s 1G image; mkfs.ext4 -q image; mkdir disks; mount -o loop image disks; touch disks/.flex",
            path_text(folder.clone())
        ));
        fs::write(format!("{tgt}/targets.conf"), format!("include {tgt}/conf.d/*.conf\n")).unwrap();
        let portal = format!("127.0.0.1:{}", host::free_port());
        let replace = [("/srv/iscsi", disks.as_str()), ("/etc/tgt", &tgt), ("192.0.2.10:3260", &portal)];
        let mut desk = Desk::new("iscsi", &replace, &[Path::new("/usr/bin/ssh")]);
        fs::create_dir_all(desk.path("secrets/iscsi-chap")).unwrap();
        let counted = ["tgt-admin", "fallocate", "mv", "rm", "sync"];
        let host = Host::start(&mut desk, &counted, Path::new("/nonexistent"), &[("TGT_IPC_SOCKET", &socket)]);
        let log = fs::File::create(of("log")).unwrap();
        let mut tgtd = Command::new("/usr/sbin/tgtd");
        tgtd.args(["-f", "--iscsi", &format!("portal={portal}")]).env("TGT_IPC_SOCKET", &socket);
        let tgtd = tgtd.stdin(Stdio::null()).stderr(log.try_clone().unwrap()).stdout(log).spawn();
        let mut tgtd = tgtd.expect("tgtd is missing: see scripts/setup.sh");
        host::answers(portal.rsplit_once(':').unwrap().1.parse().unwrap(), &mut tgtd);
        let target = Target { desk, tgtd, portal, socket, _host: host };
        target.secret("user", PASSWORD);
        target
    }

    fn folder(&self) -> &Path {
        Path::new(&self.socket).parent().unwrap()
    }

    /// Returns the address of a disk for a client that knows the password, from the PersistentVolume of the claim.
    fn url(&self, id: &str) -> String {
        self.url_for(id, "user", PASSWORD)
    }

    /// Returns the address of a disk for a client with another user name or password.
    fn url_for(&self, id: &str, user: &str, password: &str) -> String {
        let source = &self.desk.volume(id)["spec"]["iscsi"];
        let text = |name: &str| source[name].as_str().unwrap().to_owned();
        format!("iscsi://{user}%{password}@{}/{}/{}", text("targetPortal"), text("iqn"), source["lun"])
    }

    /// Returns what `tgtd` says about its targets.
    fn shown(&self) -> String {
        system(&format!("TGT_IPC_SOCKET={} tgtadm --op show --mode target", self.socket))
    }

    /// Returns a client that is connected to a disk, as a node is.
    fn client(&self, id: &str) -> Client {
        let mut client = Command::new("qemu-io");
        client.args(["-r", "-f", "raw", "-c", "sleep 600000", &self.url(id)]);
        let client = Client(client.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("qemu-io is missing"));
        host::until("the client is connected", || {
            let shown = self.shown();
            if shown.contains("Connection:") { Ok(()) } else { Err(shown) }
        });
        client
    }

    /// Writes the Secret of the class.
    fn secret(&self, user: &str, password: &str) {
        for (name, text) in [("username", user), ("password", password)] {
            fs::write(self.desk.path(&format!("secrets/iscsi-chap/node.session.auth.{name}")), text).unwrap();
        }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.tgtd.kill();
        let _ = self.tgtd.wait();
        unmount(&self.folder().join("disks"));
        let _ = fs::remove_dir_all(self.folder());
    }
}

impl Backend for Target {
    fn desk(&self) -> &Desk {
        &self.desk
    }

    fn objects(&self) -> Vec<String> {
        let folder = path_text(self.folder().into());
        let files = system(&format!("cd {folder}; ls disks tgt/conf.d"));
        let targets = self.shown();
        let mut targets: Vec<_> = targets.lines().filter(|line| line.starts_with("Target ")).collect();
        // The number of a target is of no interest.
        targets.iter_mut().for_each(|line| *line = line.split_once(": ").unwrap().1);
        targets.sort_unstable();
        files.lines().chain(targets).map(str::to_owned).collect()
    }

    fn size(&self, id: &str) -> u64 {
        let shown = system(&format!("iscsi-readcapacity16 '{}'", self.url(id)));
        shown.lines().find_map(|line| line.strip_prefix("Total size:")).unwrap().trim().parse().unwrap()
    }

    fn write(&self, id: &str, text: &str) {
        let file = self.desk.path(&format!("write-{id}"));
        let mut block = text.as_bytes().to_vec();
        block.resize(512, 0);
        fs::write(&file, block).unwrap();
        system(&format!("qemu-io -f raw -c 'write -s {} 4096 512' '{}'", path_text(file), self.url(id)));
    }

    fn read(&self, id: &str) -> String {
        let file = path_text(self.desk.path(&format!("read-{id}")));
        system(&format!("qemu-img dd -f raw -O raw bs=512 skip=8 count=9 'if={}' of={file}", self.url(id)));
        let block = fs::read(file).unwrap();
        String::from_utf8(block[..512].to_vec()).unwrap().trim_end_matches('\0').to_owned()
    }

    fn granularity(&self) -> u64 {
        4096
    }
}

#[test]
fn iscsi_passes_the_cases_of_all_recipes() {
    let target = Target::new();
    cases::all(&target);
}

#[test]
fn iscsi_passes_conformance() {
    let target = Target::new();
    conformance::passes(&target, &[], &["--external-storage"]);
}

#[test]
fn a_disk_has_a_target_of_its_own_and_opens_to_its_password_alone() {
    let target = Target::new();
    let id = id(1);
    assert_eq!(target.desk.run("provision", &id, &[]).code, Some(0));
    let spec = &target.desk.volume(&id)["spec"];
    let expected = serde_json::json!({
        "targetPortal": target.portal,
        "iqn": format!("{IQN}:{id}"),
        "lun": 1,
        "fsType": "ext4",
        "chapAuthSession": true,
        "secretRef": { "name": "iscsi-chap", "namespace": "flex-provisioner" },
    });
    assert_eq!(spec["iscsi"], expected);
    assert!(spec["nodeAffinity"].is_null(), "each node reaches the disk: {spec}");
    system(&format!("iscsi-inq '{}'", target.url(&id)));
    let closed = |url: String| !Command::new("iscsi-inq").arg(url).output().unwrap().status.success();
    assert!(closed(target.url(&id).replace(PASSWORD, "another")));
    assert!(closed(target.url(&id).replace(&format!("user%{PASSWORD}@"), "")));
    // The target is there again after a restart of the host.
    let config = fs::read_to_string(target.folder().join(format!("tgt/conf.d/flex-{id}.conf"))).unwrap();
    assert!(config.contains(PASSWORD) && config.contains(&format!("<target {IQN}:{id}>")), "{config}");
    let mode = fs::metadata(target.folder().join(format!("tgt/conf.d/flex-{id}.conf"))).unwrap();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode.permissions()) & 0o777, 0o600);
}

#[test]
fn a_password_that_the_target_would_misread_is_refused_and_stays_secret() {
    let target = Target::new();
    let before = target.objects();
    for wrong in ["two words-and-more", "line\nline-and-more", "</target>-and-more"] {
        fs::write(target.desk.path("secrets/iscsi-chap/node.session.auth.password"), wrong).unwrap();
        let ended = target.desk.run("provision", &id(1), &[]);
        assert!(ended.code == Some(78) && ended.last_words.contains("iscsi-chap may have"), "{ended:?}");
        assert!(!ended.output.contains(wrong) && !ended.last_words.contains(wrong), "{ended:?}");
    }
    fs::remove_file(target.desk.path("secrets/iscsi-chap/node.session.auth.password")).unwrap();
    assert_eq!(target.desk.run("provision", &id(1), &[]).code, Some(75));
    let ended = target.desk.run("provision", &id(1), &[("SIZE_BYTES", &(u64::MAX / 4).to_string())]);
    assert_ne!(ended.code, Some(0));
    assert_eq!(target.objects(), before);
}

/// `tgtd` has one password for each user name, and keeps the first.
#[test]
fn a_target_opens_to_the_password_of_its_own_secret_or_is_not_made() {
    const OTHER: &str = "other-of-16.chars";
    let target = Target::new();
    let opens = |n, user, password| {
        let url = target.url_for(&id(n), user, password);
        Command::new("iscsi-inq").arg(url).output().unwrap().status.success()
    };
    assert_eq!(target.desk.run("provision", &id(1), &[]).code, Some(0));
    // The Secret of another tenant, or a new password: it is that of a target that a node uses, or of a new one.
    target.secret("user", OTHER);
    let before = target.objects();
    let client = target.client(&id(1));
    for n in [1, 2] {
        let ended = target.desk.run("provision", &id(n), &[]);
        let words = format!("conf.d/flex-{}.conf has another password", id(1));
        assert!(ended.code == Some(78) && ended.last_words.contains(&words), "{ended:?}");
        assert!(!ended.output.contains(OTHER) && !ended.output.contains(PASSWORD), "{ended:?}");
    }
    drop(client);
    assert_eq!(target.objects(), before);
    assert!(opens(1, "user", PASSWORD) && !opens(1, "user", OTHER));
    target.secret("tenant", OTHER);
    assert_eq!(target.desk.run("provision", &id(2), &[]).code, Some(0));
    assert!(opens(2, "tenant", OTHER) && !opens(2, "user", PASSWORD) && !opens(1, "tenant", OTHER));
    // When the last target of a name is gone, the name may get another password.
    assert_eq!(target.desk.run("delete", &id(1), &[]).code, Some(0));
    target.secret("user", OTHER);
    assert_eq!(target.desk.run("provision", &id(3), &[]).code, Some(0));
    assert!(opens(3, "user", OTHER) && !opens(3, "user", PASSWORD));
    // A target that somebody has made by hand keeps its user name.
    system(&format!(
        "export TGT_IPC_SOCKET={}; tgtadm --op new --mode target --tid 99 --targetname {IQN}:by-hand
        tgtadm --op new --mode account --user hand --password by-hand-16.chars
        tgtadm --op bind --mode account --tid 99 --user hand",
        target.socket
    ));
    target.secret("hand", OTHER);
    let ended = target.desk.run("provision", &id(4), &[]);
    assert!(ended.code == Some(78) && ended.last_words.contains("a target without a file in"), "{ended:?}");
    let shown = target.shown();
    assert!(shown.lines().any(|line| line.trim() == "hand"), "{shown}");
    // Other names are not this one, also where they look alike to a pattern or as numbers.
    for (n, user, password) in [(5, "h.nd", OTHER), (6, "1.0", PASSWORD), (7, "1", OTHER)] {
        target.secret(user, password);
        let ended = target.desk.run("provision", &id(n), &[]);
        assert!(ended.code == Some(0) && opens(n, user, password), "{user}: {ended:?}");
    }
}

/// The Secret had a typo when an attempt began, and the attempt was killed at any point.
#[test]
fn a_corrected_password_reaches_the_volume_of_the_failed_attempt_and_all_others() {
    const TYPO: &str = "secret-of-16-chars";
    let target = Target::new();
    let opens = |n, password| {
        let url = target.url_for(&id(n), "user", password);
        Command::new("iscsi-inq").arg(url).output().unwrap().status.success()
    };
    let before = target.objects();
    assert_eq!(target.desk.run_until("provision", &id(1), &[], usize::MAX).code, Some(0));
    let points = target.desk.points();
    assert_eq!(target.desk.run("delete", &id(1), &[]).code, Some(0));
    for at in 1..=points {
        target.secret("user", TYPO);
        target.desk.run_until("provision", &id(1), &[], at);
        target.secret("user", PASSWORD);
        for n in [1, 2] {
            let ended = target.desk.run("provision", &id(n), &[]);
            assert_eq!(ended.code, Some(0), "killed at {at} of {points}, volume {n}: {ended:?}");
            assert!(opens(n, PASSWORD) && !opens(n, TYPO), "killed at {at} of {points}, volume {n}");
        }
        for n in [1, 2] {
            assert_eq!(target.desk.run("delete", &id(n), &[]).code, Some(0));
        }
        assert_eq!(target.objects(), before);
    }
}

#[test]
fn an_empty_user_name_or_password_is_refused() {
    let target = Target::new();
    let before = target.objects();
    let refused = || {
        let ended = target.desk.run("provision", &id(1), &[]);
        let words = "iscsi-chap needs a user name and a password";
        assert!(ended.code == Some(78) && ended.last_words.contains(words), "{ended:?}");
    };
    for (user, password) in [("", PASSWORD), ("user", "")] {
        target.secret(user, password);
        refused();
    }
    target.secret("user", PASSWORD);
    fs::remove_file(target.desk.path("secrets/iscsi-chap/node.session.auth.username")).unwrap();
    refused();
    assert_eq!(target.objects(), before);
}

#[test]
fn without_its_mark_the_directory_of_iscsi_is_no_storage() {
    let target = Target::new();
    assert_eq!(target.desk.run("provision", &id(1), &[]).code, Some(0));
    let before = target.objects();
    fs::remove_file(target.folder().join("disks/.flex")).unwrap();
    cases::without_its_storage_nothing_succeeds(&target, "touch");
    assert_eq!(target.objects(), before);
}
