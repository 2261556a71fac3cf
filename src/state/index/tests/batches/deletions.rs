//! Tests of batches of deletions.

use flex_core::model::volume::Reference;

use super::*;

fn volume(uid: &str) -> Volume {
    let text = format!(
        "{{metadata: {{name: pvc-{uid}, uid: v-{uid}, annotations: {{flex-provisioner.io/claim-uuid: {uid}}}}}, spec: {{persistentVolumeReclaimPolicy: Delete}}}}"
    );
    let volume: k8s_openapi::api::core::v1::PersistentVolume = flex_core::config::values::yaml(&text).unwrap();
    Volume::from(&volume)
}

fn to_be_deleted(uid: &str, recipe: &Arc<Recipe>) -> BatchEntry {
    let (entry, object) = (entry(uid, recipe), MemberObject::Volume(format!("pvc-{uid}")));
    let member = Member { object, scope: format!("v-{uid}"), ..entry.member.clone() };
    let request = RunRequest { operation: Operation::Delete, ..entry.request.clone() };
    BatchEntry { member, request, volume: Some(Box::new(volume(uid))), ..entry }
}

fn join_deletion(index: &mut Index, uid: &str, recipe: &Arc<Recipe>) -> Option<String> {
    begin(index, to_be_deleted(uid, recipe), &SlotRequest::volume(&volume(uid), Operation::Delete))
}

#[test]
fn deletions_join_a_batch_while_another_deletion_runs() {
    let (_, mut index) = timed();
    let recipe = recipe("2");
    for uid in ["b", "c"] {
        index.change_volume(WatchChange::Apply(volume(uid)));
    }
    join(&mut index, "z", &recipe);
    assert_eq!(join_deletion(&mut index, "a", &recipe), None, "no deletion is under way");
    let batch = join_deletion(&mut index, "b", &recipe).expect("one is");
    assert_eq!(batch::operation(&batch), Some(Operation::Delete));
    assert_eq!(join_deletion(&mut index, "c", &recipe).as_ref(), Some(&batch));
    let provisions = join(&mut index, "y", &recipe).unwrap();
    assert_ne!(provisions, batch, "nothing is made in a batch that deletes");
    assert_eq!(index.runs_in_flight("c"), 5, "of z and y, and of a, b and c, which are deleted");
    assert!(index.has_expectation("delete-b-"));
    let (step, entries, _) = collected(&mut index, &batch).unwrap();
    assert_eq!((step, entries.len()), (Step::Create, 2));
    let members = entries.iter().map(|entry| entry.member.clone()).collect();
    let labels = RunLabels { operation: "delete".into(), id: batch.clone(), attempt: 1, class: "c".into() };
    let observed = Job { run_labels: labels, members, ..job(&batch, &[]) };
    let keys = index.change_job(WatchChange::Apply(observed));
    assert!(
        keys.contains(&WorkItem::Volume("pvc-b".into())) && keys.contains(&WorkItem::Volume("pvc-c".into())),
        "{keys:?}"
    );
    assert!(!index.has_expectation("delete-b-"));
    let of = |index: &Index, uid: &str| index.jobs_of_volume(&format!("pvc-{uid}"));
    assert_eq!(of(&index, "b")[0].name.name, entries[0].member.job_name(), "as of a run of its own");
    assert!(!index.detach_member(&of(&index, "b")[0]), "the other is still in it");
    assert!(index.detach_member(&of(&index, "c")[0]));
}

#[test]
fn a_volume_that_is_kept_or_gone_is_not_deleted_in_its_batch() {
    let (hands, mut index) = timed();
    let recipe = recipe("9");
    join_deletion(&mut index, "first", &recipe);
    let batches = ["a", "b", "c", "d"].map(|uid| {
        index.change_volume(WatchChange::Apply(volume(uid)));
        join_deletion(&mut index, uid, &recipe).unwrap()
    });
    index.change_volume(WatchChange::Delete(ObjectName::new("", "pvc-c")));
    assert!(!index.has_expectation("delete-c-"), "its slot is free");
    index.change_volume(WatchChange::Apply(Volume { abandoned: true, ..volume("b") }));
    index.change_volume(WatchChange::Apply(Volume { reclaim_policy: "Retain".into(), ..volume("d") }));
    hands.pass(WINDOW);
    assert_eq!(created(&mut index, &batches[0]), ["a"], "abandoned and retained volumes are not deleted");
}

/// Somebody has restored etcd, or has given the volume to another claim.
#[test]
fn a_volume_that_may_be_in_use_again_is_not_deleted_in_its_batch() {
    let reference = |uid: &str| Some(Reference { name: ObjectName::new("team", "data"), uid: Some(uid.into()) });
    let released =
        Volume { resource_version: "7".into(), phase: "Released".into(), claim_ref: reference("z"), ..volume("a") };
    let is_deleted = |change: &dyn Fn(&mut Index)| {
        let (hands, mut index) = timed();
        let recipe = recipe("9");
        index.change_volume(WatchChange::Apply(released.clone()));
        join_deletion(&mut index, "first", &recipe);
        let entry = BatchEntry { volume: Some(Box::new(released.clone())), ..to_be_deleted("a", &recipe) };
        let batch = begin(&mut index, entry, &SlotRequest::volume(&released, Operation::Delete)).unwrap();
        change(&mut index);
        hands.pass(WINDOW);
        let (_, entries, woken) = collected(&mut index, &batch).unwrap();
        assert_eq!(woken, if entries.is_empty() { vec![WorkItem::Volume("pvc-a".into())] } else { vec![] });
        !entries.is_empty()
    };
    let becomes = |now: Volume| is_deleted(&move |index| drop(index.change_volume(WatchChange::Apply(now.clone()))));
    let newer = Volume { resource_version: "8".into(), unneeded_since: Some(5), ..released.clone() };
    assert!(is_deleted(&|_| {}) && becomes(newer.clone()), "nothing else has changed");
    assert!(!becomes(Volume { resource_version: "3".into(), phase: "Bound".into(), ..released.clone() }));
    assert!(!becomes(Volume { claim_ref: reference("y"), ..newer.clone() }), "another claim has it");
    assert!(!becomes(Volume { uid: "another".into(), ..newer }));
    let with = |claim: Claim| is_deleted(&move |index| drop(index.change_claim(WatchChange::Apply(claim.clone()))));
    assert!(!with(claim("z")), "its claim is back");
    let elsewhere = Claim { volume_name: Some("other".into()), bind_completed: true, ..claim("z") };
    assert!(with(elsewhere), "it has another volume");
}
