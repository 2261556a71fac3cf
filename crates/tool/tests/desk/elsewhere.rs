//! Tests of storage that is not on the desk: directories of this machine in place of paths of the node, and external storage.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use flex_desk::conformance::Case;
use serde_json::Value;

use crate::{Answer, Files, call, command, without_front};

/// A program that keeps the contract.
const GOOD: &str = include_str!("wrong/right.sh");
/// The flags of its config.
const CONFIG: [&str; 4] = ["--storage", "/srv/volumes", "--set", "run-as-user=0"];
/// All operations of the program.
const ALL: &str = "capabilities=expand,clone,snapshot,modify,capacity,list,batch,pool";

/// A directory of this machine in place of the program's storage, where others have a volume.
struct Shared {
    files: Files,
    program: String,
    flag: String,
}

impl Shared {
    fn new(program: &str) -> Self {
        let files = Files::new();
        let theirs = files.path("volumes/0badcafe-0000-4000-8000-000000000001");
        fs::create_dir_all(&theirs).unwrap();
        fs::write(Path::new(&theirs).join("data"), "theirs").unwrap();
        let flag = format!("/srv/volumes={}", files.path("volumes"));
        Shared { program: files.write("program", program), flag, files }
    }

    /// Runs cases, and returns the outcome of each with its reason.
    fn conformance(&self, flags: &[&str], cases: &[Case]) -> (Answer, BTreeMap<String, (String, String)>) {
        let only = cases.iter().flat_map(|case| ["--only", case.id()]);
        let own = ["conformance", "-o", "json", "--on-node", &self.flag];
        let words: Vec<&str> = own.into_iter().chain(CONFIG).chain(flags.iter().copied()).chain(only).collect();
        let answer = call(&[&words[..], &[self.program.as_str()]].concat());
        let document: Value = serde_json::from_str(&answer.out).unwrap_or_else(|error| panic!("{error}: {answer:?}"));
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let all = document["cases"].as_array().unwrap().iter();
        let all = all.map(|case| (text(&case["id"]), (text(&case["outcome"]), text(&case["why"])))).collect();
        (answer, all)
    }

    /// Returns the names in the directory.
    fn names(&self) -> Vec<String> {
        let names = fs::read_dir(self.files.path("volumes")).unwrap().flatten();
        names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }

    /// Checks that only the volume of others is in the directory.
    fn is_clean(&self) {
        assert_eq!(self.names(), ["0badcafe-0000-4000-8000-000000000001"]);
        let data = self.files.path("volumes/0badcafe-0000-4000-8000-000000000001/data");
        assert_eq!(fs::read_to_string(data).unwrap(), "theirs");
    }
}

#[test]
fn a_run_reads_and_changes_a_directory_of_this_machine() {
    let files = Files::new();
    fs::create_dir(files.path("driver")).unwrap();
    fs::write(files.path("driver/greeting"), "hello").unwrap();
    let program = files.write(
        "program",
        "#!/bin/sh\nset -eu\ncat /srv/driver/greeting\necho answer >/srv/driver/answer\ntouch /usr/other || echo refused\nexec flex-pv create --nfs \"nas:/$CLAIM_UUID\"\n",
    );
    let flag = format!("/srv/driver={}", files.path("driver"));
    let answer = call(&["try", "--storage", "/srv/driver", "--set", "run-as-user=0", "--on-node", &flag, &program]);
    assert_eq!(answer.code, Some(0), "{answer:?}");
    assert!(answer.out.contains("hello") && answer.out.contains("refused"), "{answer:?}");
    assert_eq!(fs::read_to_string(files.path("driver/answer")).unwrap(), "answer\n");
}

#[test]
fn a_directory_that_cannot_take_the_place_of_a_path_is_refused() {
    let files = Files::new();
    let (program, file) = (files.write("program", GOOD), files.write("file", ""));
    let here = files.path("");
    let here = here.as_str();
    let missing = files.path("missing");
    for (flags, words) in [
        (vec![format!("/srv/other={here}")], vec!["does not mount the path /srv/other", "mounts: /srv/volumes"]),
        (
            vec![format!("/srv/volumes={missing}")],
            vec!["--on-node /srv/volumes=", "cannot be read", "make it, or name another one"],
        ),
        (vec![format!("/srv/volumes={file}")], vec!["is no directory"]),
        (vec!["/srv/volumes".to_owned()], vec!["--on-node", "write PATH=DIRECTORY", "/dev=/dev"]),
        (vec![format!("volumes={here}")], vec!["must be absolute"]),
        (
            vec![format!("/srv/volumes={here}"), format!("/srv/volumes/={here}")],
            vec!["name each path of the node once"],
        ),
    ] {
        for name in ["try", "conformance"] {
            let mut all = vec![name];
            all.extend(CONFIG);
            flags.iter().for_each(|flag| all.extend(["--on-node", flag]));
            all.push(&program);
            let answer = call(&all);
            assert!(matches!(answer.code, Some(1 | 2)), "{name} {flags:?}: {answer:?}");
            for word in &words {
                assert!(answer.err.contains(word), "{name} {flags:?}: {word}: {answer:?}");
            }
            assert_eq!(answer.out, "", "{name} {flags:?}");
        }
    }
    let on_node = format!("/srv/volumes={here}");
    for (flags, words) in [
        (vec!["try", "--on-node", &on_node, &program], "the config mounts no path of the node"),
        (vec!["try", "--unconfined", "--on-node", &on_node, &program], "cannot be used with"),
        (vec!["conformance", "--cluster", "--on-node", &on_node], "cannot be used with"),
        (vec!["conformance", "--cluster", "--external-storage"], "cannot be used with"),
        (
            vec!["conformance", "--external-storage=/no/such/directory", &program],
            "--external-storage=/no/such/directory",
        ),
    ] {
        let answer = call(&flags);
        assert!(matches!(answer.code, Some(1 | 2)) && answer.err.contains(words), "{flags:?}: {answer:?}");
    }
}

#[test]
fn all_cases_pass_in_a_directory_that_others_use_and_nothing_is_left() {
    let shared = Shared::new(GOOD);
    let cases = without_front();
    let (answer, outcomes) = shared.conformance(&["--set", ALL], &cases);
    assert_eq!(outcomes.len(), cases.len());
    for (id, (outcome, why)) in &outcomes {
        // The directory is the only one.
        let expected = if id == Case::OtherPath.id() { "not-possible" } else { "passed" };
        assert_eq!(outcome, expected, "{id}: {why}");
    }
    assert_eq!(answer.code, Some(0), "{answer:?}");
    assert!(answer.err.contains("the ids of all volumes and snapshots of this call begin with"), "{answer:?}");
    shared.is_clean();
}

#[test]
fn external_storage_is_judged_by_lists_and_cases_about_files_do_not_count() {
    let shared = Shared::new(GOOD);
    let (answer, outcomes) = shared.conformance(&["--set", ALL, "--external-storage"], &without_front());
    let not_possible: Vec<&str> =
        outcomes.iter().filter(|(_, (outcome, _))| outcome == "not-possible").map(|(id, _)| id.as_str()).collect();
    let mut without_files: Vec<&str> = [
        Case::VolumeIsLast,
        Case::Interleaved,
        Case::OtherPath,
        Case::StorageFails,
        Case::NextVolumeEmpty,
        Case::DeleteAlone,
        Case::HostileContent,
        Case::CloneContent,
        Case::CloneKilled,
        Case::SnapshotRestore,
        Case::SnapshotKilled,
        Case::SnapshotOutlives,
    ]
    .map(Case::id)
    .into();
    without_files.sort_unstable();
    assert_eq!(not_possible, without_files);
    for (id, (outcome, why)) in &outcomes {
        // The file has no VolumeAttributesClass.
        let expected = if id == Case::Modify.id() { "skipped" } else { "passed" };
        assert!(outcome == expected || outcome == "not-possible", "{id}: {outcome}: {why}");
    }
    assert_eq!(answer.code, Some(0), "{answer:?}");
    shared.is_clean();
}

#[test]
fn no_deletion_counts_if_nothing_shows_the_volume() {
    let deletions = [Case::DeleteGone, Case::DeleteUnknown, Case::DeleteHalfMade, Case::DeleteById, Case::DeleteKilled];
    let shared = Shared::new(GOOD);
    let (answer, outcomes) = shared.conformance(&["--external-storage"], &deletions);
    for case in deletions {
        let (outcome, why) = &outcomes[case.id()];
        assert_eq!(outcome, "not-possible", "{}: {why}", case.id());
        assert!(why.contains("does not declare the capability list"), "{why}");
    }
    assert_eq!(answer.code, Some(0), "{answer:?}");
    // Without the flag, the command notices by itself that nothing shows the volume.
    let files = Files::new();
    let program = files
        .write("program", "#!/bin/sh\n[ \"$OPERATION\" = delete ] || exec flex-pv create --nfs \"nas:/$CLAIM_UUID\"\n");
    let only = deletions.iter().flat_map(|case| ["--only", case.id()]);
    let words: Vec<&str> = ["conformance"].into_iter().chain(only).chain([program.as_str()]).collect();
    let answer = call(&words);
    assert!(answer.out.contains("0 cases passed, 0 failed, 5 skipped"), "{answer:?}");
    assert!(answer.out.contains("the storage of the volume is not on this machine, and"), "{answer:?}");
}

#[test]
fn a_deletion_that_deletes_nothing_fails_its_case_and_is_named_at_the_end() {
    let program = GOOD.replace("delete) exec flex-pv remove \"$volume\" \"$half\" ;;", "delete) ;;");
    for flags in [&["--set", "capabilities=list", "--external-storage"][..], &["--set", "capabilities=list"]] {
        let shared = Shared::new(&program);
        let (answer, outcomes) = shared.conformance(flags, &[Case::DeleteGone]);
        assert_eq!(outcomes["delete-gone"].0, "failed", "{answer:?}");
        assert_eq!(answer.code, Some(2), "{answer:?}");
        let left = shared.names().into_iter().find(|name| !name.starts_with("0badcafe")).expect("the volume is left");
        let named = answer.err.lines().any(|line| line.starts_with("left behind: ") && line.contains(&left));
        assert!(named && answer.err.contains("remove it by hand"), "{left}: {answer:?}");
    }
}

#[test]
fn a_delete_run_that_fails_is_named_with_its_volume() {
    let program = GOOD.replace("delete) exec", "delete) exec flex-pv fail retry busy; exec");
    let shared = Shared::new(&program);
    let (answer, _) = shared.conformance(&["--external-storage"], &[Case::VolumeFits]);
    assert_eq!(answer.code, Some(2), "{answer:?}");
    assert!(answer.err.contains("its delete run failed with exit code 75: busy"), "{answer:?}");
}

#[test]
fn files_of_external_storage_make_all_cases_possible() {
    let shared = Shared::new(GOOD);
    let files = format!("--external-storage={}", shared.files.path("volumes"));
    let cases = [Case::CloneContent, Case::CloneKilled, Case::SnapshotRestore, Case::VolumeIsLast, Case::DeleteGone];
    let (answer, outcomes) = shared.conformance(&["--set", ALL, &files], &cases);
    for (id, (outcome, why)) in &outcomes {
        assert_eq!(outcome, "passed", "{id}: {why}");
    }
    assert_eq!((answer.code, outcomes.len()), (Some(0), cases.len()), "{answer:?}");
    shared.is_clean();
    let broken = Shared::new(&GOOD.replace("if [ -n \"$CLONE_OF\" ]; then", "if false; then"));
    let files = format!("--external-storage={}", broken.files.path("volumes"));
    let (_, outcomes) = broken.conformance(&["--set", ALL, &files], &[Case::CloneContent]);
    assert_eq!(outcomes["clone-content"].0, "failed");
}

#[test]
fn a_directory_beside_a_volume_on_a_server_is_not_taken_for_the_volume() {
    // A run that died may leave the directory of its copy, which comes before the volume in the order of names.
    let program = GOOD.replace("--local \"$volume\"", "--nfs \"nas.example:$volume\"");
    let right = "flex-pv rename \"$half\" \"$volume\"\n";
    assert!(program.contains("--nfs") && program.contains(right));
    let shared = Shared::new(&program.replace(right, &format!("{right}        mkdir \"$half\"\n")));
    let files = format!("--external-storage={}", shared.files.path("volumes"));
    let cases = [Case::CalledAgain, Case::CloneContent, Case::SnapshotRestore, Case::DeleteGone];
    let (answer, outcomes) = shared.conformance(&["--set", ALL, &files], &cases);
    for (id, (outcome, why)) in &outcomes {
        assert_eq!(outcome, "passed", "{id}: {why}");
    }
    assert_eq!((answer.code, outcomes.len()), (Some(0), cases.len()), "{answer:?}");
    shared.is_clean();
}

#[test]
fn after_a_signal_the_storage_of_the_case_is_deleted() {
    // Nobody writes the file for which the run waits.
    let waits = "    until [ -e /tmp/go ]; do sleep 1; done\n    exec flex-pv create";
    let program = GOOD.replace("    exec flex-pv create", waits);
    let shared = Shared::new(&program);
    let mut call = command(&["conformance", "--external-storage", "--only", "volume-fits", "--on-node", &shared.flag]);
    call.args(CONFIG).arg(&shared.program).stdout(Stdio::null()).stderr(Stdio::piped());
    let child = call.spawn().unwrap();
    let began = Instant::now();
    while shared.names().len() < 2 {
        assert!(began.elapsed() < Duration::from_secs(120), "the run makes no volume");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(Command::new("kill").args(["-2", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("stopped by a signal") && !text.contains("left behind"), "{text}");
    shared.is_clean();
}

#[test]
fn a_program_has_the_rights_of_the_roles_in_its_file() {
    let files = Files::new();
    let config = |role: &str| {
        let config = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {type: provisioner-config, storage-class: a}}, data: {plugin-name: kubernetes.io/flex-provisioner, image: i, service-account-name: s, volume-sources: nfs}}";
        format!("{config}\n---\n{role}\n")
    };
    let role = "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: a}, rules: [{apiGroups: [\"\"], resources: [persistentvolumes], verbs: [list]}]}";
    let other = "{apiVersion: v1, kind: ServiceAccount, metadata: {name: s}}";
    let program = files.write(
        "program",
        "#!/bin/sh\nserver=$(sed -n 's|.*\"server\":\"http://\\([0-9.]*\\):\\([0-9]*\\)\".*|/dev/tcp/\\1/\\2|p' \"$KUBECONFIG\")\nbash -c \"exec 3<>$server; printf 'GET /api/v1/persistentvolumes HTTP/1.0\\r\\nHost: desk\\r\\n\\r\\n' >&3; head -n 1 <&3\"\nexec flex-pv create --nfs \"nas:/$CLAIM_UUID\"\n",
    );
    for (name, role, code) in [("with.yaml", role, "200 OK"), ("without.yaml", other, "403 Forbidden")] {
        let path = files.write(name, &config(role));
        let answer = call(&["try", "--config", &path, &program]);
        assert!(answer.code == Some(0) && answer.out.contains(code), "{name}: {answer:?}");
    }
}
