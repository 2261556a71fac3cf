//! Tests of the records of runs.

use super::*;

const UID: &str = "0f8fad5b-d9cb-469f-a165-70867728950e";

fn claim(uid: &str) -> Claim {
    let object = json!({
        "metadata": {
            "namespace": "team", "name": "data", "uid": uid, "creationTimestamp": "2026-11-01T00:00:00Z",
            "labels": { "app": "db" },
            "annotations": {
                names::LABEL_INSTANCE: "default", names::CLAIM_UID: uid, names::ATTEMPT: "2", names::HELD: uid,
                names::PROVISION_TS: "2026-11-01T00:00:00.000001Z", names::RECIPE_VERSION: "own/config@hash",
                names::NODES: "a,b",
                names::SELECTED_NODE: "b", names::CREATED_BY: "tom", names::CREATED_BY_GROUPS: "g,h",
                names::STORAGE_PROVISIONER: "flex-provisioner.io",
                names::FAILURE: json!({ "operation": "provision", "attempt": 1, "at": 7, "kind": "retry", "reason": "ExitCode",
                    "message": "off", "unstarted_attempts": 1 }).to_string(),
                names::FAILED_ATTEMPTS: "{}",
            },
        },
        "spec": {
            "storageClassName": "silver", "accessModes": ["ReadWriteOnce"], "volumeMode": "Block",
            "resources": { "requests": { "storage": "3Gi" } }, "volumeAttributesClassName": "fast",
            "dataSourceRef": { "apiGroup": api::GROUP, "kind": "VolumeSnapshot", "namespace": "other", "name": "s" },
        },
    });
    Claim::from(&serde_json::from_value::<PersistentVolumeClaim>(object).unwrap())
}

fn read(annotations: Value, claims: &[Claim]) -> Record {
    let data = Record::data(claims.iter());
    let metadata = json!({ "namespace": "own", "name": record_name("provision-u-1", &data), "uid": "r",
        "resourceVersion": "7", "annotations": annotations });
    Record::read(&serde_json::from_value(metadata).unwrap(), &data).unwrap()
}

#[test]
fn a_claim_comes_back_as_it_was() {
    let whole = claim(UID);
    let back = read(json!({}), std::slice::from_ref(&whole)).claim(UID).unwrap();
    // Labels and annotations of the user are one map, and the orchestrator's own are read again.
    let own = |claim: &Claim| (claim.metadata.get("app").cloned(), claim.foreign_metadata_bytes > 0);
    assert_eq!(own(&back), own(&whole));
    let texts = |claim: Claim| Claim { metadata: BTreeMap::new(), foreign_metadata_bytes: 0, held: true, ..claim };
    assert_eq!(texts(back), texts(whole));
}

#[test]
fn a_record_names_the_job_of_its_batch() {
    let batch = "provision-batch-0123456789abcdef";
    for (job, expected) in [(batch, Some(ObjectName::new("own", batch))), ("provision-0123456789abcdef-1", None)] {
        let data = Record::data([claim(UID)].iter());
        let metadata = json!({ "namespace": "own", "name": record_name(job, &data), "uid": "r" });
        let record = Record::read(&serde_json::from_value(metadata).unwrap(), &data).unwrap();
        assert_eq!((record.batch(UID), record.batch("another")), (expected, None));
    }
}

#[test]
fn a_stand_in_has_a_name_that_no_claim_can_have() {
    let stand_in = claim(UID).stand_in(read(json!({}), &[]).reference(), "7");
    assert!(stand_in.terminating && stand_in.is_held() && stand_in.is_stand_in());
    assert_eq!(stand_in.name, ObjectName::new("team", format!("data#{UID}")));
    assert_eq!((stand_in.api_name(), stand_in.resource_version.as_str()), (ObjectName::new("team", "data"), "7"));
    let again = read(json!({}), &[stand_in]).claim(UID).unwrap();
    assert_eq!(again.name, ObjectName::new("team", "data"));
}

#[test]
fn only_its_own_uid_arms_a_record() {
    let of = |annotations: Value| {
        let record = read(annotations, &[claim("a"), claim("b")]);
        (record.armed, record.unsettled().cloned().collect::<Vec<_>>())
    };
    assert_eq!(of(json!({})), (false, vec![]));
    assert_eq!(of(json!({ names::ARMED: "copied" })), (false, vec![]));
    assert_eq!(of(json!({ names::ARMED: "r" })), (true, vec!["a".to_owned(), "b".to_owned()]));
    assert_eq!(of(json!({ names::ARMED: "r", names::SETTLED: "a" })), (true, vec!["b".to_owned()]));
}

#[test]
fn a_record_goes_with_its_last_claim() {
    let record = read(json!({ names::ARMED: "r", names::SETTLED: "a" }), &[claim("a"), claim("b"), claim("c")]);
    let with = |uids: &[&str]| record.settled_with(&uids.iter().map(|uid| (*uid).to_owned()).collect());
    assert_eq!(with(&["b"]), Some("a,b".to_owned()));
    assert_eq!(with(&["b", "c"]), None);
}

#[test]
fn a_record_of_what_somebody_may_keep_says_only_that() {
    let claims = [claim("a"), claim("b")];
    let record = read(json!({ names::ARMED: "r", names::KEPT: "a" }), &claims);
    let kept = |record: &Record| record.kept().map(|claim| claim.uid.clone()).collect::<Vec<_>>();
    assert!(kept(&record) == ["a"] && !record.needs("a") && record.needs("b"));
    assert_eq!((record.kept_with("a"), record.kept_with("b")), ("a".to_owned(), "a,b".to_owned()));
    let with = |uids: &[&str]| record.settled_with(&uids.iter().map(|uid| (*uid).to_owned()).collect());
    assert_eq!(with(&["b"]), Some("b".to_owned()), "the record stays");
    assert_eq!(with(&["a", "b"]), None);
    assert!(kept(&read(json!({ names::ARMED: "copied", names::KEPT: "a" }), &claims)).is_empty());
    assert!(kept(&read(json!({ names::ARMED: "r", names::KEPT: "a", names::SETTLED: "a" }), &claims)).is_empty());
}

#[test]
fn what_is_noted_of_a_gone_claim_is_read_again() {
    let record = read(json!({}), &[claim("a"), claim("b")]);
    let failure = json!({ "operation": "delete", "attempt": 3, "at": 9, "kind": "retry", "reason": "r",
        "message": "\"m".repeat(2000) });
    let changes = json!({ names::FAILURE: failure.to_string(), names::NODES: null });
    let (key, note) = record.note(&record.claim("a").unwrap(), &changes);
    assert!(note.len() < 600, "{note}");
    let record = read(json!({ key: note }), &[claim("a"), claim("b")]);
    assert!(record.has_note("a") && !record.has_note("b"));
    let (noted, other) = (record.claim("a").unwrap(), record.claim("b").unwrap());
    assert_eq!(noted.last_failure.as_ref().unwrap().attempt, 3);
    assert!(noted.nodes_with_storage.is_empty() && noted.failed_attempts.is_some());
    assert_eq!(other.nodes_with_storage, ["a", "b"]);
}

#[test]
fn an_admin_abandons_all_claims_of_a_record_or_some() {
    let of = |value: &str| {
        let record = read(json!({ names::ABANDON: value }), &[claim("a"), claim("b")]);
        (record.claim("a").unwrap().abandoned, record.claim("b").unwrap().abandoned)
    };
    assert_eq!(of(names::ABANDON_YES), (true, true));
    assert_eq!(of("c, b"), (false, true));
    assert_eq!(of("yes"), (false, false));
}

#[test]
fn each_request_to_try_again_counts_once() {
    let asked =
        |note: &str| read(json!({ names::RETRY: "now", names::GONE_CLAIM.to_owned() + "a": note }), &[claim("a")]);
    let record = asked("{}");
    assert!(record.asks_for_retry("a") && !read(json!({}), &[claim("a")]).asks_for_retry("a"));
    let noted = |record: &Record, changes: Value| asked(&record.note(&record.claim("a").unwrap(), &changes).1);
    let other = noted(&record, json!({ names::NODES: "b" }));
    assert!(other.asks_for_retry("a"), "no run has answered it");
    let answered = noted(&other, json!({ names::FAILURE: null, names::RETRY: null }));
    assert!(!answered.asks_for_retry("a"));
    assert!(!noted(&answered, json!({ names::NODES: "b" })).asks_for_retry("a"));
}

#[test]
fn a_claim_that_cannot_be_read_keeps_the_record() {
    let data = json!({ "claims": [manifest(&claim("a")), { "metadata": { "uid": 7 } }] });
    let metadata = json!({ "name": record_name("j", &data), "uid": "r", "annotations": { names::ARMED: "r" } });
    let record = Record::read(&serde_json::from_value(metadata).unwrap(), &data).unwrap();
    assert_eq!((record.unreadable(), record.is_only("a")), (1, false));
    assert_eq!(record.settled_with(&["a".to_owned()].into()), Some("a".to_owned()));
}

#[test]
fn a_record_replaces_an_older_one_that_says_no_more() {
    let of = |nodes: &[&str], recipe: &str| {
        let claim = claim("a");
        let stamp =
            claim.stamp.clone().map(|stamp| super::super::claim::Stamp { recipe_version: recipe.into(), ..stamp });
        let nodes_with_storage = nodes.iter().map(|node| (*node).to_owned()).collect();
        read(json!({}), &[Claim { stamp, nodes_with_storage, ..claim }])
    };
    assert!(of(&["a", "b"], "r").replaces(&of(&["a"], "r"), "a"));
    assert!(!of(&["b"], "r").replaces(&of(&["a"], "r"), "a"), "a node would be forgotten");
    assert!(!of(&["a"], "r").replaces(&of(&["a"], "other"), "a"));
    assert!(!of(&["a"], "r").replaces(&of(&["a"], "r"), "b"));
}
