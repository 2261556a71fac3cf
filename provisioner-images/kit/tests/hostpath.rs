//! Tests of the script of the image `hostpath`, run by busybox as in the image, with the real `flex-pv`.

#[path = "hostpath/alone.rs"]
mod alone;
#[path = "flex_pv/api.rs"]
#[allow(dead_code)]
mod api;
#[path = "hostpath/copies.rs"]
mod copies;
#[path = "hostpath/devices.rs"]
mod devices;
#[path = "hostpath/moved_in.rs"]
mod moved_in;
#[path = "hostpath/paths.rs"]
mod paths;
#[path = "hostpath/space.rs"]
mod space;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use api::{Api, Reply, path_text};
use flex_contract::batch::read_outcomes;

const ID: &str = "c0ffee00-0000-4000-8000-000000000001";
const SNAPSHOT: &str = "c0ffee00-0000-4000-8000-00000000000e";
const SOURCE_ID: &str = "c0ffee00-0000-4000-8000-00000000000f";

/// A node's directory, and a PATH with nothing but busybox and flex-pv.
struct Node {
    folder: tempfile::TempDir,
}

/// Ends another thread when this one ends, however it ends.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../hostpath/provision.sh")
}

#[derive(Debug)]
struct Ended {
    code: i32,
    termination_message: String,
}

impl Node {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let bin = folder.path().join("bin");
        fs::create_dir(&bin).unwrap();
        fs::create_dir(folder.path().join("base")).unwrap();
        let busybox = ["/bin/busybox", "/usr/bin/busybox"].into_iter().find(|path| Path::new(path).exists());
        let busybox = busybox.expect("busybox is missing: install busybox-static");
        let block = ["losetup", "blockdev", "fallocate", "truncate", "ln", "readlink", "mknod"];
        for name in ["sh", "stat", "mkdir", "chmod", "chown", "mv", "rm", "id", "ls", "sleep"].into_iter().chain(block)
        {
            symlink(busybox, bin.join(name)).unwrap();
        }
        // A copy, as other users may not reach the folder of the build; made by another process, so that
        // no child that a parallel test forks just now holds it open for writing.
        let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_flex-pv")).arg(bin.join("flex-pv")).status().unwrap();
        assert!(copied.success());
        Self { folder }
    }

    fn base(&self) -> PathBuf {
        self.folder.path().join("base")
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(self.base()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn run(&self, operation: &str, kubeconfig: &str, extra: &[(&str, &str)]) -> Ended {
        self.end(&mut self.command(operation, kubeconfig, extra))
    }

    fn end(&self, command: &mut Command) -> Ended {
        let log = self.folder.path().join("log");
        fs::write(&log, "").unwrap();
        let status = command.status().unwrap();
        Ended { code: status.code().unwrap(), termination_message: fs::read_to_string(&log).unwrap() }
    }

    fn command(&self, operation: &str, kubeconfig: &str, extra: &[(&str, &str)]) -> Command {
        let mut command = Command::new(self.folder.path().join("bin/sh"));
        command
            .arg(script())
            .env_clear()
            .env("PATH", self.folder.path().join("bin"))
            .env("FLEX_TERMINATION_LOG", self.folder.path().join("log"))
            .env("KUBECONFIG", kubeconfig)
            .env("BASE_PATH", self.base())
            .envs([("OPERATION", operation), ("CLAIM_UUID", ID), ("PV_NAME", "pvc-1"), ("POD_NODE", "node-1")])
            .env("PARAMETER_NAMES", "base-path,devices,group,mode,node-paths,owner,path-pattern")
            .envs([("STORAGE_CLASS", "hostpath"), ("SIZE_BYTES", "1048576"), ("PVC_UID", ID)])
            .envs(extra.iter().copied())
            .stdin(Stdio::null())
            .stderr(Stdio::null());
        command
    }
}

#[test]
fn a_directory_is_made_once_and_becomes_a_local_volume() {
    let node = Node::new();
    let api = Api::start(vec![Reply::Echo, Reply::Echo]);
    assert_eq!(node.run("provision", &api.kubeconfig(), &[("MODE", "2770")]).code, 0);
    let volume = node.base().join(ID);
    assert_eq!(fs::metadata(&volume).unwrap().permissions().mode() & 0o7777, 0o2770);
    assert_eq!(api.posted()["spec"]["local"]["path"], path_text(volume.clone()));
    let terms = &api.posted()["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"];
    assert_eq!(terms[0]["matchExpressions"][0]["values"][0], "node-1");

    fs::write(volume.join("kept"), "x").unwrap();
    // A second run needs no space: the volume exists.
    let ended = node.run("provision", &api.kubeconfig(), &[("SIZE_BYTES", "9000000000000000000")]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(volume.join("kept").exists());
    assert_eq!(node.names(), [ID]);
}

#[test]
fn a_misspelt_parameter_is_refused_before_a_volume_begins_and_noted_afterwards() {
    let (node, api) = (Node::new(), Api::start(vec![Reply::Echo]));
    for (name, meant) in [("path-patern", "path-pattern"), ("node-path", "node-paths"), ("owners", "owner")] {
        let names = [("PARAMETER_NAMES", format!("base-path,{name}"))];
        let extra: Vec<(&str, &str)> = names.iter().map(|(key, value)| (*key, value.as_str())).collect();
        let ended = node.run("provision", "", &extra);
        assert_eq!((ended.code, node.names().len()), (78, 0), "{ended:?}");
        let says = format!("the parameter `{name}` (did you mean `{meant}`?)");
        assert!(ended.termination_message.contains(&says), "{ended:?}");
        let ended = node.run("capacity", "", &extra);
        assert_eq!(ended.code, 0, "{ended:?}");
    }
    // Another program reads the parameter.
    let ignored = [("PARAMETER_NAMES", "ignored-parameters,team"), ("IGNORED_PARAMETERS", "team")];
    assert_eq!(node.run("provision", &api.kubeconfig(), &ignored).code, 0);
    assert_eq!(node.names(), [ID]);
    assert_eq!(node.run("delete", "", &[("PARAMETER_NAMES", "path-patern")]).code, 0);
    assert!(node.names().is_empty());
}

#[test]
fn a_delete_removes_the_volume_and_nothing_else() {
    let node = Node::new();
    let (volume, rubbish) = (node.base().join(ID), node.base().join(format!(".deleting-{ID}")));
    let half = node.base().join(format!(".copying-{ID}"));
    let outside = node.base().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("precious"), "x").unwrap();
    // The same for the leftovers of an earlier delete or copy that died.
    for folder in [&volume, &rubbish, &half] {
        fs::create_dir_all(folder.join("deep/er")).unwrap();
        fs::write(folder.join("deep/er/a file"), "x").unwrap();
        symlink(&outside, folder.join("link")).unwrap();
    }
    for _ in 0..2 {
        let ended = node.run("delete", "", &[]);
        assert_eq!(ended.code, 0, "{ended:?}");
        assert_eq!(node.names(), ["outside"]);
        assert!(outside.join("precious").exists());
    }
}

/// A process with the volume open replaces directories in it by links to another tenant's volume.
#[test]
fn a_deleted_volume_cannot_lead_the_run_to_another_one() {
    let node = Node::new();
    let victim = node.base().join(SOURCE_ID);
    fs::create_dir_all(victim.join("kept")).unwrap();
    let volume = node.base().join(ID);
    for _ in 0..25 {
        for n in 0..40 {
            fs::create_dir_all(volume.join(format!("{n}/real"))).unwrap();
            symlink(&victim, volume.join(format!("{n}/way"))).unwrap();
        }
        for n in 0..20 {
            fs::write(victim.join(format!("kept/{n}")), "x").unwrap();
        }
        let held: Vec<_> = (0..40).map(|n| fs::File::open(volume.join(n.to_string())).unwrap()).collect();
        let round = AtomicBool::new(false);
        std::thread::scope(|inner| {
            inner.spawn(|| {
                while !round.load(Ordering::Relaxed) {
                    for folder in &held {
                        let flags = rustix::fs::RenameFlags::EXCHANGE;
                        let _ = rustix::fs::renameat_with(folder, "real", folder, "way", flags);
                    }
                }
            });
            let _round = Over(&round);
            let ended = node.run("delete", "", &[]);
            assert!([0, 75].contains(&ended.code), "{ended:?}");
            assert_eq!(fs::read_dir(victim.join("kept")).unwrap().count(), 20, "the other volume was touched");
        });
        let ended = node.run("delete", "", &[]);
        assert_eq!(ended.code, 0, "{ended:?}");
        assert_eq!(node.names(), [SOURCE_ID]);
    }
}

#[test]
fn only_root_has_access_to_the_directory_of_all_volumes() {
    let (node, api) = (Node::new(), Api::start(vec![Reply::Echo, Reply::Echo]));
    let mode = || fs::metadata(node.base()).unwrap().permissions().mode() & 0o7777;
    fs::set_permissions(node.base(), fs::Permissions::from_mode(0o755)).unwrap();
    for _ in 0..2 {
        assert_eq!(node.run("provision", &api.kubeconfig(), &[]).code, 0);
        assert_eq!(mode(), 0o700);
    }
}

/// The image of the README of all images, and its config, which is made from that of `hostpath`.
#[test]
fn the_readme_s_image_makes_volumes_and_no_empty_copies() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let readme = fs::read_to_string(root.join("provisioner-images/README.md")).unwrap();
    let (node, api) = (Node::new(), Api::start(vec![Reply::Echo]));
    let (_, rest) = readme.split_once("<<'SCRIPT'\n").unwrap();
    let (image, rest) = rest.split_once("\nSCRIPT\n").unwrap();
    let file = node.folder.path().join("provision.sh");
    fs::write(&file, image.replace("/var/lib/flex-mine", node.base().to_str().unwrap())).unwrap();
    let run = |operation: &str, kubeconfig: &str, extra: &[(&str, &str)]| {
        let command = node.command(operation, kubeconfig, extra);
        let mut own = Command::new(command.get_program());
        own.arg(&file).env_clear().stdin(Stdio::null()).stderr(Stdio::null());
        own.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        own.envs([("PVC_NAMESPACE", "default"), ("PVC_NAME", "mine-example"), ("ATTEMPT", "1")]);
        own.env("PARAMETER_NAMES", "");
        node.end(&mut own)
    };
    let ended = run("provision", &api.kubeconfig(), &[]);
    assert_eq!(ended.code, 0, "{ended:?}");
    let written = fs::read_to_string(node.base().join(ID).join("README")).unwrap();
    assert!(readme.contains(&format!("# {}", written.trim())), "the README says what is in it: {written}");
    for of in ["CLONE_OF", "SNAPSHOT_ID"] {
        let ended = run("provision", "", &[(of, SOURCE_ID)]);
        assert!(ended.code == 65 && ended.termination_message.contains("--copied"), "{of}: {ended:?}");
    }
    assert_eq!(run("expand", "", &[]).code, 65);
    assert_eq!(run("delete", "", &[]).code, 0);
    assert_eq!(node.names(), [""; 0]);

    let sed = rest.lines().find_map(|line| line.strip_suffix("configmaps/hostpath.yaml | kubectl apply -f -")).unwrap();
    let sed = Command::new("sh").arg("-c").arg(format!("{sed} configmaps/hostpath.yaml")).current_dir(&root).output();
    let config = String::from_utf8(sed.unwrap().stdout).unwrap();
    assert!(config.contains("storage-class: mine") && config.contains("path: /var/lib/flex-mine"), "{config}");
    for gone in ["\n  capabilities:", "\n  base-path:", "\n  mode:"] {
        assert!(!config.contains(gone), "{config}");
    }
}

#[test]
fn a_batch_makes_and_removes_a_directory_for_each_claim() {
    let node = Node::new();
    let id = |n: usize| format!("c0ffee00-0000-4000-8000-{n:012}");
    let list = node.folder.path().join("batch");
    let each = |operation: &str, members: &[usize], kubeconfig: &str| {
        let line = |n: &usize| {
            let own =
                [("OPERATION", operation.to_owned()), ("CLAIM_UUID", id(*n)), ("PV_NAME", format!("pvc-{}", id(*n)))];
            serde_json::json!(own.into_iter().chain([("PVC_UID", id(*n))]).collect::<BTreeMap<_, _>>()).to_string()
        };
        fs::write(&list, members.iter().map(line).collect::<Vec<_>>().join("\n")).unwrap();
        let script = node.command("batch", kubeconfig, &[("BATCH", list.to_str().unwrap())]);
        let mut command = Command::new(node.folder.path().join("bin/flex-pv"));
        command.args(["each", "--jobs", "2", "--"]).arg(script.get_program()).args(script.get_args()).env_clear();
        let is_common = |name: &std::ffi::OsStr| name != "CLAIM_UUID" && name != "PV_NAME";
        command.envs(
            script.get_envs().filter_map(|(name, value)| Some((name, value?))).filter(|(name, _)| is_common(name)),
        );
        node.end(command.stdin(Stdio::null()).stderr(Stdio::null()))
    };
    // A file in place of the second member's directory.
    fs::write(node.base().join(id(2)), "x").unwrap();
    let api = Api::start(vec![Reply::Echo, Reply::Echo]);
    let ended = each("provision", &[1, 2, 3], &api.kubeconfig());
    assert_eq!(ended.code, 0, "{ended:?}");
    let failed = read_outcomes(&ended.termination_message).unwrap();
    assert_eq!((failed.len(), failed[0].member, failed[0].code), (1, 2, 75), "{ended:?}");
    assert!(failed[0].message.contains("File exists"), "{ended:?}");
    assert_eq!(api.asked().len(), 2, "a volume for each other member");
    fs::remove_file(node.base().join(id(2))).unwrap();
    assert_eq!(node.names(), [id(1), id(3)]);
    for _ in 0..2 {
        let ended = each("delete", &[1, 2, 3], "");
        assert_eq!((ended.code, ended.termination_message.as_str()), (0, ""));
        assert_eq!(node.names(), [""; 0]);
    }
}

#[test]
fn a_list_has_only_entries_with_the_name_of_a_volume() {
    let node = Node::new();
    let list = |extra: &[(&str, &str)]| {
        let output = node.command("list", "", extra).env_remove("CLAIM_UUID").output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let (code, text) = list(&[]);
    assert_eq!((code, flex_contract::listing::read(&text)), (Some(0), Ok(vec![])), "{text}");
    let (other, third) = (ID.replace("0001", "0002"), ID.replace("0001", "0003"));
    for name in [
        ID,
        &format!(".deleting-{other}"),
        &format!(".copying-{third}"),
        "lost+found",
        "backup of\nc0ffee",
        "-",
        ".deleting-x",
    ] {
        fs::create_dir(node.base().join(name)).unwrap();
    }
    fs::write(node.base().join("c0ffee"), "a file").unwrap();
    symlink("/", node.base().join("beef")).unwrap();
    let (code, text) = list(&[]);
    let entries = flex_contract::listing::read(&text).unwrap();
    let found: Vec<_> = entries.iter().map(|entry| (entry.state.as_str(), entry.id.as_str())).collect();
    let expected = [("rubbish", third.as_str()), ("rubbish", other.as_str()), ("volume", ID)];
    assert_eq!((code, found.as_slice()), (Some(0), expected.as_slice()), "{text}");
    assert_eq!(entries[2].place, path_text(node.base().join(ID)));
    // Without the node's directory in the pod there is no list, not even an empty one.
    let (code, text) = list(&[("BASE_PATH", "/nonexistent")]);
    assert_eq!((code, flex_contract::listing::read(&text).is_err()), (Some(78), true));
}

#[test]
fn impossible_requests_are_refused_with_the_reason() {
    let node = Node::new();
    let file = node.folder.path().join("log");
    for (operation, name, value, code, says) in [
        ("provision", "VOLUME_MODE", "Block", 65, "volumeMode Block"),
        ("provision", "SIZE_BYTES", "9000000000000000000", 69, "bytes free on node node-1"),
        ("provision", "DEVICES", "/srv/devices", 78, "below /dev"),
        ("delete", "DEVICES", "/dev/../etc", 78, "below /dev"),
        ("delete", "DEVICES", "/dev/x/../../etc", 78, "without"),
        ("provision", "DEVICES", "/dev/flex-tests", 65, "this class makes block devices"),
        ("attach", "MODE", "0777", 78, "devices is not set"),
        ("provision", "MODE", "rwx", 78, "octal"),
        ("provision", "MODE", "0777 /etc", 78, "octal"),
        ("provision", "BASE_PATH", "/nonexistent", 78, "pod-template"),
        ("delete", "BASE_PATH", "/nonexistent", 78, "pod-template"),
        ("delete", "BASE_PATH", "relative", 78, "absolute"),
        ("delete", "BASE_PATH", "/", 78, "without"),
        ("delete", "BASE_PATH", "/tmp/../etc", 78, "without"),
        ("delete", "BASE_PATH", file.to_str().unwrap(), 78, "pod-template"),
        ("delete", "CLAIM_UUID", "", 65, "not the UUID"),
        ("delete", "CLAIM_UUID", "..", 65, "not the UUID"),
        ("delete", "CLAIM_UUID", "../base", 65, "not the UUID"),
        ("delete", "CLAIM_UUID", "a b", 65, "not the UUID"),
        ("delete", "CLAIM_UUID", "$(id)", 65, "not the UUID"),
        ("expand", "OLD_SIZE_BYTES", "1", 65, "a lost volume cannot grow"),
        ("expand", "BASE_PATH", "/nonexistent", 78, "pod-template"),
        ("batch", "MODE", "0777", 65, "provision, delete, expand, list, tell its capacity and make snapshots"),
    ] {
        let ended = node.run(operation, "", &[(name, value)]);
        assert_eq!(ended.code, code, "{operation} {name}={value}: {ended:?}");
        assert!(ended.termination_message.contains(says), "{operation} {name}={value}: {ended:?}");
        assert!(node.names().is_empty(), "{operation} {name}={value}");
    }
}

#[test]
fn a_link_in_place_of_the_volume_is_left_alone() {
    let node = Node::new();
    let outside = node.folder.path().join("outside");
    fs::create_dir(&outside).unwrap();
    symlink(&outside, node.base().join(ID)).unwrap();
    for operation in ["provision", "delete", "expand"] {
        assert_eq!(node.run(operation, "", &[]).code, 65);
    }
    assert!(outside.is_dir());
    assert_eq!(node.names(), [ID]);
}

#[test]
fn an_error_of_the_node_reaches_the_claim() {
    let node = Node::new();
    // A file in place of the volume: it cannot become a directory.
    fs::write(node.base().join(ID), "x").unwrap();
    let ended = node.run("provision", "", &[]);
    assert_eq!(ended.code, 75, "{ended:?}");
    assert!(
        ended.termination_message.contains("node-1") && ended.termination_message.contains("File exists"),
        "{ended:?}"
    );
}

#[test]
fn a_base_path_without_rights_names_the_key_that_helps() {
    let node = Node::new();
    for path in [node.folder.path(), &node.base()] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let command = node.command("provision", "", &[]);
    // A copy, because the image's own user may not reach the folder of the sources.
    let image = node.folder.path().join("image");
    fs::create_dir(&image).unwrap();
    for file in ["provision.sh", "devices.sh", "paths.sh", "unused.sh"] {
        fs::copy(script().with_file_name(file), image.join(file)).unwrap();
    }
    let mut unprivileged = Command::new(command.get_program());
    unprivileged.arg(image.join("provision.sh")).env_clear();
    unprivileged.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let log = node.folder.path().join("log");
    fs::write(&log, "").unwrap();
    fs::set_permissions(&log, fs::Permissions::from_mode(0o666)).unwrap();
    let ended = node.end(unprivileged.uid(65532).gid(65532).stdin(Stdio::null()));
    assert_eq!(ended.code, 78, "{ended:?}");
    assert!(ended.termination_message.contains("run-as-user: \"0\""), "{ended:?}");
}
