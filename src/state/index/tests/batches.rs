//! Tests of open batches, and of the views of their members.

mod deletions;

use std::sync::Arc;
use std::time::Duration;

use flex_contract::operation::Operation;
use flex_contract::request::RunRequest;
use flex_core::batch::decide::{STAMP_TIMEOUT, Step, decide};
use flex_core::batch::{self, Member, MemberObject};
use flex_core::config::Recipe;
use flex_core::config::effective_config::EffectiveConfig;
use flex_core::model::claim::Claim;
use flex_core::model::volume::Volume;
use flex_core::object::ObjectName;
use flex_core::run::job::RunTarget;
use flex_core::run::view::{Job, Pod, RunLabels};

use super::{ManualClock, timed, with_limits};
use crate::state::index::{
    AttemptToBatch, BatchEntry, DeletionToBatch, EXPECTATION_TIMEOUT, Index, SlotRequest, WatchChange, Woken, WorkItem,
};

const WINDOW: Duration = Duration::from_millis(50);

fn recipe(size: &str) -> Arc<Recipe> {
    let data = [("image", "x"), ("batch-size", size), ("placement", "any")];
    let data = data.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    let config = ObjectName::new("own", "c");
    Arc::new(EffectiveConfig { config, class: "c".into(), data, ..EffectiveConfig::default() }.recipe().unwrap())
}

fn claim(uid: &str) -> Claim {
    let text = format!(
        "{{metadata: {{name: {uid}, namespace: team, uid: {uid}, finalizers: [flex-provisioner.io/claim]}}, spec: {{}}}}"
    );
    let claim: k8s_openapi::api::core::v1::PersistentVolumeClaim = flex_core::config::values::yaml(&text).unwrap();
    Claim::from(&claim)
}

fn stamped(uid: &str, batch: &str, recipe: &Recipe) -> Claim {
    let stamp = flex_core::model::claim::Stamp {
        claim_uid: uid.into(),
        ts: "t".into(),
        attempt: 1,
        recipe_version: recipe.version(),
        batch: Some(batch.into()),
    };
    Claim { stamp: Some(stamp), held: true, ..claim(uid) }
}

fn job_name(uid: &str) -> String {
    format!("provision-{uid}-1")
}

fn entry(uid: &str, recipe: &Arc<Recipe>) -> BatchEntry {
    let claim = claim(uid);
    let object = MemberObject::Claim(claim.name.clone());
    let member = Member { id: uid.into(), attempt: 1, object, attributes: None, is_first: false };
    let identity = timed().1.facts.identity;
    let attempt = flex_core::claim::request::Attempt { number: 1, ..Default::default() };
    let request = flex_core::claim::request::request(Operation::Provision, &claim, recipe, &identity, "", attempt);
    BatchEntry { member, request, target: RunTarget::default(), recipe: recipe.clone(), claim: None }
}

/// Decides the next step of a batch, and closes it, as the reconciler does.
fn collected(index: &mut Index, name: &str) -> (Step, Vec<BatchEntry>, Vec<WorkItem>) {
    let step = index.observe_batch(name).map_or(Step::Forget, |observed| decide(&observed).step);
    if matches!(step, Step::Wait(_)) {
        return (step, Vec::new(), Vec::new());
    }
    let Woken { value: entries, items: woken } = index.close_batch(name);
    (if entries.is_empty() { Step::Forget } else { step }, entries, woken)
}

fn join(index: &mut Index, uid: &str, recipe: &Recipe) -> Option<String> {
    let (claim, job) = (claim(uid), job_name(uid));
    assert!(index.acquire_slot(&job, &SlotRequest::claim(&claim.name), recipe));
    index.join_batch(&claim, recipe, &AttemptToBatch { job: &job, nodes: &[], ts: "t" })
}

/// Returns the Job of a batch, as a watch shows it.
fn job(name: &str, uids: &[&str]) -> Job {
    let member = |uid: &&str| entry(uid, &recipe("2")).member;
    Job {
        name: ObjectName::new("own", name),
        uid: format!("uid-{name}"),
        run_labels: RunLabels { operation: "provision".into(), id: name.into(), attempt: 1, class: "c".into() },
        members: uids.iter().map(member).collect(),
        ..Job::default()
    }
}

fn pod(name: &str, uids: &[&str], phase: &str) -> Pod {
    let Job { run_labels: labels, members, uid, .. } = job(name, uids);
    let (name, job) = (ObjectName::new("own", "pod"), name.to_owned());
    Pod {
        name,
        uid: "pod".into(),
        run_labels: labels,
        members,
        job,
        job_uid: uid,
        phase: phase.into(),
        ..Pod::default()
    }
}

fn key(uid: &str) -> WorkItem {
    WorkItem::Claim(ObjectName::new("team", uid))
}

/// Returns the index while `a` has a run of its own: a batch gathers, and `b` is to be in it.
fn open_batch() -> (ManualClock, Index, Arc<Recipe>, String) {
    let (hands, mut index) = timed();
    let recipe = recipe("9");
    join(&mut index, "a", &recipe);
    let batch = join(&mut index, "b", &recipe).unwrap();
    (hands, index, recipe, batch)
}

#[test]
fn the_first_claim_has_a_run_of_its_own_and_the_next_ones_join_a_batch() {
    let (_, mut index) = timed();
    let recipe = recipe("2");
    assert_eq!(join(&mut index, "a", &recipe), None, "nothing is under way");
    let first = join(&mut index, "b", &recipe).expect("a run is under way");
    assert_eq!(batch::operation(&first), Some(Operation::Provision));
    assert_eq!(join(&mut index, "c", &recipe).as_ref(), Some(&first));
    let second = join(&mut index, "d", &recipe).unwrap();
    assert_ne!(first, second, "the first may have two");
    let (step, ..) = collected(&mut index, &first);
    assert!(matches!(step, Step::Wait(_)), "nobody has arrived");
    assert!(index.add_entry(&first, entry("b", &recipe)));
    assert!(index.is_expected(&job_name("b")), "it is not begun again");
    assert!(matches!(collected(&mut index, &first).0, Step::Wait(_)));
    assert!(index.add_entry(&first, entry("c", &recipe)));
    let (step, entries, _) = collected(&mut index, &first);
    let ids: Vec<_> = entries.iter().map(|entry| entry.member.id.as_str()).collect();
    assert_eq!((step, ids), (Step::Create, vec!["b", "c"]));
    assert_eq!(collected(&mut index, &first).0, Step::Forget, "it is created once");
}

#[test]
fn copies_and_claims_of_other_versions_join_no_batch() {
    let (hands, mut index) = timed();
    let two = recipe("2");
    join(&mut index, "a", &two);
    let mut copy = claim("c");
    copy.data_source = Some(flex_core::model::data_source::DataSource::Claim(ObjectName::new("team", "o")));
    assert_eq!(index.join_batch(&copy, &two, &AttemptToBatch { job: &job_name("c"), nodes: &[], ts: "t" }), None);
    let first = join(&mut index, "d", &two).unwrap();
    assert_ne!(join(&mut index, "e", &recipe("3")).unwrap(), first, "of another version");
    hands.pass(WINDOW);
    assert_ne!(join(&mut index, "f", &two).unwrap(), first, "it is closed");
    assert_eq!(join(&mut index, "b", &recipe("1")), None);
}

#[test]
fn claims_that_failed_share_a_batch_of_their_own_which_delays_no_first_attempt() {
    let (hands, mut index, recipe, first) = open_batch();
    let mut again = |uid: &str| {
        let (claim, job) = (stamped(uid, "former", &recipe), format!("provision-{uid}-2"));
        assert!(index.acquire_slot(&job, &SlotRequest::claim(&claim.name), &recipe));
        index.join_batch(&claim, &recipe, &AttemptToBatch { job: &job, nodes: &[], ts: "u" }).unwrap()
    };
    let (batch, same) = (again("c"), again("d"));
    assert!(batch == same && batch != first);
    assert_eq!(join(&mut index, "e", &recipe), Some(first));
    for uid in ["c", "d"] {
        let mut again = stamped(uid, &batch, &recipe);
        again.stamp.as_mut().unwrap().attempt = 2;
        assert!(!index.has_missed_batch(&again, &recipe));
        let BatchEntry { member, request, target, recipe, claim } = entry(uid, &recipe);
        let member = Member { attempt: 2, ..member };
        assert!(index.add_entry(&batch, BatchEntry { member, request, target, recipe, claim }));
    }
    hands.pass(WINDOW);
    let (step, entries, _) = collected(&mut index, &batch);
    let members: Vec<_> = entries.iter().map(|entry| (entry.member.id.as_str(), entry.member.attempt)).collect();
    assert_eq!((step, members), (Step::Create, vec![("c", 2), ("d", 2)]));
}

#[test]
fn a_batch_takes_members_while_two_other_runs_are_in_progress() {
    let (hands, mut index) = timed();
    let recipe = recipe("9");
    index.change_job(WatchChange::Apply(job("one", &["x"])));
    index.change_job(WatchChange::Apply(job("two", &["y"])));
    let batch = join(&mut index, "a", &recipe).unwrap();
    assert!(index.add_entry(&batch, entry("a", &recipe)));
    hands.pass(WINDOW);
    assert_eq!(join(&mut index, "b", &recipe).as_ref(), Some(&batch), "the window is over");
    assert!(index.add_entry(&batch, entry("b", &recipe)));
    assert!(matches!(collected(&mut index, &batch).0, Step::Wait(_)));
    let woken = index.change_job(WatchChange::Apply(Job { is_over: true, complete: true, ..job("one", &["x"]) }));
    assert!(woken.contains(&WorkItem::Batch(batch.clone())), "{woken:?}");
    let (step, entries, _) = collected(&mut index, &batch);
    assert_eq!((step, entries.len()), (Step::Create, 2));
}

#[test]
fn a_batch_does_not_wait_for_a_member_that_leaves_it() {
    let (hands, mut index, recipe, batch) = open_batch();
    assert_eq!(join(&mut index, "c", &recipe).as_ref(), Some(&batch));
    index.add_entry(&batch, entry("b", &recipe));
    hands.pass(WINDOW);
    assert_eq!(collected(&mut index, &batch).0, Step::Wait(STAMP_TIMEOUT));
    assert_eq!(index.leave_batches(Operation::Provision, "c"), [WorkItem::Batch(batch.clone())]);
    assert_eq!(collected(&mut index, &batch).1.len(), 1);
    // A member that arrives after the batch has begun waits for its Job, because another process may have seen the
    // member in it.
    let late = stamped("c", &batch, &recipe);
    assert!(!index.has_missed_batch(&late, &recipe) && index.add_entry(&batch, entry("c", &recipe)));
    assert!(index.is_expected(&job_name("c")));
    assert_eq!(collected(&mut index, &batch).0, Step::Forget, "there is no second one");
    assert!(index.change_job(WatchChange::Apply(job(&batch, &["b"]))).contains(&key("c")));
    assert!(index.has_missed_batch(&late, &recipe) && !index.is_expected(&job_name("c")));
}

#[test]
fn a_job_that_may_not_exist_is_created_again_with_the_remaining_members() {
    let (hands, mut index, recipe, batch) = open_batch();
    for uid in ["b", "c", "d"] {
        index.change_claim(WatchChange::Apply(stamped(uid, &batch, &recipe)));
        index.add_entry(&batch, entry(uid, &recipe));
    }
    hands.pass(STAMP_TIMEOUT * 2);
    let (_, entries, _) = collected(&mut index, &batch);
    assert_eq!(entries.len(), 3);
    index.change_claim(WatchChange::Apply(Claim { terminating: true, ..stamped("c", &batch, &recipe) }));
    index.collect_again(&batch, &entries);
    let (step, again, _) = collected(&mut index, &batch);
    let ids: Vec<_> = again.iter().map(|entry| entry.member.id.as_str()).collect();
    assert_eq!((step, ids), (Step::Create, vec!["b", "d"]));
    // The Job was created after all. Earlier members are unchanged.
    index.collect_again(&batch, &again);
    index.change_job(WatchChange::Apply(Job { name: ObjectName::new("", &batch), ..job(&batch, &["b"]) }));
    assert_eq!(collected(&mut index, &batch).0, Step::Forget);
    index.collect_again(&batch, &entries);
    assert_eq!(collected(&mut index, &batch).0, Step::Forget);
}

#[test]
fn members_wait_for_the_creation_of_their_job_however_long_it_takes() {
    let (hands, mut index, recipe, batch) = open_batch();
    index.add_entry(&batch, entry("b", &recipe));
    hands.pass(WINDOW);
    assert_eq!(collected(&mut index, &batch).0, Step::Create);
    hands.pass(EXPECTATION_TIMEOUT * 2);
    assert!(index.is_expected(&job_name("b")), "an attempt after it would meet it");
    assert!(
        index.add_entry(&batch, entry("c", &recipe)) && collected(&mut index, &batch).0 == Step::Forget,
        "nor is there another"
    );
    index.end_creation(&ObjectName::new("", &batch));
    hands.pass(EXPECTATION_TIMEOUT / 2);
    assert!(index.is_expected(&job_name("b")), "its watch has time from the answer on");
    hands.pass(EXPECTATION_TIMEOUT);
    assert!(!index.is_expected(&job_name("b")));
}

#[test]
fn a_terminating_claim_leaves_its_batch() {
    let (hands, mut index, recipe, batch) = open_batch();
    join(&mut index, "c", &recipe);
    for uid in ["b", "c"] {
        index.change_claim(WatchChange::Apply(stamped(uid, &batch, &recipe)));
        index.add_entry(&batch, entry(uid, &recipe));
    }
    let terminating = Claim { terminating: true, ..stamped("b", &batch, &recipe) };
    assert!(index.change_claim(WatchChange::Apply(terminating)).contains(&WorkItem::Batch(batch.clone())));
    assert!(!index.is_expected(&job_name("b")), "it need not wait");
    hands.pass(WINDOW);
    let ids: Vec<_> = collected(&mut index, &batch).1.into_iter().map(|entry| entry.member.id).collect();
    assert_eq!(ids, ["c"]);
}

#[test]
fn the_slot_of_a_member_that_wants_another_batch_goes_to_the_next_in_the_queue() {
    let (hands, mut index, recipe, batch) = open_batch();
    index.add_entry(&batch, entry("b", &recipe));
    index.change_claim(WatchChange::Apply(stamped("b", "another", &recipe)));
    index.wait_for_slot(&SlotRequest::claim(&claim("z").name), &recipe);
    hands.pass(WINDOW);
    let (step, entries, woken) = collected(&mut index, &batch);
    assert_eq!((step, entries.len(), woken), (Step::Forget, 0, vec![key("z")]));
}

#[test]
fn an_open_batch_is_rebuilt_from_the_stamps() {
    let (_, mut index) = timed();
    let (recipe, batch) = (recipe("9"), "provision-batch-0123456789abcdef");
    for uid in ["a", "b"] {
        index.change_claim(WatchChange::Apply(stamped(uid, batch, &recipe)));
    }
    assert!(!index.has_missed_batch(&stamped("a", batch, &recipe), &recipe));
    assert!(index.add_entry(batch, entry("a", &recipe)));
    assert!(matches!(collected(&mut index, batch).0, Step::Wait(_)), "the other has not arrived");
    assert!(index.add_entry(batch, entry("b", &recipe)));
    assert_eq!(collected(&mut index, batch).1.len(), 2);
    let other = "provision-batch-1123456789abcdef";
    index.add_entry(other, entry("c", &recipe));
    index.begin_term();
    assert_eq!(collected(&mut index, other).0, Step::Forget, "another leads");
    assert!(!index.is_expected(&job_name("c")));
}

#[test]
fn a_member_that_the_job_lacks_is_requeued() {
    let (_, mut index) = timed();
    let (recipe, batch) = (recipe("9"), "provision-batch-0123456789abcdef");
    for uid in ["a", "b"] {
        index.add_entry(batch, entry(uid, &recipe));
    }
    index.expect_job(batch);
    // An earlier orchestrator created the Job.
    let keys = index.change_job(WatchChange::Apply(job(batch, &["a", "z"])));
    for uid in ["a", "b", "z"] {
        assert!(keys.contains(&key(uid)), "{uid}: {keys:?}");
    }
    assert!(!index.is_expected(&job_name("b")) && !index.is_expected(batch));
    assert!(index.has_missed_batch(&stamped("b", batch, &recipe), &recipe));
    assert_eq!((index.jobs_of("a").len(), index.jobs_of("b").len()), (1, 0));
    let refused = "provision-batch-1123456789abcdef";
    assert!(!index.has_missed_batch(&stamped("b", refused, &recipe), &recipe));
    index.add_entry(refused, entry("b", &recipe));
    assert_eq!(index.refuse_batch(refused), [key("b")]);
    assert!(index.has_missed_batch(&stamped("b", refused, &recipe), &recipe));
}

#[test]
fn a_member_that_leaves_waits_for_the_end_of_the_batch_and_the_last_one_ends_it() {
    let (_, mut index) = timed();
    let batch = "provision-batch-0123456789abcdef";
    index.change_job(WatchChange::Apply(job(batch, &["a", "b"])));
    index.change_pod(WatchChange::Apply(pod(batch, &["a", "b"], "Running")));
    let of = |index: &Index, uid: &str| index.jobs_of(uid).into_iter().next();
    let a = of(&index, "a").unwrap();
    assert!(!index.detach_member(&a), "the other is still in it");
    assert!(of(&index, "a").unwrap().terminating && !of(&index, "b").unwrap().terminating);
    assert_eq!(index.pods_of("a").len(), 1, "its process may run");
    let over = Job { complete: true, is_over: true, ..job(batch, &["a", "b"]) };
    index.change_job(WatchChange::Apply(over.clone()));
    assert!(of(&index, "a").is_some(), "its pod is not over");
    index.change_pod(WatchChange::Apply(pod(batch, &["a", "b"], "Succeeded")));
    assert!(of(&index, "a").is_none() && index.pods_of("a").is_empty());
    assert_eq!(index.jobs_of_claim(&ObjectName::new("team", "a")), []);
    assert_eq!(index.jobs_of_claim(&ObjectName::new("team", "b")).len(), 1);
    assert!(index.detach_member(&of(&index, "b").unwrap()), "nobody is left");
    index.attach_member(&job(batch, &["a", "b"]).as_seen_by(1, &[], false).unwrap());
    assert!(of(&index, "b").is_some(), "it could not be removed");
    index.change_job(WatchChange::Delete(over.name));
    assert!(index.jobs_of("b").is_empty() && index.members.is_empty());
}

#[test]
fn a_batch_uses_a_slot_for_each_member() {
    let (_, mut index) = timed();
    index.change_job(WatchChange::Apply(job("provision-batch-0123456789abcdef", &["a", "b", "c"])));
    let recipe = recipe("3");
    let free_slots = index.slots.free(&recipe, false, &index.facts).expect("a hundred may be in flight");
    assert_eq!(
        (index.runs_in_flight("c"), free_slots.free, free_slots.namespaces.used),
        (3, 97, [("team".into(), 3)].into())
    );
}

/// No other leader has opened its pod.
#[test]
fn the_members_of_a_closed_batch_keep_their_slots_and_are_batched_again() {
    let keys = [("max-in-flight", "2"), ("batch-size", "2"), ("placement", "any")];
    let (mut index, recipe) = with_limits(&keys);
    let (recipe, batch) = (Arc::new(recipe), "provision-batch-0123456789abcdef");
    for uid in ["a", "b"] {
        index.change_claim(WatchChange::Apply(stamped(uid, batch, &recipe)));
    }
    let of_batch = job(batch, &["a", "b"]);
    index.change_job(WatchChange::Apply(of_batch.clone()));
    let z = SlotRequest::claim(&claim("z").name);
    assert!(index.wait_for_slot(&z, &recipe).is_empty());
    index.close_job(&of_batch);
    index.change_job(WatchChange::Apply(Job { terminating: true, ..of_batch.clone() }));
    assert_eq!(index.change_job(WatchChange::Delete(of_batch.name.clone())), [key("a"), key("b")]);
    for uid in ["a", "b"] {
        assert!(!index.is_expected(&job_name(uid)), "it begins again at once");
        assert!(!index.has_missed_batch(&stamped(uid, batch, &recipe), &recipe));
        assert!(!index.acquire_slot(&job_name("z"), &z, &recipe));
        assert!(index.acquire_slot(&job_name(uid), &SlotRequest::claim(&claim(uid).name), &recipe), "{uid}");
        assert!(index.add_entry(batch, entry(uid, &recipe)));
    }
    let (step, entries, _) = collected(&mut index, batch);
    assert_eq!((step, entries.len()), (Step::Create, 2));
    index.change_job(WatchChange::Apply(of_batch.clone()));
    index.delete_job(&of_batch.uid);
    assert!(
        index.change_job(WatchChange::Delete(of_batch.name.clone())).contains(&key("z")),
        "nobody wants it any more"
    );
    // Somebody creates it again.
    index.change_job(WatchChange::Apply(of_batch.clone()));
    for uid in ["a", "b"] {
        index.change_claim(WatchChange::Delete(claim(uid).name));
    }
    index.close_job(&of_batch);
    assert!(index.change_job(WatchChange::Delete(of_batch.name)).contains(&key("z")), "nobody has wanted it");
}

#[test]
fn an_event_about_a_batch_requeues_all_its_members() {
    let (_, mut index) = timed();
    let batch = "provision-batch-0123456789abcdef";
    for uid in ["a", "b"] {
        index.change_claim(WatchChange::Apply(claim(uid)));
    }
    assert_eq!(index.change_job(WatchChange::Apply(job(batch, &["a", "b"]))), [key("a"), key("b")]);
    let keys = index.change_pod(WatchChange::Apply(pod(batch, &["a", "b"], "Pending")));
    assert_eq!(keys, [key("a"), key("b")]);
    let event = |about: &str| flex_core::run::view::WarningEvent {
        object_uid: about.into(),
        reason: "FailedMount".into(),
        message: "no such Secret".into(),
        at: 1,
    };
    assert_eq!(index.add_warning_event(event("pod")), [key("a"), key("b")]);
    let shown = index.pods_of("b");
    assert_eq!(index.warning_events_of(shown.iter().map(|pod| pod.uid.as_str())).len(), 1, "by its own UID");
    index.change_job(WatchChange::Delete(ObjectName::new("own", batch)));
    assert_eq!(index.removed("a", &job_name("a")).map(|removed| removed.times), Some(1));
    assert_eq!(index.removed("b", &job_name("b")).map(|removed| removed.times), Some(1));
}
