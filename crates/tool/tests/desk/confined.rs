//! A config and its program change nothing on this machine: neither before the program starts, nor while it runs, nor in the
//! next command.

use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use serde_json::{Value, json};

use crate::{Answer, Files, call};

/// A config whose script only ends.
const CONFIG: &str = "apiVersion: v1
kind: ConfigMap
metadata: {name: a, namespace: flex-provisioner, labels: {type: provisioner-config, storage-class: a}}
data:
  plugin-name: kubernetes.io/flex-provisioner
  service-account-name: s
  image: i
  script: exit 65
";

/// A directory outside of the sandbox, with a file of somebody.
struct Outside {
    files: Files,
    path: String,
}

impl Outside {
    fn new() -> Self {
        let files = Files::new();
        let path = files.path("outside");
        fs::create_dir(&path).unwrap();
        fs::write(format!("{path}/file"), "theirs").unwrap();
        Outside { files, path }
    }

    fn is_unchanged(&self) {
        let names: Vec<_> = fs::read_dir(&self.path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["file"]);
        assert_eq!(fs::read_to_string(format!("{}/file", self.path)).unwrap(), "theirs");
    }

    /// Runs a program as root with a pod template for its container.
    fn run(&self, security: &str, program: &str) -> (Answer, String) {
        let program = self.files.write("program", &format!("#!/bin/sh\n{program}"));
        let template =
            format!("pod-template={{spec: {{containers: [{{name: provisioner, securityContext: {security}}}]}}}}");
        let answer = call(&["try", "-o", "json", "--set", &template, "--set", "run-as-user=0", &program]);
        let output = output(&answer);
        (answer, output)
    }
}

/// Returns what the program of the first run has printed.
fn output(answer: &Answer) -> String {
    let document: Value = serde_json::from_str(&answer.out).unwrap_or_else(|error| panic!("{error}: {answer:?}"));
    document["runs"][0]["output"].as_str().unwrap_or_default().to_owned()
}

/// All rights that a config can ask for.
const ALL_RIGHTS: &str = "{privileged: true, allowPrivilegeEscalation: true}";

#[test]
fn no_name_of_a_file_in_a_config_leads_out_of_its_volume() {
    let outside = Outside::new();
    let (new, file) = (format!("{}/new", outside.path), format!("{}/file", outside.path));
    let up = format!("{}{}", "../".repeat(16), new.trim_start_matches('/'));
    let item = "fieldRef: {fieldPath: metadata.name}";
    for path in [&new, &file, &up] {
        let secret = format!(
            "---\napiVersion: v1\nkind: Secret\nmetadata: {{name: login}}\nstringData: {{\"{path}\": owned}}\n"
        );
        let template = |volume: &str| {
            let mount = "containers: [{name: provisioner, volumeMounts: [{name: v, mountPath: /v}]}]";
            format!("  pod-template: |\n    spec: {{{mount}, volumes: [{{name: v, {volume}}}]}}\n")
        };
        for text in [
            format!("{CONFIG}  secret-volume: login\n{secret}"),
            format!("{CONFIG}  secret-env: login\n{secret}"),
            CONFIG.to_owned() + &template(&format!("downwardAPI: {{items: [{{path: \"{path}\", {item}}}]}}")),
            CONFIG.to_owned()
                + &template(&format!("projected: {{sources: [{{serviceAccountToken: {{path: \"{path}\"}}}}]}}")),
            CONFIG.to_owned()
                + &template(&format!("configMap: {{name: a, items: [{{key: script, path: \"{path}\"}}]}}")),
        ] {
            let config = outside.files.write("config.yaml", &text);
            for arguments in
                [&["validate"][..], &["try", "--config"], &["conformance", "--only", "volume-fits", "--config"]]
            {
                let answer = call(&[arguments, &[&config]].concat());
                assert!(answer.code != Some(0) && answer.code.is_some(), "{text}: {answer:?}");
                let said = format!("{}{}", answer.out, answer.err);
                assert!(
                    said.contains("write a path within the volume") || said.contains("can become the name of a file"),
                    "{text}: {answer:?}"
                );
                outside.is_unchanged();
            }
        }
    }
}

#[test]
fn a_program_with_all_rights_changes_nothing_of_the_kernel() {
    let outside = Outside::new();
    let own = fs::read_link("/proc/self/ns/ipc").unwrap();
    let program = r#"
        try() { "$@" 2>/dev/null && echo "done: $*" || echo "refused: $*"; }
        same() { cat "$1" >/tmp/value && cat /tmp/value >"$1"; }
        try same /proc/sys/vm/swappiness
        try same /proc/sys/kernel/core_pattern
        try sh -c 'echo >/proc/sysrq-trigger'
        try mount -o remount,rw,bind /usr
        try mount -t tmpfs none /usr
        try umount -l /etc
        try mknod /tmp/device b 7 0
        try sh -c ': </dev/tty'
        try touch /usr/flex-desk-test
        echo "devices: $(ls /dev | tr '\n' ' ')"
        echo "ipc: $(readlink /proc/self/ns/ipc)"
        echo "hidden: $(head -c 1 /proc/kcore 2>/dev/null | wc -c)"
        exit 65
    "#;
    let (answer, output) = outside.run(ALL_RIGHTS, program);
    assert!(!output.contains("done:") && output.matches("refused:").count() == 9, "{output}{answer:?}");
    assert!(output.contains("devices: fd full null random shm stderr stdin stdout termination-log"), "{output}");
    assert!(output.contains("hidden: 0"), "{output}");
    assert!(output.contains("ipc: ") && !output.contains(own.to_str().unwrap()), "{output}");
}

/// Sockets on which this process listens, each in a directory beside a file.
struct Sockets {
    folders: Vec<tempfile::TempDir>,
    listeners: Vec<UnixListener>,
}

impl Sockets {
    /// Makes the sockets below these directories, as far as this user may.
    fn new(tops: &[&str]) -> Self {
        let folders: Vec<_> = tops.iter().filter_map(|top| tempfile::tempdir_in(top).ok()).collect();
        let listeners = folders.iter().map(|folder| {
            fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
            fs::write(folder.path().join("file"), "theirs").unwrap();
            listening(&folder.path().join("bus"))
        });
        Sockets { listeners: listeners.collect(), folders }
    }

    /// Returns the paths of the sockets.
    fn paths(&self) -> Vec<String> {
        self.folders.iter().map(|folder| folder.path().join("bus").display().to_string()).collect()
    }

    fn heard_nothing(&self) {
        for listener in &self.listeners {
            assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
        }
    }
}

/// Makes a socket that each user may use.
fn listening(path: &Path) -> UnixListener {
    let listener = UnixListener::bind(path).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o777)).unwrap();
    listener.set_nonblocking(true).unwrap();
    listener
}

/// Returns a program that connects to sockets, and says which of them are there with the files beside them.
fn connecting(paths: &[String]) -> String {
    format!(
        "for path in {}; do\n    [ ! -e \"${{path%/*}}/file\" ] || echo \"seen: $path\"\n    python3 -c 'import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])' \"$path\" && echo \"connected: $path\"\ndone\necho tried\nexit 65\n",
        paths.join(" ")
    )
}

#[test]
fn sockets_of_this_machine_hear_nothing() {
    let outside = Outside::new();
    let sockets = Sockets::new(&["/run", "/tmp", "/var/tmp"]);
    assert!(sockets.folders.len() >= 2);
    let program = connecting(&sockets.paths());
    for security in ["{}", ALL_RIGHTS] {
        let (answer, output) = outside.run(security, &program);
        assert!(output.contains("tried") && !output.contains("connected"), "{output}{answer:?}");
        sockets.heard_nothing();
    }
}

#[test]
fn no_word_of_a_config_brings_sockets_of_this_machine_into_the_sandbox() {
    let files = Files::new();
    let sockets = Sockets::new(&["/run", "/tmp"]);
    let paths = sockets.paths();
    let folders = sockets.folders.iter().map(|folder| folder.path().display().to_string());
    let path = paths.iter().cloned().chain(folders).chain(["/usr/bin:/bin".into()]).collect::<Vec<_>>().join(":");
    let text = connecting(&paths);
    let program = files.write("program", &format!("#!/bin/sh\n{text}"));
    let config = CONFIG.replace("script: exit 65", &format!("script: {}", json!(format!("#!/bin/sh\n{text}"))));
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "login"}, "stringData": {"PATH": path}});
    let config = files.write("config.yaml", &format!("{config}  secret-env: login\n---\n{secret}\n"));
    let template = |mut container: Value| {
        container["name"] = "provisioner".into();
        format!("pod-template={}", json!({"spec": {"containers": [container]}}))
    };
    let words: Vec<&str> = paths.iter().map(String::as_str).collect();
    let command = [&["/bin/sh", program.as_str()][..], &words[..]].concat();
    let env = template(json!({"env": [{"name": "PATH", "value": path}]}));
    let (args, key) = (format!("args={}", json!(words)), format!("command={}", json!(["/bin/sh", program])));
    let in_template = template(json!({"command": command}));
    for (what, flags) in [
        ("PATH of the template", vec!["--set", env.as_str(), &program]),
        ("PATH of a Secret", vec!["--config", &config]),
        ("args", vec!["--set", &key, "--set", &args, &program]),
        ("command of the template", vec!["--set", &in_template, &program]),
    ] {
        let answer = call(&[&["try", "-o", "json"], &flags[..]].concat());
        let output = output(&answer);
        let is_kept = output.contains("tried") && !output.contains("connected:") && !output.contains("seen:");
        assert!(is_kept, "{what}: {output}{answer:?}");
        sockets.heard_nothing();
    }
}

#[test]
fn a_socket_with_a_link_in_its_path_or_another_name_since_hears_nothing() {
    let outside = Outside::new();
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("data")).unwrap();
    for path in [folder.path(), &at("data")] {
        fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    }
    symlink(at("data"), at("link")).unwrap();
    let listeners = [listening(&at("link/bus")), listening(&at("temporary"))];
    fs::rename(at("temporary"), at("renamed")).unwrap();
    let paths = ["data/bus", "link/bus", "renamed"].map(|name| at(name).display().to_string());
    let (answer, output) = outside.run("{}", &connecting(&paths));
    assert!(output.contains("tried") && !output.contains("connected"), "{output}{answer:?}");
    for listener in &listeners {
        assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    }
}

#[test]
fn a_socket_in_a_directory_that_a_person_gave_hears_the_run_there_alone() {
    let files = Files::new();
    let sockets = Sockets::new(&["/var/tmp"]);
    let path = sockets.paths().remove(0);
    let text = connecting(&[path, "/srv/driver/bus".into()]);
    let program = files.write("program", &format!("#!/bin/sh\n{text}"));
    let flag = format!("/srv/driver={}", sockets.folders[0].path().display());
    let flags = ["--storage", "/srv/driver", "--set", "run-as-user=0", "--on-node", &flag, &program];
    let answer = call(&[&["try", "-o", "json"][..], &flags].concat());
    let output = output(&answer);
    let connected: Vec<&str> = output.lines().filter(|line| line.starts_with("connected:")).collect();
    assert_eq!(connected, ["connected: /srv/driver/bus"], "{output}{answer:?}");
    sockets.listeners[0].accept().unwrap();
    sockets.heard_nothing();
}

#[test]
fn the_old_root_is_out_of_reach() {
    let outside = Outside::new();
    let program = format!(
        "python3 - <<'END'\nimport os\nos.mkdir('/tmp/inner')\nos.chroot('/tmp/inner')\nfor _ in range(64): os.chdir('..')\nos.chroot('.')\nprint('same root' if os.path.exists('/proc/self') else 'lost')\ntry:\n    open('{}/new', 'w')\n    print('written')\nexcept OSError:\n    print('refused')\nEND\nexit 65\n",
        outside.path
    );
    for security in ["{capabilities: {drop: [ALL], add: [SYS_CHROOT]}}", ALL_RIGHTS] {
        let (answer, output) = outside.run(security, &program);
        assert!(output.contains("same root") && output.contains("refused"), "{output}{answer:?}");
        outside.is_unchanged();
    }
}

#[test]
fn root_of_a_container_is_nobody_on_this_machine() {
    let files = Files::new();
    let (program, state) = (files.write("program", "#!/bin/sh\ntouch /srv/v/mine\nexit 65\n"), files.path("state"));
    let flags = ["--storage", "/srv/v", "--set", "run-as-user=0", "--state", &state, &program];
    let answer = call(&[&["try"][..], &flags].concat());
    let made = fs::metadata(format!("{state}/node/local/srv/v/mine")).unwrap_or_else(|_| panic!("{answer:?}"));
    assert_ne!(made.uid(), 0);
}

#[test]
fn links_that_a_run_has_left_lead_the_next_command_nowhere() {
    let outside = Outside::new();
    let state = outside.files.path("state");
    let program = outside.files.write(
        "program",
        &format!("#!/bin/sh\nmv /srv/v/x /srv/v/y 2>/dev/null || mkdir -p /srv/v/x/within\n[ ! -d /srv/v/y ] || ln -s {} /srv/v/x\nexit 65\n", outside.path),
    );
    let one = ["try", "--set", "run-as-user=0", "--state", &state, "--storage", "/srv/v"];
    for _ in 0..2 {
        let answer = call(&[&one[..], &[&program]].concat());
        assert_eq!(answer.code, Some(2), "{answer:?}");
    }
    assert!(fs::symlink_metadata(format!("{state}/node/local/srv/v/x")).unwrap().is_symlink());
    // A mount point in the volume, and a directory of the node in it.
    let volume = |name: &str, path: &str| format!("{{name: {name}, hostPath: {{path: {path}}}}}");
    let mounts = "[{name: v, mountPath: /srv/v}, {name: e, mountPath: /srv/v/x/evil}]";
    let (v, e) = (volume("v", "/srv/v"), volume("e", "/srv/e"));
    let template = format!(
        "pod-template={{spec: {{volumes: [{v}, {e}], containers: [{{name: provisioner, volumeMounts: {mounts}}}]}}}}"
    );
    for flags in [["--set", &template], ["--storage", "/srv/v/x/evil"]] {
        let answer = call(&[&["try", "--set", "run-as-user=0", "--state", &state], &flags[..], &[&program]].concat());
        assert!(answer.code == Some(1) && answer.err.contains("leads over a link"), "{flags:?}: {answer:?}");
        outside.is_unchanged();
    }
}

#[test]
fn a_state_that_somebody_else_has_made_leads_nowhere() {
    for link in ["volume.json", "node", "node/local", "node/local/srv"] {
        let outside = Outside::new();
        let state = outside.files.path("state");
        let program = outside.files.write("program", "#!/bin/sh\ntouch /srv/v/new\nexec flex-pv create --nfs a:/b\n");
        let flags = ["try", "--set", "run-as-user=0", "--state", &state, "--storage", "/srv/v", &program];
        assert_eq!(call(&flags).code, Some(0));
        let path = Path::new(&state).join(link);
        match path.is_dir() {
            true => fs::remove_dir_all(&path).unwrap(),
            false => fs::remove_file(&path).unwrap(),
        }
        let target = if link == "volume.json" { format!("{}/file", outside.path) } else { outside.path.clone() };
        symlink(target, &path).unwrap();
        let answer = call(&flags);
        assert!(answer.code == Some(1) && answer.err.contains("leads over a link"), "{link}: {answer:?}");
        outside.is_unchanged();
    }
}

#[test]
fn the_cases_of_conformance_follow_no_link_of_the_program() {
    let outside = Outside::new();
    let program = outside.files.write(
        "program",
        &format!(
            "#!/bin/sh\nset -eu\nvolume=/srv/volumes/$CLAIM_UUID\ncase $OPERATION in\nprovision)\n    calls=/run/flex-desk/calls\n    if [ -d $calls ]; then rm -f $calls/count && ln -s {0}/file $calls/count; fi\n    ln -sfn {0} \"$volume\"\n    exec flex-pv create --copied --local \"$volume\" ;;\ndelete) rm -f \"$volume\" ;;\nesac\n",
            outside.path
        ),
    );
    let only = ["killed-at-child", "clone-content", "delete-gone"].iter().flat_map(|id| ["--only", id]);
    let flags = ["conformance", "--storage", "/srv/volumes", "--set", "run-as-user=0", "--set", "capabilities=clone"];
    let words: Vec<&str> = flags.into_iter().chain(only).chain([program.as_str()]).collect();
    let answer = call(&words);
    assert!(answer.out.contains("cases passed"), "{answer:?}");
    outside.is_unchanged();
}
