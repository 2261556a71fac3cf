use flex_contract::exit::Reaction;
use flex_contract::names;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde_json::{Value, json};

use super::super::health::Health;
use super::super::testing::{failed, made, one_class};
use super::*;

fn bound(name: &str) -> Row {
    Row {
        claim: format!("team/{name}"),
        class: "c".into(),
        state: Progress::Bound,
        attempt: 1,
        age: 1,
        created: 1,
        running: None,
        failure: None,
        next_try: None,
        waits_for: None,
    }
}

#[test]
fn a_class_fails_if_its_last_known_attempt_failed() {
    let retry = |name: &str, created, at| failed(name, created, Reaction::Retry, at, "the array is off");
    let never = |name: &str, created, at| failed(name, created, Reaction::Never, at, "too large");
    let deletes = || {
        let mut row = retry("a", 100, 200);
        row.failure.as_mut().unwrap().operation = Operation::Delete;
        row
    };
    let deleting = || Row { state: Progress::Deleting, ..retry("a", 100, 200) };
    let unadopted = || Arc::new(Volume { adoption_mark: None, ..Volume::clone(&made("c", 300)) });
    for (what, rows, volumes, expected) in [
        ("nothing is known", vec![], vec![], None),
        ("all is well", vec![bound("b")], vec![made("c", 100)], None),
        ("one fails from the first", vec![retry("a", 100, 200)], vec![], Some((1, "team/a"))),
        ("two fail", vec![retry("a", 1, 9), retry("b", 2, 8)], vec![made("other", 99)], Some((2, "team/a"))),
        (
            "it fails since a volume was made",
            vec![bound("b"), retry("a", 1, 9)],
            vec![made("c", 8)],
            Some((1, "team/a")),
        ),
        ("a volume was made since it failed", vec![retry("a", 1, 9)], vec![made("c", 10)], None),
        ("another can never be made", vec![never("a", 5, 90)], vec![made("c", 50)], None),
        ("nothing was made since it was asked for", vec![never("a", 60, 90)], vec![made("c", 50)], Some((1, "team/a"))),
        ("what was made did not fit", vec![retry("a", 100, 200)], vec![unadopted()], Some((1, "team/a"))),
        ("a deletion fails", vec![deletes()], vec![], None),
        ("its user deletes it", vec![deleting()], vec![], None),
    ] {
        let found = failing("c", &rows, &volumes);
        let says = found.as_ref().map(|found| (found.claims, found.last.split(':').next().unwrap()));
        assert_eq!(says, expected, "{what}");
    }
}

#[test]
fn the_state_of_a_failing_class_has_the_number_of_claims_and_the_last_message() {
    let table = one_class(json!({ "service-account-name": "c" }));
    let class = table.iter().next().expect("the config names a class");
    let says = |rows: &[Row]| Health::of("c", &table, rows, &[]).verdict(class);
    assert_eq!(says(&[bound("a")]), "ok");
    let row = |name: &str, texts: &str| failed(name, 1, Reaction::Retry, 9, texts);
    assert_eq!(says(&[row("a", "exit code 75: off")]), "failing: 1 claim, last team/a: ExitCode: exit code 75: off");
    let long = says(&[row("a", &"x".repeat(1000)), row("b", &"x".repeat(1000))]);
    assert!(long.starts_with("failing: 2 claims, last team/") && long.len() < 250, "{long}");
}

/// Returns the row of a claim of this size with these annotations.
fn row_of(table: &Classes, size: &str, annotations: Value) -> Row {
    let claim = json!({
        "metadata": { "name": "a", "namespace": "team", "uid": "u", "annotations": annotations },
        "spec": { "storageClassName": "c", "accessModes": ["ReadWriteOnce"],
                  "resources": { "requests": { "storage": size } } },
    });
    let claim: PersistentVolumeClaim = serde_json::from_value(claim).unwrap();
    row(table, &Namespaces::default(), &Claim::from(&claim), 0).unwrap()
}

#[test]
fn a_failed_claim_that_the_class_refuses_now_is_refused() {
    let failure = json!({
        "operation": "provision", "attempt": 2, "at": 9, "kind": "retry", "reason": "ExitCode", "message": "busy",
    });
    let failed = json!({ names::CLAIM_UID: "u", names::ATTEMPT: "2", names::FAILURE: failure.to_string() });
    let row = |keys: Value| row_of(&one_class(keys), "2Gi", failed.clone());
    assert_eq!(row(json!({ "service-account-name": "c" })).state, Progress::Failed);
    let refused = row(json!({ "service-account-name": "c", "max-size": "1Gi" }));
    assert_eq!((refused.state, refused.next_try), (Progress::Refused, None));
    assert!(refused.reason().contains("provides at most 1Gi; ask for less"), "{refused:?}");
}

#[test]
fn the_state_of_a_class_counts_the_claims_that_it_refuses() {
    let table = one_class(json!({ "service-account-name": "c" }));
    let class = table.iter().next().expect("the config names a class");
    let refused = |name: &str| Row { state: Progress::Refused, ..bound(name) };
    let says = |rows: &[Row]| Health::of("c", &table, rows, &[]).verdict(class);
    assert_eq!(says(&[bound("a"), refused("b")]), "ok; 1 claim refused");
    assert_eq!(says(&[Row { class: "other".into(), ..refused("a") }]), "ok");
    let fails = failed("c", 1, Reaction::Retry, 9, "off");
    assert_eq!(
        says(&[refused("a"), refused("b"), fails]),
        "failing: 1 claim, last team/c: ExitCode: off; 2 claims refused"
    );
}

#[test]
fn a_claim_that_the_class_refuses_says_so_instead_of_waiting() {
    let table = one_class(json!({ "service-account-name": "c", "max-size": "1Gi" }));
    let row = |size: &str| row_of(&table, size, json!({}));
    let (fits, large) = (row("1Gi"), row("2Gi"));
    assert_eq!((fits.state, large.state), (Progress::Waiting, Progress::Refused));
    assert!(large.reason().contains("asks for 2Gi, and class c provides at most 1Gi; ask for less"), "{large:?}");
    assert_eq!(fits.reason(), "waits for its turn");
}
