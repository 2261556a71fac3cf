//! Tests of `conformance`: a program that keeps the contract passes each case, and for each case there is a program that
//! fails it.

use std::collections::BTreeMap;
use std::fs;

use flex_desk::conformance::Case;
use serde_json::Value;

use crate::{Answer, Files, call};

/// A program that keeps the contract.
const GOOD: &str = include_str!("good.sh");
/// The config of the program.
const FLAGS: [&str; 10] = [
    "conformance",
    "-o",
    "json",
    "--storage",
    "/srv/volumes",
    "--set",
    "run-as-user=0",
    "--set",
    "capabilities=expand,clone,snapshot,modify,capacity,list,batch,pool",
    "--only",
];

/// The end of the program's provision run.
const CREATE: &str = "exec flex-pv create --copied --local \"$volume\"";
/// Its delete run.
const DELETE: &str = "delete) exec flex-pv remove \"$volume\" \"$half\" ;;";
/// Its choice of the ids to check.
const IDS: &str = "case $OPERATION in delete) ids=$id ;; *) ids=$id${CLONE_OF:-}$sid ;; esac\n";
/// Its check of ids.
const CHECK: &str = "case $ids in *[!0-9a-f-]*) exec flex-pv fail never \"an id is no UUID\" ;; esac\n";
/// The beginning of its provision run.
const PROVISION: &str = "provision)\n";

/// For each case, a place in the program and the mistake that takes its place.
fn mistakes() -> Vec<(Case, &'static str, &'static str)> {
    let locked =
        "provision)\n    mkdir $base/.lock || exec flex-pv fail retry busy\n    sleep 0.4\n    rmdir $base/.lock\n";
    // The lock is held for nearly the whole run, also on a machine with other work.
    let long_locked =
        "provision)\n    mkdir $base/.lock || exec flex-pv fail retry busy\n    sleep 3\n    rmdir $base/.lock\n";
    let not_again = "if true; then";
    vec![
        (Case::VolumeFits, CREATE, "exec flex-pv create --copied --size 100Gi --local \"$volume\""),
        (Case::Rights, PROVISION, "provision)\n    touch /usr/mine || :\n"),
        (Case::CalledAgain, "if [ ! -d \"$volume\" ]; then", not_again),
        (Case::KilledAtChild, "flex-pv remove \"$half\"\n", ":\n"),
        (Case::KilledAtTimes, PROVISION, long_locked),
        (
            Case::KilledAtCreate,
            PROVISION,
            "provision)\n    [ ! -d \"$volume\" ] || exec flex-pv fail never \"it exists\"\n",
        ),
        (Case::VolumeIsLast, CREATE, "flex-pv create --copied --local \"$volume\"\n    touch \"$volume/late\""),
        (Case::EightAtOnce, PROVISION, locked),
        (Case::UnknownOperation, "*) exec flex-pv fail never \"this program cannot $OPERATION\" ;;", "*) ;;"),
        (Case::Sizes, PROVISION, "provision)\n    [ \"$SIZE_BYTES\" -gt 1 ] || exit 134\n"),
        (Case::HostileTexts, PROVISION, "provision)\n    eval \"echo $USERNAME\" >/dev/null 2>&1 || :\n"),
        // `flex-pv` refuses a path with `..`, and other programs do not.
        (
            Case::HostileTexts,
            CHECK,
            "case $OPERATION:$sid in provision:?*) cp -r \"$base/.snapshot-$sid\" \"$volume\" && exec flex-pv create --copied --local \"$volume\" ;; esac\n",
        ),
        (
            Case::HostileTexts,
            CHECK,
            "case $OPERATION in delete-snapshot) rm -rf \"$base/.snapshot-$sid\"; exit ;; esac\n",
        ),
        // A claim that was refused for its snapshot could never be deleted.
        (Case::HostileTexts, IDS, "ids=$id${CLONE_OF:-}$sid\n"),
        (
            Case::HostileTexts,
            DELETE,
            "delete) rm -rf \"${sid:+$base/.snapshot-$sid}\"; exec flex-pv remove \"$volume\" \"$half\" ;;",
        ),
        (Case::LastWords, CREATE, "flex-pv create --copied --local \"$volume\" || :"),
        (
            Case::NoSecretInWords,
            "*) exec flex-pv fail never \"this",
            "*) env >/dev/termination-log; exit 64; echo \"this",
        ),
        (Case::EndsAfterSigterm, PROVISION, "provision)\n    trap 'sleep 20' TERM\n    sleep 0.4\n    sleep 0.4\n"),
        (Case::DeleteGone, DELETE, "delete) ;;"),
        (Case::DeleteTwice, DELETE, "delete) exec rmdir \"$volume\" ;;"),
        (Case::DeleteUnknown, DELETE, "delete) exec rmdir \"$volume\" ;;"),
        (
            Case::DeleteHalfMade,
            DELETE,
            "delete) [ -z \"$VOLUME_SOURCE\" ] || exec flex-pv remove \"$volume\" \"$half\" ;;",
        ),
        (Case::DeleteById, DELETE, "delete) [ \"$PVC_NAME\" != data ] || exec flex-pv remove \"$volume\" ;;"),
        (
            Case::DeleteKilled,
            DELETE,
            "delete) if [ -d \"$volume\" ]; then mv \"$volume\" \"$base/.gone-$id\"; rm -rf \"$base/.gone-$id\"; fi ;;",
        ),
        (Case::Expand, "expand | modify)", "expand) mkdir \"$volume/larger\" ;;\nmodify)"),
        (Case::CloneContent, "if [ -n \"$CLONE_OF\" ]; then", "if false; then"),
        (
            Case::CloneKilled,
            "flex-pv copy \"$base/$CLONE_OF\" \"$half\"",
            "mkdir \"$volume\"\n cp \"$base/$CLONE_OF\"/* \"$volume\"\n exec flex-pv create --copied --local \"$volume\"",
        ),
        (Case::SnapshotRestore, "flex-pv copy \"$volume\" \"$base/.half-$sid\"", "mkdir \"$base/.half-$sid\""),
        (Case::SnapshotAgain, "if [ ! -d \"$base/.snapshot-$sid\" ]; then", not_again),
        (Case::Modify, "expand | modify)", "modify) mkdir \"$volume/fast\" ;;\nexpand)"),
        (Case::Capacity, "exec flex-pv capacity --bytes 100Gi", "echo 100Gi"),
        (Case::ListWhole, "names=$(ls \"$base\")", "names=$(ls \"$base\" | tail -n 1)"),
        (
            Case::ListOrNothing,
            "names=$(ls \"$base\")",
            "printf 'flex-list 1\\nflex-list end 0\\n'\n    names=$(ls \"$base\")",
        ),
        (Case::Batch, "[ \"$OPERATION\" != batch ] || exec flex-pv each -- \"$0\"\n", ""),
        (Case::PoolNames, "volume=$base/$id\n", "volume=$base/$PVC_NAME\n"),
    ]
}

/// Runs cases on a program, and returns the outcome of each with its reason.
fn outcomes(program: &str, cases: &[Case]) -> (Answer, BTreeMap<String, (String, String)>) {
    let files = Files::new();
    let path = files.write("program", program);
    let ids = cases.iter().map(|case| case.id()).collect::<Vec<_>>().join(" --only ");
    let mut words: Vec<&str> = FLAGS.to_vec();
    words.extend(ids.split(' '));
    words.push(&path);
    let answer = call(&words);
    let document: Value = serde_json::from_str(&answer.out).unwrap_or_else(|error| panic!("{error}: {answer:?}"));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let all = document["cases"].as_array().unwrap().iter();
    let all = all.map(|case| (text(&case["id"]), (text(&case["outcome"]), text(&case["why"])))).collect();
    (answer, all)
}

#[test]
fn a_program_that_keeps_the_contract_passes_every_case() {
    let (answer, outcomes) = outcomes(GOOD, Case::ALL);
    assert_eq!(outcomes.len(), Case::ALL.len());
    for (id, (outcome, why)) in &outcomes {
        assert_eq!(outcome, "passed", "{id}: {why}");
    }
    assert_eq!(answer.code, Some(0), "{answer:?}");
}

#[test]
fn each_case_fails_a_program_with_its_mistake() {
    let mistakes = mistakes();
    for case in Case::ALL {
        assert!(mistakes.iter().any(|(of, ..)| of == case), "{}: no mistake is planted", case.id());
    }
    let check = |(case, right, wrong): &(Case, &str, &str)| {
        assert!(GOOD.contains(right), "{}: the program has no `{right}`", case.id());
        let (answer, outcomes) = outcomes(&GOOD.replacen(right, wrong, 1), &[*case]);
        assert_eq!(outcomes[case.id()].0, "failed", "{}: {answer:?}", case.id());
        assert_eq!(answer.code, Some(1), "{}", case.id());
    };
    // Half of them wait most of the time.
    std::thread::scope(|scope| {
        let halves = mistakes.chunks(mistakes.len().div_ceil(2));
        let threads: Vec<_> = halves.map(|half| scope.spawn(move || half.iter().for_each(check))).collect();
        threads.into_iter().for_each(|thread| thread.join().expect("each mistake is found"));
    });
}

#[test]
fn a_report_is_written_for_build_servers() {
    let files = Files::new();
    let (program, report) = (files.write("program", GOOD), files.path("report.xml"));
    let answer = call(&[
        "conformance",
        "--storage",
        "/srv/volumes",
        "--set",
        "run-as-user=0",
        "--only",
        "delete-twice",
        "--only",
        "expand",
        "--junit",
        &report,
        &program,
    ]);
    assert_eq!(answer.code, Some(0), "{answer:?}");
    assert!(answer.out.contains("1 cases passed, 0 failed, 1 skipped"), "{answer:?}");
    let report = fs::read_to_string(report).unwrap();
    assert!(
        report.contains("name=\"delete-twice\"")
            && report.contains("<skipped message=\"the config does not declare the capability expand\""),
        "{report}"
    );
}

#[test]
fn a_case_is_explained_and_a_call_without_program_cannot_run() {
    let answer = call(&["conformance", "--explain", "volume-is-last"]);
    assert!(answer.out.contains("To mend the program: Create the PersistentVolume as the last act"), "{answer:?}");
    let answer = call(&["conformance"]);
    assert_eq!(answer.code, Some(2), "{answer:?}");
    assert!(answer.err.contains("name a program, or a config with a script"), "{answer:?}");
    let answer = call(&["conformance", "--cluster"]);
    assert!(answer.code == Some(2) && answer.err.contains("--cluster-config"), "{answer:?}");
    let answer = call(&["conformance", "--cluster", "./program"]);
    assert!(answer.code == Some(2) && answer.err.contains("cannot be used with"), "{answer:?}");
}
