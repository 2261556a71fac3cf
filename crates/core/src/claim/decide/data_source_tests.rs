//! Tests of claims that have a data source, and of claims that are a data source.

use super::*;
use crate::claim::admit::refusal;
use crate::claim::restore::RestoreSource;
use crate::model::namespace::Namespaces;

const OF: &str = "0d9c2f0e-0000-4000-8000-00000000000f";

/// Returns a claim that clones a bound one, whose storage is on a node or not.
fn copy(mut world: World, node: impl Into<Option<&'static str>>) -> World {
    let recipe = recipe_with(&[("capabilities", "clone")]);
    if let Some(stamp) = &mut world.claim.stamp {
        stamp.recipe_version = recipe.version();
        world.stamped_recipe = Some(recipe.clone());
    }
    world.class.recipe = Ok(Arc::new(recipe));
    world.claim.data_source = Some(DataSource::Claim(ObjectName::new("team", "source")));
    world.data_source = Some(source_on(node));
    world
}

/// Returns a claim that can be cloned, with its volume, which was made on a node.
pub(super) fn source_on(node: impl Into<Option<&'static str>>) -> Source {
    let name = ObjectName::new("team", "source");
    let mut claim = bound(new(), &names::pv_name(OF)).claim;
    (claim.name, claim.uid) = (name.clone(), OF.into());
    let volume = Volume {
        name: names::pv_name(OF),
        class: "silver".into(),
        size: Ok(1 << 30),
        claim_ref: Some(Reference { name, uid: Some(OF.into()) }),
        ..adopted_volume()
    };
    Source { claim: Some(claim), volume: Some(volume), ours: true, node: node.into(), granted: true }
}

fn source(world: &mut World) -> &mut Source {
    world.data_source.as_mut().expect("it is a copy")
}

fn keep(world: &mut World) {
    let finalizer = names::clone_finalizer(UID);
    source(world).claim.as_mut().unwrap().finalizers.push(finalizer);
}

#[test]
fn a_claim_with_a_populator_is_left_to_it() {
    let mut world = new();
    world.claim.data_source = Some(DataSource::Populated("Hello.example.com h".into()));
    let decision = world.decide_by(Rule::LeftToPopulator, NOW);
    let event = decision.event.unwrap();
    assert_eq!((decision.step, event.warning, event.reason), (Step::Nothing, false, reason::LEFT_TO_POPULATOR));
    assert!(event.message.contains("populator for Hello.example.com h"), "{}", event.message);
    world.class.recipe = Err("no config".into());
    world.waits(Rule::LeftToPopulator, "populator for Hello.example.com h");
    let recipe = recipe_with(&[("max-size", "1Mi")]);
    let refusal = |claim: &Claim, recipe: &Recipe| refusal(claim, recipe, &Namespaces::default(), false);
    assert_eq!(refusal(&world.claim, &recipe), None, "the class is asked for nothing");
    let mut stamped = stamped(1);
    stamped.claim.data_source = world.claim.data_source;
    assert!(refusal(&stamped.claim, &recipe_with(&[])).is_some(), "somebody has written a stamp");
}

/// Returns the decision about a claim that is made from a VolumeSnapshot that does not exist.
fn restored(world: &World, served: bool) -> Decision {
    let source =
        RestoreSource { served, snapshot: None, content: None, ours: false, made_by: None, node: None, granted: true };
    world.observed(|o| {
        let source = SourceRelation { state: Some(DataSourceState::Snapshot(source)), users: o.source.users };
        decide(&Observed { source, ..o.clone() }, NOW)
    })
}

#[test]
fn a_restore_in_a_cluster_without_snapshots_says_so_before_a_pod_uses_the_claim() {
    let mut world = delayed(new(), None);
    world.class.recipe = Ok(Arc::new(recipe_with(&[("capabilities", "snapshot")])));
    world.claim.data_source = Some(DataSource::Snapshot(ObjectName::new("team", "monday")));
    let decision = restored(&world, false);
    let said = decision.event.map(|event| event.message).unwrap_or_default();
    assert_eq!((decision.rule, decision.step), (Rule::SourceNotReady, Step::Nothing));
    assert!(said.contains("this cluster serves no VolumeSnapshots; ask an admin to install"), "{said}");
    assert_eq!(restored(&world, true).rule, Rule::WaitForFirstConsumer);
    let used = delayed(world.clone(), Some("a"));
    for (served, says) in [(false, "this cluster serves no VolumeSnapshots"), (true, "does not exist")] {
        let decision = restored(&used, served);
        let said = decision.event.map(|event| event.message).unwrap_or_default();
        assert!(decision.rule == Rule::SourceNotReady && said.contains(says), "{said}");
    }
    world.class.recipe = Ok(Arc::new(recipe_with(&[])));
    assert_eq!(restored(&world, false).rule, Rule::ClaimRefused, "snapshots would not help");
}

#[test]
fn a_claim_that_the_class_refuses_is_told_before_a_pod_uses_it() {
    let mut world = delayed(new(), None);
    world.class.recipe = Ok(Arc::new(recipe_with(&[("max-size", "1Mi")])));
    world.waits(Rule::ClaimRefused, "provides at most 1Mi; ask for less");
    let world = World { attributes_error: Some("there is no VolumeAttributesClass gold"), ..delayed(new(), None) };
    world.waits(Rule::AttributesUnavailable, "there is no VolumeAttributesClass gold");
}

/// The provenance of a volume that has moved in names its place, and an image would copy that one.
#[test]
fn a_source_that_leads_elsewhere_than_its_record_is_not_copied() {
    let with_path = |path: &str| {
        let mut world = copy(new(), None);
        let moved_in = Some(crate::model::moved_in::MovedIn { path: "/a/b".into(), ..Default::default() });
        let effective_config = recipe_with(&[]).effective_config;
        let text = serde_json::json!(crate::model::volume::Provenance {
            effective_config,
            origin_node: None,
            moved_in,
            cluster: None,
            others: Vec::new()
        })
        .to_string();
        let volume = source(&mut world).volume.as_mut().unwrap();
        volume.adoption_mark = Some(crate::model::volume::adoption_mark(&text, &volume.uid));
        (volume.provenance, volume.path) = (Some(text), Some(path.into()));
        world
    };
    with_path("/a/c").waits(Rule::SourceNotReady, "the volume leads to /a/c");
    assert!(matches!(with_path("/a/b").step(Rule::FirstAttemptDue), Step::Stamp { .. }));
}

#[test]
fn a_clone_waits_and_says_what_its_source_lacks() {
    assert!(matches!(copy(new(), None).step(Rule::FirstAttemptDue), Step::Stamp { attempt: 1, .. }));
    type Spoilt = fn(&mut Source);
    let cases: [(Spoilt, &str); 11] = [
        (|s| s.claim = None, "claim team/source, the data source of this claim, does not exist"),
        (|s| s.claim.as_mut().unwrap().class = Some("gold".into()), "is of another class, gold"),
        (|s| s.claim.as_mut().unwrap().terminating = true, "is being deleted"),
        (|s| s.claim.as_mut().unwrap().phase = "Pending".into(), "is not bound; the provisioner waits for it"),
        (|s| s.volume = None, "has a volume that the provisioner does not see yet"),
        (|s| s.volume.as_mut().unwrap().claim_ref = None, "has a volume whose claimRef names another claim"),
        (|s| s.ours = false, "was not made by the provisioner of its class"),
        (
            |s| {
                s.ours = false;
                s.volume.as_mut().unwrap().adoption_mark = None;
            },
            "which was restored from a backup; it can be copied once an admin has confirmed its record: `flex-provisioner vouch pvc-",
        ),
        (|s| s.volume.as_mut().unwrap().terminating = true, "which is being deleted"),
        (
            |s| s.volume.as_mut().unwrap().volume_mode = "Block".into(),
            "has the volume mode Block, this claim has Filesystem",
        ),
        (|s| s.volume.as_mut().unwrap().size = Ok(2 << 30), "has 2Gi, this claim asks for 1Gi"),
    ];
    for (spoil, says) in cases {
        for begun in [new(), stamped(1), failed_with(Reaction::Retry)] {
            let mut world = copy(begun, None);
            spoil(source(&mut world));
            let decision = world.decide_by(Rule::SourceNotReady, NOW + 60);
            let said = decision.event.as_ref().map_or("", |event| &event.message);
            assert!(decision.step == Step::Nothing && said.contains(says), "{says}: {decision:?}");
        }
    }
    let mut larger = copy(new(), None);
    larger.claim.size = Ok(3 << 30);
    assert!(matches!(larger.step(Rule::FirstAttemptDue), Step::Stamp { .. }));
    let mut elsewhere = copy(new(), None);
    elsewhere.claim.data_source = Some(DataSource::Claim(ObjectName::new("other", "source")));
    assert!(matches!(elsewhere.step(Rule::FirstAttemptDue), Step::Stamp { .. }), "it is granted");
    source(&mut elsewhere).granted = false;
    elsewhere.waits(Rule::SourceNotReady, "is in another namespace, where no ReferenceGrant");
    elsewhere.waits(Rule::SourceNotReady, "lets claims of namespace team use it");
    // An attempt that has begun is finished.
    let mut begun = copy(stamped(1), None);
    keep(&mut begun);
    source(&mut begun).granted = false;
    assert_eq!(begun.step(run(RunRule::RunDue)), Step::StartRun);
    elsewhere.claim.data_source = Some(DataSource::Claim(elsewhere.claim.name.clone()));
    elsewhere.waits(Rule::ClaimRefused, "names itself");
}

#[test]
fn the_source_is_protected_before_the_run_begins() {
    let mut world = copy(stamped(1), None);
    assert_eq!(world.step(Rule::ProtectSource), Step::ProtectSource);
    keep(&mut world);
    assert_eq!(world.step(run(RunRule::RunDue)), Step::StartRun);
    source(&mut world).claim.as_mut().unwrap().terminating = true;
    assert_eq!(world.step(run(RunRule::RunDue)), Step::StartRun, "it stays until the copy is made");
}

#[test]
fn a_clone_is_made_on_the_node_of_its_source() {
    let world = delayed(copy(new(), "home"), Some("a"));
    assert_eq!(world.step(Rule::FirstAttemptDue), Step::Stamp { attempt: 1, nodes: vec!["home".into()] });
    let mut world = World { no_volume: true, ..delayed(copy(stamped(1), "home"), Some("a")) };
    world.claim.nodes_with_storage = vec!["a".into()];
    let nodes = vec!["a".into(), "home".into()];
    assert_eq!(world.step(Rule::NodeChanged), Step::Stamp { attempt: 2, nodes }, "noted first");
    world.claim.nodes_with_storage = vec!["home".into()];
    keep(&mut world);
    assert_eq!(world.step(run(RunRule::RunDue)), Step::StartRun);
    world.node_states.0.insert("a".into(), NodeState::NotFound);
    assert_eq!(world.step(run(RunRule::RunDue)), Step::StartRun, "whatever becomes of the selected one");
    // Without a node of its data source, the selected node counts.
    let world = delayed(copy(new(), None), Some("a"));
    assert_eq!(world.step(Rule::FirstAttemptDue), Step::Stamp { attempt: 1, nodes: vec!["a".into()] });
    let mut world = copy(new(), "home");
    let anywhere = recipe_with(&[("capabilities", "clone"), ("placement", "any")]);
    world.class.recipe = Ok(Arc::new(anywhere));
    assert_eq!(world.step(Rule::FirstAttemptDue), Step::Stamp { attempt: 1, nodes: vec![] });
}

#[test]
fn a_clone_waits_for_the_deleted_node_of_its_source() {
    for begun in [new(), stamped(1), failed_with(Reaction::Retry)] {
        for begun in [delayed(begun.clone(), Some("a")), begun] {
            let mut world = copy(begun, "home");
            world.node_states.0.insert("home".into(), NodeState::NotCached);
            assert_eq!(
                world.decide_by(Rule::ConfirmSourceNode, NOW + 60).step,
                Step::ConfirmNode { node: "home".into() }
            );
            world.node_states.0.insert("home".into(), NodeState::NotFound);
            let decision = world.decide_by(Rule::SourceNodeGone, NOW + 60);
            let said = decision.event.map(|event| event.message).unwrap_or_default();
            assert!(decision.step == Step::Nothing && said.contains("on node home, which is gone"), "{said}");
        }
    }
}

#[test]
fn a_clone_without_room_stays_on_the_node_of_its_source() {
    let mut world = delayed(copy(failed_with(Reaction::NoCapacity), "home"), Some("a"));
    world.claim.nodes_with_storage = vec!["home".into()];
    assert_eq!(world.decide_by(run(RunRule::RunNotDue), NOW).requeue_at, Some(NOW + 2));
    assert_eq!(
        world.decide_by(run(RunRule::AttemptDue), NOW + 2).step,
        Step::Stamp { attempt: 2, nodes: vec!["home".into()] }
    );
}

#[test]
fn a_source_stays_protected_as_long_as_a_clone_needs_it() {
    let copying = |uid: &str, in_progress: bool| SourceUser {
        uid: uid.into(),
        in_progress: in_progress.then(|| ObjectName::new("team", format!("copy-{uid}"))),
    };
    let mut world = bound(new(), "pvc-x");
    world.source_users = vec![copying("a", true), copying("b", false), copying("c", false)];
    assert_eq!(world.step(Rule::UnprotectSource), Step::UnprotectSource { copies: vec!["b".into(), "c".into()] });
    world.source_users = vec![copying("a", true)];
    world.rests(Rule::Settled);
    world.claim.terminating = true;
    world.waits(Rule::BeingCloned, "until its clones and snapshots are made: team/copy-a");
    world.foreign = true;
    world.source_users = vec![copying("a", false)];
    assert_eq!(
        world.step(Rule::UnprotectSource),
        Step::UnprotectSource { copies: vec!["a".into()] },
        "whosoever the class is"
    );
    // The claim's own steps come first.
    let mut world = terminating();
    (world.source_users, world.jobs) = (vec![copying("a", false)], vec![job(1)]);
    assert_eq!(world.step(run(RunRule::RunNotWanted)), Step::RemoveJob { job: job(1).name });
}
