//! The topology of a volume. The requirement follows from the selected node, the class and the cluster, and the
//! driver's answer is checked. The functions are pure.
//!
//! | selected node | `csi-strict-topology` | class allows | `csi-immediate-topology` | requisite | preferred |
//! |---|---|---|---|---|---|
//! | yes | true | – | – | the node's | the same |
//! | yes | false | all | – | those of all nodes | the node's first |
//! | yes | false | some | – | those of the class | the node's first |
//! | no | – | some | – | those of the class | one by the claim's name first |
//! | no | – | all | true | those of all nodes | one by the claim's name first |
//! | no | – | all | false | none | none |

use std::collections::{BTreeMap, BTreeSet};

use csi_spec::csi::{Topology, TopologyRequirement};
use flex_contract::request::RunRequest;
use flex_image_kit::Failure;
use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, VolumeNodeAffinity};

use crate::parameters::Parameters;

/// The labels of a place, which hold together.
pub type Segment = BTreeMap<String, String>;

/// A node, with the fields that matter here.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// The name of the node.
    pub name: String,
    /// The labels of the node.
    pub labels: BTreeMap<String, String>,
    /// The label keys by which the driver stated its place when it registered on the node.
    pub keys: Vec<String>,
}

impl Node {
    fn segment(&self, keys: &[String]) -> Option<Segment> {
        keys.iter().map(|key| Some((key.clone(), self.labels.get(key)?.clone()))).collect()
    }
}

/// Returns the topology requirement for a driver; `None` if there is no requirement.
///
/// # Errors
/// If the selected node is gone, lacks the driver, or is not allowed; if no node has the driver; or if the class cannot
/// be read.
pub fn requirement(
    request: &RunRequest,
    parameters: &Parameters,
    nodes: &[Node],
) -> Result<Option<TopologyRequirement>, Failure> {
    let allowed = allowed(&request.class_topologies)?;
    let selected = match request.node_name.as_str() {
        "" => None,
        name => Some(selected(name, nodes)?),
    };
    let within = |segment: &Segment| allowed.iter().any(|term| is_part(term, segment));
    let requisite: BTreeSet<Segment> = match &selected {
        Some(Selected { location, .. }) if parameters.strict_topology => {
            if !allowed.is_empty() && !within(location) {
                return Err(Failure::no_capacity(format!(
                    "the selected node {} is outside of the allowedTopologies of the class",
                    request.node_name
                )));
            }
            [location.clone()].into()
        }
        _ if !allowed.is_empty() => allowed.into_iter().collect(),
        None if !parameters.immediate_topology => return Ok(None),
        _ => {
            let keys = match &selected {
                Some(selected) => selected.keys.clone(),
                None => first_keys(nodes)?,
            };
            nodes.iter().filter_map(|node| node.segment(&keys)).collect()
        }
    };
    let requisite: Vec<Segment> = requisite.into_iter().collect();
    let first = match &selected {
        Some(Selected { location, .. }) => {
            requisite.iter().position(|term| is_part(term, location)).ok_or_else(|| {
                Failure::no_capacity(format!(
                    "the selected node {} is outside of the allowedTopologies of the class",
                    request.node_name
                ))
            })?
        }
        None if requisite.is_empty() => {
            return Err(Failure::retry("no node has the labels by which the driver says where it is"));
        }
        None => spread(&request.claim.name) % requisite.len(),
    };
    let turned = requisite[first..].iter().chain(&requisite[..first]);
    let topology = |segments: &Segment| Topology { segments: segments.clone() };
    Ok(Some(TopologyRequirement {
        preferred: turned.map(topology).collect(),
        requisite: requisite.iter().map(topology).collect(),
    }))
}

/// The topology of the selected node.
struct Selected {
    /// The keys by which the driver says where a node is.
    keys: Vec<String>,
    location: Segment,
}

fn selected(name: &str, nodes: &[Node]) -> Result<Selected, Failure> {
    let Some(node) = nodes.iter().find(|node| node.name == name) else {
        return Err(Failure::no_capacity(format!("the selected node {name} is gone")));
    };
    if node.keys.is_empty() {
        return Err(Failure::no_capacity(format!(
            "the driver has said of no topology on the selected node {name} (see its CSINode): it does not run there, or not yet"
        )));
    }
    match node.segment(&node.keys) {
        Some(location) => Ok(Selected { keys: node.keys.clone(), location }),
        None => Err(Failure::retry(format!(
            "the selected node {name} does not have all of the labels {} by which the driver says where it is",
            node.keys.join(", ")
        ))),
    }
}

/// Returns the keys of the first of all nodes with the driver, so that a repeated run uses the same.
fn first_keys(nodes: &[Node]) -> Result<Vec<String>, Failure> {
    let first = nodes.iter().filter(|node| !node.keys.is_empty()).min_by_key(|node| &node.name);
    first.map(|node| node.keys.clone()).ok_or_else(|| {
        Failure::retry(
            "the driver has said of no topology on any node (see the CSINodes): its node part does not run yet",
        )
    })
}

/// Returns the places that the class allows. Any of them will do.
fn allowed(json: &str) -> Result<Vec<Segment>, Failure> {
    if json.is_empty() {
        return Ok(Vec::new());
    }
    let terms: Vec<BTreeMap<String, Vec<String>>> = serde_json::from_str(json)
        .map_err(|error| Failure::never(format!("CLASS_TOPOLOGIES is not what the contract says: {error}")))?;
    let mut all = Vec::new();
    for term in terms {
        let mut made = vec![Segment::new()];
        for (key, values) in term {
            let with = |segment: &Segment, value: &String| {
                let mut segment = segment.clone();
                segment.insert(key.clone(), value.clone());
                segment
            };
            made = made.iter().flat_map(|segment| values.iter().map(|value| with(segment, value))).collect();
        }
        all.extend(made.into_iter().filter(|segment| !segment.is_empty()));
    }
    Ok(all)
}

/// Checks whether a place has all labels of a term.
pub fn is_part(term: &Segment, location: &Segment) -> bool {
    term.iter().all(|(key, value)| location.get(key) == Some(value))
}

/// Returns a number for the name of a claim. Claims of a StatefulSet get consecutive numbers, so that they are spread.
fn spread(name: &str) -> usize {
    let (base, index) = match name.rsplit_once('-') {
        Some((base, index)) => match index.parse::<u32>() {
            Ok(number) => (base, number),
            Err(_) => (name, 0),
        },
        None => (name, 0),
    };
    // FNV-1a does not differ between builds.
    let hash = base.bytes().fold(2_166_136_261_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(16_777_619));
    hash.wrapping_add(index) as usize
}

/// Checks whether the selected node reaches a volume, and whether the volume is in the requested place.
pub fn is_where_asked(answer: &[Topology], asked: &TopologyRequirement, selected: Option<&Node>) -> bool {
    let any = |of: &dyn Fn(&Segment) -> bool| answer.iter().any(|topology| of(&topology.segments));
    let in_requisite = |location: &Segment| {
        asked.requisite.iter().any(|wanted| is_part(&wanted.segments, location) || is_part(location, &wanted.segments))
    };
    let reached = selected.is_none_or(|node| any(&|location| is_part(location, &node.labels)));
    reached && any(&in_requisite)
}

/// Returns the nodes that reach a volume, by the place that it states.
pub fn affinity(answer: &[Topology]) -> Option<VolumeNodeAffinity> {
    let terms: Vec<NodeSelectorTerm> = answer
        .iter()
        .filter(|topology| !topology.segments.is_empty())
        .map(|topology| NodeSelectorTerm {
            match_expressions: Some(
                topology
                    .segments
                    .iter()
                    .map(|(key, value)| NodeSelectorRequirement {
                        key: key.clone(),
                        operator: "In".into(),
                        values: Some(vec![value.clone()]),
                    })
                    .collect(),
            ),
            match_fields: None,
        })
        .collect();
    (!terms.is_empty()).then_some(VolumeNodeAffinity { required: Some(NodeSelector { node_selector_terms: terms }) })
}

#[cfg(test)]
#[path = "topology_tests.rs"]
pub(crate) mod tests;
