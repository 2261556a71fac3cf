//! Tests of `conformance` with a program that keeps the contract: runs that ask for another attempt, and reports.

use std::collections::BTreeMap;
use std::fs;

use flex_desk::conformance::Case;
use serde_json::Value;

use crate::{Answer, Files, call, judged};

/// A program that keeps the contract.
const GOOD: &str = include_str!("wrong/right.sh");
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

/// The beginning of its provision run.
const PROVISION: &str = "provision)\n";

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
fn a_volume_for_the_node_of_the_pod_is_refused_where_the_scheduler_selects_another() {
    let files = Files::new();
    let class = "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: nas}\nprovisioner: flex-provisioner.io\nvolumeBindingMode: WaitForFirstConsumer\n";
    let config = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: nas, namespace: flex-provisioner, labels: {type: provisioner-config, storage-class: nas}}\ndata: {plugin-name: kubernetes.io/flex-provisioner, image: i, service-account-name: s, placement: any}\n";
    let config = files.write("config.yaml", &format!("{config}---\n{class}"));
    for (node, is_right) in [("NODE_NAME", true), ("POD_NODE", false)] {
        let create = "exec flex-pv create --nfs \"nas:/$CLAIM_UUID\" --affinity";
        let text = format!("#!/bin/sh\n{create} \"kubernetes.io/hostname=${node}\"\n");
        let program = files.write(node, &text);
        let words = "its node affinity excludes the selected node desk";
        let answer = call(&["try", "--config", &config, &program]);
        assert_eq!(answer.code, Some(if is_right { 0 } else { 2 }), "{node}: {answer:?}");
        assert_eq!(answer.out.contains("VolumeRefused") && answer.out.contains(words), !is_right, "{node}: {answer:?}");
        let (answer, outcomes) = judged(&config, &program, &[Case::VolumeFits], &[]);
        assert_eq!(outcomes[0][1] == "failed" && outcomes[0][2].contains(words), !is_right, "{node}: {answer:?}");
    }
}

/// The cases whose runs must succeed, in each operation.
const PATIENT: &[Case] = &[
    Case::CalledAgain,
    Case::KilledAtTimes,
    Case::KilledAtCreate,
    Case::VolumeIsLast,
    Case::EightAtOnce,
    Case::EndsAfterSigterm,
    Case::DeleteTwice,
    Case::DeleteHalfMade,
    Case::Expand,
    Case::SnapshotAgain,
    Case::Capacity,
    Case::ListWhole,
    Case::Batch,
];

#[test]
fn a_run_that_asks_for_another_attempt_gets_it_and_the_report_says_so() {
    let program = GOOD
        .replace("set -eu\n", "set -eu\ncase $OPERATION:${ATTEMPT:-2} in list:*) ;; *:1) exec flex-pv fail retry 'the array is busy' ;; esac\n");
    let (answer, outcomes) = outcomes(&program, PATIENT);
    for (id, (outcome, why)) in &outcomes {
        assert_eq!(outcome, "passed", "{id}: {why}");
    }
    assert_eq!(answer.code, Some(0), "{answer:?}");
    let document: Value = serde_json::from_str(&answer.out).unwrap();
    let repeats = |id: &str| {
        let cases = document["cases"].as_array().unwrap();
        cases.iter().find(|case| case["id"] == id).unwrap()["repeats"].as_array().unwrap().clone()
    };
    let first = &repeats("expand")[1];
    assert_eq!((&first["operation"], &first["attempt"]), (&"expand".into(), &1.into()), "{first}");
    assert_eq!((&first["exitCode"], &first["lastWords"]), (&75.into(), &"the array is busy".into()), "{first}");
    // A run that repeats a success has a higher number.
    assert_eq!((repeats("delete-twice").len(), repeats("snapshot-again").len()), (2, 4), "{document}");
    assert!(repeats("batch").iter().any(|repeat| repeat["operation"] == "batch"), "{document}");
}

#[test]
fn the_report_for_people_and_build_servers_names_each_repetition() {
    let files = Files::new();
    // 77 and codes without a meaning are repeated like 75; the third attempt succeeds.
    let fails = "set -eu\ncase $ATTEMPT in 1) exec flex-pv fail retry 'the array is busy' ;; 2) exit 77 ;; esac\n";
    let (program, report) = (files.write("program", &GOOD.replace("set -eu\n", fails)), files.path("report.xml"));
    let case = ["--only", "delete-unknown", "--junit", &report, &program];
    let answer = call(&[&["conformance", "--storage", "/srv/volumes", "--set", "run-as-user=0"][..], &case].concat());
    assert_eq!(answer.code, Some(0), "{answer:?}");
    let words = "repeated: attempt 1 of the provision run ended with 75: the array is busy";
    let end = "1 cases passed, 0 failed, 0 skipped; 4 runs asked for another attempt, and were repeated";
    for text in [words, "repeated: attempt 2 of the delete run ended with 77", end] {
        assert!(answer.out.contains(text), "{text}: {answer:?}");
    }
    let report = fs::read_to_string(report).unwrap();
    assert!(report.contains("<system-out>") && report.contains(words), "{report}");
}

#[test]
fn a_program_that_asks_for_another_attempt_for_ever_fails() {
    let program = GOOD.replace(PROVISION, "provision)\n    exec flex-pv fail retry 'the array is busy'\n");
    let (answer, outcomes) = outcomes(&program, &[Case::VolumeFits]);
    let (outcome, why) = &outcomes["volume-fits"];
    let words = "the provision run ended with 75: the array is busy (attempt 5; each attempt before it asked for another one, too)";
    assert_eq!((outcome.as_str(), why.as_str(), answer.code), ("failed", words, Some(1)), "{answer:?}");
    let document: Value = serde_json::from_str(&answer.out).unwrap();
    let case = &document["cases"][0];
    assert_eq!((&document["summary"], &case["done"]), (&"contract 1: 0 of 1".into(), &FIRST.into()), "{document}");
    let repeat = case["repeat"].as_str().unwrap();
    assert!(repeat.starts_with("flex-provisioner conformance --only volume-fits -o json --storage"), "{repeat}");
}

/// The work of the first case.
const FIRST: &str = "A provision run makes a volume. Where the scheduler selects a node, and the run may be on any, its pod is on another one.";

#[test]
fn a_report_says_of_each_failure_what_was_done_and_expected_and_how_to_mend_and_repeat_it() {
    let files = Files::new();
    let program = files.write("program", "#!/bin/sh\nexec flex-pv fail never 'not today'\n");
    let report = files.path("report.xml");
    let own = ["conformance", "--storage", "/srv/volumes", "--set", "region=the north", "--junit", &report, &program];
    let answer = call(&own);
    assert_eq!(answer.code, Some(1), "{answer:?}");
    let lines: Vec<&str> = answer.out.lines().collect();
    let first = lines.iter().position(|line| line.starts_with("FAIL  volume-fits")).expect("the first case fails");
    assert!(lines[first].ends_with("ms  the provision run ended with 65: not today"), "{answer:?}");
    let command = format!(
        "flex-provisioner conformance --only volume-fits --storage /srv/volumes --set 'region=the north' {program}"
    );
    let expected = [
        format!("done: {FIRST}"),
        "expected: It exits 0, and its PersistentVolume has every field of the contract.".into(),
        "mend: flex-pv create writes all fields.".into(),
        format!("repeat: {command}"),
    ];
    for (line, words) in lines[first + 1..].iter().zip(&expected) {
        assert!(line.trim_start().starts_with(words), "{words}: {line}");
    }
    let count = |word: &str| lines.iter().filter(|line| line.starts_with(word)).count();
    let (passed, failed) = (count("pass"), count("FAIL"));
    assert_eq!(lines.last(), Some(&format!("contract 1: {passed} of {}", passed + failed).as_str()), "{answer:?}");
    let unjudged = lines.iter().filter(|line| line.starts_with("skip") || line.starts_with("n/a"));
    assert!(unjudged.clone().count() > 0 && unjudged.clone().all(|line| line.contains(" ms  ")), "{answer:?}");
    let report = fs::read_to_string(report).unwrap();
    let summary = format!("<property name=\"summary\" value=\"contract 1: {passed} of {}\"", passed + failed);
    for words in [summary.as_str(), "done: A provision run makes a volume.", "mend: flex-pv create writes all fields."]
    {
        assert!(report.contains(words), "{words}: {report}");
    }
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
