//! The place where a recipe's script runs: its environment, its programs, and an API server that accepts each volume.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use flex_contract::variable;
use serde_json::{Value, json};

use super::api::{Api, Reply, path_text};
use super::conformance::secret;

/// The size of a volume that a case does not care about.
pub const SIZE: u64 = 32 << 20;

/// A program of the test in place of each program of the image. It ends all processes of the run before or after the
/// program with the number that the run names. Programs that only read do not count.
const COUNTED: &str = "#!PLAIN/sh
case ${0##*/} in awk | cat | flock | grep | sed | stat | tail) exec PLAIN/${0##*/} \"$@\" ;; esac
POINT
point before; [ $n != \"$KILL_AT\" ] || kill -9 0
PLAIN/${0##*/} \"$@\"; code=$?
point after; [ $n != \"$KILL_AT\" ] || kill -9 0
exit $code
";

/// Sets `n` to the number of a point of a run. Each point is a line of a file, so that the programs of a pipeline can
/// count at the same time, and no two points have the same number.
pub const POINT: &str = "point() {
    n=0; echo \"$$ $1\" >>FOLDER/count
    while read -r line; do n=$((n + 1)); [ \"$line\" != \"$$ $1\" ] || break; done <FOLDER/count
}";

/// The config of a recipe, and the directory with the files of its runs.
pub struct Desk {
    folder: tempfile::TempDir,
    api: Api,
    /// The file of the recipe, and the texts to replace in it.
    recipe: String,
    replace: Vec<(String, String)>,
    config: BTreeMap<String, String>,
    env: Vec<(String, String)>,
}

#[derive(Debug)]
pub struct Ended {
    /// The exit code. None if the run was killed.
    pub code: Option<i32>,
    pub output: String,
    pub last_words: String,
}

impl Desk {
    /// Reads the config `configmaps/recipes/RECIPE.yaml`, with other texts in place of those of the list. The script has
    /// the programs of busybox, and those that the test names by their paths.
    pub fn new(recipe: &str, replace: &[(&str, &str)], programs: &[&Path]) -> Self {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../configmaps/recipes/{recipe}.yaml"));
        let mut text = fs::read_to_string(file).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let shipped = text.clone();
        for (from, to) in replace {
            assert!(text.contains(from), "{recipe}.yaml has no {from}");
            text = text.replace(from, to);
        }
        text = text.replace("/etc/flex-secrets", &path_text(folder.path().join("secrets")));
        let map: Value = serde_saphyr::from_str(text.split("\n---\n").next().unwrap()).unwrap();
        let config: BTreeMap<String, String> = serde_json::from_value(map["data"].clone()).unwrap();
        let plain = folder.path().join("plain");
        for bin in ["plain", "counted"] {
            fs::create_dir(folder.path().join(bin)).unwrap();
        }
        let busybox = ["/bin/busybox", "/usr/bin/busybox"].into_iter().find(|path| Path::new(path).exists());
        let busybox = busybox.expect("busybox is missing: install busybox-static");
        let applets = Command::new(busybox).arg("--list").output().unwrap().stdout;
        let applets = String::from_utf8(applets).unwrap();
        let named = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
        let own: Vec<_> = programs.iter().map(|path| named(path)).collect();
        for name in applets.lines().filter(|name| !own.iter().any(|own| own == name)) {
            symlink(busybox, plain.join(name)).unwrap();
        }
        for path in programs.iter().copied().chain([Path::new(env!("CARGO_BIN_EXE_flex-pv"))]) {
            // Runs of `conformance` have another `/tmp`, which has no links of the test.
            let end =
                path.canonicalize().unwrap_or_else(|_| panic!("{} is missing: see scripts/setup.sh", path.display()));
            symlink(end, plain.join(named(path))).unwrap();
        }
        let folder_path = folder.path().to_owned();
        let api = Api::start((0..9999).map(|_| Reply::Echo).collect());
        let replace = replace.iter().map(|(from, to)| ((*from).to_owned(), (*to).to_owned())).collect();
        let desk = Desk { folder, api, recipe: shipped, replace, config, env: Vec::new() };
        let counted = COUNTED.replace("PLAIN", &path_text(plain.clone())).replace("POINT", POINT);
        let counted = counted.replace("FOLDER", &path_text(folder_path));
        write_program(&desk.path("counted.sh"), &counted);
        for name in fs::read_dir(&plain).unwrap().map(|entry| entry.unwrap().file_name()) {
            symlink(desk.path("counted.sh"), desk.path("counted").join(name)).unwrap();
        }
        fs::write(desk.path("script"), &desk.config["script"]).unwrap();
        desk
    }

    /// Adds a program that the test has written.
    pub fn add_program(&self, name: &str, text: &str) {
        write_program(&self.path("plain").join(name), text);
        symlink(self.path("counted.sh"), self.path("counted").join(name)).unwrap();
    }

    /// Sets a variable of all runs.
    pub fn set(&mut self, name: &str, value: &str) {
        self.env.push((name.to_owned(), value.to_owned()));
    }

    /// Returns the file of the recipe with the replaced texts, but for those that name these paths of the node.
    pub fn recipe(&self, on_node: &[&str]) -> String {
        let replace = self.replace.iter().filter(|(from, _)| !on_node.contains(&from.as_str()));
        replace.fold(self.recipe.clone(), |text, (from, to)| text.replace(from, to))
    }

    /// Returns the class of the recipe.
    pub fn class(&self) -> String {
        let map: Value = serde_saphyr::from_str(self.recipe.split("\n---\n").next().unwrap()).unwrap();
        map["metadata"]["labels"]["storage-class"].as_str().unwrap().to_owned()
    }

    /// Returns the text in place of another.
    pub fn replacement(&self, from: &str) -> &str {
        &self.replace.iter().find(|(text, _)| text == from).expect("the test replaces it").1
    }

    /// Returns the parameters that the test has set, as keys of a config. Other variables come from Secrets.
    pub fn changes(&self) -> Vec<(String, &str)> {
        let secrets = self.secrets();
        let is_secret = |name: &str| secrets.iter().any(|secret| secret["stringData"].get(name).is_some());
        let own = self.env.iter().filter(|(name, _)| !is_secret(name));
        own.map(|(name, value)| (name.to_lowercase().replace('_', "-"), value.as_str())).collect()
    }

    /// Returns the Secrets whose files the test has made.
    pub fn secrets(&self) -> Vec<Value> {
        let names = |folder: &Path| {
            let entries = fs::read_dir(folder).into_iter().flatten();
            let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        };
        let folder = self.path("secrets");
        let of = |name: &String| {
            let read = |key: String| (key.clone(), fs::read_to_string(folder.join(name).join(key)).unwrap());
            let data: Vec<_> = names(&folder.join(name)).into_iter().map(read).collect();
            secret(name, &data)
        };
        names(&folder).iter().map(of).collect()
    }

    /// Returns the names of the parameters of the config.
    pub fn parameters(&self) -> Vec<String> {
        self.config.keys().filter(|key| !KEYS.contains(&key.as_str())).cloned().collect()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn declares(&self, capability: &str) -> bool {
        let declared = self.config.get("capabilities").map(String::as_str).unwrap_or_default();
        declared.split(',').any(|one| one.trim() == capability)
    }

    /// Returns the volume source of the PersistentVolume of a claim, as later runs get it.
    pub fn source(&self, id: &str) -> String {
        let volume = self.volume(id);
        let spec = volume["spec"].as_object().unwrap();
        let (kind, source) = spec.iter().find(|(kind, _)| SOURCES.contains(&kind.as_str())).expect("a source");
        json!({ kind.as_str(): source }).to_string()
    }

    /// Returns the last PersistentVolume that was made for a claim.
    pub fn volume(&self, id: &str) -> Value {
        let posted = self.api.all_posted();
        let name = format!("pvc-{id}");
        let found = posted.into_iter().rev().find(|volume| volume["metadata"]["name"] == name.as_str());
        found.unwrap_or_else(|| panic!("no PersistentVolume was made for {id}"))
    }

    /// Runs the script as the pod of a run does.
    pub fn run(&self, operation: &str, id: &str, more: &[(&str, &str)]) -> Ended {
        self.run_until(operation, id, more, 0)
    }

    /// Runs the script. Kills it before or after one of its programs, if it has so many, and `at` is not 0.
    pub fn run_until(&self, operation: &str, id: &str, more: &[(&str, &str)], at: usize) -> Ended {
        static RUNS: AtomicUsize = AtomicUsize::new(0);
        let log = self.path(&format!("log-{}", RUNS.fetch_add(1, Ordering::Relaxed)));
        fs::write(&log, "").unwrap();
        fs::write(self.path("count"), "").unwrap();
        // The programs of a storage host read it there.
        fs::write(self.path("kill-at"), format!("{at}\n")).unwrap();
        let mut command = self.command(operation, id, more);
        if at != 0 {
            // Busybox runs programs of its own, such as `rm`, without a look at PATH. So another shell counts them.
            let counted = Command::new("/bin/dash");
            let plain = std::mem::replace(&mut command, counted);
            command.args(plain.get_args()).env_clear().process_group(0).stdin(Stdio::null());
            command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
            command.env("PATH", self.path("counted")).env("KILL_AT", at.to_string());
        }
        let output = command.env("FLEX_TERMINATION_LOG", &log).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        let last_words = fs::read_to_string(&log).unwrap();
        fs::remove_file(&log).unwrap();
        Ended { code: output.status.code(), output: text, last_words }
    }

    /// Returns the command of a run, which gets a group of processes of its own.
    pub fn command(&self, operation: &str, id: &str, more: &[(&str, &str)]) -> Command {
        let known = variable::ALL.iter().map(|variable| variable.name);
        let always_set = known.filter(|name| !["BATCH", "STORAGE_MOUNTS", "FLEX_PV_SOCKET"].contains(name));
        let parameters = self.parameters();
        let of_config = |name: &String| (name.to_uppercase().replace('-', "_"), &self.config[name]);
        let mut command = Command::new(self.path("plain/sh"));
        command
            .arg(self.path("script"))
            .env_clear()
            .envs(always_set.map(|name| (name, "")))
            .envs(parameters.iter().map(of_config))
            .env("PARAMETER_NAMES", parameters.join(","))
            .env("PATH", self.path("plain"))
            .env("FLEX_TERMINATION_LOG", self.path("log"))
            .env("KUBECONFIG", self.api.kubeconfig())
            .env("FLEX_SECRETS_DIRECTORY", self.path("secrets"))
            .envs([("OPERATION", operation), ("CLAIM_UUID", id), ("PVC_UID", id), ("POD_NODE", "node-1")])
            .env("PV_NAME", format!("pvc-{id}"))
            .envs([("STORAGE_CLASS", "recipe"), ("ATTEMPT", "1"), ("CONTRACT", "1"), ("ACCESS_MODES", "ReadWriteOnce")])
            .envs([("VOLUME_MODE", "Filesystem"), ("RECLAIM_POLICY", "Delete"), ("SIZE_BYTES", &SIZE.to_string())])
            .env("FS_TYPE", self.config.get("fs-type").map(String::as_str).unwrap_or_default())
            .env(
                "MOUNT_OPTIONS",
                self.config.get("mount-options").map(|text| text.replace(", ", ",")).unwrap_or_default(),
            )
            .env("POD_NAMESPACE", "flex-provisioner")
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .envs(more.iter().copied())
            .process_group(0)
            .stdin(Stdio::null());
        command
    }

    /// Takes another script in place of that of the recipe.
    pub fn replace_script(&self, script: &str) {
        fs::write(self.path("script"), script).unwrap();
    }

    /// Returns the number of points of the last run of [`Self::run_until`] at which it could have been killed.
    pub fn points(&self) -> usize {
        fs::read_to_string(self.path("count")).unwrap().lines().count()
    }
}

/// Writes a program. Another process does it, so that no child that a parallel test forks just now holds the file open for
/// writing.
#[track_caller]
pub fn write_program(path: &Path, text: &str) {
    let mut writer = Command::new("sh");
    writer.args(["-c", "cat >\"$0\" && chmod 755 \"$0\""]).arg(path).stdin(Stdio::piped());
    let mut writer = writer.spawn().unwrap();
    writer.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(writer.wait().unwrap().success(), "{path:?} cannot be written");
}

/// Runs a command of bash on the machine of the test, and returns what it prints.
#[track_caller]
pub fn system(command: &str) -> String {
    let output = Command::new("bash").args(["-c", &format!("set -e; {command}")]).output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Unmounts a file system of a test.
pub fn unmount(path: &Path) {
    let ended = Command::new("umount").arg(path).status();
    assert!(ended.is_ok_and(|status| status.success()) || std::thread::panicking(), "{path:?} stays mounted");
}

/// Writes a new file, until nothing more fits, or it has so many megabytes.
pub fn fill(file: &Path, megabytes: usize) -> std::io::Result<()> {
    let mut file = fs::File::create(file)?;
    for n in 0..megabytes {
        // Blocks that differ, so that nothing is saved by compression.
        file.write_all(&(n as u64).to_le_bytes().repeat((1 << 20) / 8))?;
    }
    file.sync_all()
}

/// The keys of the recipes' configs that are no parameters.
const KEYS: [&str; 18] = [
    "plugin-name",
    "image",
    "script",
    "service-account-name",
    "run-as-user",
    "access-modes",
    "capabilities",
    "volume-mode",
    "volume-sources",
    "pod-template",
    "placement",
    "secret-env",
    "secret-volume",
    "timeout",
    "max-in-flight-per-namespace",
    "priority-class",
    "fs-type",
    "mount-options",
];

const SOURCES: [&str; 6] = ["local", "nfs", "iscsi", "csi", "rbd", "hostPath"];
