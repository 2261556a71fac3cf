//! Tests of open batches, and of the views of their members.

mod deletions;

use std::sync::Arc;
use std::time::Duration;

use flex_contract::operation::Operation;
use flex_contract::request::RunRequest;
use flex_core::batch::decide::{BUSY_TIMEOUT, Step, decide};
use flex_core::batch::{self, Member, MemberObject};
use flex_core::config::Recipe;
use flex_core::config::effective_config::EffectiveConfig;
use flex_core::model::claim::{Claim, Stamp};
use flex_core::model::volume::Volume;
use flex_core::object::ObjectName;
use flex_core::run::job::RunTarget;
use flex_core::run::view::{Job, Pod, RunLabels};

use super::{ManualClock, timed, with_limits};
use crate::state::index::{BatchEntry, EXPECTATION_TIMEOUT, Index, SlotRequest, WatchChange, Woken, WorkItem};

const WINDOW: Duration = Duration::from_millis(50);

fn recipe(size: &str) -> Arc<Recipe> {
    let data = [("image", "x"), ("batch-size", size), ("placement", "any")];
    let data = data.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    let config = ObjectName::new("own", "c");
    Arc::new(EffectiveConfig { config, class: "c".into(), data, ..EffectiveConfig::default() }.recipe().unwrap())
}

fn claim(uid: &str) -> Claim {
    let text = format!("{{metadata: {{name: {uid}, namespace: team, uid: {uid}}}, spec: {{}}}}");
    let claim: k8s_openapi::api::core::v1::PersistentVolumeClaim = flex_core::config::values::yaml(&text).unwrap();
    Claim::from(&claim)
}

fn stamped(uid: &str, attempt: u32) -> Claim {
    let stamp = Stamp { claim_uid: uid.into(), ts: "t".into(), attempt, ..Stamp::default() };
    Claim { stamp: Some(stamp), held: true, ..claim(uid) }
}

fn job_name(uid: &str) -> String {
    format!("provision-{uid}-1")
}

fn entry(uid: &str, recipe: &Arc<Recipe>) -> BatchEntry {
    let claim = claim(uid);
    let object = MemberObject::Claim(claim.name.clone());
    let member = Member { id: uid.into(), attempt: 1, object, scope: String::new(), attributes: None, is_first: false };
    let identity = timed().1.facts.identity;
    let attempt = flex_core::claim::request::Attempt { number: 1, ..Default::default() };
    let request = flex_core::claim::request::request(Operation::Provision, &claim, recipe, &identity, "", attempt);
    let (target, recipe) = (RunTarget::default(), recipe.clone());
    BatchEntry { member, request, target, recipe, claim: None, volume: None }
}

/// Returns the entry of a claim's second attempt.
fn retry(uid: &str, recipe: &Arc<Recipe>) -> BatchEntry {
    let first = entry(uid, recipe);
    BatchEntry { member: Member { attempt: 2, ..first.member.clone() }, ..first }
}

/// Decides the next step of a batch, and closes it, as the reconciler does. Returns the members of its Job, and the items
/// to requeue; `None` if the batch is not open.
fn collected(index: &mut Index, name: &str) -> Option<(Step, Vec<BatchEntry>, Vec<WorkItem>)> {
    let step = decide(&index.observe_batch(name)?).step;
    if matches!(step, Step::Wait(_)) {
        return Some((step, Vec::new(), Vec::new()));
    }
    let Woken { value: entries, items: woken } = index.close_batch(name);
    Some((step, entries, woken))
}

/// Returns the ids of the members with which the Job of a batch is created.
fn created(index: &mut Index, name: &str) -> Vec<String> {
    match collected(index, name) {
        Some((Step::Create, entries, _)) => entries.into_iter().map(|entry| entry.member.id).collect(),
        other => panic!("{other:?}"),
    }
}

fn waits(index: &mut Index, name: &str) -> bool {
    matches!(collected(index, name), Some((Step::Wait(_), ..)))
}

/// Takes a slot for a run that is due, and adds the run to a batch or begins it alone, as the reconcilers do.
fn begin(index: &mut Index, entry: BatchEntry, slot_request: &SlotRequest) -> Option<String> {
    let job = entry.member.job_name();
    assert!(index.acquire_slot(&job, slot_request, &entry.recipe));
    let batch = index.join_batch(entry, "t");
    if batch.is_none() {
        index.expect_job(&job);
    }
    batch
}

fn join(index: &mut Index, uid: &str, recipe: &Arc<Recipe>) -> Option<String> {
    begin(index, entry(uid, recipe), &SlotRequest::claim(&claim(uid).name))
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

/// Returns the index while `a` has a run of its own: a batch gathers, and `b` is in it.
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
    assert!(index.is_expected(&job_name("b")), "it is not begun again");
    assert!(waits(&mut index, &first), "others may join");
    assert_eq!(join(&mut index, "c", &recipe).as_ref(), Some(&first));
    assert_ne!(join(&mut index, "d", &recipe).unwrap(), first, "the first may have two");
    assert_eq!(created(&mut index, &first), ["b", "c"]);
    assert!(collected(&mut index, &first).is_none(), "it is created once");
}

#[test]
fn runs_of_other_versions_or_places_have_other_batches() {
    let (hands, mut index) = timed();
    let two = recipe("2");
    join(&mut index, "a", &two);
    let first = join(&mut index, "d", &two).unwrap();
    assert_ne!(join(&mut index, "e", &recipe("3")).unwrap(), first, "of another version");
    let elsewhere =
        BatchEntry { target: RunTarget { node: Some("n".into()), ..RunTarget::default() }, ..entry("g", &two) };
    assert_ne!(begin(&mut index, elsewhere, &SlotRequest::claim(&claim("g").name)), Some(first.clone()));
    hands.pass(WINDOW);
    assert_eq!(join(&mut index, "f", &two), Some(first), "until its Job is created");
    assert_eq!(join(&mut index, "b", &recipe("1")), None);
}

#[test]
fn claims_that_failed_share_a_batch_of_their_own_which_delays_no_first_attempt() {
    let (hands, mut index, recipe, first) = open_batch();
    let mut again = |uid: &str| begin(&mut index, retry(uid, &recipe), &SlotRequest::claim(&claim(uid).name)).unwrap();
    let (batch, same) = (again("c"), again("d"));
    assert!(batch == same && batch != first);
    assert_eq!(join(&mut index, "e", &recipe), Some(first));
    hands.pass(WINDOW);
    assert_eq!(created(&mut index, &batch), ["c", "d"]);
}

#[test]
fn a_batch_takes_members_while_two_other_runs_are_in_progress() {
    let (hands, mut index) = timed();
    let recipe = recipe("9");
    index.change_job(WatchChange::Apply(job("one", &["x"])));
    index.change_job(WatchChange::Apply(job("two", &["y"])));
    let batch = join(&mut index, "a", &recipe).unwrap();
    hands.pass(WINDOW);
    assert_eq!(join(&mut index, "b", &recipe).as_ref(), Some(&batch), "the window is over");
    assert!(waits(&mut index, &batch));
    let woken = index.change_job(WatchChange::Apply(Job { is_over: true, complete: true, ..job("one", &["x"]) }));
    assert!(woken.contains(&WorkItem::Batch(batch.clone())), "{woken:?}");
    assert_eq!(created(&mut index, &batch), ["a", "b"]);
}

/// A claim whose stamp takes long delays nobody.
#[test]
fn a_batch_waits_beside_runs_and_not_for_slots_that_are_only_taken() {
    let (hands, mut index, recipe, batch) = open_batch();
    for uid in ["x", "y", "z"] {
        assert!(index.acquire_slot(&job_name(uid), &SlotRequest::claim(&claim(uid).name), &recipe));
    }
    assert!(waits(&mut index, &batch), "they may join within the window");
    hands.pass(WINDOW);
    assert_eq!(created(&mut index, &batch), ["b"]);
}

#[test]
fn members_wait_for_the_creation_of_their_job_however_long_it_takes() {
    let (hands, mut index, recipe, batch) = open_batch();
    hands.pass(WINDOW);
    assert_eq!(created(&mut index, &batch), ["b"]);
    hands.pass(EXPECTATION_TIMEOUT * 2);
    assert!(index.is_expected(&job_name("b")), "an attempt after it would meet it");
    assert_ne!(join(&mut index, "c", &recipe).unwrap(), batch, "its list is closed");
    index.end_creation(&ObjectName::new("", &batch));
    hands.pass(EXPECTATION_TIMEOUT / 2);
    assert!(index.is_expected(&job_name("b")), "its watch has time from the answer on");
    hands.pass(EXPECTATION_TIMEOUT);
    assert!(!index.is_expected(&job_name("b")));
    assert_ne!(join(&mut index, "b", &recipe).unwrap(), batch, "a Job without an answer is never opened");
}

#[test]
fn a_terminating_claim_leaves_its_batch_and_its_slot_goes_to_the_next_in_the_queue() {
    let (hands, mut index, recipe, batch) = open_batch();
    join(&mut index, "c", &recipe);
    for uid in ["b", "c"] {
        index.change_claim(WatchChange::Apply(stamped(uid, 1)));
    }
    index.wait_for_slot(&SlotRequest::claim(&claim("z").name), &recipe);
    let terminating = Claim { terminating: true, ..stamped("b", 1) };
    assert!(index.change_claim(WatchChange::Apply(terminating)).contains(&key("z")));
    assert!(!index.is_expected(&job_name("b")), "it need not wait");
    hands.pass(WINDOW);
    assert_eq!(created(&mut index, &batch), ["c"]);
}

#[test]
fn the_slot_of_a_member_that_has_another_attempt_goes_to_the_next_in_the_queue() {
    let (hands, mut index, recipe, batch) = open_batch();
    index.change_claim(WatchChange::Apply(stamped("b", 2)));
    index.wait_for_slot(&SlotRequest::claim(&claim("z").name), &recipe);
    hands.pass(WINDOW);
    let (step, entries, woken) = collected(&mut index, &batch).unwrap();
    assert_eq!((step, entries.len(), woken), (Step::Create, 0, vec![key("z"), key("b")]));
}

/// All that were in it are due again.
#[test]
fn a_leader_forgets_the_batches_of_its_former_term() {
    let (_, mut index, _, batch) = open_batch();
    index.begin_term();
    assert!(collected(&mut index, &batch).is_none() && !index.is_expected(&job_name("b")));
}

#[test]
fn a_member_that_the_job_lacks_is_requeued() {
    let (hands, mut index, recipe, batch) = open_batch();
    join(&mut index, "c", &recipe);
    hands.pass(WINDOW);
    assert_eq!(created(&mut index, &batch), ["b", "c"]);
    let keys = index.change_job(WatchChange::Apply(job(&batch, &["b", "z"])));
    for uid in ["b", "c", "z"] {
        assert!(keys.contains(&key(uid)), "{uid}: {keys:?}");
    }
    assert!(!index.is_expected(&job_name("c")) && !index.is_expected(&batch));
    assert_eq!((index.jobs_of("b").len(), index.jobs_of("c").len()), (1, 0));
    // Kubernetes refuses the next one.
    let refused = join(&mut index, "c", &recipe).unwrap();
    hands.pass(WINDOW + BUSY_TIMEOUT);
    let (_, entries, _) = collected(&mut index, &refused).unwrap();
    assert_eq!(index.refuse_batch(&refused, &entries), [key("c")]);
    assert_eq!(join(&mut index, "c", &recipe), None, "it meets the refusal alone");
}

/// Its creation had no answer, and another batch took its place.
#[test]
fn a_member_sees_the_job_whose_creation_was_answered_before_one_that_came_late() {
    let (_, mut index) = timed();
    for batch in ["provision-batch-0123456789abcdef", "provision-batch-1123456789abcdef"] {
        index.change_job(WatchChange::Apply(job(batch, &["a"])));
    }
    for answered in ["uid-provision-batch-1123456789abcdef", "uid-provision-batch-0123456789abcdef"] {
        index.begin_term();
        index.record_answer(answered.to_owned());
        let seen = index.jobs_of("a");
        assert_eq!((seen.len(), seen[0].uid.as_str(), &seen[0].name), (2, answered, &seen[1].name));
    }
}

/// The creation of the late one had no answer, so that nobody opens it.
#[test]
fn a_member_of_a_late_job_waits_for_that_which_is_in_creation() {
    let (hands, mut index, _, batch) = open_batch();
    index.change_claim(WatchChange::Apply(stamped("b", 1)));
    hands.pass(WINDOW);
    assert_eq!(created(&mut index, &batch), ["b"]);
    let labels = RunLabels { operation: "provision".into(), id: "b".into(), attempt: 1, class: "c".into() };
    let alone = Job { claim: Some(claim("b").name), run_labels: labels, ..job(&job_name("b"), &[]) };
    for late in [job("provision-batch-0123456789abcdef", &["b"]), alone] {
        index.change_job(WatchChange::Apply(late.clone()));
        assert!(index.is_expected(&job_name("b")));
        index.close_job(&late);
        index.change_job(WatchChange::Delete(late.name));
        assert!(index.is_expected(&job_name("b")), "it would begin once more");
    }
    index.change_job(WatchChange::Apply(job(&batch, &["b"])));
    assert!(!index.is_expected(&job_name("b")));
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
        index.change_claim(WatchChange::Apply(stamped(uid, 1)));
    }
    let of_batch = job(batch, &["a", "b"]);
    index.change_job(WatchChange::Apply(of_batch.clone()));
    let z = SlotRequest::claim(&claim("z").name);
    assert!(index.wait_for_slot(&z, &recipe).is_empty());
    index.close_job(&of_batch);
    index.change_job(WatchChange::Apply(Job { terminating: true, ..of_batch.clone() }));
    assert_eq!(index.change_job(WatchChange::Delete(of_batch.name.clone())), [key("a"), key("b")]);
    let mut batches = Vec::new();
    for uid in ["a", "b"] {
        assert!(!index.is_expected(&job_name(uid)), "it begins again at once");
        assert!(!index.acquire_slot(&job_name("z"), &z, &recipe));
        batches.push(join(&mut index, uid, &recipe).expect(uid));
    }
    assert_eq!(batches[0], batches[1]);
    assert_eq!(created(&mut index, &batches[0]), ["a", "b"]);
    let of_batch = job(&batches[0], &["a", "b"]);
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
