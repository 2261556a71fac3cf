//! Tests of the helpers for Python and Go in `examples/helpers`: with each of them, a program of a few lines keeps the
//! contract without `flex-pv`.

use std::fs;

use flex_desk::conformance::Case;

use crate::{Files, judged, without_front};

const PYTHON_HELPER: &str = include_str!("../../../../examples/helpers/flexpv.py");
const PYTHON: &str = include_str!("../../../../examples/helpers/provision.py");
const GO_HELPER: &str = include_str!("../../../../examples/helpers/flexpv.go");
const GO: &str = include_str!("../../../../examples/helpers/provision.go");
/// A config for directories of the node, with all capabilities.
const CONFIG: &str = include_str!("wrong/config.yaml");

/// The cases that such a program must pass. Others need a capability, or processes that the program does not start.
const MUST: [Case; 16] = [
    Case::VolumeFits,
    Case::Rights,
    Case::CalledAgain,
    Case::KilledAtTimes,
    Case::KilledAtCreate,
    Case::VolumeIsLast,
    Case::EightAtOnce,
    Case::UnknownOperation,
    Case::HostileTexts,
    Case::UnknownParameter,
    Case::LastWords,
    Case::EndsAfterSigterm,
    Case::DeleteGone,
    Case::DeleteTwice,
    Case::DeleteUnknown,
    Case::DeleteAlone,
];

/// Writes the config of a program that only makes and deletes volumes.
fn config(files: &Files) -> String {
    let lines = CONFIG.lines().filter(|line| !line.trim_start().starts_with("capabilities:"));
    files.write("config.yaml", &lines.collect::<Vec<_>>().join("\n"))
}

/// Writes the program of Python with a helper, and returns its path.
fn python(files: &Files, helper: &str) -> String {
    files.write("flexpv.py", helper);
    files.write("provision.py", PYTHON)
}

/// Builds the program of Go with a helper, and returns its path.
fn go(files: &Files, helper: &str) -> String {
    for (name, text) in [("go.mod", "module mine\n\ngo 1.21\n"), ("flexpv.go", helper), ("provision.go", GO)] {
        fs::write(files.path(name), text).unwrap();
    }
    files.build_go("go build -o provision .");
    files.path("provision")
}

/// Checks that a program fails no case, and passes those that it must pass.
fn keeps_the_contract(files: &Files, program: &str) {
    let (answer, outcomes) = judged(&config(files), program, &without_front(), &[]);
    for [id, outcome, why] in &outcomes {
        let must = MUST.iter().any(|case| case.id() == id);
        assert!(outcome != "failed" && (!must || outcome == "passed"), "{id}: {outcome}: {why}");
    }
    assert_eq!((answer.code, outcomes.len()), (Some(0), without_front().len()), "{answer:?}");
}

/// Checks that a program with a broken helper is found.
fn is_found(files: &Files, program: &str, case: Case) {
    let (answer, outcomes) = judged(&config(files), program, &[case], &[]);
    assert_eq!(outcomes[0][1], "failed", "{}: {answer:?}", case.id());
}

/// Returns a helper with a text in place of another.
fn broken(helper: &str, right: &str, wrong: &str) -> String {
    assert!(helper.contains(right), "the helper has no `{right}`");
    helper.replacen(right, wrong, 1)
}

#[test]
fn a_program_with_the_helper_for_python_keeps_the_contract() {
    let files = Files::new();
    let program = python(&files, PYTHON_HELPER);
    keeps_the_contract(&files, &program);
}

#[test]
fn a_program_with_the_helper_for_go_keeps_the_contract() {
    let files = Files::new();
    let program = go(&files, GO_HELPER);
    keeps_the_contract(&files, &program);
}

#[test]
fn a_broken_helper_is_found() {
    let files = Files::new();
    let policy = "\"persistentVolumeReclaimPolicy\": env[\"RECLAIM_POLICY\"],";
    let program = python(&files, &broken(PYTHON_HELPER, policy, ""));
    is_found(&files, &program, Case::VolumeFits);
    let program = python(&files, &broken(PYTHON_HELPER, "        check_parameters(run, parameters)\n", ""));
    is_found(&files, &program, Case::UnknownParameter);
    let files = Files::new();
    let other = "part(metadata, \"annotations\")[claimUID] != os.Getenv(\"PVC_UID\")";
    let program = go(&files, &broken(GO_HELPER, other, "true"));
    is_found(&files, &program, Case::CalledAgain);
}
