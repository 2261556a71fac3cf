//! Tests of `conformance`: a program that keeps the contract passes each case, and for each case there is a program that
//! fails it.

use std::collections::BTreeMap;
use std::fs;

use flex_desk::conformance::Case;
use serde_json::Value;

use crate::{Answer, Files, call, judged, without_front};

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
#[allow(clippy::too_many_lines, reason = "a table")]
fn mistakes() -> Vec<(Case, &'static str, &'static str)> {
    // Each run takes the next number, and two that run at the same time take the same.
    let numbered = "provision)\n    n=$(cat $base/.next 2>/dev/null || echo 0)\n    sleep 1\n    echo $((n + 1)) >$base/.next\n    mkdir -p \"$base/$n\"\n    exec flex-pv create --copied --local \"$base/$n\"\n";
    // The lock is held for nearly the whole run, also on a machine with other work.
    let long_locked =
        "provision)\n    mkdir $base/.lock || exec flex-pv fail retry busy\n    sleep 3\n    rmdir $base/.lock\n";
    let not_again = "if true; then";
    // The other run makes its volume between the two calls of `ls`.
    let tidies = "provision)\n    known=$(ls $base | tr '\\n' ' ')\n    date >/dev/null\n    for one in $(ls $base); do case \" $known\" in *\" $one \"*) ;; *) rm -rf \"$base/$one\" ;; esac; done\n";
    vec![
        (Case::VolumeFits, CREATE, "exec flex-pv create --copied --size 100Gi --local \"$volume\""),
        (
            Case::VolumeFits,
            CREATE,
            "exec flex-pv create --copied --on-this-node=false --affinity kubernetes.io/hostname=elsewhere --local \"$volume\"",
        ),
        (Case::Rights, PROVISION, "provision)\n    touch /usr/mine || :\n"),
        (Case::CalledAgain, "if [ ! -d \"$volume\" ]; then", not_again),
        (Case::CalledAgain, "volume=$base/$id\n", "volume=$base/$id-${ATTEMPT:-1}\n"),
        (
            Case::CalledAgain,
            CREATE,
            "rm -f \"$volume/flex-content\"\n    exec flex-pv create --copied --local \"$volume\"",
        ),
        (Case::KilledAtChild, "flex-pv remove \"$half\"\n", ":\n"),
        (Case::KilledAtChild, "half=$base/.half-$id\n", "half=$base/.half-$(date +%s%N)\n"),
        (Case::KilledAtTimes, PROVISION, long_locked),
        (
            Case::KilledAtCreate,
            PROVISION,
            "provision)\n    [ ! -d \"$volume\" ] || exec flex-pv fail never \"it exists\"\n",
        ),
        (Case::VolumeIsLast, CREATE, "flex-pv create --copied --local \"$volume\"\n    touch \"$volume/late\""),
        (Case::EightAtOnce, PROVISION, numbered),
        (Case::Interleaved, PROVISION, tidies),
        (Case::UnknownOperation, "*) exec flex-pv fail never \"this program cannot $OPERATION\" ;;", "*) ;;"),
        (Case::Sizes, PROVISION, "provision)\n    [ \"$SIZE_BYTES\" -gt 1 ] || exit 134\n"),
        (Case::Sizes, "volume $name - ", "volume $name 4096 "),
        (Case::UnknownParameter, "flex-pv parameters base-path\n", ""),
        (Case::OtherPath, DELETE, "delete) exec rm -rf \"/srv/volumes/$id\" ;;"),
        (Case::StorageFails, DELETE, "delete) flex-pv remove \"$volume\" \"$half\" || : ;;"),
        (
            Case::StorageFails,
            "flex-pv remove \"$half\"\n",
            "flex-pv remove \"$half\" || exec flex-pv fail never \"no\"\n",
        ),
        // The first attempt asks for another one.
        (
            Case::StorageFails,
            "flex-pv remove \"$half\"\n",
            "flex-pv remove \"$half\" || case $ATTEMPT in 1) exit 75 ;; *) exec flex-pv fail never \"no\" ;; esac\n",
        ),
        (Case::StorageFails, "flex-pv copy \"$base/$CLONE_OF\" \"$half\"", "cp -a \"$base/$CLONE_OF\" \"$half\" || :"),
        (
            Case::StorageFails,
            "flex-pv copy \"$base/$CLONE_OF\" \"$half\"",
            "flex-pv copy \"$base/$CLONE_OF\" \"$half\" || exec flex-pv fail never \"no\"",
        ),
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
        (Case::EndsAfterSigterm, PROVISION, "provision)\n    trap 'sleep 20' TERM\n    sleep 3\n    sleep 3\n"),
        (Case::DeleteGone, DELETE, "delete) ;;"),
        (
            Case::NextVolumeEmpty,
            DELETE,
            "delete) [ ! -d \"$volume\" ] || mv \"$volume\" \"$base/.trash-$(date +%s%N)\" ;;",
        ),
        (Case::DeleteTwice, DELETE, "delete) exec rmdir \"$volume\" ;;"),
        (Case::DeleteUnknown, DELETE, "delete) exec rmdir \"$volume\" ;;"),
        (
            Case::DeleteHalfMade,
            DELETE,
            "delete) [ -z \"$VOLUME_SOURCE\" ] || exec flex-pv remove \"$volume\" \"$half\" ;;",
        ),
        (Case::DeleteHalfMade, DELETE, "delete) exec flex-pv remove \"$volume\" ;;"),
        (
            Case::DeleteAlone,
            DELETE,
            "delete) path=${VOLUME_SOURCE##*path\\\":\\\"}; path=${path%%\\\"*}; exec rm -rf \"$path\" \"$half\" ;;",
        ),
        (
            Case::DeleteAlone,
            "case $OPERATION:$id in delete:) exec flex-pv fail never \"the run has no id\" ;; esac\n",
            "case $OPERATION in delete) rm -rf \"$base/$id\" || : ;; esac\n",
        ),
        (
            Case::HostileContent,
            DELETE,
            "delete) find -L \"$volume\" -delete 2>/dev/null || :; exec flex-pv remove \"$volume\" \"$half\" ;;",
        ),
        (Case::DeleteById, DELETE, "delete) [ \"$PVC_NAME\" != data ] || exec flex-pv remove \"$volume\" ;;"),
        (
            Case::DeleteKilled,
            DELETE,
            "delete) if [ -d \"$volume\" ]; then mv \"$volume\" \"$base/.gone-$id\"; rm -rf \"$base/.gone-$id\"; fi ;;",
        ),
        (Case::Expand, "expand | modify)", "expand) mkdir \"$volume/larger\" ;;\nmodify)"),
        (Case::Expand, "expand | modify)", "expand) rm -f \"$volume/flex-content\" ;;\nmodify)"),
        (Case::CloneContent, "if [ -n \"$CLONE_OF\" ]; then", "if false; then"),
        (Case::CloneContent, "flex-pv copy \"$base/$CLONE_OF\" \"$half\"", "cp -al \"$base/$CLONE_OF\" \"$half\""),
        (
            Case::CloneContent,
            "flex-pv copy \"$base/$CLONE_OF\" \"$half\"",
            "mkdir \"$half\"; chmod 0777 \"$half\"; cp -a \"$base/$CLONE_OF\"/* \"$half\"",
        ),
        (
            Case::CloneKilled,
            "flex-pv copy \"$base/$CLONE_OF\" \"$half\"",
            "mkdir \"$volume\"\n cp \"$base/$CLONE_OF\"/* \"$volume\"\n exec flex-pv create --copied --local \"$volume\"",
        ),
        (Case::SnapshotRestore, "flex-pv copy \"$volume\" \"$base/.half-$sid\"", "mkdir \"$base/.half-$sid\""),
        (
            Case::SnapshotRestore,
            "flex-pv copy \"$volume\" \"$base/.half-$sid\"",
            "cp -al \"$volume\" \"$base/.half-$sid\"",
        ),
        (
            Case::SnapshotKilled,
            "flex-pv copy \"$volume\" \"$base/.half-$sid\"",
            "cp -a \"$volume\" \"$base/.snapshot-$sid\" && exit",
        ),
        (
            Case::SnapshotOutlives,
            DELETE,
            "delete) rm -rf \"$base\"/.snapshot-*; exec flex-pv remove \"$volume\" \"$half\" ;;",
        ),
        (Case::SnapshotOutlives, "names=$(ls \"$base\")", "names=$(ls -A \"$base\" | sed 's/^.snapshot-//')"),
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
    let cases = without_front();
    let (answer, outcomes) = outcomes(GOOD, &cases);
    assert_eq!(outcomes.len(), cases.len());
    for (id, (outcome, why)) in &outcomes {
        assert_eq!(outcome, "passed", "{id}: {why}");
    }
    assert_eq!(answer.code, Some(0), "{answer:?}");
    let document: Value = serde_json::from_str(&answer.out).unwrap();
    assert_eq!(document["summary"], format!("contract 1: {0} of {0}", cases.len()));
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

#[test]
fn each_case_fails_a_program_with_its_mistake() {
    let mistakes = mistakes();
    for case in without_front() {
        assert!(mistakes.iter().any(|(of, ..)| *of == case), "{}: no mistake is planted", case.id());
    }
    let check = |(case, right, wrong): &(Case, &str, &str)| {
        assert!(GOOD.contains(right), "{}: the program has no `{right}`", case.id());
        let judged = || outcomes(&GOOD.replacen(right, wrong, 1), &[*case]);
        let is_found = |(_, all): &(Answer, BTreeMap<String, (String, String)>)| all[case.id()].0 == "failed";
        // On a busy machine, a signal may miss the moment of the mistake.
        let (answer, outcomes) = (0..2).map(|_| judged()).find(is_found).unwrap_or_else(&judged);
        assert_eq!(outcomes[case.id()].0, "failed", "{}: {answer:?}", case.id());
        assert_eq!(answer.code, Some(1), "{}", case.id());
    };
    // Most of them wait: a run that fails is repeated after pauses.
    std::thread::scope(|scope| {
        let parts = mistakes.chunks(mistakes.len().div_ceil(4));
        let threads: Vec<_> = parts.map(|part| scope.spawn(move || part.iter().for_each(check))).collect();
        threads.into_iter().for_each(|thread| thread.join().expect("each mistake is found"));
    });
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
