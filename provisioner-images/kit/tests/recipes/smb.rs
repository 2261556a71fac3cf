//! The recipe `smb` with a real Samba, which the tests use by its own client.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::api::path_text;
use super::cases::{self, Backend, id};
use super::conformance;
use super::desk::{Desk, system, write_program};
use super::host::{self, Host};

const PASSWORD: &str = "secret-of-the-test";

/// Notes what is written to the disk.
const SYNC: &str = "#!/bin/sh
echo \"$*\" >>FOLDER/synced
exec /usr/bin/sync \"$@\"
";

struct Samba {
    desk: Desk,
    folder: tempfile::TempDir,
    port: u16,
    smbd: Child,
    _host: Host,
}

impl Samba {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = path_text(folder.path().into());
        for name in ["data", "shares", "private", "state", "log", "tools"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        fs::write(folder.path().join("data/.flex"), "").unwrap();
        let port = host::free_port();
        let config = format!(
            "[global]\nsmb ports = {port}\ninterfaces = lo\nbind interfaces only = yes\ndisable netbios = yes\n\
             server role = standalone server\nload printers = no\nprinting = bsd\n\
             private dir = {root}/private\nstate directory = {root}/state\nlock directory = {root}/state\n\
             cache directory = {root}/state\npid directory = {root}/state\nncalrpc dir = {root}/state/ncalrpc\n\
             passdb backend = tdbsam:{root}/private/passdb.tdb\nlog file = {root}/log/log\n\
             usershare path = {root}/shares\nusershare max shares = 100\nusershare owner only = no\n"
        );
        let file = format!("{root}/smb.conf");
        fs::write(&file, config).unwrap();
        system(&format!(
            "chmod 1770 {root}/shares; chmod 0711 {root}
            printf '{PASSWORD}\\n{PASSWORD}\\n' | smbpasswd -c {file} -L -s -a root"
        ));
        let data = format!("{root}/data");
        let replace = [("/srv/smb", data.as_str()), ("smb-user: flex", "smb-user: root")];
        let mut desk = Desk::new("smb", &replace, &[Path::new("/usr/bin/ssh")]);
        let counted = ["mkdir", "chmod", "chown", "net", "sync", "mv", "rm"];
        let tools = folder.path().join("tools");
        write_program(&tools.join("sync"), &SYNC.replace("FOLDER", &root));
        let host = Host::start(&mut desk, &counted, &tools, &[("SMB_CONF_PATH", &file)]);
        let mut smbd = Command::new("/usr/sbin/smbd")
            .args(["-F", "--no-process-group", "-s", &file])
            // At its end it ends all processes of its group.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("smbd is missing: see scripts/setup.sh");
        host::answers(port, &mut smbd);
        Samba { desk, folder, port, smbd, _host: host }
    }

    fn volume(&self, id: &str) -> PathBuf {
        self.folder.path().join("data").join(id)
    }

    /// Runs a command of the client, with the share that the PersistentVolume names.
    fn client(&self, id: &str, user: &str, command: &str) -> std::process::Output {
        let source = self.desk.volume(id)["spec"]["csi"]["volumeAttributes"]["source"].as_str().unwrap().to_owned();
        let share = source.replace("192.0.2.10", "127.0.0.1");
        let file = self.folder.path().join("smb.conf");
        let port = self.port.to_string();
        let mut client = Command::new("smbclient");
        client.args([&share, "-p", &port, "-U", user, "-c", command]).env("SMB_CONF_PATH", file);
        client.output().expect("smbclient is missing: see scripts/setup.sh")
    }

    #[track_caller]
    fn does(&self, id: &str, command: &str) {
        let output = self.client(id, &format!("root%{PASSWORD}"), command);
        assert!(output.status.success(), "{command}: {output:?}");
    }
}

impl Drop for Samba {
    fn drop(&mut self) {
        // Its children end with it.
        let pid = rustix::process::Pid::from_child(&self.smbd);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.smbd.wait();
    }
}

impl Backend for Samba {
    fn desk(&self) -> &Desk {
        &self.desk
    }

    fn objects(&self) -> Vec<String> {
        let names = system(&format!("cd {}; ls -A data shares", path_text(self.folder.path().into())));
        names.lines().map(str::to_owned).collect()
    }

    /// A directory has no size of its own.
    fn size(&self, id: &str) -> u64 {
        assert!(self.volume(id).is_dir());
        0
    }

    fn write(&self, id: &str, text: &str) {
        let file = self.desk.path(&format!("write-{id}"));
        fs::write(&file, text).unwrap();
        self.does(id, &format!("put {} file", path_text(file)));
    }

    fn read(&self, id: &str) -> String {
        let file = self.desk.path(&format!("read-{id}"));
        self.does(id, &format!("get file {}", path_text(file.clone())));
        fs::read_to_string(file).unwrap()
    }

    fn has_sizes(&self) -> bool {
        false
    }
}

#[test]
fn smb_passes_the_cases_of_all_recipes() {
    let samba = Samba::new();
    cases::all(&samba);
}

#[test]
fn smb_passes_conformance() {
    let samba = Samba::new();
    conformance::passes(&samba, &[], &[&format!("--external-storage={}", samba.desk.replacement("/srv/smb"))]);
}

#[test]
fn a_share_opens_to_its_user_alone_and_the_volume_names_a_secret() {
    let samba = Samba::new();
    let id = id(1);
    assert_eq!(samba.desk.run("provision", &id, &[]).code, Some(0));
    let expected = serde_json::json!({
        "driver": "smb.csi.k8s.io",
        "volumeHandle": format!("flex-{id}"),
        "volumeAttributes": { "source": format!("//192.0.2.10/flex-{id}") },
        "nodeStageSecretRef": { "name": "smb-credentials", "namespace": "flex-provisioner" },
    });
    let mut csi = samba.desk.volume(&id)["spec"]["csi"].clone();
    csi.as_object_mut().unwrap().retain(|key, _| expected.get(key).is_some());
    assert_eq!(csi, expected);
    samba.does(&id, "ls");
    for user in ["root%wrong-password", "nobody%", "%"] {
        assert!(!samba.client(&id, user, "ls").status.success(), "{user}");
    }
    let ended = samba.desk.run("provision", &super::cases::id(2), &[("SMB_USER", "nobody-of-this-host")]);
    assert!(ended.code == Some(75) && ended.last_words.contains("nobody-of-this-host"), "{ended:?}");
}

/// A host that loses its power after the PersistentVolume exists still has the share.
#[test]
fn a_share_is_on_the_disk_before_its_volume_exists() {
    let samba = Samba::new();
    assert_eq!(samba.desk.run("provision", &id(1), &[]).code, Some(0));
    let share = samba.folder.path().join(format!("shares/flex-{}", id(1)));
    assert!(share.is_file());
    let synced = fs::read_to_string(samba.folder.path().join("synced")).unwrap();
    assert_eq!(synced, format!("{} {}\n", path_text(samba.volume(&id(1))), path_text(share)));
}

#[test]
fn smb_needs_its_mark_and_deletes_what_a_deletion_has_left() {
    let samba = Samba::new();
    let before = samba.objects();
    assert_eq!(samba.desk.run("provision", &id(1), &[]).code, Some(0));
    fs::remove_file(samba.volume(".flex")).unwrap();
    cases::without_its_storage_nothing_succeeds(&samba, "touch");
    fs::write(samba.volume(".flex"), "").unwrap();
    assert!(samba.volume(&id(1)).is_dir());
    fs::create_dir_all(samba.volume(&format!(".deleting-{}", id(1))).join("half")).unwrap();
    let ended = samba.desk.run("delete", &id(1), &[]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(samba.objects(), before);
}
