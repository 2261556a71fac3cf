//! Tests of the script in runs that see only their own volume's directory. Each directory is mounted as the kubelet
//! mounts it, in a mount namespace of the run.

use super::space::{DISKS, Disk};
use super::*;

/// A node with the base path `store`, whose directories a run has at `base`.
struct Alone {
    node: Node,
}

impl Alone {
    fn new() -> Self {
        let node = Node::new();
        fs::create_dir(node.folder.path().join("store")).unwrap();
        let alone = Self { node };
        assert_eq!(alone.keep(), "");
        alone
    }

    fn store(&self) -> PathBuf {
        self.node.folder.path().join("store")
    }

    /// Does once what the DaemonSet does each minute, and returns the directories that it removed.
    fn keep(&self) -> String {
        let mut keep = Command::new(env!("CARGO_BIN_EXE_flex-pv"));
        let ended = keep.args(["keep", "--age", "0"]).arg(self.store()).output().unwrap();
        assert!(ended.status.success(), "{ended:?}");
        String::from_utf8(ended.stdout).unwrap()
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.store())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn mode(&self, name: &str) -> u32 {
        fs::metadata(self.store().join(name)).unwrap().permissions().mode() & 0o7777
    }

    /// Runs with these directories, those of the second list read-only.
    fn run(&self, operation: &str, api: &str, extra: &[(&str, &str)], mounts: [&[&str]; 2]) -> Ended {
        self.node.end(&mut self.command(operation, api, extra, mounts))
    }

    fn command(&self, operation: &str, api: &str, extra: &[(&str, &str)], [write, read]: [&[&str]; 2]) -> Command {
        let (store, base) = (path_text(self.store()), path_text(self.node.base()));
        let existing = flex_contract::storage::EXISTING;
        let mut setup = format!("set -e; mount -t tmpfs none {base}; mount -t tmpfs none /run; mkdir -p {existing}\n");
        // Of a directory that a record names, the kubelet checks whether it exists.
        let has_record = |name: &str| extra.iter().any(|(key, value)| key.ends_with("SOURCE") && value.contains(name));
        let exist = |name: &&str| has_record(name) && self.store().join(name).exists();
        let is_checked = ["expand", "snapshot", "provision"].contains(&operation);
        for name in [write, read].concat().into_iter().filter(exist).filter(|_| is_checked) {
            setup += &format!("mkdir {existing}/{name}; mount --bind {store}/{name} {existing}/{name}\n");
        }
        let marks: Vec<String> = match operation {
            "delete" | "delete-snapshot" => write.iter().map(|name| format!(".deleting-{name}")).collect(),
            _ => vec![],
        };
        let write: Vec<&str> = write.iter().copied().chain(marks.iter().map(String::as_str)).collect();
        // A new directory of a provision run is a volume of its own, and has the kubelet's usual mode.
        let new = if operation == "provision" { "755".to_owned() } else { format!("$(stat -c %a {store})") };
        let usual = format!("$(stat -c %a {store})");
        for (names, option, mode) in [(write.as_slice(), "rw", &new), (read, "ro", &usual)] {
            for name in names {
                setup += &format!(
                    "test -e {store}/{name} || mkdir -m {mode} {store}/{name}\n\
                     mkdir -p {base}/{name}\n\
                     mount --bind {store}/{name} {base}/{name}; mount -o remount,bind,{option} {base}/{name}\n",
                );
            }
        }
        let script = self.node.command(operation, api, extra);
        setup += "PATH=$OWN_PATH; export PATH; exec \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", &setup, "sh"]);
        command.arg(script.get_program()).args(script.get_args()).env_clear();
        command.envs(script.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("OWN_PATH", self.node.folder.path().join("bin"));
        command.env("STORAGE_MOUNTS", base).stdin(Stdio::null()).stderr(Stdio::null());
        command
    }

    fn source(&self, name: &str) -> String {
        format!(r#"{{"local":{{"path":"{}"}}}}"#, path_text(self.node.base().join(name)))
    }
}

#[test]
fn a_volume_lives_in_the_only_directory_that_its_runs_see() {
    let (alone, api) = (Alone::new(), Api::start(vec![Reply::Echo, Reply::Echo, Reply::Echo]));
    let grows = [("SIZE_BYTES", "2097152"), ("OLD_SIZE_BYTES", "1048576")];
    for _ in 0..2 {
        let ended = alone.run("provision", &api.kubeconfig(), &[("MODE", "2770")], [&[ID], &[]]);
        assert_eq!((ended.code, alone.mode(ID)), (0, 0o2770), "{ended:?}");
        assert_eq!(api.posted()["spec"]["local"]["path"], path_text(alone.node.base().join(ID)));
        assert_eq!(alone.run("expand", "", &grows, [&[ID], &[]]).code, 0);
        assert_eq!(alone.keep(), "");
    }
    fs::create_dir_all(alone.store().join(ID).join("deep/er")).unwrap();
    for _ in 0..2 {
        let ended = alone.run("delete", "", &[], [&[ID], &[]]);
        assert_eq!((ended.code, alone.mode(ID)), (0, 0o1000), "{ended:?}");
    }
    // The same id again, as after an attempt on another node.
    assert_eq!(alone.run("provision", &api.kubeconfig(), &[], [&[ID], &[]]).code, 0);
    assert_eq!((alone.keep().as_str(), alone.mode(ID)), ("", 0o777));
    assert_eq!(alone.run("delete", "", &[], [&[ID], &[]]).code, 0);
    assert!(alone.keep().contains(ID));
    assert_eq!(alone.names(), [""; 0]);
    // A lost volume: the kubelet makes a directory, which is not taken for the volume.
    let ended = alone.run("expand", "", &grows, [&[ID], &[]]);
    assert!(ended.code == 65 && ended.termination_message.contains("a lost volume cannot grow"), "{ended:?}");
    assert_eq!(alone.run("delete", "", &[], [&[ID], &[]]).code, 0);
}

/// A pod gives its empty volume a mode that directories without a volume have.
#[test]
fn an_empty_volume_stays_a_volume_whatever_its_mode() {
    let (alone, api) = (Alone::new(), Api::start((0..9).map(|_| Reply::Echo).collect()));
    let source = alone.source(ID);
    let stored = format!(".snapshot-{SNAPSHOT}");
    let copy = "c0ffee00-0000-4000-8000-000000000002";
    // A delete run of a failed attempt came first.
    assert_eq!(alone.run("delete", "", &[], [&[ID], &[]]).code, 0);
    assert_eq!(alone.run("provision", &api.kubeconfig(), &[], [&[ID], &[]]).code, 0);
    for mode in [0o1700, 0o1000] {
        fs::set_permissions(alone.store().join(ID), fs::Permissions::from_mode(mode)).unwrap();
        for _ in 0..2 {
            assert_eq!((alone.keep().as_str(), alone.mode(ID)), ("", mode));
        }
        let grows = [("SIZE_BYTES", "2"), ("OLD_SIZE_BYTES", "1"), ("VOLUME_SOURCE", source.as_str())];
        let ended = alone.run("expand", "", &grows, [&[ID], &[]]);
        assert_eq!(ended.code, 0, "{mode:o}: {ended:?}");
        let store = path_text(alone.store());
        let listed = alone.node.command("list", "", &[("BASE_PATH", &store), ("STORAGE_MOUNTS", &store)]).output();
        let listed = String::from_utf8(listed.unwrap().stdout).unwrap();
        assert!(listed.contains(&format!("volume {ID}")), "{mode:o}: {listed}");
        let snapshot = [("SNAPSHOT_ID", SNAPSHOT), ("VOLUME_SOURCE", source.as_str())];
        let ended = alone.run("snapshot", "", &snapshot, [&[&stored], &[ID]]);
        assert_eq!((ended.code, alone.mode(&stored)), (0, mode), "{ended:?}");
        let clone = [("CLAIM_UUID", copy), ("CLONE_OF", ID), ("CLONE_OF_SOURCE", source.as_str())];
        let ended = alone.run("provision", &api.kubeconfig(), &clone, [&[copy], &[ID]]);
        assert_eq!((ended.code, alone.mode(copy)), (0, mode), "{ended:?}");
        assert_eq!(alone.keep(), "");
        for gone in [&stored, copy] {
            fs::remove_dir(alone.store().join(gone)).unwrap();
        }
    }
    assert_eq!(alone.names(), [ID]);
}

/// A hostile image may have named any path as the source of its volume.
#[test]
fn a_run_deletes_its_own_directory_whatever_the_source_names() {
    let (alone, api) = (Alone::new(), Api::start((0..9).map(|_| Reply::Echo).collect()));
    let others = alone.store().join(SOURCE_ID);
    fs::create_dir_all(&others).unwrap();
    fs::write(others.join("file"), "precious").unwrap();
    for path in [SOURCE_ID, &format!("{ID}/way"), "/elsewhere"] {
        assert_eq!(alone.run("provision", &api.kubeconfig(), &[], [&[ID], &[]]).code, 0, "{path}");
        fs::write(alone.store().join(ID).join("file"), "own").unwrap();
        let source = alone.source(path);
        let ended = alone.run("delete", "", &[("VOLUME_SOURCE", &source)], [&[ID], &[]]);
        assert_eq!((ended.code, alone.mode(ID)), (0, 0o1000), "{path}: {ended:?}");
        assert_eq!(fs::read_to_string(others.join("file")).unwrap(), "precious");
    }
}

#[test]
fn leftovers_of_earlier_runs_are_found_and_deleted() {
    let (alone, api) = (Alone::new(), Api::start(vec![Reply::Echo]));
    assert_eq!(alone.node.run("provision", &api.kubeconfig(), &[("BASE_PATH", &path_text(alone.store()))]).code, 0);
    fs::write(alone.store().join(ID).join("kept"), "x").unwrap();
    let grows = [("SIZE_BYTES", "2097152"), ("OLD_SIZE_BYTES", "1048576")];
    assert_eq!(alone.run("expand", "", &grows, [&[ID], &[]]).code, 0);
    assert!(alone.store().join(ID).join("kept").exists());
    assert_eq!(alone.run("delete", "", &[], [&[ID], &[]]).code, 0);
    assert!(alone.keep().contains(ID));
}

#[test]
fn clones_and_snapshots_are_complete_or_made_again() {
    let (alone, api) = (Alone::new(), Api::start((0..9).map(|_| Reply::Echo).collect()));
    let source_dir = alone.store().join(SOURCE_ID);
    fs::create_dir_all(source_dir.join("deep")).unwrap();
    fs::write(source_dir.join("deep/file"), "content").unwrap();
    let source = alone.source(SOURCE_ID);
    let clone = [("CLONE_OF", SOURCE_ID), ("CLONE_OF_SOURCE", source.as_str())];
    let text = |name: &str| fs::read_to_string(alone.store().join(name).join("deep/file")).unwrap();
    let observed: [&[&str]; 2] = [&[ID], &[SOURCE_ID]];
    let ended = alone.run("provision", &api.kubeconfig(), &clone, observed);
    assert_eq!((ended.code, text(ID).as_str()), (0, "content"), "{ended:?}");
    // An incomplete copy of a killed run never becomes a volume, and is made again.
    fs::write(alone.store().join(ID).join(".flex-partial"), "").unwrap();
    fs::write(alone.store().join(ID).join("deep/file"), "half").unwrap();
    assert_eq!(alone.run("provision", &api.kubeconfig(), &clone, observed).code, 0);
    assert_eq!(text(ID), "content");
    // A complete copy stays as it is.
    fs::write(alone.store().join(ID).join("deep/file"), "mine").unwrap();
    assert_eq!(alone.run("provision", &api.kubeconfig(), &clone, observed).code, 0);
    assert_eq!(text(ID), "mine");

    let stored = format!(".snapshot-{SNAPSHOT}");
    let snapshot = [("SNAPSHOT_ID", SNAPSHOT), ("CLAIM_UUID", SOURCE_ID), ("VOLUME_SOURCE", source.as_str())];
    for _ in 0..2 {
        let ended = alone.run("snapshot", "", &snapshot, [&[&stored], &[SOURCE_ID]]);
        assert_eq!((ended.code, text(&stored).as_str()), (0, "content"), "{ended:?}");
        fs::write(source_dir.join("deep/file"), "later").unwrap();
    }
    let restored = "c0ffee00-0000-4000-8000-000000000002";
    let of = [("SNAPSHOT_ID", SNAPSHOT), ("CLAIM_UUID", restored)];
    let ended = alone.run("provision", &api.kubeconfig(), &of, [&[restored], &[&stored]]);
    assert_eq!((ended.code, text(restored).as_str()), (0, "content"), "{ended:?}");
    let gone = [("SNAPSHOT_ID", SNAPSHOT), ("CLAIM_UUID", "")];
    assert_eq!(alone.run("delete-snapshot", "", &gone, [&[&stored], &[]]).code, 0);
    assert_eq!(alone.keep().lines().count(), 1);

    // The source is missing: the kubelet has made an empty directory for it, which is not copied.
    let (lost, own) = ("c0ffee00-0000-4000-8000-000000000003", "c0ffee00-0000-4000-8000-000000000004");
    for (of, id, name) in [("CLONE_OF", lost, lost), ("SNAPSHOT_ID", SNAPSHOT, stored.as_str())] {
        let source = alone.source(name);
        let of = [(of, id), ("CLONE_OF_SOURCE", source.as_str()), ("CLAIM_UUID", own)];
        let ended = alone.run("provision", "", &of, [&[own], &[name]]);
        assert!(ended.code == 75 && ended.termination_message.contains("is not on node node-1"), "{ended:?}");
    }
    fs::remove_dir(alone.store().join(lost)).unwrap();
    let source = alone.source(lost);
    let snapshot = [("SNAPSHOT_ID", SNAPSHOT), ("CLAIM_UUID", lost), ("VOLUME_SOURCE", source.as_str())];
    let ended = alone.run("snapshot", "", &snapshot, [&[&stored], &[lost]]);
    assert!(ended.code == 75 && ended.termination_message.contains("is not on node"), "{ended:?}");
}

#[test]
fn a_copy_without_room_takes_none_from_others_in_its_own_directory() {
    for (options, files) in DISKS {
        let (alone, api) = (Alone::new(), Api::start(vec![Reply::Echo]));
        let disk = Disk::mounted(&alone.node, alone.store(), options);
        assert_eq!(alone.keep(), "");
        disk.fill(SOURCE_ID, files);
        let (source, stored) = (alone.source(SOURCE_ID), format!(".snapshot-{SNAPSHOT}"));
        let clone = [("CLONE_OF", SOURCE_ID), ("CLONE_OF_SOURCE", source.as_str())];
        let snapshot = [("SNAPSHOT_ID", SNAPSHOT), ("CLAIM_UUID", SOURCE_ID), ("VOLUME_SOURCE", source.as_str())];
        let is_empty = |name: &str| fs::read_dir(alone.store().join(name)).unwrap().next().is_none();
        let room = 64 << 10;
        let (bytes, inodes) = disk.free();
        for (operation, of, name) in [("provision", &clone[..], ID), ("snapshot", &snapshot[..], stored.as_str())] {
            let ended = alone.run(operation, "", of, [&[name], &[SOURCE_ID]]);
            assert!(ended.code == 69 && ended.termination_message.contains("No space left"), "{options}: {ended:?}");
            let left = disk.free();
            assert!(
                is_empty(name) && left.0 + room >= bytes && left.1 + 2 >= inodes,
                "{options} {operation}: {left:?}"
            );
        }
        // A run that was killed has left half a copy. It does not count against the next one.
        fs::write(alone.store().join(ID).join(".flex-partial"), "").unwrap();
        fs::write(alone.store().join(ID).join("big"), vec![1; 12 << 20]).unwrap();
        fs::remove_dir_all(alone.store().join(SOURCE_ID).join("deep")).unwrap();
        fs::write(alone.store().join(SOURCE_ID).join("small"), "x").unwrap();
        let most = (disk.free().0 + (8 << 20)).to_string();
        let of = [&clone[..], &[("SIZE_BYTES", &most)]].concat();
        let ended = alone.run("provision", &api.kubeconfig(), &of, [&[ID], &[SOURCE_ID]]);
        assert_eq!(ended.code, 0, "{ended:?}");
        assert!(!alone.store().join(ID).join("big").exists() && alone.store().join(ID).join("small").exists());
    }
}

/// Whenever a run is killed, the next one ends with a complete copy.
#[test]
fn a_killed_copy_is_completed_by_the_next_run() {
    const FILES: usize = 1000;
    let (alone, api) = (Alone::new(), Api::start((0..99).map(|_| Reply::Echo).collect()));
    let source_dir = alone.store().join(SOURCE_ID);
    for n in 0..FILES {
        fs::create_dir_all(source_dir.join(format!("d{n}"))).unwrap();
        fs::write(source_dir.join(format!("d{n}/file")), "content").unwrap();
    }
    let source = alone.source(SOURCE_ID);
    let clone = [("CLONE_OF", SOURCE_ID), ("CLONE_OF_SOURCE", source.as_str())];
    let observed: [&[&str]; 2] = [&[ID], &[SOURCE_ID]];
    let copy = alone.store().join(ID);
    let count = || fs::read_dir(&copy).map_or(0, Iterator::count);
    let (mut wait, mut half) = (0, 0);
    for _ in 0..80 {
        let mut run = alone.command("provision", &api.kubeconfig(), &clone, observed).process_group(0).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(wait));
        let group = rustix::process::Pid::from_child(&run);
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        if run.wait().unwrap().success() {
            assert_eq!(count(), FILES, "a created volume is complete");
            fs::remove_dir_all(&copy).unwrap();
            wait /= 2;
        }
        half += usize::from(copy.join(".flex-partial").exists());
        if half == 3 {
            break;
        }
        wait += 10;
    }
    assert!(half > 0, "no run was killed during the copy");
    let ended = alone.run("provision", &api.kubeconfig(), &clone, observed);
    assert_eq!((ended.code, count()), (0, FILES), "{ended:?}");
    assert!((0..FILES).all(|n| fs::read_to_string(copy.join(format!("d{n}/file"))).unwrap() == "content"));
}

#[test]
fn a_list_has_no_leftover_directory_and_the_capacity_needs_none() {
    let alone = Alone::new();
    let (other, third) = (ID.replace("0001", "0002"), ID.replace("0001", "0003"));
    // A pod may have given its empty volume any mode.
    let mark = format!(".deleting-{other}");
    let modes = [(ID, 0o777), (&other, 0o777), (&mark, 0o1000), (&third, 0o1700), (".flex-capacity", 0o1700)];
    for (name, mode) in modes {
        fs::create_dir(alone.store().join(name)).unwrap();
        fs::set_permissions(alone.store().join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    let store = path_text(alone.store());
    let mut list = alone.node.command("list", "", &[("BASE_PATH", &store), ("STORAGE_MOUNTS", &store)]);
    let listed = list.env_remove("CLAIM_UUID").output().unwrap();
    let listed = flex_contract::listing::read(&String::from_utf8(listed.stdout).unwrap()).unwrap();
    assert_eq!(listed.iter().map(|entry| entry.id.as_str()).collect::<Vec<_>>(), [ID, &third]);
    let room = path_text(alone.store().join(".flex-capacity"));
    let ended = alone.node.run("capacity", "", &[("BASE_PATH", &room), ("STORAGE_MOUNTS", &room), ("CLAIM_UUID", "")]);
    assert!(
        flex_contract::capacity::Answer::read(&ended.termination_message).is_ok_and(|answer| answer.bytes > 0),
        "{ended:?}"
    );
}

#[test]
fn of_several_directories_one_has_the_volume() {
    let (alone, api) = (Alone::new(), Api::start(vec![Reply::Echo, Reply::Echo]));
    let other = alone.node.folder.path().join("other");
    let path = other.join(ID);
    fs::create_dir_all(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o1700)).unwrap();
    let base = path_text(alone.node.base());
    let mounts = [base.as_str(), &path_text(other.clone())].join(",");
    let both = mounts.replace(',', " ");
    let extra = [("BASE_PATH", both.as_str())];
    let with = |operation: &str, api: &str, more: &[(&str, &str)]| {
        let extra = [&extra, more].concat();
        alone.node.end(alone.command(operation, api, &extra, [&[ID], &[]]).env("STORAGE_MOUNTS", &mounts))
    };
    for _ in 0..2 {
        assert_eq!(with("provision", &api.kubeconfig(), &[]).code, 0);
    }
    let other_mode = fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
    let modes = [alone.mode(ID), other_mode];
    assert_eq!(modes.iter().filter(|mode| **mode == 0o777).count(), 1, "in one of them: {modes:?}");
    assert_eq!(with("expand", "", &[("SIZE_BYTES", "2"), ("OLD_SIZE_BYTES", "1")]).code, 0);
    assert_eq!(with("delete", "", &[]).code, 0);
    assert_eq!((alone.mode(ID), fs::metadata(&path).unwrap().permissions().mode() & 0o7777), (0o1000, 0o1000));
}

#[test]
fn impossible_requests_with_such_mounts_are_reported() {
    let alone = Alone::new();
    let base = path_text(alone.node.base());
    for (operation, extra, code, says) in [
        ("provision", ("MODE", "1700"), 78, "belong to nobody"),
        ("provision", ("DEVICES", "/dev/flex-tests"), 78, "remove storage-mounts"),
        ("provision", ("SIZE_BYTES", "9000000000000000000"), 69, "bytes free on node node-1"),
    ] {
        let ended = alone.run(operation, "", &[extra], [&[ID], &[]]);
        assert!(ended.code == code && ended.termination_message.contains(says), "{operation} {extra:?}: {ended:?}");
        assert_eq!(alone.run("delete", "", &[], [&[ID], &[]]).code, 0);
        assert!(alone.keep().contains(ID), "a delete run follows a failed attempt");
    }
    for operation in ["provision", "delete", "expand"] {
        let ended = alone.node.run(operation, "", &[("STORAGE_MOUNTS", &base)]);
        assert!(ended.code == 78 && ended.termination_message.contains("is not in this pod"), "{operation}: {ended:?}");
    }
}

/// An admin may have copied the empty directory of a volume, or made it by hand. All of that happens within one tick of the
/// kernel's clock.
#[test]
fn the_keeper_removes_an_empty_directory_only_if_it_is_as_kubernetes_makes_it() {
    let alone = Alone::new();
    let made = |command: &str| {
        let folder = path_text(alone.store().join(ID));
        let ended = Command::new("sh").args(["-ec", command, "sh", &folder]).status().unwrap();
        assert!(ended.success(), "{command}");
        let kept = alone.keep();
        let _ = fs::remove_dir(folder);
        kept.contains(ID)
    };
    assert!(made("mkdir -m 755 $1") && made("mkdir -m 1700 $1"));
    for by_others in
        ["mkdir -m 777 $1", "mkdir -m 755 $1; touch -d yesterday $1", "mkdir -m 755 $1; chown 1000:1000 $1"]
    {
        assert!(!made(by_others), "{by_others}");
    }
}

/// The keeper removes the emptied directory, and no other directory that has moved in.
#[test]
fn a_directory_that_moved_in_is_emptied_and_then_removed() {
    let alone = Alone::new();
    let (name, kept) = (format!("pvc-{ID}_team_data"), format!("pvc-{SOURCE_ID}_team_empty"));
    for folder in [&name, &kept] {
        fs::create_dir(alone.store().join(folder)).unwrap();
        fs::set_permissions(alone.store().join(folder), fs::Permissions::from_mode(0o1700)).unwrap();
    }
    fs::write(alone.store().join(&name).join("file"), "x").unwrap();
    let (source, path) = (alone.source(&name), path_text(alone.node.base().join(&name)));
    let own = [("VOLUME_SOURCE", source.as_str()), ("MOVED_IN_PATH", path.as_str())];
    let ended = alone.run("move-in", "", &own, [&[], &["."]]);
    assert_eq!((ended.code, alone.keep().as_str()), (0, ""), "{ended:?}");
    for _ in 0..2 {
        // In the second round the kubelet has made the missing directory for the run.
        let ended = alone.run("delete", "", &own, [&[&name], &[]]);
        assert_eq!((ended.code, alone.mode(&name)), (0, 0o1000), "{ended:?}");
        assert!(alone.keep().contains(&name));
        assert_eq!(alone.names(), [kept.as_str()], "an empty volume of others stays, whatever its mode");
    }
    let ended = alone.run("move-out", "", &own, [&[], &[]]);
    assert_eq!(ended.code, 0, "{ended:?}");
    let ended = alone.run("delete", "", &own, [&[], &[]]);
    assert!(ended.code == 78 && ended.termination_message.contains("is not in this pod"), "{ended:?}");
}

/// A run that moves storage in has the whole base path: the kubelet would follow a link, and make a missing directory.
#[test]
fn neither_a_link_nor_a_missing_directory_moves_in() {
    let alone = Alone::new();
    fs::create_dir(alone.store().join(SOURCE_ID)).unwrap();
    fs::write(alone.store().join(SOURCE_ID).join("file"), "x").unwrap();
    symlink(SOURCE_ID, alone.store().join("link")).unwrap();
    for (name, says) in [("link", "is a symbolic link"), ("missing", "nothing that could move in")] {
        let (source, path) = (alone.source(name), path_text(alone.node.base().join(name)));
        let own = [("VOLUME_SOURCE", source.as_str()), ("MOVED_IN_PATH", path.as_str())];
        let ended = alone.run("move-in", "", &own, [&[], &["."]]);
        assert!(ended.code == 65 && ended.termination_message.contains(says), "{name}: {ended:?}");
    }
    assert_eq!(alone.names(), [SOURCE_ID, "link"]);
}
