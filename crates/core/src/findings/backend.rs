//! The comparison of backends with the cluster: storage that nobody knows, and volumes without storage.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use flex_contract::listing::{Entry, State};
use flex_contract::names;

use super::{Finding, FindingKind, Searched, sort};
use crate::claim::nodes::can_accept_run;
use crate::config::effective_config::EffectiveConfig;
use crate::config::{Placement, Recipe, keys};
use crate::model::moved_in::MovedIn;
use crate::model::object_ref::ObjectRef;
use crate::model::volume::Provenance;
use crate::model::volume::Volume;
use crate::object::{ObjectName, hash};

/// The capability with which a config declares list runs.
pub const CAPABILITY: &str = crate::config::capability::LIST;

/// A backend, as a class and its config lead to it.
#[derive(Clone, Debug)]
pub struct View {
    /// A key that is the same for all versions of a config with the same backend.
    pub key: String,
    /// The recipe of the list run.
    pub recipe: Arc<Recipe>,
    /// The nodes of the list runs: each node with storage of its own, or `None` for storage on the network.
    pub nodes: Vec<Option<String>>,
}

/// The result of a list run.
#[derive(Clone, Debug)]
pub struct Listing {
    /// The key of the [`View`].
    pub key: String,
    /// The name of the class.
    pub class: String,
    /// The node of the run.
    pub node: Option<String>,
    /// All entries, or the reason why they are not known.
    pub entries: Result<Vec<Entry>, String>,
}

/// Returns the key that distinguishes a backend from others: every parameter does, and some keys.
fn key(effective_config: &EffectiveConfig) -> String {
    let leads = |key: &str| keys::find(key).is_none_or(|key| key.leads_to_backend);
    let data: BTreeMap<_, _> = effective_config.data.iter().filter(|(key, _)| leads(key)).collect();
    hash(
        serde_json::json!([effective_config.config, effective_config.class, data, effective_config.script])
            .to_string()
            .as_bytes(),
    )
}

fn provenance(volume: &Volume) -> Option<Provenance> {
    serde_json::from_str(volume.provenance.as_deref().filter(|_| volume.is_adopted())?).ok()
}

/// Returns the backends that can be listed. These are the backends of all classes, and those on which older versions of
/// a config made volumes.
pub fn views(Searched { objects, others: s }: Searched<'_>) -> Vec<View> {
    let mut views: BTreeMap<String, (Arc<Recipe>, BTreeSet<String>)> = BTreeMap::new();
    for recipe in s.classes.iter().filter_map(|class| class.recipe.as_ref().ok()).filter(|r| r.can(CAPABILITY)) {
        views.insert(key(&recipe.effective_config), (recipe.clone(), BTreeSet::new()));
    }
    let mut passed_over = HashSet::new();
    for volume in objects.volumes().filter(|volume| volume.belongs_to(&s.identity)) {
        let Some(Provenance { effective_config, origin_node: node, .. }) = provenance(&volume) else { continue };
        let key = key(&effective_config);
        if !views.contains_key(&key) && !passed_over.contains(&key) {
            match effective_config.recipe() {
                Ok(recipe) if recipe.can(CAPABILITY) => {
                    views.insert(key.clone(), (Arc::new(recipe), BTreeSet::new()));
                }
                _ => {
                    passed_over.insert(key.clone());
                }
            }
        }
        if let (Some((_, nodes)), Some(node)) = (views.get_mut(&key), node) {
            nodes.insert(node);
        }
    }
    // A node that does not answer is listed too, so that a finding says that its storage is not known. A node that
    // never takes a run has only storage of older versions of the config, and is among the nodes above for that reason.
    let selected = |recipe: &Recipe| {
        let nodes = s.nodes.iter().filter(|node| can_accept_run(node, recipe));
        nodes.map(|node| node.name.clone()).collect::<Vec<_>>()
    };
    views
        .into_iter()
        .map(|(key, (recipe, mut nodes))| {
            let nodes = match recipe.placement {
                Placement::Any => vec![None],
                Placement::SelectedNode => {
                    nodes.extend(selected(&recipe));
                    nodes.into_iter().map(Some).collect()
                }
            };
            View { key, recipe, nodes }
        })
        .collect()
}

/// Returns all ids that any object of the cluster has, whoever made it.
fn known(Searched { objects, others: s }: Searched<'_>) -> HashSet<String> {
    let mut known: HashSet<String> = objects.claims().map(|claim| claim.volume_id()).collect();
    let mut add = |id: Option<&str>| known.extend(id.map(str::to_owned));
    for volume in objects.volumes() {
        add(volume.claim_uid.as_deref());
        add(volume.volume_id_annotation.as_deref());
        add(volume.name.strip_prefix(names::PV_PREFIX));
        add(volume.claim_ref_uid());
    }
    s.jobs.iter().for_each(|job| add(Some(&job.run_labels.id)));
    s.pods.iter().for_each(|pod| add(Some(&pod.run_labels.id)));
    known
}

/// Compares lists with the cluster, as it was before the first run and after the last. `places` are those of all volumes,
/// as lists write them.
pub fn compare(
    before: Searched<'_>,
    after: Searched<'_>,
    listings: &[Listing],
    places: &BTreeSet<String>,
) -> Vec<Finding> {
    let (was, is) = (known(before), known(after));
    let mut findings: BTreeMap<(FindingKind, ObjectRef), Finding> = BTreeMap::new();
    let mut add = |finding: Finding| {
        findings.entry((finding.kind, finding.object.clone())).or_insert(finding);
    };
    for listing in listings {
        let at = listing.node.clone().unwrap_or_default();
        match &listing.entries {
            Err(why) => add(Finding::new(
                FindingKind::BackendNotListed,
                ObjectRef { kind: "Backend", name: ObjectName::new(&at, &listing.class), uid: String::new() },
                format!("class {}: {why}", listing.class),
                "correct what the message names, then run the doctor again".to_owned(),
            )),
            Ok(entries) => entries
                .iter()
                .filter(|entry| !was.contains(entry.id.as_str()) && !is.contains(entry.id.as_str()))
                // The image may know the storage by another id than the cluster.
                .filter(|entry| !places.contains(&entry.place))
                .filter_map(|entry| unknown(entry, listing))
                .for_each(&mut add),
        }
    }
    missing(before, after, listings).into_iter().for_each(add);
    let mut findings: Vec<Finding> = findings.into_values().collect();
    sort(&mut findings);
    findings
}

fn unknown(entry: &Entry, listing: &Listing) -> Option<Finding> {
    let Entry { state, id, bytes, place: location } = entry;
    let node = listing.node.as_deref();
    let kind = match state {
        State::Volume => FindingKind::BackendUnknown,
        State::Rubbish => FindingKind::BackendRubbish,
        State::Kept => return None,
    };
    let size = bytes.map(|bytes| format!(", {bytes} bytes")).unwrap_or_default();
    let on = node.map(|node| format!(" on node {node}")).unwrap_or_default();
    let location = if location.is_empty() { id } else { location };
    Some(Finding::new(
        kind,
        ObjectRef { kind: "Backend", name: ObjectName::new(node.unwrap_or_default(), id), uid: String::new() },
        format!("{location}{on}{size}, listed for class {}", listing.class),
        "make sure that no other cluster uses the storage, and that no restored claim got an empty volume in its place, then delete it on the backend by hand; the doctor never does",
    ))
}

/// Checks whether the list of an image has storage that has moved in. An image on nodes finds its volumes by their names,
/// and knows only those of local-path beside its own. Other images keep records.
fn is_listed(volume: &Volume, moved_in: &MovedIn) -> bool {
    let Some((id, (_, name))) = volume.volume_id().zip(moved_in.place()) else { return false };
    match volume.source_kind {
        Some("hostPath" | "local") => name.starts_with(&format!("{}_", names::pv_name(id))),
        _ => name.contains(id),
    }
}

/// Finds volumes in use whose own backend has a complete list without them.
fn missing(before: Searched<'_>, after: Searched<'_>, listings: &[Listing]) -> Vec<Finding> {
    let mut lists: HashMap<(&str, Option<&str>), HashSet<&str>> = HashMap::new();
    for listing in listings {
        let Ok(entries) = &listing.entries else { continue };
        let there = entries.iter().filter(|entry| entry.state != State::Rubbish).map(|entry| entry.id.as_str());
        lists.insert((&listing.key, listing.node.as_deref()), there.collect());
    }
    let was_there = |volume: &Volume| before.objects.volume(&volume.name).is_some_and(|was| was.uid == volume.uid);
    let lives = |uid: &str| after.objects.claim_by_id(uid).is_some_and(|claim| claim.uid == uid && !claim.terminating);
    let in_use = |volume: &Arc<Volume>| {
        volume.belongs_to(&after.others.identity)
            && !volume.terminating
            && volume.claim_ref_uid().is_some_and(lives)
            && was_there(volume)
    };
    after
        .objects
        .volumes()
        .filter(in_use)
        .filter_map(|volume| {
            let Provenance { effective_config, origin_node: node, moved_in, .. } = provenance(&volume)?;
            if moved_in.is_some_and(|moved_in| !is_listed(&volume, &moved_in)) {
                return None;
            }
            let by_any =
                effective_config.data.get(keys::PLACEMENT.name).is_some_and(|placement| placement.trim() == "any");
            let node = node.as_deref().filter(|_| !by_any);
            let key = key(&effective_config);
            let listed = lists.get(&(key.as_str(), node))?;
            if listed.contains(volume.volume_id()?) {
                return None;
            }
            let claim = volume.claim_ref.as_ref().map(|reference| reference.name.to_string()).unwrap_or_default();
            let on = node.map(|node| format!(" on node {node}")).unwrap_or_default();
            Some(Finding::new(
                FindingKind::BackendMissing,
                ObjectRef {
                    kind: "PersistentVolume",
                    name: ObjectName::new("", &volume.name),
                    uid: volume.uid.clone(),
                },
                format!(
                    "its class {}{on} has no storage with the id {}; claim {claim} is bound to the volume",
                    effective_config.class,
                    volume.volume_id()?
                ),
                "look at the backend; restore the data from a backup, or delete the claim".to_owned(),
            ))
        })
        .collect()
}
