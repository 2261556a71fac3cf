//! The data source of a claim. It is the volume of another claim, a snapshot, or an object from which others fill the
//! volume.

use flex_contract::names;
use flex_contract::operation::Operation;
use flex_contract::quantity::quantity;

use crate::claim::restore::RestoreSource;
use crate::config::Recipe;
use crate::model;
use crate::model::claim::Claim;
use crate::model::data_source::DataSource;
use crate::model::grant::not_granted;
use crate::model::phase::ClaimPhase;
use crate::model::volume::Volume;

/// The capability with which a config declares clones.
pub const CAPABILITY: &str = crate::config::capability::CLONE;

/// The text for a claim whose data source was dropped. A new claim is needed: the API does not allow to change the data
/// source.
const DROPPED: &str = "the claim was created with a data source, or a namespace of one, that the API server has dropped; the provisioner makes no empty volume instead. Delete the claim, and create it again with a source that the API server keeps: in `dataSource` a PersistentVolumeClaim without an apiGroup, or a VolumeSnapshot of the apiGroup snapshot.storage.k8s.io; others in `dataSourceRef`; with a namespace only where the gate CrossNamespaceVolumeDataSource is on. If you want an empty volume, create the claim without one";

/// Says who fills a claim, if it is left to a populator: no attempt has begun for it, and its data source is an object of
/// others.
pub fn left_to_populator(claim: &Claim) -> Option<String> {
    match &claim.data_source {
        Some(DataSource::Populated(source)) if claim.own_stamp().is_none() => {
            Some(format!("the populator for {source} fills this claim and brings its volume"))
        }
        _ => None,
    }
}

/// Checks whether a class can fill a claim from its data source at all.
///
/// # Errors
/// If the class cannot fill it. The text is for the claim's event.
pub fn check_data_source(claim: &Claim, recipe: &Recipe) -> Result<(), String> {
    let capability = match &claim.data_source {
        None => return Ok(()),
        Some(DataSource::Claim(_)) => CAPABILITY,
        Some(DataSource::Snapshot(_)) => model::snapshot::CAPABILITY,
        Some(DataSource::Dropped) => return Err(DROPPED.into()),
        Some(other) => {
            return Err(format!(
                "the claim's data source is {other}, and this version can fill no volume from that; remove the data source, or ask for another class"
            ));
        }
    };
    let what = claim.data_source.as_ref().map(ToString::to_string).unwrap_or_default();
    if !recipe.can(capability) {
        return Err(format!(
            "the claim's data source is {what}, but the provisioner config {} of class {} does not declare that its image can copy it (`capabilities: {capability}`); the provisioner makes no empty volume instead",
            recipe.config, recipe.class
        ));
    }
    if claim.source_claim() == Some(&claim.name) {
        return Err("the claim names itself as its data source; name the claim to copy".into());
    }
    Ok(())
}

/// Checks whether a claim that is made from a data source still needs it. One that is gone needs it for the first delete run:
/// some backends tell which volume they made only to a client that sends the same request again. A run that fails, and a node
/// that is gone, would hold the source for long. `has_runs` says that a run which makes the volume may be in progress.
pub fn needs_source(copy: &Claim, has_runs: bool, has_node: impl Fn(&String) -> bool) -> bool {
    let has_failed = copy.last_failure.as_ref().is_some_and(|last| last.operation == Operation::Delete);
    let is_hindered = has_failed || !copy.nodes_with_storage.iter().all(has_node);
    copy.is_held() && (!copy.is_stand_in() || has_runs || !is_hindered)
}

/// The observed state of a data source.
#[derive(Clone, Copy, Debug)]
pub enum DataSourceState<'a> {
    /// A claim.
    Claim(ClaimSource<'a>),
    /// A VolumeSnapshot.
    Snapshot(RestoreSource<'a>),
}

impl<'a> DataSourceState<'a> {
    /// Returns the node of the data source, if that matters.
    pub fn node(&self) -> Option<&'a str> {
        match self {
            DataSourceState::Claim(copied) => copied.node,
            DataSourceState::Snapshot(stored) => stored.node,
        }
    }

    /// Returns the node where a copy must be made, because only that node can read the data source.
    pub fn required_node(&self, recipe: &Recipe) -> Option<&'a str> {
        recipe.required_node(self.node())
    }

    /// Checks whether the data source exists and is not yet protected for this copy.
    pub fn is_to_be_kept(&self, copy: &Claim) -> bool {
        match self {
            DataSourceState::Claim(copied) => copied.granted && copied.claim.is_some() && !copied.is_kept_for(copy),
            DataSourceState::Snapshot(stored) => {
                stored.granted && stored.content.is_some() && !stored.is_kept_for(copy)
            }
        }
    }

    /// Checks whether the data source can be copied now.
    ///
    /// # Errors
    /// If it cannot. The text, for the copy's event, says what the copy waits for or what the user must change.
    pub fn check(&self, copy: &Claim) -> Result<(), String> {
        match self {
            DataSourceState::Claim(copied) => copied.check(copy),
            DataSourceState::Snapshot(stored) => stored.check(copy),
        }
    }
}

/// The observed state of a claim to copy.
#[derive(Clone, Copy, Debug)]
pub struct ClaimSource<'a> {
    /// The claim; `None` if it does not exist.
    pub claim: Option<&'a Claim>,
    /// The volume that the claim is bound to, if the cache has it.
    pub volume: Option<&'a Volume>,
    /// This orchestrator made the volume, and has its provenance.
    pub ours: bool,
    /// The node where the volume was made, if that matters.
    pub node: Option<&'a str>,
    /// The claim is in the copy's namespace, or a ReferenceGrant allows the copy.
    pub granted: bool,
}

impl ClaimSource<'_> {
    /// Checks whether the claim is protected for this copy.
    pub fn is_kept_for(&self, copy: &Claim) -> bool {
        let finalizer = names::clone_finalizer(&copy.uid);
        self.claim.is_some_and(|claim| claim.finalizers.contains(&finalizer))
    }

    /// Checks whether the claim can be copied now.
    ///
    /// # Errors
    /// If it cannot. The text, for the copy's event, says what the copy waits for or what the user must change.
    pub fn check(&self, copy: &Claim) -> Result<(), String> {
        let source = copy.data_source.as_ref().map(ToString::to_string).unwrap_or_default();
        let waits = |why: &str| Err(format!("{source}, the data source of this claim, {why}"));
        // The event says nothing about an object that the user may not see. A copy that has begun is finished.
        if !self.granted && !self.is_kept_for(copy) {
            return waits(&not_granted(copy));
        }
        let Some(source_claim) = self.claim else { return waits("does not exist; the provisioner waits for it") };
        if source_claim.class != copy.class {
            let class = source_claim.class.as_deref().unwrap_or("none");
            return waits(&format!("is of another class, {class}: a clone must have the class of its source"));
        }
        if source_claim.terminating && !self.is_kept_for(copy) {
            return waits("is being deleted");
        }
        if !source_claim.is_bound() || source_claim.phase != ClaimPhase::Bound {
            return waits("is not bound; the provisioner waits for it");
        }
        let Some(volume) = self.volume else {
            return waits("has a volume that the provisioner does not see yet; the provisioner waits for it");
        };
        if volume.claim_ref_uid() != Some(&source_claim.uid) {
            return waits("has a volume whose claimRef names another claim");
        }
        if volume.is_restored() {
            return waits(&format!(
                "has the volume {0}, which was restored from a backup; it can be copied once an admin has confirmed its record: `flex-provisioner vouch {0}`",
                volume.name
            ));
        }
        if !self.ours || Some(&volume.class) != copy.class.as_ref() {
            return waits(&format!(
                "has the volume {}, which was not made by the provisioner of its class",
                volume.name
            ));
        }
        if let Err(why) = volume.verify_place() {
            return waits(&format!("has the volume {}: {why}", volume.name));
        }
        if volume.terminating {
            return waits(&format!("has the volume {}, which is being deleted", volume.name));
        }
        if volume.volume_mode != copy.volume_mode {
            return waits(&format!(
                "has the volume mode {}, this claim has {}: they must be the same",
                volume.volume_mode, copy.volume_mode
            ));
        }
        match (&volume.size, &copy.size) {
            (Ok(has), Ok(wants)) if wants < has => waits(&format!(
                "has {}, this claim asks for {}: a clone cannot be smaller than its source",
                quantity(*has).0,
                quantity(*wants).0
            )),
            (Err(error), _) => waits(error),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use flex_contract::exit::Reaction;
    use k8s_openapi::api::core::v1::PersistentVolumeClaim;
    use serde_json::json;

    use super::*;
    use crate::model::claim::{Had, RecordRef};
    use crate::object::ObjectName;
    use crate::run::failure::LastFailure;
    use crate::run::state::Cause;

    #[test]
    fn a_copy_that_is_gone_needs_its_source_until_it_cannot_be_undone() {
        let metadata = json!({ "namespace": "team", "name": "copy", "uid": "u", "annotations": { names::HELD: "u" } });
        let object = serde_json::from_value::<PersistentVolumeClaim>(json!({ "metadata": metadata })).unwrap();
        let live = Claim { nodes_with_storage: vec!["a".into()], ..Claim::from(&object) };
        let record = RecordRef { name: ObjectName::new("own", "r"), uid: "r".into(), had: Had::Unknown };
        let gone = live.clone().stand_in(record, "1");
        let failed = |operation, claim: &Claim| {
            let failure = LastFailure::new(operation, 1, 1, &Cause::new("R", "m"), Reaction::Retry);
            Claim { last_failure: Some(failure), ..claim.clone() }
        };
        let needs = |claim: &Claim, has_runs| needs_source(claim, has_runs, |node| node == "a");
        assert!(needs(&gone, false), "the first delete run may ask by it");
        assert!(needs(&failed(Operation::Provision, &gone), false));
        assert!(!needs(&failed(Operation::Delete, &gone), false));
        assert!(needs(&failed(Operation::Delete, &gone), true), "a run reads it");
        assert!(!needs_source(&gone, false, |_| false), "its node is gone");
        assert!(needs(&failed(Operation::Delete, &live), false), "another attempt may follow");
        assert!(!needs(&Claim { held: false, ..live }, true));
    }
}
