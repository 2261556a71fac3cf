//! Tests of the rules, and a test that two writers of one status stop writing.

use flex_contract::policy::ReclaimPolicy;
use proptest::prelude::*;

use super::*;
use crate::object::ObjectName;

const UID: &str = "0d9c2f0e-0000-4000-8000-000000000001";

fn snapshot(of: Of) -> Snapshot {
    Snapshot {
        name: ObjectName::new("team", "monday"),
        uid: UID.into(),
        resource_version: "1".into(),
        terminating: false,
        finalizers: Vec::new(),
        finalizers_whole: true,
        class: Some("c".into()),
        of,
        status: Status::default(),
    }
}

fn content(handle: Option<&str>) -> Content {
    let spec = serde_json::json!({
        "metadata": { "name": handle.map_or_else(|| names::content_name(UID), |_| "theirs".into()), "labels": { names::LABEL_INSTANCE: "default" } },
        "spec": {
            "deletionPolicy": "Delete", "driver": "flex", "source": { "snapshotHandle": handle },
            "volumeSnapshotRef": { "namespace": "team", "name": "monday", "uid": UID },
        },
    });
    Content::from(&serde_json::from_value::<crate::model::snapshot::api::VolumeSnapshotContent>(spec).unwrap())
}

fn volume(csi: bool) -> Volume {
    let source =
        if csi { serde_json::json!({ "csi": { "driver": "d", "volumeHandle": "h" } }) } else { serde_json::json!({}) };
    let volume = serde_json::json!({ "metadata": { "name": "pvc-v" }, "spec": source });
    Volume::from(&serde_json::from_value::<k8s_openapi::api::core::v1::PersistentVolume>(volume).unwrap())
}

#[derive(Clone, Debug)]
struct World {
    snapshot: Snapshot,
    class: SnapshotClassLookup<'static>,
    source: Result<Option<Volume>, String>,
    content: Option<Content>,
    content_ours: bool,
    no_content: bool,
}

fn new(of: Of) -> World {
    World {
        snapshot: snapshot(of),
        class: SnapshotClassLookup::Ours { policy: &ReclaimPolicy::Delete },
        source: Ok(Some(volume(false))),
        content: None,
        content_ours: true,
        no_content: false,
    }
}

fn of_claim() -> World {
    new(Of::Claim("a".into()))
}

fn of_content() -> World {
    let mut world = new(Of::Content("theirs".into()));
    world.content = Some(content(Some("h")));
    world
}

impl World {
    fn decide(&self) -> Decision {
        decide(&Observed {
            snapshot: &self.snapshot,
            class: self.class.clone(),
            source: match &self.source {
                Ok(Some(volume)) => SourceClaim::Ours(volume),
                Ok(None) => SourceClaim::Foreign,
                Err(why) => SourceClaim::Unbound(why.clone()),
            },
            content: self.content.as_ref(),
            content_ours: self.content_ours,
            no_content: self.no_content,
        })
    }

    /// Returns the step, which is that of a rule.
    #[track_caller]
    fn step(&self, rule: Rule) -> Step {
        let decision = self.decide();
        assert_eq!(decision.rule, rule, "{decision:?}");
        decision.step
    }

    #[track_caller]
    fn rests(&self, rule: Rule) {
        assert_eq!(self.decide(), rule.nothing());
    }

    fn with(mut self, change: impl FnOnce(&mut World)) -> World {
        change(&mut self);
        self
    }

    fn held(self) -> World {
        self.with(|w| w.snapshot.finalizers = vec![names::SNAPSHOT_FINALIZER.into()])
    }

    fn terminating(self) -> World {
        self.with(|w| w.snapshot.terminating = true)
    }

    fn bound(self) -> World {
        self.with(|w| w.content = Some(content(None)))
    }

    #[track_caller]
    fn refuses(&self, rule: Rule, says: &str) {
        let decision = self.decide();
        assert_eq!(decision.rule, rule, "{decision:?}");
        let Step::Refuse { why } = &decision.step else { panic!("{:?}", decision.step) };
        assert!(why.contains(says), "{why}");
        assert_eq!(&decision.event.unwrap().message, why);
        // An earlier error stays, also if the snapshot-controller wrote it.
        let again = self.clone().with(|w| w.snapshot.status.error = Some("cannot find CSI".into())).decide();
        assert_eq!((again.step, again.event.unwrap().message.contains(says)), (Step::Nothing, true));
    }
}

#[test]
fn a_snapshot_is_deleted_after_its_content() {
    of_claim().bound().terminating().rests(Rule::KeptByOtherFinalizers);
    let world = of_claim().held().terminating();
    assert_eq!(world.step(Rule::ConfirmNoContent), Step::ConfirmNoContent);
    assert_eq!(world.clone().with(|w| w.no_content = true).step(Rule::NoContentLeft), Step::RemoveFinalizer);
    let bound = world.bound();
    assert_eq!(bound.step(Rule::DeleteContent), Step::DeleteContent);
    bound.clone().with(|w| w.content.as_mut().unwrap().terminating = true).rests(Rule::ContentTerminating);
    let retained = bound.with(|w| w.content.as_mut().unwrap().policy = "Retain".into());
    assert_eq!(retained.step(Rule::DeleteContent), Step::DeleteContent, "nothing is there to be retained");
    let ready = retained.clone().with(|w| w.content.as_mut().unwrap().ready = true);
    assert_eq!(ready.step(Rule::ContentRetained), Step::RemoveFinalizer);
    let theirs = retained.with(|w| w.content.as_mut().unwrap().snapshot_uid = Some("other".into()));
    // The content may have been bound a moment ago.
    assert_eq!(theirs.step(Rule::ConfirmNoContent), Step::ConfirmNoContent);
    assert_eq!(theirs.with(|w| w.no_content = true).step(Rule::NoContentLeft), Step::RemoveFinalizer);
}

#[test]
fn snapshots_of_others_are_left_alone() {
    for world in [of_claim(), of_claim().held()] {
        world.clone().with(|w| w.class = SnapshotClassLookup::NotOurs).rests(Rule::NotOurs);
        world.with(|w| w.source = Ok(Some(volume(true)))).rests(Rule::CsiVolume);
    }
    let csi = of_claim().bound().with(|w| w.content.as_mut().unwrap().instance = None);
    // The snapshot-controller made its content.
    csi.rests(Rule::NotOurs);
    of_content().with(|w| w.content_ours = false).rests(Rule::NotOurs);
    new(Of::Nothing).rests(Rule::NoSource);
}

#[test]
fn a_content_is_created_unless_something_prevents_it() {
    assert_eq!(of_claim().step(Rule::ProtectSnapshot), Step::AddFinalizer);
    assert_eq!(of_claim().held().step(Rule::CreateContent), Step::CreateContent { policy: "Delete".into() });
    let unnamed = of_claim().with(|w| w.class = SnapshotClassLookup::Unnamed(Ok("d")));
    assert_eq!(unnamed.step(Rule::SetDefaultClass), Step::SetClass { class: "d".into() });
    // Without a volume, nobody knows whose snapshot it is.
    unnamed.with(|w| w.source = Ok(None)).rests(Rule::NotOurs);
    of_claim()
        .with(|w| w.class = SnapshotClassLookup::Unnamed(Err("none is the default".into())))
        .refuses(Rule::NoDefaultClass, "none is the default");
    of_claim().with(|w| w.source = Ok(None)).refuses(Rule::VolumeOfOther, "did not make the claim's volume");
    of_claim().with(|w| w.source = Err("is not bound".into())).refuses(Rule::NoVolume, "is not bound");
    of_claim()
        .bound()
        .with(|w| w.content.as_mut().unwrap().snapshot_uid = Some("other".into()))
        .refuses(Rule::ContentOfOther, "belongs to another snapshot");
}

#[test]
fn a_content_that_exists_is_bound() {
    let unbound = of_content().with(|w| w.content.as_mut().unwrap().snapshot_uid = None);
    assert_eq!(unbound.step(Rule::ProtectSnapshot), Step::AddFinalizer);
    assert_eq!(unbound.clone().held().step(Rule::BindContent), Step::BindContent);
    assert!(matches!(of_content().held().step(Rule::MirrorStatus), Step::Mirror(_)));
    of_content()
        .with(|w| w.content = None)
        .refuses(Rule::ContentMissing, "VolumeSnapshotContent theirs does not exist");
    of_content()
        .with(|w| w.content = Some(content(None)))
        .refuses(Rule::ContentOfOther, "was made for another snapshot");
    of_content()
        .with(|w| w.content.as_mut().unwrap().snapshot.name = "b".into())
        .refuses(Rule::ContentOfOther, "is for VolumeSnapshot team/b");
    of_content()
        .with(|w| w.content.as_mut().unwrap().snapshot_uid = Some("b".into()))
        .refuses(Rule::ContentOfOther, "is for VolumeSnapshot team/monday");
    unbound
        .with(|w| w.content.as_mut().unwrap().terminating = true)
        .refuses(Rule::UnboundContentTerminating, "is being deleted");
}

#[test]
fn the_status_follows_the_content() {
    let world = of_claim().bound().held().with(|w| {
        w.snapshot.status.error = Some("cannot find CSI PersistentVolumeSource".into());
        let content = w.content.as_mut().unwrap();
        (content.ready, content.size, content.made_at) = (true, Some(1 << 30), Some(7));
    });
    let decision = world.decide();
    assert_eq!(decision.rule, Rule::MirrorStatus);
    let Step::Mirror(status) = decision.step else { panic!("{:?}", decision.step) };
    let content = Some(names::content_name(UID));
    assert_eq!(status, Status { content, ready: Some(true), made_at: Some(7), size: Some(1 << 30), error: None });
    assert_eq!(decision.event.unwrap().reason, reason::SNAPSHOT_READY);
    world.with(|w| w.snapshot.status = status).rests(Rule::StatusCurrent);
}

/// Returns the status that the snapshot-controller writes for a content (`updateSnapshotStatus`, external-snapshotter
/// 8.7).
fn upstream(content: &Content, before: &Status) -> Status {
    Status {
        content: before.content.clone().or_else(|| Some(content.name.clone())),
        ready: Some(content.ready),
        made_at: before.made_at.or(content.made_at),
        size: before.size.filter(|size| *size > 0).or(content.size).or(before.size),
        error: content.error.clone(),
    }
}

proptest! {
    #[test]
    fn the_snapshot_controller_and_the_orchestrator_agree_on_the_status(
        (ready, before_ready) in any::<(bool, Option<bool>)>(),
        (size, before_size) in (prop::option::of(0u64..3), prop::option::of(0u64..3)),
        (made_at, before_at) in (prop::option::of(0i64..3), prop::option::of(0i64..3)),
        (error, before_error) in (prop::option::of("[ab]"), prop::option::of("[ab]")),
        ours_first in any::<bool>(),
    ) {
        let mut content = content(None);
        (content.ready, content.size, content.made_at, content.error) = (ready, size, made_at, error);
        let before = Status { content: None, ready: before_ready, made_at: before_at, size: before_size, error: before_error };
        let (first, second): (fn(&_, &_) -> _, fn(&_, &_) -> _) = if ours_first { (mirrored, upstream) } else { (upstream, mirrored) };
        let written = first(&content, &before);
        prop_assert_eq!(&second(&content, &written), &written);
        prop_assert_eq!(&first(&content, &written), &written);
    }

    #[test]
    fn each_step_is_taken_once(held in any::<bool>(), bound in any::<bool>(), error in any::<bool>(), terminating in any::<bool>(), source in 0..3u8) {
        let mut world = if bound { of_claim().bound() } else { of_claim() };
        world = if held { world.held() } else { world };
        world.snapshot.status.error = error.then(|| "e".to_owned());
        world.snapshot.terminating = terminating;
        world.source = match source { 0 => Ok(None), 1 => Err("w".into()), _ => Ok(Some(volume(false))) };
        for _ in 0..8 {
            match world.decide().step {
                Step::Nothing | Step::RemoveFinalizer => return Ok(()),
                Step::AddFinalizer => world = world.held(),
                Step::SetClass { .. } => world.class = SnapshotClassLookup::Ours { policy: &ReclaimPolicy::Delete },
                Step::CreateContent { .. } => world = world.bound(),
                Step::BindContent => world.content.as_mut().unwrap().snapshot_uid = Some(UID.into()),
                Step::Mirror(status) => world.snapshot.status = status,
                Step::Refuse { why } => (world.snapshot.status.error, world.snapshot.status.ready) = (Some(why), Some(false)),
                Step::DeleteContent => world.content = None,
                Step::ConfirmNoContent => world.no_content = true,
            }
        }
        prop_assert!(false, "it does not come to rest: {world:?}");
    }
}
