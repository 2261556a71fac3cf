//! Tests of `new`: what it writes is a whole provisioner, in each language.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::{Answer, Files, PROGRAMS, call, command};

/// The cases that a compiled program runs; the shell script runs all.
const SOME: [&str; 9] = [
    "volume-fits",
    "called-again",
    "killed-at-create",
    "unknown-operation",
    "hostile-texts",
    "delete-half-made",
    "clone-content",
    "snapshot-again",
    "list-whole",
];

/// Writes a provisioner in a language, and returns the directory.
fn written(files: &Files, language: &str) -> String {
    let mut new = command(&["new", "mine", "--from", language, "--operations", "expand,clone,snapshot,list,capacity"]);
    let answer: Answer = new.current_dir(files.path("")).output().expect("the command starts").into();
    assert_eq!((answer.code, answer.out.lines().count()), (Some(0), 3), "{answer:?}");
    files.path("mine")
}

/// Runs the test of the provisioner, which validates, builds and proves it.
fn test(folder: &str, arguments: &[&str]) {
    let mut test = Command::new(Path::new(folder).join("test.sh"));
    let home = std::env::var("HOME").unwrap_or_default();
    let own = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:/usr/bin:/bin:{own}:/usr/local/go/bin", PROGRAMS.display());
    test.args(arguments)
        .env_remove("CARGO_TARGET_DIR")
        .env("PATH", path)
        .env("HOME", home)
        .env("GOFLAGS", "-mod=mod")
        .env("GOWORK", "off");
    let answer: Answer = test.output().expect("the test starts").into();
    assert_eq!(answer.code, Some(0), "{answer:?}");
    assert!(answer.out.contains("1 provisioner configs checked: 0 errors, 0 warnings"), "{answer:?}");
    assert!(answer.out.contains(" 0 failed, "), "{answer:?}");
}

/// Checks that the program, which was built, refuses a misspelt parameter before it makes anything.
fn refuses_a_misspelt_parameter(folder: &str, program: &str) {
    let (config, program) = (format!("{folder}/config.yaml"), format!("{folder}/{program}"));
    let state = format!("{folder}/state");
    let arguments = ["try", "--config", &config, "--state", &state, "--set", "base-pth=/srv/other", &program];
    let answer: Answer = call(&arguments);
    let words = "does not know the parameter `base-pth` (did you mean `base-path`?)";
    assert!(answer.code != Some(0) && answer.out.contains(words), "{answer:?}");
    assert!(answer.out.contains("exit code 78"), "{answer:?}");
    let node = Path::new(&state).join("node/local/var/lib/flex-mine");
    assert_eq!(fs::read_dir(node).unwrap().count(), 0, "{answer:?}");
}

/// Checks that the program, which was built, lists its volumes where the directory is the root of an ext4.
fn lists_volumes_beside_other_names(folder: &str, program: &str) {
    let (config, program) = (format!("{folder}/config.yaml"), format!("{folder}/{program}"));
    let state = format!("{folder}/state-of-list");
    let run = |operation| {
        let answer: Answer = call(&["try", "--config", &config, "--state", &state, "--operation", operation, &program]);
        assert_eq!(answer.code, Some(0), "{operation}: {answer:?}");
        answer.out
    };
    run("provision");
    let node = Path::new(&state).join("node/local/var/lib/flex-mine");
    for other in ["lost+found", ".half-c0ffee00-0000-4000-8000-000000000009"] {
        fs::create_dir(node.join(other)).unwrap();
    }
    let said = run("list");
    assert!(said.contains("flex-list end 1"), "{said}");
    assert!(said.contains("/var/lib/flex-mine/c0ffee00-0000-4000-8000-000000000001"), "{said}");
}

fn some_cases() -> Vec<&'static str> {
    SOME.iter().flat_map(|id| ["--only", *id]).collect()
}

#[test]
fn the_shell_script_passes_all_cases() {
    let files = Files::new();
    let folder = written(&files, "shell");
    test(&folder, &[]);
    refuses_a_misspelt_parameter(&folder, "provision.sh");
    lists_volumes_beside_other_names(&folder, "provision.sh");
}

#[test]
fn the_python_program_passes() {
    let files = Files::new();
    let folder = written(&files, "python");
    test(&folder, &some_cases());
    refuses_a_misspelt_parameter(&folder, "provision.py");
    lists_volumes_beside_other_names(&folder, "provision.py");
}

#[test]
fn the_go_program_compiles_and_passes() {
    let files = Files::new();
    let folder = written(&files, "go");
    test(&folder, &some_cases());
    refuses_a_misspelt_parameter(&folder, "build/provision");
    lists_volumes_beside_other_names(&folder, "build/provision");
}

#[test]
fn the_rust_program_compiles_and_passes() {
    let files = Files::new();
    let folder = written(&files, "rust");
    test(&folder, &some_cases());
    refuses_a_misspelt_parameter(&folder, "build/bin/mine");
    lists_volumes_beside_other_names(&folder, "build/bin/mine");
}

#[test]
fn nothing_is_overwritten_and_a_name_is_checked() {
    let files = Files::new();
    let folder = written(&files, "shell");
    fs::write(format!("{folder}/provision.sh"), "mine").unwrap();
    let again: Answer = command(&["new", "mine"]).current_dir(files.path("")).output().unwrap().into();
    assert_eq!(again.code, Some(1), "{again:?}");
    assert!(again.err.contains("mine exists already, and is left as it is"), "{again:?}");
    assert_eq!(fs::read_to_string(format!("{folder}/provision.sh")).unwrap(), "mine");
    let wrong: Answer = command(&["new", "../mine"]).current_dir(files.path("")).output().unwrap().into();
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
}

#[test]
fn without_operations_the_program_only_makes_and_deletes() {
    let files = Files::new();
    let mut new = command(&["new", "small"]);
    let answer: Answer = new.current_dir(files.path("")).output().unwrap().into();
    assert_eq!(answer.code, Some(0), "{answer:?}");
    test(&files.path("small"), &["--only", "volume-fits", "--only", "delete-gone"]);
}
