//! The nodes on which a recipe's pods may run, and the choice among them where no scheduler selects one.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use flex_contract::names;
use k8s_openapi::api::core::v1::{NodeSelector, Taint, Toleration};

use crate::config::Recipe;
use crate::config::topology::Topologies;
use crate::limits;
use crate::model::affinity::holds;
use crate::model::claim::Claim;
use crate::run::node::Node;

/// The prefix of taints that Kubernetes itself adds to nodes, and removes again.
const NODE_CONDITION_TAINTS: &str = "node.kubernetes.io/";

/// The possible nodes of a claim's next attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeChoice {
    /// The best node other than that of the last attempt.
    pub next: Option<String>,
    /// `next` has had no attempt.
    pub is_new: bool,
    /// The node of the last attempt can take another.
    pub last: bool,
}

/// Chooses among all nodes. Prefers nodes without an attempt, spread by the claim's UID, and then the node whose
/// attempt was the longest ago.
pub fn choose_node<'a>(
    nodes: impl Iterator<Item = &'a Node>,
    claim: &Claim,
    recipe: &Recipe,
    allowed: &Topologies,
) -> NodeChoice {
    let last = claim.nodes_with_storage.last();
    let mut choice = NodeChoice::default();
    let mut best: Option<((usize, u64), &Node)> = None;
    for node in nodes.filter(|node| allowed.allows(&node.labels) && accepts_run(node, recipe)) {
        if last == Some(&node.name) {
            choice.last = true;
            continue;
        }
        let rank = claim.nodes_with_storage.iter().position(|noted| *noted == node.name).map_or(0, |at| at + 1);
        if rank == 0 && claim.nodes_with_storage.len() >= limits::NODES {
            continue;
        }
        let key = (rank, spread(&claim.uid, &node.name));
        if best.is_none_or(|(least, _)| key < least) {
            best = Some((key, node));
        }
    }
    if let Some(((rank, _), node)) = best {
        (choice.next, choice.is_new) = (Some(node.name.clone()), rank == 0);
    }
    choice
}

fn spread(uid: &str, node: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (uid, node).hash(&mut hasher);
    hasher.finish()
}

/// Checks whether the scheduler would place a pod of the recipe on a node by its labels and taints. Only the scheduler
/// knows whether the pod's requests fit.
pub fn accepts_run(node: &Node, recipe: &Recipe) -> bool {
    node.reachable && matches_config(node, recipe) && node.taints.iter().all(|taint| is_tolerated(taint, recipe))
}

/// Checks the same without regard to temporary states. The node may not answer, be cordoned, or be short of a resource.
pub fn can_accept_run(node: &Node, recipe: &Recipe) -> bool {
    let lasting = |taint: &&Taint| !taint.key.starts_with(NODE_CONDITION_TAINTS);
    matches_config(node, recipe) && node.taints.iter().filter(lasting).all(|taint| is_tolerated(taint, recipe))
}

fn is_tolerated(taint: &Taint, recipe: &Recipe) -> bool {
    let spec = recipe.pod_template.as_ref().and_then(|template| template.spec.as_ref());
    let more = spec.iter().flat_map(|spec| spec.tolerations.iter().flatten());
    recipe.tolerations.iter().chain(more).any(|toleration| tolerates(toleration, taint))
}

/// Checks whether the admin intends a node for the pods of the recipe.
pub fn matches_config(node: &Node, recipe: &Recipe) -> bool {
    let spec = recipe.pod_template.as_ref().and_then(|template| template.spec.as_ref());
    let selector = spec.and_then(|spec| spec.node_selector.as_ref());
    let affinity = spec.and_then(|spec| spec.affinity.as_ref()?.node_affinity.as_ref());
    let required = affinity.and_then(|nodes| nodes.required_during_scheduling_ignored_during_execution.as_ref());
    let selected = |selector: &BTreeMap<String, String>| {
        selector.iter().all(|(key, value)| node.labels.get(key).is_some_and(|label| label == value))
    };
    has_system(node, recipe)
        && selected(&recipe.node_selector)
        && selector.is_none_or(selected)
        && required.is_none_or(|required| is_within(node, required))
}

/// Checks whether a node has the operating system of runs. A node without the label counts as one that has it, because
/// the kubelet writes the label: such a node has none yet.
fn has_system(node: &Node, recipe: &Recipe) -> bool {
    let label = node.labels.get(names::OS);
    recipe.system().zip(label).is_none_or(|(wanted, label)| wanted == label)
}

/// Checks a node against a selector. The terms are alternatives. Each may select by labels and by the name, which is a
/// field.
fn is_within(node: &Node, selector: &NodeSelector) -> bool {
    let fields = BTreeMap::from([("metadata.name".to_owned(), node.name.clone())]);
    selector.node_selector_terms.iter().any(|term| {
        let mut labels = term.match_expressions.iter().flatten().peekable();
        let mut names = term.match_fields.iter().flatten().peekable();
        let asks = labels.peek().is_some() || names.peek().is_some();
        asks && labels.all(|wanted| holds(wanted, &node.labels)) && names.all(|wanted| holds(wanted, &fields))
    })
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let or_any = |wanted: &Option<String>, is: &str| wanted.as_deref().is_none_or(|w| w.is_empty() || w == is);
    let value = match toleration.operator.as_deref() {
        Some("Exists") => true,
        _ => {
            toleration.key.is_some()
                && toleration.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default()
        }
    };
    or_any(&toleration.effect, &taint.effect) && or_any(&toleration.key, &taint.key) && value
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::effective_config::EffectiveConfig;
    use crate::config::values::yaml;
    use crate::object::ObjectName;

    fn recipe(keys: &[(&str, &str)]) -> Recipe {
        let data = [("image", "x")].iter().chain(keys).map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let config = ObjectName::new("admin", "silver");
        EffectiveConfig { config, class: "silver".into(), data, ..EffectiveConfig::default() }.recipe().unwrap()
    }

    fn node(text: &str) -> Node {
        Node::from(&yaml::<k8s_openapi::api::core::v1::Node>(text).unwrap())
    }

    fn plain(name: &str) -> Node {
        node(&format!("metadata: {{name: {name}}}"))
    }

    fn claim(nodes: &[&str]) -> Claim {
        let text = "metadata: {name: data, namespace: team, uid: u}\nspec: {}\n";
        let claim = yaml::<k8s_openapi::api::core::v1::PersistentVolumeClaim>(text).unwrap();
        Claim { nodes_with_storage: nodes.iter().map(|node| (*node).to_owned()).collect(), ..Claim::from(&claim) }
    }

    fn chosen(nodes: &[Node], tried: &[&str]) -> (Option<String>, bool, bool) {
        let NodeChoice { next, is_new, last } =
            choose_node(nodes.iter(), &claim(tried), &recipe(&[]), &Topologies::default());
        (next, is_new, last)
    }

    #[test]
    fn a_new_node_comes_first_then_the_one_tried_longest_ago() {
        let nodes = ["a", "b", "c"].map(plain);
        let first = chosen(&nodes, &[]).0.unwrap();
        let others: Vec<&str> = ["a", "b", "c"].into_iter().filter(|name| *name != first).collect();
        let second = chosen(&nodes, &[&first]);
        assert!(others.contains(&second.0.as_deref().unwrap()) && second.1 && second.2, "{second:?}");
        assert_eq!(chosen(&nodes, &["b", "a", "c"]), (Some("b".into()), false, true));
        assert_eq!(chosen(&nodes[..1], &["a"]), (None, false, true), "there is no other node");
        assert_eq!(chosen(&nodes[..2], &["b", "c"]), (Some("a".into()), true, false), "the last node is gone");
        assert_eq!(chosen(&[], &[]), (None, false, false));
        let many: Vec<String> = (0..limits::NODES).map(|n| format!("n{n}")).collect();
        let tried: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(chosen(&nodes, &tried).0, None, "no more nodes can be noted");
    }

    #[test]
    fn claims_are_spread_over_the_nodes() {
        let nodes = ["a", "b", "c"].map(plain);
        let of = |uid: usize| {
            let claim = Claim { uid: uid.to_string(), ..claim(&[]) };
            choose_node(nodes.iter(), &claim, &recipe(&[]), &Topologies::default()).next.unwrap()
        };
        for name in ["a", "b", "c"] {
            let share = (0..300).filter(|uid| of(*uid) == name).count();
            assert!((50..150).contains(&share), "{name} has {share} of 300");
        }
    }

    #[test]
    fn only_nodes_where_the_scheduler_would_place_the_pod_are_chosen() {
        let may = |text: &str, keys: &[(&str, &str)]| accepts_run(&node(text), &recipe(keys));
        let zone = "metadata: {name: a, labels: {zone: west}}";
        assert!(may(zone, &[]) && may(zone, &[("node-selector", "zone=west")]));
        assert!(!may(zone, &[("node-selector", "zone=east")]));
        let within = |term: &str| {
            let required = format!("{{nodeSelectorTerms: [{term}]}}");
            let template = format!(
                "spec: {{affinity: {{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {required}}}}}}}"
            );
            may(zone, &[("pod-template", &template)])
        };
        assert!(within("{matchExpressions: [{key: zone, operator: Exists}]}"));
        assert!(!within("{matchExpressions: [{key: zone, operator: DoesNotExist}]}"));
        assert!(within("{matchFields: [{key: metadata.name, operator: In, values: [a]}]}"));
        assert!(!within("{matchFields: [{key: metadata.name, operator: In, values: [b]}]}"));
        assert!(!within("{}"), "an empty term holds on no node");
        assert!(!may(zone, &[("pod-template", "spec: {nodeSelector: {zone: east}}")]));
    }

    #[test]
    fn a_node_with_windows_is_left_alone_unless_the_config_names_it() {
        let windows = node("metadata: {name: a, labels: {kubernetes.io/os: windows}}");
        let linux = node("metadata: {name: b, labels: {kubernetes.io/os: linux}}");
        let both = [windows.clone(), linux.clone()];
        assert_eq!(chosen(&both, &[]), (Some("b".into()), true, false));
        assert_eq!(chosen(&both[..1], &[]), (None, false, false), "no other node makes it a choice");
        assert_eq!(chosen(&both[..1], &["a"]), (None, false, false), "nor does an earlier attempt");
        assert!(!can_accept_run(&windows, &recipe(&[])), "it is no node of the class for `doctor` either");
        let term =
            "{nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/os, operator: In, values: [windows]}]}]}";
        let affinity = format!(
            "spec: {{affinity: {{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {term}}}}}, containers: []}}"
        );
        for named in [
            ("node-selector", "kubernetes.io/os=windows"),
            ("pod-template", "spec: {nodeSelector: {kubernetes.io/os: windows}, containers: []}"),
            ("pod-template", affinity.as_str()),
            ("pod-template", "spec: {os: {name: windows}, containers: []}"),
        ] {
            let recipe = recipe(&[named]);
            assert!(accepts_run(&windows, &recipe) && !accepts_run(&linux, &recipe), "{named:?}");
        }
    }

    #[test]
    fn taints_are_tolerated_as_kubernetes_does() {
        let tainted = "metadata: {name: a}\nspec: {taints: [{key: gpu, value: big, effect: NoSchedule}]}";
        let may = |tolerations: &str| accepts_run(&node(tainted), &recipe(&[("tolerations", tolerations)]));
        assert!(!accepts_run(&node(tainted), &recipe(&[])));
        assert!(may("[{key: gpu, operator: Exists}]") && may("[{operator: Exists}]"));
        assert!(may("[{key: gpu, value: big}]") && may("[{key: gpu, value: big, effect: NoSchedule}]"));
        assert!(!may("[{key: gpu, value: small}]") && !may("[{key: gpu, operator: Exists, effect: NoExecute}]"));
        assert!(!may("[{key: other, operator: Exists}]"));
        let prefers = "metadata: {name: a}\nspec: {taints: [{key: gpu, effect: PreferNoSchedule}]}";
        assert!(accepts_run(&node(prefers), &recipe(&[])));
        assert!(!accepts_run(&node("metadata: {name: a}\nspec: {unschedulable: true}"), &recipe(&[])), "cordoned");
        let dead = "metadata: {name: a}\nspec: {taints: [{key: node.kubernetes.io/unreachable, effect: NoExecute}]}";
        assert!(!accepts_run(&node(dead), &recipe(&[("tolerations", "[{operator: Exists}]")])));
    }
}
