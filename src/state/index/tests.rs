//! Tests of the index as a whole: the items that each change wakes.

mod batches;
mod gates;
mod kept_scripts;
mod namespaces;
mod pools;
mod quota;
mod records;
mod slots;
mod snapshots;
mod sync_probes;

use flex_contract::names;
use flex_core::claim::decide::ClassCertainty;
use flex_core::config::Recipe;
use flex_core::config::classes::{ClassLookup, Config, Revision};
use flex_core::config::effective_config::EffectiveConfig;
use flex_core::model::claim::Claim;
use flex_core::model::stored::Stored;
use flex_core::model::volume::{Reference, Volume};
use flex_core::run::node::Node;
use flex_core::run::view::{Job, Pod, RunLabels};

use super::*;
use crate::state::configs::{CLASS_OBJECT_GRACE, CLASS_REPLACE_GRACE, VERSION_GRACE};
use crate::state::testing::{CLASS, ManualClock, claim as shared_claim, config, identity, volume as shared_volume};

/// Returns a recipe with one slot.
fn recipe(class: &str) -> Recipe {
    let data = [("image", "x"), ("max-in-flight", "1")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    let config = ObjectName::new("own", class);
    EffectiveConfig { config, class: class.into(), data, ..EffectiveConfig::default() }.recipe().unwrap()
}

fn index() -> Index {
    timed().1
}

fn timed() -> (ManualClock, Index) {
    let hands = ManualClock::default();
    let index = Index::new(identity(), Clock::new(hands.clone()));
    (hands, index)
}

fn name(claim: &str) -> ObjectName {
    ObjectName::new("team", claim)
}

#[test]
fn a_claim_that_waits_for_a_node_is_requeued_when_one_arrives() {
    let mut index = index();
    let claim = |name: &str, spec: &str, selected: &str| {
        let text = format!(
            "{{metadata: {{name: {name}, namespace: team, uid: {name}, annotations: {{{}: {selected}}}}}, spec: {spec}}}",
            names::SELECTED_NODE
        );
        let claim: k8s_openapi::api::core::v1::PersistentVolumeClaim = flex_core::config::values::yaml(&text).unwrap();
        Claim::from(&claim)
    };
    let from = |group: &str, kind: &str| format!("{{dataSource: {{apiGroup: {group}, kind: {kind}, name: s}}}}");
    for claim in [
        claim("chosen-here", "{}", "''"),
        claim("copy", &from("''", "PersistentVolumeClaim"), "n1"),
        claim("restore", &from("snapshot.storage.k8s.io", "VolumeSnapshot"), "n1"),
        claim("there", "{}", "n2"),
        claim("elsewhere", "{}", "n1"),
    ] {
        index.change_claim(WatchChange::Apply(claim));
    }
    let node = |taints: &str| {
        let text = format!("{{metadata: {{name: n2}}, spec: {{taints: {taints}}}}}");
        Node::from(&flex_core::config::values::yaml::<k8s_openapi::api::core::v1::Node>(&text).unwrap())
    };
    let waiting = ["chosen-here", "copy", "restore", "there"].map(|claim| WorkItem::Claim(name(claim)));
    assert_eq!(index.change_node(WatchChange::Apply(node("[]"))), waiting);
    assert_eq!(index.change_node(WatchChange::Apply(node("[]"))), [], "nothing changed");
    assert_eq!(index.change_node(WatchChange::Apply(node("[{key: a, effect: NoSchedule}]"))), waiting);
    assert_eq!(index.change_node(WatchChange::Delete(ObjectName::new("", "n2"))), [WorkItem::Claim(name("there"))]);
}

/// A volume that was never adopted may have neither the finalizer nor a phase that says that its claim is gone.
#[test]
fn nodes_and_classes_wake_each_volume_for_which_a_deletion_is_due() {
    let mut index = index();
    let (alive, gone) = (shared_claim("team", "alive", true), shared_claim("team", "gone", true));
    index.change_claim(WatchChange::Apply(alive.clone()));
    let made = |claim: &Claim, phase: &str| Volume { phase: phase.into(), ..shared_volume(claim, "1Gi") };
    let item = |volume: &Volume| WorkItem::Volume(volume.name.clone());
    let used = made(&alive, "Available");
    index.change_volume(WatchChange::Apply(used.clone()));
    let node = |name: &str| Node { name: name.into(), labels: Default::default(), reachable: true, taints: vec![] };
    for (number, phase) in ["Available", "Pending", "Released", "Failed"].into_iter().enumerate() {
        let volume = made(&gone, phase);
        index.change_volume(WatchChange::Apply(volume.clone()));
        let woken = [
            index.change_node(WatchChange::Apply(node(&format!("n{number}")))),
            index.change_node(WatchChange::Delete(ObjectName::new("", format!("n{number}")))),
            index.change_config(WatchChange::Apply(config(&[("zone", phase)]))),
            index.change_config(WatchChange::Delete(config(&[]).name)),
        ];
        for (change, woken) in woken.iter().enumerate() {
            assert!(woken.contains(&item(&volume)), "{phase}, change {change}: {woken:?}");
            assert!(!woken.contains(&item(&used)), "its claim exists: {woken:?}");
        }
    }
}

#[test]
fn a_snapshot_that_waits_for_the_volume_of_its_claim_is_requeued_when_the_volume_is_visible() {
    use flex_core::model::snapshot::{Of, Snapshot, Status};
    let mut index = index();
    let claim = shared_claim("team", "a", true);
    let volume = shared_volume(&claim, "1Gi");
    index.change_claim(WatchChange::Apply(claim.clone()));
    let snapshot = Snapshot {
        name: name("s"),
        uid: "s".into(),
        resource_version: "1".into(),
        terminating: false,
        finalizers: Vec::new(),
        finalizers_whole: true,
        class: None,
        of: Of::Claim(claim.name.name.clone()),
        status: Status::default(),
    };
    index.change_snapshot(WatchChange::Apply(snapshot.clone()));
    let (own, content) = (WorkItem::Snapshot(name("s")), WorkItem::Content(names::content_name("s")));
    let keys = index.change_volume(WatchChange::Apply(volume.clone()));
    assert!(keys.contains(&own) && keys.contains(&content), "{keys:?}");
    let ready = Status { ready: Some(true), ..Status::default() };
    index.change_snapshot(WatchChange::Apply(Snapshot { status: ready, ..snapshot }));
    assert!(!index.change_volume(WatchChange::Apply(volume)).contains(&own), "one that is ready waits for nothing");
}

#[test]
fn a_pod_of_a_snapshot_run_wakes_its_content_also_when_the_job_is_gone() {
    let text = |name: &str, reference: &str, source: &str| {
        let spec = format!(
            "{{volumeSnapshotRef: {{name: s, namespace: team, uid: {reference}}}, source: {source}, driver: p, deletionPolicy: Delete}}"
        );
        format!("{{metadata: {{name: {name}, uid: k}}, spec: {spec}}}")
    };
    let content = |text: &str| {
        let content: flex_core::model::snapshot::api::VolumeSnapshotContent =
            flex_core::config::values::yaml(text).unwrap();
        flex_core::model::snapshot::Content::from(&content)
    };
    let pod = |operation: &str, id: &str| Pod {
        name: name("pod"),
        run_labels: RunLabels { operation: operation.into(), id: id.into(), attempt: 1, class: CLASS.into() },
        ..Pod::default()
    };
    let mut index = index();
    index.change_content(WatchChange::Apply(content(&text("snapcontent-u", "u", "{volumeHandle: v}"))));
    index.change_content(WatchChange::Apply(content(&text("theirs", "w", "{snapshotHandle: h}"))));
    let (made, theirs) = (WorkItem::Content("snapcontent-u".into()), WorkItem::Content("theirs".into()));
    for (operation, id, key) in
        [("snapshot", "u", &made), ("delete-snapshot", "u", &made), ("delete-snapshot", "k", &theirs)]
    {
        index.change_pod(WatchChange::Apply(pod(operation, id)));
        assert_eq!(index.change_pod(WatchChange::Delete(name("pod"))), std::slice::from_ref(key), "{operation} {id}");
    }
    index.change_pod(WatchChange::Apply(pod("provision", "u")));
    assert_eq!(index.change_pod(WatchChange::Delete(name("pod"))), [], "no run of a snapshot");
}

#[test]
fn a_content_that_is_gone_wakes_its_source_claim_also_without_its_snapshot() {
    let source = "{metadata: {name: a, namespace: team, uid: v}, spec: {}}";
    let source: k8s_openapi::api::core::v1::PersistentVolumeClaim = flex_core::config::values::yaml(source).unwrap();
    let made_by = flex_core::model::snapshot::SnapshotProvenance {
        effective_config: recipe(CLASS).effective_config,
        origin_node: None,
        volume_id: "v".into(),
        pv_name: "pvc-v".into(),
        size: 1,
        volume_mode: "Filesystem".into(),
        content_uid: None,
    };
    let made_by = serde_json::json!({ names::PROVENANCE: serde_json::json!(made_by).to_string() });
    let content = serde_json::json!({
        "metadata": { "name": "snapcontent-u", "uid": "k", "annotations": made_by },
        "spec": {
            "volumeSnapshotRef": { "name": "s", "namespace": "team", "uid": "u" }, "source": {}, "driver": "p",
            "deletionPolicy": "Delete",
        },
    });
    let content: flex_core::model::snapshot::api::VolumeSnapshotContent = serde_json::from_value(content).unwrap();
    let content = flex_core::model::snapshot::Content::from(&content);
    let mut index = index();
    index.change_claim(WatchChange::Apply(Claim::from(&source)));
    index.change_content(WatchChange::Apply(content));
    // Without the admission policies, another claim may have got the volume.
    let volume = "{metadata: {name: pvc-v}, spec: {claimRef: {namespace: team, name: b, uid: w}}}";
    let volume: k8s_openapi::api::core::v1::PersistentVolume = flex_core::config::values::yaml(volume).unwrap();
    index.change_volume(WatchChange::Apply(Volume::from(&volume)));
    let woken = index.change_content(WatchChange::Delete(ObjectName::new("", "snapcontent-u")));
    assert!(woken.contains(&WorkItem::Claim(name("a"))) && woken.contains(&WorkItem::Claim(name("b"))), "{woken:?}");
}

#[test]
fn an_unchanged_job_or_pod_wakes_nobody() {
    let mut index = index();
    let run_labels = RunLabels { operation: "provision".into(), id: "u".into(), attempt: 1, class: CLASS.into() };
    let job = Job { name: name("job"), claim: Some(name("a")), run_labels: run_labels.clone(), ..Job::default() };
    let pod = Pod { name: name("pod"), job: "job".into(), run_labels, phase: "Pending".into(), ..Pod::default() };
    let woken = [WorkItem::Claim(name("a"))];
    for _ in 0..2 {
        assert_eq!(index.change_job(WatchChange::Apply(job.clone())), woken);
        assert_eq!(index.change_pod(WatchChange::Apply(pod.clone())), woken);
        assert_eq!(index.change_job(WatchChange::Apply(job.clone())), []);
        assert_eq!(index.change_pod(WatchChange::Apply(pod.clone())), []);
        assert_eq!(index.change_job(WatchChange::Apply(Job { complete: true, ..job.clone() })), woken);
        assert_eq!(index.change_pod(WatchChange::Apply(Pod { phase: "Running".into(), ..pod.clone() })), woken);
    }
    index.expect_job("job");
    assert_eq!(
        index.change_job(WatchChange::Apply(Job { complete: true, ..job.clone() })),
        woken,
        "it is not expected any more"
    );
    assert!(!index.is_expected("job"));
}

#[test]
fn no_attempt_begins_with_a_revision_that_is_being_deleted() {
    let revision = Revision { number: 1, effective_config: Default::default(), created: 0 };
    let (clock, mut index) = timed();
    index.change_stored(WatchChange::Apply(Stored::Recipe("hash".into(), revision.clone())));
    assert!(index.unused_revisions(10_000).is_empty(), "somebody may create its config again");
    assert!(!index.begin_revision_deletion("hash"), "a stamp with it may be on its way");
    clock.pass(VERSION_GRACE);
    assert_eq!(index.unused_revisions(10_000), ["hash"]);
    assert!(index.begin_revision_deletion("hash"));
    assert!(!index.has_revision("hash"), "although the watch has not said that it is gone");
    assert!(!index.begin_revision_deletion("hash"));
    index.cancel_revision_deletion("hash");
    assert!(index.has_revision("hash"), "it could not be deleted");
    // The deletion had no answer, and the watch showed it first.
    clock.pass(REVISION_TTL);
    assert!(index.begin_revision_deletion("hash"));
    index.change_stored(WatchChange::Delete(ObjectName::new("own", "flex-config-hash")));
    assert_eq!(index.cancel_revision_deletion("hash"), Vec::new());
    assert!(!index.has_revision("hash"));
}

#[test]
fn the_index_remembers_that_a_claim_is_gone_until_its_volume_is_gone() {
    let mut index = index();
    let volume = shared_volume(&shared_claim("team", "a", true), "1Gi");
    let claim = volume.claim_ref.clone().unwrap();
    index.note_claim_gone(&volume.name, &claim);
    assert!(!index.is_claim_gone(&volume), "there is no such volume");
    index.change_volume(WatchChange::Apply(volume.clone()));
    index.note_claim_gone(&volume.name, &claim);
    assert!(index.is_claim_gone(&volume));
    let of = |uid: Option<&str>| {
        let claim_ref = Some(Reference { uid: uid.map(str::to_owned), ..claim.clone() });
        Volume { claim_ref, ..volume.clone() }
    };
    assert!(!index.is_claim_gone(&of(Some("another"))), "it is another's now");
    index.change_volume(WatchChange::Apply(volume.clone()));
    assert!(index.is_claim_gone(&volume), "its volume is still there");
    index.change_volume(WatchChange::Delete(ObjectName::new("", &volume.name)));
    assert!(!index.is_claim_gone(&volume), "nothing is kept of a volume that is gone");
    let reserved = of(None);
    index.change_volume(WatchChange::Apply(reserved.clone()));
    index.note_claim_gone(&reserved.name, reserved.claim_ref.as_ref().unwrap());
    assert!(!index.is_claim_gone(&reserved), "a claim of that name may come");
}

/// Its own claim decides about a volume that another one has taken.
#[test]
fn the_claim_for_which_a_volume_was_made_is_woken_by_another_that_takes_it_and_by_its_end() {
    let mut index = index();
    let (maker, other) = (shared_claim("team", "a", true), shared_claim("team", "b", true));
    let reference = Reference { name: other.name.clone(), uid: Some(other.uid.clone()) };
    let taken = Volume { claim_ref: Some(reference.clone()), ..shared_volume(&maker, "1Gi") };
    index.change_claim(WatchChange::Apply(maker.clone()));
    index.change_claim(WatchChange::Apply(other.clone()));
    index.change_volume(WatchChange::Apply(taken.clone()));
    let own = WorkItem::Claim(maker.name.clone());
    let bound = Claim { volume_name: Some(taken.name.clone()), bind_completed: true, ..other.clone() };
    assert!(index.change_claim(WatchChange::Apply(bound.clone())).contains(&own));
    assert!(!index.change_claim(WatchChange::Apply(bound)).contains(&own), "nothing is new");
    assert!(index.change_claim(WatchChange::Delete(other.name.clone())).contains(&own));
    assert_eq!(index.note_claim_gone(&taken.name, &reference), std::slice::from_ref(&own), "the API was asked");
    assert_eq!(index.note_gone(&other.uid), [own]);
}

/// A backup of another cluster has its Jobs, with labels of this instance.
#[test]
fn a_copied_job_counts_for_nothing_and_wakes_the_search_for_findings() {
    let identity = flex_core::config::classes::Identity { cluster: "here".into(), ..identity() };
    let mut index = Index::new(identity, Clock::default());
    let name = ObjectName::new("own", "provision-u-1");
    let job = |cluster: Option<&str>, uid: &str| Job {
        name: name.clone(),
        uid: uid.into(),
        cluster: cluster.map(str::to_owned),
        run_labels: RunLabels { operation: "provision".into(), id: "u".into(), attempt: 1, class: CLASS.into() },
        ..Job::default()
    };
    let copies = |index: &Index| index.observe(&index.facts.identity.clone(), 0, false).copied_jobs.len();
    assert_eq!(index.change_job(WatchChange::Apply(job(Some("there"), "a"))), [WorkItem::Findings]);
    assert_eq!(index.change_job(WatchChange::Apply(job(Some("there"), "a"))), [], "it is known");
    assert!(index.jobs_of("u").is_empty() && index.jobs().next().is_none());
    assert_eq!(copies(&index), 1);
    index.change_job(WatchChange::Retain(Listed::none()));
    assert_eq!(copies(&index), 0, "a list does not have it");
    for own in [Some("here"), None] {
        index.change_job(WatchChange::Apply(job(own, "b")));
        assert_eq!((index.jobs_of("u").len(), copies(&index)), (1, 0));
        assert!(index.change_job(WatchChange::Apply(job(Some("there"), "c"))).contains(&WorkItem::Findings));
        assert_eq!((index.jobs_of("u").len(), copies(&index)), (0, 1), "the copy has taken its name");
    }
    index.change_job(WatchChange::Apply(job(None, "d")));
    assert_eq!((index.jobs_of("u").len(), copies(&index)), (1, 0), "and a Job of this cluster that of the copy");
    index.change_job(WatchChange::Apply(job(Some("there"), "e")));
    index.change_job(WatchChange::Delete(name.clone()));
    assert_eq!((index.jobs_of("u").len(), copies(&index)), (0, 0));
}

#[test]
fn classes_are_decided_once_at_the_end_of_a_list() {
    let is_known = |index: &Index| !matches!(index.classes().lookup(CLASS), ClassLookup::Unknown);
    let mut index = index();
    assert_eq!(index.list(|index| index.change_config(WatchChange::Apply(config(&[])))), []);
    assert!(!is_known(&index));
    let listed = [ObjectName::new("own", CLASS)].into_iter().collect();
    assert_eq!(index.change_config(WatchChange::RetainIn("own".into(), listed)), []);
    assert!(index.end_list().contains(&WorkItem::Configs));
    assert!(is_known(&index));
    assert_eq!(index.end_list(), [], "the list shows known objects only");
}

fn with_limits(keys: &[(&str, &str)]) -> (Index, Recipe) {
    let mut index = index();
    index.change_config(WatchChange::Apply(config(keys)));
    let classes = index.classes();
    let ClassLookup::Ours(class) = classes.lookup(CLASS) else { panic!("it is ours") };
    let recipe = (**class.recipe.as_ref().unwrap()).clone();
    (index, recipe)
}

#[test]
fn an_item_is_stale_until_a_watch_shows_its_write() {
    let (hands, mut index) = timed();
    let at = |version: &str| Claim { resource_version: version.into(), ..shared_claim("t", "a", true) };
    let of = |version: &str| Volume { resource_version: version.into(), ..shared_volume(&at("0"), "1Gi") };
    index.change_claim(WatchChange::Apply(at("5")));
    index.change_volume(WatchChange::Apply(of("6")));
    let (claim, volume) = (WorkItem::Claim(at("0").name), WorkItem::Volume(of("0").name));
    let behind = |index: &Index| (index.is_stale(&claim), index.is_stale(&volume));
    index.record_write(claim.clone(), "5");
    assert_eq!(behind(&index), (false, false), "it changed nothing, or the watch was faster");
    index.record_write(volume.clone(), "8");
    assert_eq!(behind(&index), (true, true), "both are decided on both");
    index.change_volume(WatchChange::Apply(of("7")));
    assert_eq!(behind(&index), (true, true), "others wrote that version before");
    index.change_volume(WatchChange::Apply(of("8")));
    assert_eq!(behind(&index), (false, false));
    index.record_write(claim.clone(), "9");
    assert_eq!(behind(&index), (true, true));
    hands.pass(CACHE_LAG_MAX);
    assert_eq!(behind(&index), (false, false), "its watch is slow");
    index.record_write(claim.clone(), "10");
    index.change_claim(WatchChange::Delete(at("0").name));
    assert_eq!(behind(&index), (false, false), "it is gone");
    index.record_write(WorkItem::Claim(ObjectName::new("t", "unknown")), "11");
    assert!(index.unseen_writes.is_empty());
    // No later version shows an object that a write has ended.
    index.ended(volume.clone());
    index.change_volume(WatchChange::Apply(of("99")));
    assert!(index.is_stale(&volume));
    hands.pass(CACHE_LAG_MAX);
    assert!(!index.is_stale(&volume), "its watch is slow");
    index.ended(volume.clone());
    index.change_volume(WatchChange::Delete(ObjectName::new("", &of("0").name)));
    index.ended(volume.clone());
    assert!(!index.is_stale(&volume) && index.unseen_writes.is_empty(), "it is seen to be gone");
}

#[test]
fn an_answer_that_a_class_has_no_object_counts_for_the_claims_before_it() {
    let by_label = |index: &Index| {
        let classes = index.classes();
        let ClassLookup::Ours(class) = classes.lookup(CLASS) else { panic!("it is ours") };
        class.clone()
    };
    let at = |version: &str| Claim { resource_version: version.into(), ..shared_claim("t", "a", false) };
    let (hands, mut index) = timed();
    index.change_config(WatchChange::Apply(config(&[])));
    let class = by_label(&index);
    assert!(!class.has_object);
    assert_eq!(index.class_certainty(&class, &at("7")), ClassCertainty::MayFollow, "a StorageClass may follow");
    hands.pass(CLASS_OBJECT_GRACE);
    assert_eq!(index.class_certainty(&class, &at("7")), ClassCertainty::Unasked);
    let certain = |index: &Index| {
        ["9", "10", "", "x"].map(|version| index.class_certainty(&class, &at(version)) == ClassCertainty::Certain)
    };
    index.note_absent_class_object(CLASS, Some("9"));
    assert_eq!(certain(&index), [true, false, false, false]);
    for older_or_unknown in [Some("8"), Some("x"), None] {
        index.note_absent_class_object(CLASS, older_or_unknown);
        assert_eq!(certain(&index), [true, false, false, false]);
    }
    index.note_absent_class_object(CLASS, Some("10"));
    assert_eq!(certain(&index), [true, true, false, false]);
    // The object comes.
    let object = serde_json::from_value::<k8s_openapi::api::storage::v1::StorageClass>(serde_json::json!({
        "metadata": { "name": CLASS }, "provisioner": identity().provisioner,
    }));
    index.change_class(WatchChange::Apply((&object.unwrap()).into()));
    assert!(by_label(&index).has_object);
    assert_eq!(index.class_certainty(&by_label(&index), &at("11")), ClassCertainty::Certain);
    // The object goes again, and what was known before it counts no more.
    index.change_class(WatchChange::Delete(ObjectName::new("", CLASS)));
    assert_eq!(index.class_certainty(&by_label(&index), &at("7")), ClassCertainty::MayFollow);
}

/// Returns which config serves the class; `None` while it is withheld.
fn serving(index: &Index) -> Option<String> {
    let classes = index.classes();
    let ClassLookup::Ours(class) = classes.lookup(CLASS) else { panic!("it is ours") };
    class.recipe.as_ref().ok().map(|recipe| recipe.config.name.clone())
}

#[test]
fn another_config_takes_a_class_30_seconds_after_its_own_is_gone() {
    let second = Config { name: ObjectName::new("own", "second"), uid: "2".into(), ..config(&[]) };
    // Whether the other config asks before or after the first one is gone.
    for asks_before in [true, false] {
        let (hands, mut index) = timed();
        index.change_config(WatchChange::Apply(config(&[])));
        let effective_config = index.classes().revisions_to_write[0].effective_config.clone();
        let stored = Stored::Recipe(effective_config.hash(), Revision { number: 1, effective_config, created: 0 });
        index.change_stored(WatchChange::Apply(stored));
        hands.pass(CLASS_REPLACE_GRACE);
        if asks_before {
            index.change_config(WatchChange::Apply(second.clone()));
        }
        assert_eq!(serving(&index).as_deref(), Some(CLASS));
        index.change_config(WatchChange::Delete(ObjectName::new("own", CLASS)));
        hands.pass(CLASS_REPLACE_GRACE / 2);
        index.change_config(WatchChange::Apply(second.clone()));
        assert_eq!(serving(&index), None);
        let woken = index.serve_without_deleted();
        assert_eq!((woken.value, woken.items), (Some(CLASS_REPLACE_GRACE / 2), vec![]));
        // The first one returns for a moment.
        index.change_config(WatchChange::Apply(config(&[])));
        assert_eq!(serving(&index).as_deref(), Some(CLASS));
        index.change_config(WatchChange::Delete(ObjectName::new("own", CLASS)));
        hands.pass(CLASS_REPLACE_GRACE / 2);
        assert!(index.serve_without_deleted().items.is_empty() && serving(&index).is_none());
        hands.pass(CLASS_REPLACE_GRACE / 2);
        assert!(index.serve_without_deleted().items.contains(&WorkItem::Configs));
        assert_eq!(serving(&index).as_deref(), Some("second"));
        assert_eq!(index.classes().revisions_to_write[0].number, 2);
    }
}

#[test]
fn another_config_need_not_wait_for_one_that_has_been_gone_for_long() {
    let (hands, mut index) = timed();
    index.change_config(WatchChange::Apply(config(&[])));
    let effective_config = index.classes().revisions_to_write[0].effective_config.clone();
    let stored = Stored::Recipe(effective_config.hash(), Revision { number: 1, effective_config, created: 0 });
    index.change_stored(WatchChange::Apply(stored));
    index.change_config(WatchChange::Delete(ObjectName::new("own", CLASS)));
    hands.pass(CLASS_REPLACE_GRACE);
    index.change_config(WatchChange::Apply(Config { name: ObjectName::new("own", "second"), ..config(&[]) }));
    assert_eq!(serving(&index).as_deref(), Some("second"));
}
