//! Tests of batches of deletions.

use super::*;

fn volume(uid: &str, batch: Option<&str>) -> Volume {
    let batch = batch.map(|batch| format!(", flex-provisioner.io/batch: {batch}")).unwrap_or_default();
    let text = format!(
        "{{metadata: {{name: pvc-{uid}, uid: v-{uid}, annotations: {{flex-provisioner.io/claim-uuid: {uid}{batch}}}}}, spec: {{persistentVolumeReclaimPolicy: Delete}}}}"
    );
    let volume: k8s_openapi::api::core::v1::PersistentVolume = flex_core::config::values::yaml(&text).unwrap();
    Volume::from(&volume)
}

fn to_be_deleted(uid: &str, recipe: &Arc<Recipe>) -> BatchEntry {
    let BatchEntry { member, request, target, recipe, claim } = entry(uid, recipe);
    let member = Member { object: MemberObject::Volume(format!("pvc-{uid}")), ..member };
    BatchEntry { member, request: RunRequest { operation: Operation::Delete, ..request }, target, recipe, claim }
}

fn join_deletion(index: &mut Index, uid: &str, recipe: &Recipe) -> Option<String> {
    let (volume, job) = (volume(uid, None), format!("delete-{uid}-1-abcdef"));
    assert!(index.acquire_slot(&job, &SlotRequest::volume(&volume, Operation::Delete), recipe));
    index.join_deletion(&volume, recipe, &DeletionToBatch { job: &job, node: None, ts: "t" })
}

#[test]
fn deletions_join_a_batch_while_another_deletion_runs() {
    let (_, mut index) = timed();
    let recipe = recipe("2");
    join(&mut index, "z", &recipe);
    assert_eq!(join_deletion(&mut index, "a", &recipe), None, "no deletion is under way");
    let batch = join_deletion(&mut index, "b", &recipe).expect("one is");
    assert_eq!(batch::operation(&batch), Some(Operation::Delete));
    assert_eq!(join_deletion(&mut index, "c", &recipe).as_ref(), Some(&batch));
    assert_eq!(join_deletion(&mut index, "a", &recipe), None, "its own run may be under way, seen or not");
    let provisions = join(&mut index, "y", &recipe).unwrap();
    assert_ne!(provisions, batch, "nothing is made in a batch that deletes");
    for uid in ["b", "c"] {
        index.change_volume(WatchChange::Apply(volume(uid, Some(&batch))));
        assert!(index.add_entry(&batch, to_be_deleted(uid, &recipe)));
    }
    let gone = BatchEntry { request: entry("d", &recipe).request, ..to_be_deleted("d", &recipe) };
    assert!(!index.add_entry(&batch, gone), "it is not for those");
    assert_eq!(index.runs_in_flight("c"), 5, "of z and y, and of a, b and c, which are deleted");
    assert!(index.has_expectation("delete-b-"));
    let (step, entries, _) = collected(&mut index, &batch);
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
    assert_eq!(of(&index, "b")[0].name.name, entries[0].member.job_name(&batch));
    assert!(!index.detach_member(&of(&index, "b")[0]), "the other is still in it");
    assert!(index.detach_member(&of(&index, "c")[0]));
    assert!(
        index.is_shut_out_of_batch(&batch, Operation::Delete, &recipe, None),
        "an item that does not see the Job is not in it"
    );
}

#[test]
fn a_batch_of_deletions_is_rebuilt_from_the_annotations_of_volumes() {
    let (_, mut index) = timed();
    let (recipe, batch) = (recipe("9"), "delete-batch-0123456789abcdef");
    for uid in ["a", "b", "c", "d"] {
        index.change_volume(WatchChange::Apply(volume(uid, Some(batch))));
    }
    assert!(!index.is_shut_out_of_batch(batch, Operation::Delete, &recipe, None));
    assert!(index.add_entry(batch, to_be_deleted("a", &recipe)));
    assert!(index.is_shut_out_of_batch(batch, Operation::Provision, &recipe, None), "a claim cannot join them");
    index.add_entry(batch, to_be_deleted("b", &recipe));
    index.add_entry(batch, to_be_deleted("d", &recipe));
    assert!(matches!(collected(&mut index, batch).0, Step::Wait(_)), "one has not arrived");
    assert!(
        index.change_volume(WatchChange::Delete(ObjectName::new("", "pvc-c"))).contains(&WorkItem::Batch(batch.into()))
    );
    index.change_volume(WatchChange::Apply(Volume { abandoned: true, ..volume("b", Some(batch)) }));
    index.change_volume(WatchChange::Apply(Volume { reclaim_policy: "Retain".into(), ..volume("d", Some(batch)) }));
    let ids: Vec<_> = collected(&mut index, batch).1.into_iter().map(|entry| entry.member.id).collect();
    assert_eq!(ids, ["a"], "abandoned and retained volumes are not deleted");
}
