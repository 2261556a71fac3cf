//! Places for runs, and what is remembered of Jobs.

use std::sync::Mutex;

use contract::names;
use futures::FutureExt;
use futures::future::BoxFuture;

use super::*;
use crate::clock::Time;
use crate::config::record::Record;
use crate::run::view::Marks;

const CLASS: &str = "c";

/// A clock that a test sets.
#[derive(Clone, Debug, Default)]
pub(super) struct Hands(Arc<Mutex<Duration>>);

impl Hands {
    pub(super) fn pass(&self, time: Duration) {
        *self.0.lock().unwrap() += time;
    }
}

impl Time for Hands {
    fn wall(&self) -> jiff::Timestamp {
        jiff::Timestamp::UNIX_EPOCH
    }

    fn passed(&self) -> Duration {
        *self.0.lock().unwrap()
    }

    fn sleep(&self, _: Duration) -> BoxFuture<'static, ()> {
        futures::future::pending().boxed()
    }
}

/// One run at a time.
fn recipe(class: &str) -> Recipe {
    let data = [("image", "x"), ("max-in-flight", "1")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    let config = ObjectName::new("own", class);
    Record { config, class: class.into(), data, ..Record::default() }.recipe().unwrap()
}

pub(super) fn index() -> Index {
    timed().1
}

pub(super) fn timed() -> (Hands, Index) {
    let hands = Hands::default();
    let identity = Identity {
        provisioner: "p".into(),
        plugin: "p".into(),
        instance: "i".into(),
        namespace: "own".into(),
        config_namespaces: vec!["own".into()],
    };
    let index = Index::new(identity, Clock::new(hands.clone()));
    (hands, index)
}

fn name(claim: &str) -> ObjectName {
    ObjectName::new("team", claim)
}

fn asks(index: &mut Index, claim: &str) -> bool {
    let has = index.reserve(claim, &Asker::claim(&name(claim)), &recipe(CLASS));
    if !has {
        index.stand_in_line(&Asker::claim(&name(claim)), &recipe(CLASS));
    }
    has
}

#[test]
fn places_go_to_those_who_came_first() {
    let mut index = index();
    assert!(asks(&mut index, "a"));
    assert!(!asks(&mut index, "b") && !asks(&mut index, "c"));
    index.forget_expected("a");
    assert!(!asks(&mut index, "new") && !asks(&mut index, "c"), "b is before them");
    assert!(asks(&mut index, "b"));
    index.forget_expected("b");
    assert!(!asks(&mut index, "new") && asks(&mut index, "c"));
    index.forget_expected("c");
    assert!(
        index.reserve("elsewhere", &Asker::claim(&name("z")), &recipe("other")),
        "classes do not wait for each other"
    );
    assert!(asks(&mut index, "new"));
}

#[test]
fn what_waits_for_a_node_is_decided_anew_when_one_comes() {
    let mut index = index();
    let claim = |name: &str, spec: &str, selected: &str| {
        let text = format!(
            "{{metadata: {{name: {name}, namespace: team, uid: {name}, annotations: {{{}: {selected}}}}}, spec: {spec}}}",
            names::SELECTED_NODE
        );
        let claim: k8s_openapi::api::core::v1::PersistentVolumeClaim = crate::config::values::yaml(&text).unwrap();
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
        index.change_claim(Change::Apply(claim));
    }
    let node = |taints: &str| {
        let text = format!("{{metadata: {{name: n2}}, spec: {{taints: {taints}}}}}");
        Node::from(&crate::config::values::yaml::<k8s_openapi::api::core::v1::Node>(&text).unwrap())
    };
    let waiting = ["chosen-here", "copy", "restore", "there"].map(|claim| Key::Claim(name(claim)));
    assert_eq!(index.change_node(Change::Apply(node("[]"))), waiting);
    assert_eq!(index.change_node(Change::Apply(node("[]"))), [], "nothing changed");
    assert_eq!(index.change_node(Change::Apply(node("[{key: a, effect: NoSchedule}]"))), waiting);
    assert_eq!(index.change_node(Change::Delete(ObjectName::new("", "n2"))), [Key::Claim(name("there"))]);
}

#[test]
fn a_snapshot_that_waits_for_the_volume_of_its_claim_is_decided_anew_when_that_is_seen() {
    use crate::snapshot::{Of, Snapshot, Status};
    let mut index = index();
    let claim = shared_claim("team", "a", true);
    let volume = shared_volume(&claim, "1Gi");
    index.change_claim(Change::Apply(claim.clone()));
    let snapshot = Snapshot {
        name: name("s"),
        uid: "s".into(),
        resource_version: "1".into(),
        deleting: false,
        finalizers: Vec::new(),
        class: None,
        of: Of::Claim(claim.name.name.clone()),
        status: Status::default(),
    };
    index.change_snapshot(Change::Apply(snapshot.clone()));
    let (own, content) = (Key::Snapshot(name("s")), Key::Content(names::content_name("s")));
    let keys = index.change_volume(Change::Apply(volume.clone()));
    assert!(keys.contains(&own) && keys.contains(&content), "{keys:?}");
    let ready = Status { ready: Some(true), ..Status::default() };
    index.change_snapshot(Change::Apply(Snapshot { status: ready, ..snapshot }));
    assert!(!index.change_volume(Change::Apply(volume)).contains(&own), "one that is ready waits for nothing");
}

#[test]
fn a_pod_of_a_snapshot_run_whose_job_is_not_seen_any_more_wakes_its_content() {
    let text = |name: &str, reference: &str, source: &str| {
        let spec = format!(
            "{{volumeSnapshotRef: {{name: s, namespace: team, uid: {reference}}}, source: {source}, driver: p, deletionPolicy: Delete}}"
        );
        format!("{{metadata: {{name: {name}, uid: k}}, spec: {spec}}}")
    };
    let content = |text: &str| {
        let content: crate::snapshot::api::VolumeSnapshotContent = crate::config::values::yaml(text).unwrap();
        crate::snapshot::Content::from(&content)
    };
    let pod = |operation: &str, id: &str| Pod {
        name: name("pod"),
        marks: Marks { operation: operation.into(), id: id.into(), attempt: 1, class: CLASS.into() },
        ..Pod::default()
    };
    let mut index = index();
    index.change_content(Change::Apply(content(&text("snapcontent-u", "u", "{volumeHandle: v}"))));
    index.change_content(Change::Apply(content(&text("theirs", "w", "{snapshotHandle: h}"))));
    let (made, theirs) = (Key::Content("snapcontent-u".into()), Key::Content("theirs".into()));
    for (operation, id, key) in
        [("snapshot", "u", &made), ("delete-snapshot", "u", &made), ("delete-snapshot", "k", &theirs)]
    {
        index.change_pod(Change::Apply(pod(operation, id)));
        assert_eq!(index.change_pod(Change::Delete(name("pod"))), std::slice::from_ref(key), "{operation} {id}");
    }
    index.change_pod(Change::Apply(pod("provision", "u")));
    assert_eq!(index.change_pod(Change::Delete(name("pod"))), [], "no run of a snapshot");
}

#[test]
fn a_content_that_goes_wakes_the_claim_that_is_kept_for_it_also_when_its_snapshot_was_forced_away() {
    let source = "{metadata: {name: a, namespace: team, uid: v}, spec: {}}";
    let source: k8s_openapi::api::core::v1::PersistentVolumeClaim = crate::config::values::yaml(source).unwrap();
    let made_by = crate::snapshot::Provenance {
        record: recipe(CLASS).record,
        node: String::new(),
        volume_id: "v".into(),
        pv_name: "pvc-v".into(),
        size: 1,
        volume_mode: "Filesystem".into(),
    };
    let made_by = serde_json::json!({ names::PROVENANCE: serde_json::json!(made_by).to_string() });
    let content = serde_json::json!({
        "metadata": { "name": "snapcontent-u", "uid": "k", "annotations": made_by },
        "spec": {
            "volumeSnapshotRef": { "name": "s", "namespace": "team", "uid": "u" }, "source": {}, "driver": "p",
            "deletionPolicy": "Delete",
        },
    });
    let content: crate::snapshot::api::VolumeSnapshotContent = serde_json::from_value(content).unwrap();
    let content = crate::snapshot::Content::from(&content);
    let mut index = index();
    index.change_claim(Change::Apply(Claim::from(&source)));
    index.change_content(Change::Apply(content));
    // Without the admission policies another claim may have got the volume.
    let volume = "{metadata: {name: pvc-v}, spec: {claimRef: {namespace: team, name: b, uid: w}}}";
    let volume: k8s_openapi::api::core::v1::PersistentVolume = crate::config::values::yaml(volume).unwrap();
    index.change_volume(Change::Apply(Volume::from(&volume)));
    let woken = index.change_content(Change::Delete(ObjectName::new("", "snapcontent-u")));
    assert!(woken.contains(&Key::Claim(name("a"))) && woken.contains(&Key::Claim(name("b"))), "{woken:?}");
}

#[test]
fn a_job_that_is_removed_under_way_is_remembered_while_its_claim_waits() {
    let text = "{metadata: {name: a, namespace: team, uid: u}, spec: {}}";
    let claim: k8s_openapi::api::core::v1::PersistentVolumeClaim = crate::config::values::yaml(text).unwrap();
    let claim = Claim::from(&claim);
    let mut index = index();
    index.change_claim(Change::Apply(claim.clone()));
    let marks = Marks { operation: "provision".into(), id: "u".into(), attempt: 1, class: CLASS.into() };
    let job = Job { name: name("provision-u-1"), claim: Some(claim.name.clone()), marks, ..Job::default() };
    let removed = |index: &mut Index, job: &Job| {
        index.change_job(Change::Apply(job.clone()));
        index.change_job(Change::Delete(job.name.clone()));
        index.removed("u", "provision-u-1").map(|removed| removed.times)
    };
    assert_eq!(removed(&mut index, &Job { over: true, ..job.clone() }), None, "it was done");
    assert_eq!((removed(&mut index, &job), removed(&mut index, &job)), (Some(1), Some(2)));
    assert_eq!(index.removed("u", "provision-u-2"), None, "another attempt");
    index.change_claim(Change::Delete(claim.name));
    assert_eq!(index.removed("u", "provision-u-1"), None);
    assert_eq!(removed(&mut index, &job), None, "nobody asks for it any more");
}

#[test]
fn the_end_of_a_run_wakes_the_first_in_line() {
    let mut index = with_limits(&[("max-in-flight", "1")]).0;
    assert!(asks(&mut index, "a"));
    let marks = Marks { operation: "provision".into(), id: "a".into(), attempt: 1, class: CLASS.into() };
    let job = Job { name: name("a"), claim: Some(name("a")), marks, ..Job::default() };
    index.change_job(Change::Apply(job.clone()));
    assert!(!asks(&mut index, "z") && !asks(&mut index, "b"));
    let over = Job { over: true, ..job };
    assert_eq!(index.change_job(Change::Apply(over.clone())), [Key::Claim(name("a")), Key::Claim(name("z"))]);
    assert_eq!(index.change_job(Change::Apply(over)), [], "its end is told once");
    assert!(asks(&mut index, "z"));
}

#[test]
fn a_run_that_is_lost_leaves_its_place_to_the_next_in_line() {
    let mut index = with_limits(&[("max-in-flight", "1")]).0;
    let answers =
        |reachable| Change::Apply(Node { name: "n".into(), labels: BTreeMap::new(), reachable, taints: vec![] });
    index.change_node(answers(true));
    assert!(asks(&mut index, "a"));
    let marks = Marks { operation: "provision".into(), id: "a".into(), attempt: 1, class: CLASS.into() };
    index.change_job(Change::Apply(Job { name: name("a"), marks: marks.clone(), ..Job::default() }));
    index.change_pod(Change::Apply(Pod {
        name: name("p"),
        job: "a".into(),
        node: Some("n".into()),
        marks,
        ..Pod::default()
    }));
    assert!(!asks(&mut index, "b"));
    let next = Key::Claim(name("b"));
    assert!(index.change_node(answers(false)).contains(&next), "nobody knows when it ends");
    assert!(!index.change_node(answers(true)).contains(&next), "it goes on");
    assert!(index.change_node(Change::Delete(ObjectName::new("", "n"))).contains(&next));
    assert!(asks(&mut index, "b"));
}

#[test]
fn a_job_or_pod_that_is_as_it_was_wakes_nobody() {
    let mut index = index();
    let marks = Marks { operation: "provision".into(), id: "u".into(), attempt: 1, class: CLASS.into() };
    let job = Job { name: name("job"), claim: Some(name("a")), marks: marks.clone(), ..Job::default() };
    let pod = Pod { name: name("pod"), job: "job".into(), marks, phase: "Pending".into(), ..Pod::default() };
    let woken = [Key::Claim(name("a"))];
    for _ in 0..2 {
        assert_eq!(index.change_job(Change::Apply(job.clone())), woken);
        assert_eq!(index.change_pod(Change::Apply(pod.clone())), woken);
        assert_eq!(index.change_job(Change::Apply(job.clone())), []);
        assert_eq!(index.change_pod(Change::Apply(pod.clone())), []);
        assert_eq!(index.change_job(Change::Apply(Job { complete: true, ..job.clone() })), woken);
        assert_eq!(index.change_pod(Change::Apply(Pod { phase: "Running".into(), ..pod.clone() })), woken);
    }
    index.expect_job("job");
    assert_eq!(
        index.change_job(Change::Apply(Job { complete: true, ..job.clone() })),
        woken,
        "it is not expected any more"
    );
    assert!(!index.is_expected("job"));
}

#[test]
fn a_revision_that_is_being_deleted_is_not_begun_with() {
    let revision = Revision { number: 1, record: Default::default(), created: 0 };
    let (clock, mut index) = timed();
    index.change_revision(Change::Apply(("hash".into(), revision.clone())));
    assert_eq!(index.unused_revisions(10_000), ["hash"]);
    assert!(!index.take_revision("hash"), "a stamp with it may be on its way");
    clock.pass(UNUSED);
    assert!(index.take_revision("hash"));
    assert!(!index.has_revision("hash"), "although the watch has not said that it is gone");
    assert!(!index.take_revision("hash"));
    index.give_back_revision("hash");
    assert!(index.has_revision("hash"), "it could not be deleted");
    // Nobody knew whether it was deleted, and the watch was faster to say that it was.
    clock.pass(UNUSED);
    assert!(index.take_revision("hash"));
    index.change_revision(Change::Delete(ObjectName::new("own", "flex-config-hash")));
    assert_eq!(index.give_back_revision("hash"), Vec::new());
    assert!(!index.has_revision("hash"));
}

/// A claim of 1 GiB, stamped or not.
fn shared_claim(namespace: &str, name: &str, stamped: bool) -> Claim {
    let uid = format!("uid-{namespace}-{name}");
    let stamp = serde_json::json!({ names::CLAIM_UUID: uid, names::ATTEMPT: "1" });
    let claim = serde_json::json!({
        "metadata": { "name": name, "namespace": namespace, "uid": uid, "annotations": if stamped { stamp } else { serde_json::json!({}) } },
        "spec": { "storageClassName": CLASS, "resources": { "requests": { "storage": "1Gi" } } },
    });
    Claim::from(&serde_json::from_value::<k8s_openapi::api::core::v1::PersistentVolumeClaim>(claim).unwrap())
}

/// The volume of a claim.
fn shared_volume(claim: &Claim, size: &str) -> Volume {
    let volume = serde_json::json!({
        "metadata": {
            "name": names::pv_name(&claim.uid), "labels": { names::LABEL_INSTANCE: "i" },
            "annotations": { names::CLAIM_UUID: claim.uid, names::PROVISIONED_BY: "p" },
        },
        "spec": {
            "storageClassName": CLASS, "capacity": { "storage": size },
            "claimRef": { "namespace": claim.name.namespace, "name": claim.name.name, "uid": claim.uid },
        },
    });
    Volume::from(&serde_json::from_value::<k8s_openapi::api::core::v1::PersistentVolume>(volume).unwrap())
}

#[test]
fn that_the_claim_of_a_volume_is_gone_is_known_until_the_volume_goes() {
    let mut index = index();
    let volume = shared_volume(&shared_claim("team", "a", true), "1Gi");
    let claim = volume.claim_ref.clone().unwrap();
    index.note_claim_gone(&volume.name, &claim);
    assert!(!index.is_claim_gone(&volume.name, &claim), "there is no such volume");
    index.change_volume(Change::Apply(volume.clone()));
    index.note_claim_gone(&volume.name, &claim);
    assert!(index.is_claim_gone(&volume.name, &claim));
    let other = Reference { uid: "another".into(), ..claim.clone() };
    assert!(!index.is_claim_gone(&volume.name, &other), "it is another's now");
    index.change_volume(Change::Apply(volume.clone()));
    assert!(index.is_claim_gone(&volume.name, &claim), "its volume is still there");
    index.change_volume(Change::Delete(ObjectName::new("", &volume.name)));
    assert!(!index.is_claim_gone(&volume.name, &claim), "nothing is kept of a volume that is gone");
    let reserved = Reference { uid: String::new(), ..claim };
    index.change_volume(Change::Apply(volume.clone()));
    index.note_claim_gone(&volume.name, &reserved);
    assert!(!index.is_claim_gone(&volume.name, &reserved), "a claim of that name may come");
}

fn with_limits(keys: &[(&str, &str)]) -> (Index, Recipe) {
    let mut data: BTreeMap<String, String> =
        [("image", "x"), ("plugin-name", "p")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    data.extend(keys.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())));
    let mut index = index();
    let config = Config { name: ObjectName::new("own", CLASS), class: Some(CLASS.into()), data, ..Config::default() };
    index.change_config(Change::Apply(config));
    let classes = index.classes();
    let crate::config::classes::Lookup::Ours(class) = classes.lookup(CLASS) else { panic!("it is ours") };
    let recipe = (**class.recipe.as_ref().unwrap()).clone();
    (index, recipe)
}

#[test]
fn the_last_place_is_given_once_and_again_when_it_is_free() {
    let (mut index, recipe) = with_limits(&[("max-volumes", "1")]);
    let (a, b, c) = (shared_claim("t", "a", false), shared_claim("t", "b", false), shared_claim("t", "c", false));
    for claim in [&a, &b, &c] {
        index.change_claim(Change::Apply(claim.clone()));
    }
    let refused = |index: &Index, claim: &Claim| index.claim_is_refused(claim, &recipe).is_some();
    assert!(!refused(&index, &a) && !refused(&index, &b), "the place is free");
    assert!(index.promise(&a, CLASS), "for the first time");
    assert!(!index.promise(&a, CLASS), "what it was promised before is not this try's to take back");
    assert!(refused(&index, &b) && !refused(&index, &a), "given away, before any watch shows it");
    index.wait_for_room(Key::Claim(b.name.clone()), CLASS);
    index.wait_for_room(Key::Claim(c.name.clone()), CLASS);
    assert_eq!(index.take_back(&a), [Key::Claim(b.name.clone())], "and back: the first gets it, not both");
    assert_eq!(
        index.leave_room(&Key::Claim(b.name.clone())),
        [Key::Claim(c.name.clone())],
        "who cannot use it passes it on"
    );
    index.wait_for_room(Key::Claim(b.name.clone()), CLASS);
    assert!(index.leave_room(&Key::Claim(a.name.clone())).is_empty(), "who did not wait had none to leave");
    assert!(index.promise(&a, CLASS));

    // The stamp is seen, then the volume, then both go.
    index.change_claim(Change::Apply(shared_claim("t", "a", true)));
    assert!(refused(&index, &b));
    let bound = Claim { volume_name: Some(names::pv_name(&a.uid)), ..shared_claim("t", "a", true) };
    index.change_claim(Change::Apply(bound));
    assert!(refused(&index, &b), "bound to a volume that no watch has shown yet");
    let volume = shared_volume(&a, "1Gi");
    index.change_volume(Change::Apply(volume.clone()));
    assert!(refused(&index, &b), "claim and volume are one");
    let woken = index.change_claim(Change::Delete(a.name.clone()));
    assert!(refused(&index, &b) && !woken.contains(&Key::Claim(b.name.clone())), "its storage is there");
    let woken = index.change_volume(Change::Delete(ObjectName::new("", &volume.name)));
    assert!(woken.contains(&Key::Claim(c.name.clone())) && !woken.contains(&Key::Claim(b.name)), "{woken:?}");
    assert!(!refused(&index, &c));
}

#[test]
fn a_promise_ends_with_the_version_that_its_stamp_was_for() {
    let (mut index, recipe) = with_limits(&[("max-volumes", "1")]);
    let at = |uid: &str, version: &str| Claim { resource_version: version.into(), ..shared_claim("t", uid, false) };
    let (a, b) = (at("a", "9"), at("b", "5"));
    for claim in [&a, &b] {
        index.change_claim(Change::Apply(claim.clone()));
    }
    assert!(index.promise(&a, CLASS));
    index.wait_for_room(Key::Claim(b.name.clone()), CLASS);
    for version in ["8", "9"] {
        let woken = index.change_claim(Change::Apply(at("a", version)));
        assert!(!woken.contains(&Key::Claim(b.name.clone())), "the stamp may come to stand on version 9");
    }
    let woken = index.change_claim(Change::Apply(at("a", "10")));
    assert!(woken.contains(&Key::Claim(b.name.clone())) && !index.is_promised(&a.uid));
    assert_eq!(index.claim_is_refused(&b, &recipe), None);
}

#[test]
fn what_a_claim_was_promised_itself_is_not_in_its_way() {
    let (mut index, recipe) = with_limits(&[("max-volumes", "1")]);
    let (a, b, c) = (shared_claim("t", "a", true), shared_claim("t", "b", false), shared_claim("t", "c", false));
    for claim in [&a, &b, &c] {
        index.change_claim(Change::Apply(claim.clone()));
    }
    // Nobody knows whether its stamp was written, and the place turns out to be another's.
    assert!(index.promise(&c, CLASS));
    let volume = shared_volume(&a, "1Gi");
    index.change_volume(Change::Apply(volume.clone()));
    for claim in [&b, &c] {
        assert!(index.claim_is_refused(claim, &recipe).is_some());
        index.wait_for_room(Key::Claim(claim.name.clone()), CLASS);
    }
    index.change_claim(Change::Delete(a.name.clone()));
    let woken = index.change_volume(Change::Delete(ObjectName::new("", &volume.name)));
    assert!(woken.contains(&Key::Claim(c.name.clone())) && !woken.contains(&Key::Claim(b.name)), "{woken:?}");
    assert_eq!(index.claim_is_refused(&c, &recipe), None);
}

#[test]
fn what_was_promised_to_a_claim_that_is_gone_is_in_nobody_s_way() {
    let (mut index, recipe) = with_limits(&[("max-volumes", "1")]);
    let (old, b) = (shared_claim("t", "a", false), shared_claim("t", "b", false));
    let another = Claim { uid: format!("{}0", old.uid), ..old.clone() };
    for claim in [&old, &b] {
        index.change_claim(Change::Apply(claim.clone()));
    }
    assert!(index.promise(&old, CLASS));
    assert!(index.claim_is_refused(&b, &recipe).is_some());
    index.wait_for_room(Key::Claim(b.name.clone()), CLASS);
    // The watch was away when the claim went, and shows one of the same name.
    let woken = index.change_claim(Change::Apply(another));
    assert!(woken.contains(&Key::Claim(b.name.clone())), "{woken:?}");
    // A pass that began before that tries once more.
    index.promise(&old, CLASS);
    assert_eq!(index.claim_is_refused(&b, &recipe), None);
}

#[test]
fn each_namespace_has_its_own_share_and_bytes_are_counted_as_they_grow() {
    let (mut index, recipe) = with_limits(&[("max-volumes-per-namespace", "2"), ("max-bytes-per-namespace", "3Gi")]);
    let (one, two) = (shared_claim("t", "one", true), shared_claim("t", "two", false));
    index.change_claim(Change::Apply(one.clone()));
    index.change_claim(Change::Apply(two.clone()));
    let volume = shared_volume(&one, "1Gi");
    index.change_volume(Change::Apply(volume.clone()));
    let gi = |count: u64| count << 30;
    assert_eq!(index.claim_is_refused(&two, &recipe), None);
    assert_eq!(index.growth_is_refused(&volume, &one, gi(3), &recipe), None, "it does not count itself");
    assert!(index.growth_is_refused(&volume, &one, gi(4), &recipe).is_some());
    index.promise_growth(&volume.name, gi(3));
    let why = index.claim_is_refused(&two, &recipe).expect("what is promised to it is taken");
    assert!(why.contains("namespace t may have 3Gi") && why.contains("3Gi are taken"), "{why}");
    let elsewhere = shared_claim("u", "two", false);
    assert_eq!(index.claim_is_refused(&elsewhere, &recipe), None, "another namespace");

    // The run has failed: what its Job said counts no more.
    index.wait_for_room(Key::Claim(two.name.clone()), CLASS);
    let marks = Marks { operation: "expand".into(), id: one.uid.clone(), attempt: 1, class: CLASS.into() };
    let job = Job { name: name("e"), volume: Some(volume.name.clone()), size: Some(gi(3)), marks, ..Job::default() };
    index.change_job(Change::Apply(job.clone()));
    assert!(index.claim_is_refused(&two, &recipe).is_some(), "the Job says it now");
    let woken = index.change_job(Change::Apply(Job { over: true, ..job }));
    assert!(woken.contains(&Key::Claim(two.name.clone())), "{woken:?}");
    assert_eq!(index.claim_is_refused(&two, &recipe), None);
    index.change_volume(Change::Apply(shared_volume(&one, "3Gi")));
    assert!(index.claim_is_refused(&two, &recipe).is_some(), "it has grown");
}

#[test]
fn snapshots_stand_in_the_same_line_as_claims() {
    let (mut index, recipe) = with_limits(&[("max-in-flight", "1"), ("max-in-flight-per-namespace", "1")]);
    let (claim, content) = (Asker::claim(&name("a")), Asker::content("snapcontent-s", "team"));
    assert!(index.reserve("snapshot-s-1", &content, &recipe));
    assert!(!index.reserve("provision-a-1", &claim, &recipe));
    index.stand_in_line(&claim, &recipe);
    let run = |operation: &str, id: &str| {
        let marks = Marks { operation: operation.into(), id: id.into(), attempt: 1, class: CLASS.into() };
        Job { name: name(&format!("{operation}-{id}-1")), claim: Some(name("source")), marks, ..Job::default() }
    };
    let snapshot = Job { content: Some("snapcontent-s".into()), ..run("snapshot", "s") };
    index.change_job(Change::Apply(snapshot.clone()));
    let other = Asker::content("snapcontent-t", "team");
    assert!(!index.has_room(&claim, &recipe) && !index.reserve("snapshot-t-1", &other, &recipe));
    index.stand_in_line(&other, &recipe);
    let woken = index.change_job(Change::Apply(Job { over: true, ..snapshot }));
    assert!(woken.contains(&claim.key) && !woken.contains(&other.key), "{woken:?}");
    assert!(index.reserve("provision-a-1", &claim, &recipe));
    let provision = run("provision", "a");
    index.change_job(Change::Apply(provision.clone()));
    let woken = index.change_job(Change::Delete(provision.name));
    assert!(woken.contains(&other.key), "{woken:?}");
    index.change_job(Change::Apply(run("delete-snapshot", "s")));
    assert!(index.reserve("snapshot-t-1", &other, &recipe), "what is taken away takes no place");
}

#[test]
fn a_namespace_with_all_its_runs_keeps_no_other_from_its_own() {
    let (mut index, recipe) = with_limits(&[("max-in-flight", "3"), ("max-in-flight-per-namespace", "1")]);
    let of = |namespace: &str, claim: &str| ObjectName::new(namespace, claim);
    let asks = |namespace: &str, claim: &str| Asker::claim(&of(namespace, claim));
    assert!(index.reserve("a", &asks("t", "a"), &recipe));
    for claim in ["b", "c", "d", "e"] {
        assert!(!index.reserve(claim, &asks("t", claim), &recipe), "{claim}");
        index.stand_in_line(&asks("t", claim), &recipe);
    }
    assert!(index.reserve("x", &asks("u", "x"), &recipe), "the others of t are before it, and cannot go");
    let marks = Marks { operation: "provision".into(), id: "a".into(), attempt: 1, class: CLASS.into() };
    let job = Job { name: name("a"), claim: Some(of("t", "a")), marks, ..Job::default() };
    index.change_job(Change::Apply(job.clone()));
    assert!(!index.reserve("b", &asks("t", "b"), &recipe));
    let woken = index.change_job(Change::Apply(Job { over: true, ..job }));
    assert_eq!(woken[1..], [Key::Claim(of("t", "b"))], "one place, one claim");
    assert!(!index.reserve("c", &asks("t", "c"), &recipe) && index.reserve("b", &asks("t", "b"), &recipe));
}

#[test]
fn a_node_with_all_its_runs_keeps_nobody_from_another() {
    let limits = [("max-in-flight-per-node", "1"), ("placement", "selected-node")];
    let (mut index, recipe) = with_limits(&limits);
    let on = |claim: &str, node: &str| Asker::attempt(&name(claim), &recipe, &["old".to_owned(), node.to_owned()]);
    assert!(index.reserve("provision-a-1", &on("a", "n"), &recipe));
    assert!(!index.reserve("provision-b-1", &on("b", "n"), &recipe), "expected there");
    assert!(index.stand_in_line(&on("b", "n"), &recipe).is_empty());
    assert!(!index.has_room(&Asker::claim(&name("b")), &recipe), "it waits for that node");
    let marks = Marks { operation: "provision".into(), id: "a".into(), attempt: 1, class: CLASS.into() };
    let job =
        Job { name: name("provision-a-1"), claim: Some(name("a")), marks, node: Some("n".into()), ..Job::default() };
    index.change_job(Change::Apply(job.clone()));
    assert!(!index.reserve("provision-b-1", &on("b", "n"), &recipe), "seen there");
    assert!(index.reserve("provision-c-1", &on("c", "m"), &recipe), "another node");
    let woken = index.change_job(Change::Apply(Job { over: true, ..job }));
    assert!(woken.contains(&Key::Claim(name("b"))), "{woken:?}");
    assert!(index.reserve("provision-b-1", &on("b", "n"), &recipe));
    assert!(index.stand_in_line(&on("d", "n"), &recipe).is_empty());
    assert_eq!(index.stand_in_line(&on("d", "o"), &recipe), [Key::Claim(name("d"))], "it goes to another node");
    assert!(index.has_room(&Asker::claim(&name("d")), &recipe));
}

#[test]
fn whose_turn_it_is_is_told_also_when_one_before_goes() {
    let (mut index, recipe) = with_limits(&[("max-in-flight", "1")]);
    let asks = |claim: &str| Asker::claim(&name(claim));
    assert!(index.reserve("a", &asks("a"), &recipe));
    for claim in ["b", "c"] {
        assert!(index.stand_in_line(&asks(claim), &recipe).is_empty(), "there is no place");
    }
    index.forget_expected("a");
    assert!(index.leave_line(&asks("b").key).contains(&asks("c").key), "b had the next");
    index.stand_in_line(&asks("b"), &recipe);
    assert!(!index.reserve("d", &asks("d"), &recipe));
    assert_eq!(index.stand_in_line(&asks("d"), &recipe), [asks("c").key], "nobody has told it yet");
}

#[test]
fn what_was_written_is_waited_for_until_a_watch_shows_it() {
    let (hands, mut index) = timed();
    let at = |version: &str| Claim { resource_version: version.into(), ..shared_claim("t", "a", true) };
    let of = |version: &str| Volume { resource_version: version.into(), ..shared_volume(&at("0"), "1Gi") };
    index.change_claim(Change::Apply(at("5")));
    index.change_volume(Change::Apply(of("6")));
    let (claim, volume) = (Key::Claim(at("0").name), Key::Volume(of("0").name));
    let behind = |index: &Index| (index.is_behind(&claim), index.is_behind(&volume));
    index.wrote(claim.clone(), "5");
    assert_eq!(behind(&index), (false, false), "it changed nothing, or the watch was faster");
    index.wrote(volume.clone(), "8");
    assert_eq!(behind(&index), (true, true), "both are decided on both");
    index.change_volume(Change::Apply(of("7")));
    assert_eq!(behind(&index), (true, true), "what others wrote before");
    index.change_volume(Change::Apply(of("8")));
    assert_eq!(behind(&index), (false, false));
    index.wrote(claim.clone(), "9");
    assert_eq!(behind(&index), (true, true));
    hands.pass(BEHIND);
    assert_eq!(behind(&index), (false, false), "its watch is slow");
    index.wrote(claim.clone(), "10");
    index.change_claim(Change::Delete(at("0").name));
    assert_eq!(behind(&index), (false, false), "it is gone");
    index.wrote(Key::Claim(ObjectName::new("t", "unknown")), "11");
    assert!(index.written.is_empty());
}
