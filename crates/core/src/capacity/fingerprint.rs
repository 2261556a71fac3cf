//! The fingerprint of a segment: a short text that changes when something may have taken or freed capacity there.
//!
//! It is computed from the names and sizes of the config's volumes in the segment, and from the claims that found no
//! capacity there. The published object carries it, so that the next process knows it too.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use flex_contract::exit::Reaction;
use flex_contract::names;

use super::segment::{WantedSegment, keys};
use crate::config::Recipe;
use crate::model::affinity;
use crate::model::claim::Claim;
use crate::model::volume::Volume;
use crate::object::ObjectName;
use crate::run::node::Node;

/// A checksum that does not depend on the order of its items.
#[derive(Clone, Copy, Debug, Default)]
struct Fingerprint {
    volumes: u64,
    bytes: u64,
    names: u64,
}

impl Fingerprint {
    fn add(&mut self, name: &str, bytes: Option<u64>) {
        self.volumes += u64::from(bytes.is_some());
        self.bytes = self.bytes.wrapping_add(bytes.unwrap_or_default());
        // FNV-1a: the same in every process and version.
        let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        let hash = name.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, step);
        self.names = self.names.wrapping_add(bytes.unwrap_or_default().to_le_bytes().iter().fold(hash, step));
    }
}

impl std::fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}-{:x}", self.volumes, self.bytes, self.names)
    }
}

/// The segments of a class.
#[derive(Default)]
struct OfClass<'a> {
    /// The labels whose values distinguish the segments.
    keys: Vec<String>,
    /// The index of each segment, by the values of these labels.
    segments: HashMap<&'a BTreeMap<String, String>, usize>,
}

/// The segments of one config, by class.
#[derive(Default)]
struct Group<'a>(BTreeMap<&'a str, OfClass<'a>>);

impl Group<'_> {
    /// Finds the segments that contain a volume with this affinity.
    fn at(
        &self,
        affinity: Option<&k8s_openapi::api::core::v1::NodeSelector>,
        labels: Option<&BTreeMap<String, String>>,
    ) -> Vec<usize> {
        let mut found = Vec::new();
        for OfClass { keys, segments } in self.0.values() {
            let of_node = labels.and_then(|labels| {
                keys.iter().map(|key| Some((key.clone(), labels.get(key)?.clone()))).collect::<Option<BTreeMap<_, _>>>()
            });
            match (of_node.and_then(|topology| segments.get(&topology)), affinity) {
                (Some(segment), _) => found.push(*segment),
                (None, Some(affinity)) if labels.is_none() && !keys.is_empty() => {
                    found.extend(
                        segments.iter().filter(|(topology, _)| affinity::matches(affinity, topology)).map(|(_, at)| at),
                    );
                }
                (None, _) if labels.is_none() || keys.is_empty() => found.extend(segments.values()),
                _ => {}
            }
        }
        found
    }
}

/// Computes the fingerprint of each segment that an image can report, by the segment's id.
pub fn fingerprint(
    wanted: &[WantedSegment],
    nodes: &[Arc<Node>],
    volumes: impl Iterator<Item = Arc<Volume>>,
    claims: impl Iterator<Item = Arc<Claim>>,
    configs: &HashMap<String, ObjectName>,
) -> HashMap<String, String> {
    let by_host: HashMap<&str, &BTreeMap<String, String>> =
        nodes.iter().filter_map(|node| Some((node.labels.get(names::HOSTNAME)?.as_str(), &node.labels))).collect();
    let by_name: HashMap<&str, &BTreeMap<String, String>> =
        nodes.iter().map(|node| (node.name.as_str(), &node.labels)).collect();
    let mut groups: HashMap<&ObjectName, Group<'_>> = HashMap::new();
    for (at, wanted) in wanted.iter().enumerate() {
        let Some(source) = &wanted.source else { continue };
        let recipe: &Recipe = &source.recipe;
        let classes = &mut groups.entry(&recipe.config).or_default().0;
        let class = classes.entry(&wanted.segment.class).or_default();
        class.keys = keys(recipe);
        class.segments.insert(&wanted.segment.topology, at);
    }
    let mut sums = vec![Fingerprint::default(); wanted.len()];
    for volume in volumes {
        let Some(group) = configs.get(&volume.class).and_then(|config| groups.get(config)) else { continue };
        let affinity = volume.affinity.as_deref();
        let labels = affinity.and_then(affinity::only_host).and_then(|host| by_host.get(host).copied());
        let size = volume.size.as_ref().copied().unwrap_or_default();
        group.at(affinity, labels).into_iter().for_each(|at| sums[at].add(&volume.name, Some(size)));
    }
    // A copied claim has the last failure of the claim that it was copied from.
    for claim in claims.filter(|claim| !claim.is_bound() && claim.own_stamp().is_some()) {
        let full = claim.last_failure.as_ref().is_some_and(|failure| failure.reaction == Reaction::NoCapacity);
        let class = claim.class.as_ref().filter(|_| full);
        let Some(group) = class.and_then(|class| groups.get(configs.get(class)?)) else { continue };
        let mut segments: Vec<usize> = match claim.nodes_with_storage.is_empty() {
            true => group.at(None, None),
            false => claim
                .nodes_with_storage
                .iter()
                .filter_map(|node| by_name.get(node.as_str()))
                .flat_map(|labels| group.at(None, Some(labels)))
                .collect(),
        };
        segments.sort_unstable();
        segments.dedup();
        segments.into_iter().for_each(|at| sums[at].add(&claim.uid, None));
    }
    let asked = wanted.iter().zip(&sums).filter(|(wanted, _)| wanted.source.is_some());
    asked.map(|(wanted, sum)| (wanted.segment.id.clone(), sum.to_string())).collect()
}

#[cfg(test)]
#[path = "fingerprint_tests.rs"]
mod tests;
