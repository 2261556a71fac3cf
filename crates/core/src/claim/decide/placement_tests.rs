//! Tests of the choice of nodes, and of the nodes where storage is or was left.

use super::*;

/// Returns the node that a volume names by its host: the host is the node's name, or has it with a prefix. The node `gone`
/// does not exist.
pub(super) fn reaching(claim: &Claim, volume: &Volume) -> Vec<String> {
    let host = volume.affinity.as_deref().and_then(crate::model::affinity::only_host);
    let node = host.map(|host| host.strip_prefix("label-of-").unwrap_or(host).to_owned());
    let is_known = |node: &String| known_nodes(claim).next().is_none() || known_nodes(claim).any(|known| known == node);
    node.filter(|node| is_known(node) && node != "gone").into_iter().collect()
}

#[test]
fn a_selected_node_that_is_gone_is_given_back() {
    for world in [new(), stamped(1), failed_with(Reaction::Retry)] {
        let missing = with_state("a", NodeState::NotCached, selected(world.clone()));
        assert_eq!(missing.step(Rule::ConfirmSelectedNode), Step::ConfirmNode { node: "a".into() });
        let gone = with_state("a", NodeState::NotFound, selected(world));
        let decision = gone.decide_by(Rule::SelectedNodeGone, NOW);
        assert_eq!(decision.step, Step::Reschedule { failure: None });
        assert_eq!(
            decision.event.unwrap().message,
            "the selected node a is gone; the provisioner asks the scheduler for another"
        );
    }
}

#[test]
fn a_delete_run_without_a_volume_names_the_node_of_the_attempts() {
    let named = |world: World, node| requested_node(&world.claim, node, &world.node_states).map(str::to_owned);
    let world = selected(stamped(1));
    assert_eq!(named(with_state("a", NodeState::Reachable, world.clone()), None), Some("a".into()));
    assert_eq!(named(with_state("a", NodeState::Unreachable, world.clone()), None), Some("a".into()));
    for gone in [NodeState::NotCached, NodeState::NotFound] {
        assert_eq!(
            named(with_state("a", gone, world.clone()), None),
            None,
            "no place follows from a node that is gone"
        );
    }
    assert_eq!(named(with_state("a", NodeState::Reachable, world), Some("b")), Some("b".into()), "its storage is on b");
    assert_eq!(named(stamped(1), None), None);
}

#[test]
fn a_node_that_does_not_exist_is_passed_over_where_no_scheduler_selects_one() {
    let mut named = new();
    (named.claim.selected_node, named.class.binding) = (Some("nowhere".into()), BindingMode::Immediate);
    let missing = with_state("nowhere", NodeState::NotCached, named.clone());
    assert_eq!(missing.step(Rule::ConfirmSelectedNode), Step::ConfirmNode { node: "nowhere".into() });
    let gone = with_state("nowhere", NodeState::NotFound, named.clone()).decide_by(Rule::FirstAttemptDue, NOW);
    assert_eq!(gone.step, Step::Stamp { attempt: 1, nodes: vec!["home".into()] });
    assert!(gone.event.unwrap().message.contains("names node nowhere"));
    let there = with_state("nowhere", NodeState::Reachable, named);
    assert_eq!(there.step(Rule::FirstAttemptDue), Step::Stamp { attempt: 1, nodes: vec!["nowhere".into()] });
}

#[test]
fn a_selected_node_that_the_class_does_not_allow_is_given_back() {
    for world in [new(), stamped(1), failed_with(Reaction::Retry)] {
        let mut outside = World { selected_node_forbidden: true, ..selected(world) };
        let decision = outside.decide_by(Rule::SelectedNodeForbidden, NOW + 60);
        assert_eq!(decision.step, Step::Reschedule { failure: None });
        let said = decision.event.unwrap().message;
        assert!(said.contains("node a is outside the allowedTopologies of class silver"), "{said}");
        outside.class.binding = BindingMode::Immediate;
        assert!(!matches!(outside.decide(NOW + 60).step, Step::Reschedule { .. }), "nobody would select another");
    }
}

#[test]
fn a_node_that_does_not_take_the_pod_is_given_up() {
    let cause = Cause::new("Unschedulable", "0/3 nodes are available: 1 node(s) were unschedulable");
    let stuck = |world: World| World { run: RunState::Stuck { cause: cause.clone(), since: NOW - 10 }, ..world };
    let pinned = stuck(selected(stamped(1)));
    pinned.waits(run(RunRule::RunStuck), "1 node(s) were unschedulable");
    assert_eq!(pinned.decide_by(run(RunRule::RunStuck), NOW).requeue_at, Some(NOW + 5));
    let Step::RecordFailure { failure, .. } = pinned.decide_by(Rule::NodeAdmissionTimeout, NOW + 5).step else {
        panic!("it is given up")
    };
    assert_eq!(failure.reaction, Reaction::NoCapacity);
    // Without another node, and where any node will do, a new attempt gains nothing.
    let alone = World { node_choice: NodeChoice { last: true, ..NodeChoice::default() }, ..stamped(1) };
    assert_eq!(stuck(alone).decide_by(run(RunRule::RunStuck), NOW + 1000).step, Step::Nothing);
    let mut anywhere = selected(stamped(1));
    anywhere.stamped_recipe = Some(recipe_with(&[("placement", "any")]));
    assert_eq!(stuck(anywhere).decide_by(run(RunRule::RunStuck), NOW + 1000).step, Step::Nothing);
}

#[test]
fn a_pod_on_a_dead_node_is_reported() {
    let lost =
        |world: World| with_state("a", NodeState::Unreachable, World { nodes_with_pods: vec!["a".into()], ..world });
    let running = World { run: RunState::MayBeRunning, has_running_pods: true, ..selected(stamped(1)) };
    running.rests(run(RunRule::RunInProgress));
    let says = "a pod of the provisioner is on node a, which does not answer";
    lost(running.clone()).waits(run(RunRule::RunUnreachable), says);
    lost(World { claim: terminating().claim, ..running }).waits(run(RunRule::RunUnreachable), says);
    lost(World { has_running_pods: true, ..selected(failed_with(Reaction::Retry)) })
        .waits(run(RunRule::RunUnreachable), "kubectl delete node a");
}

#[test]
fn an_adopted_volume_records_the_nodes_of_earlier_attempts() {
    let names = |nodes: &[&str]| nodes.iter().map(|node| (*node).to_owned()).collect::<Vec<_>>();
    let adopted_nodes = |nodes: &[&str], affinity: bool| {
        let mut world = selected(stamped(2));
        world.claim.nodes_with_storage = names(nodes);
        world.recorded.nodes = names(&["a", "b"]);
        let mut made = volume();
        if affinity {
            let text =
                "nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [b]}]}]";
            made.affinity = Some(Box::new(crate::config::values::yaml(text).unwrap()));
        }
        world.volumes = vec![(made, vec![])];
        match world.step(Rule::AdoptVolume) {
            Step::Adopt { nodes, .. } => nodes,
            step => panic!("{step:?}"),
        }
    };
    for noted in [&["a", "b"][..], &["b"]] {
        assert_eq!(adopted_nodes(noted, true), ["a", "b"], "somebody has taken a note off");
    }
    // A volume that is not bound to a host may be what earlier attempts made.
    assert!(adopted_nodes(&["a", "b"], false).is_empty());
}

#[test]
fn the_affinity_of_a_volume_names_its_node() {
    let made_on = |noted: &[&str], host: &str| {
        let mut world = stamped(2);
        world.claim.nodes_with_storage = noted.iter().map(|node| (*node).to_owned()).collect();
        let host = format!("{{key: kubernetes.io/hostname, operator: In, values: [{host}]}}");
        let text = format!("nodeSelectorTerms: [{{matchExpressions: [{host}]}}]");
        let affinity = Some(Box::new(crate::config::values::yaml(&text).unwrap()));
        world.volumes = vec![(Volume { affinity, ..volume() }, vec![])];
        match world.step(Rule::AdoptVolume) {
            Step::Adopt { provenance, nodes, .. } => (provenance.origin_node, nodes.join(",")),
            step => panic!("{step:?}"),
        }
    };
    let on = |node: &str, nodes: &str| (Some(node.to_owned()), nodes.to_owned());
    for host in ["b", "label-of-b"] {
        assert_eq!(made_on(&[], host), on("b", "b"), "somebody has taken the note off");
        assert_eq!(made_on(&["b", "a"], host), on("b", "a,b"), "the attempt before the last made it");
    }
    assert_eq!(made_on(&["c", "a"], "d"), on("a", "c,a"), "no attempt was where it says");
    assert_eq!(made_on(&["gone", "b"], "gone"), on("gone", "b,gone"), "the node of the first attempt is away");
}

/// The StorageClass may say that a pod must come first. The watch of StorageClasses may be late, and so may the admin.
#[test]
fn a_class_by_its_label_alone_serves_a_claim_only_after_the_api_has_shown_no_object() {
    let mut by_label = World { class_certainty: ClassCertainty::Unasked, ..new() };
    by_label.class.has_object = false;
    assert_eq!(by_label.step(Rule::ConfirmNoClassObject), Step::ConfirmNoClassObject);
    by_label.class.recipe = Err("what only a StorageClass can do".into());
    assert_eq!(by_label.step(Rule::ConfirmNoClassObject), Step::ConfirmNoClassObject, "the config may be right");
    let confirmed = World { class_certainty: ClassCertainty::Certain, ..by_label.clone() };
    assert_eq!(confirmed.step(Rule::ConfigUnusable), Step::Nothing);
    let new_label = World { class_certainty: ClassCertainty::MayFollow, ..by_label.clone() };
    let waits = new_label.decide_by(Rule::ClassObjectMayFollow, NOW);
    assert!(waits.step == Step::Nothing && waits.event.is_none() && waits.requeue_at == Some(NOW + 1));
    // The orchestrator continues an attempt that has begun.
    let begun = World { claim: stamped(1).claim, ..by_label };
    assert_ne!(begun.observed(|o| decide(o, NOW).rule), Rule::ConfirmNoClassObject);
}
