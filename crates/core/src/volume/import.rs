//! The objects that an admin's command writes to make existing data a volume.

use flex_contract::names;
use flex_contract::policy::ReclaimPolicy;
use flex_contract::quantity::quantity;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use serde_json::{Value, json};

use crate::claim::verify::verify_moved_in_source;
use crate::config::classes::Identity;
use crate::config::{Placement, Recipe};
use crate::model::moved_in::MovedIn;
use crate::model::volume::{Provenance, Volume};
use crate::object::{ObjectName, hash};
use crate::run::node::NodeLabels;

/// Data that are to become a volume.
#[derive(Clone, Debug)]
pub struct Import<'a> {
    /// The absolute path, on the node or on the server.
    pub path: &'a str,
    /// The NFS server; `None` for a path on a node.
    pub server: Option<&'a str>,
    /// The node, with its labels; `None` for data that each node reaches.
    pub node: Option<NodeLabels<'a>>,
    /// The claim that the volume gets.
    pub claim: &'a ObjectName,
    /// The size, in bytes.
    pub size: u64,
    /// The access modes.
    pub access_modes: &'a [String],
    /// The reclaim policy.
    pub policy: ReclaimPolicy,
}

/// The objects for imported data.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The id that the runs of the volume get. It follows from the place of the data, so that a repeated command
    /// continues.
    pub id: String,
    /// The provenance of the volume.
    pub provenance: Provenance,
    /// The claim, which names the volume.
    pub claim: PersistentVolumeClaim,
    volume: Value,
}

impl Imported {
    /// Returns the volume, for the claim with this UID.
    ///
    /// # Panics
    /// Never: the text is that of a volume.
    pub fn volume(&self, claim_uid: &str) -> PersistentVolume {
        let mut volume = self.volume.clone();
        volume["metadata"]["annotations"][names::CLAIM_UID] = json!(claim_uid);
        volume["spec"]["claimRef"]["uid"] = json!(claim_uid);
        serde_json::from_value(volume).expect("a volume")
    }
}

/// Builds the objects for data that a recipe is to serve.
///
/// # Errors
/// If the recipe cannot serve them. The text is for the admin.
pub fn import(of: &Import<'_>, recipe: &Recipe, identity: &Identity) -> Result<Imported, String> {
    let on_node = recipe.placement == Placement::SelectedNode;
    let node = match (on_node, of.node, of.server) {
        (_, Some(_), Some(_)) => return Err("data on a server have no node".to_owned()),
        (true, None, _) => {
            return Err(format!("the config {} makes volumes on nodes: name the node with --node", recipe.config));
        }
        (false, Some(NodeLabels { node, .. }), _) => {
            return Err(format!(
                "the data are on the node {node}, but runs of the config {} may be on any node: use a config with `placement: selected-node`",
                recipe.config
            ));
        }
        (_, node, _) => node,
    };
    let source = match of.server {
        None if allows(recipe, "local") => json!({ "local": { "path": of.path } }),
        None => json!({ "hostPath": { "path": of.path, "type": "Directory" } }),
        Some(server) => json!({ "nfs": { "server": server, "path": of.path } }),
    };
    let affinity = node.map(|NodeLabels { node, labels }| {
        let host = labels.get(names::HOSTNAME).map_or(node, String::as_str);
        json!({ "required": { "nodeSelectorTerms": [{
            "matchExpressions": [{ "key": names::HOSTNAME, "operator": "In", "values": [host] }],
        }] } })
    });
    if affinity.is_none() && source.get("local").is_some() {
        return Err("data on a node need --node, and data on a server need --server".to_owned());
    }
    let at = node.map(|node| node.node).or(of.server).unwrap_or_default();
    let id = id(&format!("{}\0{at}\0{}", recipe.config, of.path));
    let origin_node = node.filter(|_| on_node).map(|node| node.node.to_owned());
    let moved_in = MovedIn { path: of.path.to_owned(), size: of.size, ..MovedIn::default() };
    let provenance = Provenance {
        effective_config: recipe.effective_config.clone(),
        origin_node,
        moved_in: Some(moved_in),
        cluster: None,
        others: Vec::new(),
    };
    let provenance = provenance.of_cluster(identity);
    let storage = StorageSpec { source, affinity };
    let ObjectTexts { volume, claim } = objects(of, recipe, identity, &id, &provenance, storage);
    let checked: PersistentVolume = serde_json::from_value(volume.clone()).map_err(|error| error.to_string())?;
    verify_moved_in_source(&Volume::from(&checked), recipe, of.path)?;
    Ok(Imported { id, provenance, claim: serde_json::from_value(claim).map_err(|error| error.to_string())?, volume })
}

/// The parts of a volume's spec that say where its storage is.
struct StorageSpec {
    source: Value,
    affinity: Option<Value>,
}

/// Volume and claim as JSON.
struct ObjectTexts {
    volume: Value,
    claim: Value,
}

/// Builds volume and claim. The UID of the claim is missing.
fn objects(
    of: &Import<'_>,
    recipe: &Recipe,
    identity: &Identity,
    id: &str,
    provenance: &Provenance,
    StorageSpec { source, affinity }: StorageSpec,
) -> ObjectTexts {
    let storage = json!({ "storage": quantity(of.size) });
    let finalizers: Vec<_> =
        (of.policy == ReclaimPolicy::Delete).then_some(names::VOLUME_FINALIZER).into_iter().collect();
    let source_kind = source.as_object().and_then(|source| source.keys().next()).map(String::as_str);
    let mut volume = json!({
        "metadata": {
            "name": names::pv_name(id),
            "labels": { names::LABEL_INSTANCE: identity.instance },
            "annotations": {
                names::VOLUME_ID: id,
                names::JOB_CLAIM: of.claim.to_string(),
                names::PROVENANCE: json!(provenance).to_string(),
                names::PROVISIONED_BY: provenance.effective_config.provisioned_by(&identity.provisioner, source_kind),
            },
            "finalizers": finalizers,
        },
        "spec": {
            "storageClassName": recipe.class,
            "capacity": storage,
            "accessModes": of.access_modes,
            "persistentVolumeReclaimPolicy": of.policy.as_str(),
            "mountOptions": recipe.mount_options,
            "nodeAffinity": affinity,
            "claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "namespace": of.claim.namespace, "name": of.claim.name,
            },
        },
    });
    if let (Some(spec), Value::Object(source)) = (volume["spec"].as_object_mut(), source) {
        spec.extend(source);
    }
    let claim = json!({
        "metadata": { "namespace": of.claim.namespace, "name": of.claim.name },
        "spec": {
            "storageClassName": recipe.class,
            "accessModes": of.access_modes,
            "resources": { "requests": storage },
            "volumeName": names::pv_name(id),
        },
    });
    ObjectTexts { volume, claim }
}

fn allows(recipe: &Recipe, kind: &str) -> bool {
    recipe.volume_sources.iter().any(|rule| rule.kind == kind)
}

/// Returns an id in the form of a UUID, by the place of the data.
fn id(place: &str) -> String {
    let digits = hash(place.as_bytes()) + &hash(format!("{place}\0import").as_bytes());
    let part = |from: usize, to: usize| digits.get(from..to).unwrap_or_default();
    format!("{}-{}-8{}-8{}-{}", part(0, 8), part(8, 12), part(13, 16), part(17, 20), part(20, 32))
}

#[cfg(test)]
#[path = "import_tests.rs"]
mod tests;
