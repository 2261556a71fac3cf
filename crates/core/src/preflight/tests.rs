use std::collections::BTreeMap;

use flex_contract::names;

use super::rights::{Scope, described, of_orchestrator};
use super::*;
use crate::config::Problem;
use crate::config::classes::Verdict;
use crate::object::ObjectName;
use crate::policies::{POLICIES, PolicyState};

fn identity() -> Identity {
    Identity {
        provisioner: names::DEFAULT_PROVISIONER.into(),
        plugin: names::DEFAULT_PLUGIN.into(),
        instance: names::DEFAULT_INSTANCE.into(),
        config_namespaces: vec!["admin".into()],
        namespace: "storage".into(),
        shell_image: None,
        cluster: String::new(),
    }
}

/// Each line that needs an action says what to do, and each other line does not.
fn assert_remedies(lines: &[Line]) {
    for line in lines {
        assert_eq!(line.remedy.is_some(), line.mark != Mark::Ok, "{line:?}");
    }
}

#[test]
fn an_api_server_is_judged_by_its_version() {
    let refused = "connection refused".to_owned();
    for (version, mark, text) in [
        (Ok(("1", "33")), Mark::Ok, "Kubernetes 1.33"),
        (Ok(("1", "36+")), Mark::Ok, "Kubernetes 1.36+"),
        (Ok(("2", "0")), Mark::Ok, "Kubernetes 2.0"),
        (Ok(("1", "32")), Mark::Failed, "Kubernetes 1.32 is too old"),
        (Ok(("0", "99")), Mark::Failed, "Kubernetes 0.99 is too old"),
        (Ok(("", "")), Mark::Warning, "no version that this command knows"),
        (Err(refused.as_str()), Mark::Failed, "does not answer: connection refused"),
    ] {
        let line = server(version);
        assert!(line.mark == mark && line.found.contains(text), "{version:?}: {line:?}");
        assert_remedies(&[line]);
    }
}

#[test]
fn missing_rights_are_named() {
    let lines = [
        rights_to_install(&[]),
        rights_to_install(&["clusterroles".into()]),
        rights_of_account("storage/flex", &[]),
        rights_of_account("storage/flex", &["patch persistentvolumes".into(), "list nodes".into()]),
    ];
    assert_eq!(lines.each_ref().map(|line| line.mark), [Mark::Ok, Mark::Failed, Mark::Ok, Mark::Failed]);
    assert!(lines[1].found.ends_with("clusterroles"));
    assert!(lines[3].found.contains("storage/flex may not: patch persistentvolumes, list nodes"));
    assert_remedies(&lines);
}

#[test]
fn the_rights_of_the_orchestrator_are_those_of_the_shipped_roles() {
    let rights = of_orchestrator();
    let has = |scope, text: &str| rights.iter().any(|right| right.scope == scope && right.to_string() == text);
    assert!(has(Scope::Cluster, "patch persistentvolumeclaims/status"), "{rights:?}");
    assert!(has(Scope::Cluster, "list storageclasses.storage.k8s.io"));
    assert!(has(Scope::Cluster, "manage volumes.flex-provisioner.io"));
    assert!(has(Scope::Configs, "create jobs.batch"));
    assert!(has(Scope::Own, "update leases.coordination.k8s.io"));
    assert!(!rights.iter().any(|right| right.resource == "secrets"), "the orchestrator reads no Secrets");
    assert!(!has(Scope::Cluster, "provision volumes.flex-provisioner.io"), "this is a right of images");
}

#[test]
fn rights_are_described_by_resource() {
    let of =
        |resource: &str| of_orchestrator().into_iter().filter(|right| right.resource == resource).collect::<Vec<_>>();
    assert_eq!(described(&of("storageclasses")), ["list/watch storageclasses.storage.k8s.io"]);
    assert_eq!(described(&of("jobs")), ["create/delete/get/list/watch jobs.batch"]);
}

#[test]
fn each_policy_without_effect_has_a_line() {
    let checked = |policy, state: &PolicyState| CheckedPolicy { policy, state: state.clone() };
    let all = |state: PolicyState| POLICIES.iter().map(|policy| checked(policy, &state)).collect::<Vec<_>>();
    assert_eq!(policies(&all(PolicyState::Installed)).iter().map(|line| line.mark).collect::<Vec<_>>(), [Mark::Ok]);
    let mut states = all(PolicyState::Limited);
    states[0].state = PolicyState::Missing;
    states[1].state = PolicyState::Differs("spec.variables".into());
    let lines = policies(&states);
    assert_eq!(lines.len(), 2);
    assert!(lines[0].found.contains(POLICIES[0].name) && lines[0].found.contains(POLICIES[0].without));
    assert!(lines[1].found.contains("spec.variables"));
    assert_remedies(&lines);
}

#[test]
fn an_api_server_without_policies_or_snapshots_gives_warnings() {
    let lines = [
        policy_kinds(|_| true),
        policy_kinds(|kind| kind == PolicyKind::Validating),
        policy_kinds(|_| false),
        snapshot_kinds(true),
        snapshot_kinds(false),
    ];
    let marks = lines.each_ref().map(|line| line.mark);
    assert_eq!(marks, [Mark::Ok, Mark::Warning, Mark::Warning, Mark::Ok, Mark::Warning]);
    assert!(lines[1].found.ends_with(": MutatingAdmissionPolicy"), "{:?}", lines[1]);
    assert_remedies(&lines);
}

#[test]
fn names_that_others_use_fail() {
    let free = taken_names(&identity(), &TakenNames::default());
    assert_eq!(free.iter().map(|line| line.mark).collect::<Vec<_>>(), [Mark::Ok]);
    let taken = TakenNames { foreign_driver: true, other_namespaces: vec!["a".into(), "b".into()] };
    let lines = taken_names(&identity(), &taken);
    assert_eq!(lines.iter().map(|line| line.mark).collect::<Vec<_>>(), [Mark::Failed, Mark::Failed]);
    assert!(lines[0].found.contains(names::DEFAULT_PROVISIONER));
    assert!(lines[1].found.contains("namespace a, b"));
    assert_remedies(&lines);
}

#[test]
fn several_default_classes_give_a_warning() {
    let of = |names: &[&str]| default_classes(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
    assert_eq!([of(&[]), of(&["a"]), of(&["a", "b"])].map(|line| line.mark), [Mark::Ok, Mark::Ok, Mark::Warning]);
    assert!(of(&["a", "b"]).found.contains("2 StorageClasses are the default: a, b"));
}

#[test]
fn a_missing_leader_fails_with_the_remedy_of_the_finding() {
    let finding = Finding::no_leader(ObjectName::new("storage", "flex-provisioner-default"), Some(90));
    let line = leader(Some(&finding), Some("pod-1"));
    assert_eq!((line.mark, line.remedy), (Mark::Failed, Some(finding.remedy)));
    assert_eq!(leader(None, Some("pod-1")).found, "pod-1 leads");
}

#[test]
fn each_config_is_judged_by_its_verdict() {
    assert_eq!(
        configs(&identity(), &Classes::default()).iter().map(|line| line.mark).collect::<Vec<_>>(),
        [Mark::Warning]
    );
    let problem = |text: &str| vec![Problem::new("image", text)];
    let mut classes = Classes::default();
    let mut add = |name: &str, verdict| classes.verdicts.insert(ObjectName::new("admin", name), verdict);
    add("bad", Verdict { problems: problem("is missing"), ..Verdict::default() });
    add("good", Verdict::default());
    add("odd", Verdict { warnings: problem("is untagged"), ..Verdict::default() });
    let lines = configs(&identity(), &classes);
    let found: Vec<_> = lines.iter().map(|line| (line.mark, line.found.as_str())).collect();
    assert_eq!(
        found,
        [
            (Mark::Ok, "1 valid: admin/good"),
            (Mark::Failed, "admin/bad is refused: image: is missing"),
            (Mark::Warning, "admin/odd is accepted, but: image: is untagged"),
        ]
    );
    assert_remedies(&lines);
}

#[test]
fn an_image_is_judged_by_nodes_and_pods() {
    let states = BTreeMap::from([
        ("a:1".to_owned(), ImageState { nodes: 3, error: None }),
        ("b:1".to_owned(), ImageState { nodes: 0, error: None }),
        ("c:1".to_owned(), ImageState { nodes: 1, error: Some("not found".into()) }),
    ]);
    let lines = images(&states);
    assert_eq!(lines.iter().map(|line| line.mark).collect::<Vec<_>>(), [Mark::Ok, Mark::Warning, Mark::Failed]);
    assert!(lines[2].found.contains("c:1: not found"), "{:?}", lines[2]);
    assert_remedies(&lines);
}
