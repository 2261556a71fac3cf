//! Places for runs, and what is remembered of Jobs.

use std::sync::Mutex;

use futures::FutureExt;
use futures::future::BoxFuture;

use super::*;
use crate::clock::Time;
use crate::config::record::Record;
use crate::run::view::Marks;

const CLASS: &str = "c";

/// A clock that a test sets.
#[derive(Clone, Debug, Default)]
struct Hands(Arc<Mutex<Duration>>);

impl Hands {
    fn pass(&self, time: Duration) {
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
    Record { config, class: class.into(), service_token: false, data }.recipe().unwrap()
}

fn index() -> Index {
    timed().1
}

fn timed() -> (Hands, Index) {
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
    let has = index.reserve(claim, &name(claim), &recipe(CLASS));
    if !has {
        index.stand_in_line(&name(claim), CLASS);
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
    assert!(index.reserve("elsewhere", &name("z"), &recipe("other")), "classes do not wait for each other");
    assert!(asks(&mut index, "new"));
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
    let mut index = index();
    assert!(asks(&mut index, "a"));
    let marks = Marks { operation: "provision".into(), id: "a".into(), attempt: 1, class: CLASS.into() };
    let job = Job { name: name("a"), claim: Some(name("a")), marks, ..Job::default() };
    index.change_job(Change::Apply(job.clone()));
    assert!(!asks(&mut index, "z") && !asks(&mut index, "b"));
    let over = Job { over: true, ..job };
    assert_eq!(index.change_job(Change::Apply(over.clone())), [Key::Claim(name("a")), Key::Claim(name("z"))]);
    assert_eq!(index.change_job(Change::Apply(over)), [Key::Claim(name("a"))], "its end is told once");
    assert!(asks(&mut index, "z"));
}

#[test]
fn a_revision_that_is_being_deleted_is_not_begun_with() {
    let revision = Revision { number: 1, record: Default::default(), created: 0 };
    let (clock, mut index) = timed();
    index.change_revision(Change::Apply(("hash".into(), revision.clone())));
    assert_eq!(index.unused_revisions(10_000), ["hash"]);
    assert_eq!(index.take_revision("hash"), None, "a stamp with it may be on its way");
    clock.pass(UNUSED);
    assert_eq!(index.take_revision("hash"), Some(revision.clone()));
    assert!(!index.has_revision("hash"), "although the watch has not said that it is gone");
    assert_eq!(index.take_revision("hash"), None);
    index.change_revision(Change::Apply(("hash".into(), revision)));
    assert!(index.has_revision("hash"), "it could not be deleted");
}
