//! What each step does to an observed world: the same as the orchestrator and the API server do.

use flex_contract::policy::ReclaimPolicy;

use super::*;

/// Returns the reclaim policy that the adoption gives to a volume.
pub(super) fn policy(provenance: &Provenance) -> ReclaimPolicy {
    provenance.effective_config.data.get("reclaim-policy").map_or("Delete", String::as_str).into()
}

impl World {
    fn volume_mut(&mut self, name: &str) -> &mut Volume {
        &mut self
            .volumes
            .iter_mut()
            .find(|(volume, _)| volume.name == name)
            .expect("a step names a volume that was observed")
            .0
    }

    /// Ends the hold of the claim, and removes what the orchestrator keeps there until then.
    fn unhold(&mut self) {
        self.claim.held = false;
        self.claim.nodes_with_storage.clear();
        self.claim.last_failure = None;
    }

    /// Writes a new stamp, as the step says.
    fn stamp(&mut self, attempt: u32, nodes: Vec<String>) {
        if self.claim.own_stamp().is_none() {
            self.claim.last_failure = None;
        }
        let recipe = self.class.recipe.clone().expect("a stamp needs a recipe");
        let recipe_version = recipe.version();
        if nodes.last().is_some_and(|node| self.node_choice.next.as_ref() == Some(node)) {
            self.node_choice = NodeChoice { last: true, ..NodeChoice::default() };
        }
        self.claim.stamp = Some(Stamp { claim_uid: UID.into(), ts: "t".into(), attempt, recipe_version });
        self.claim.nodes_with_storage = nodes;
        self.claim.held = true;
        self.stamped_recipe = Some((*recipe).clone());
        self.fresh = true;
        self.run = RunState::NotCached;
    }

    /// Makes the volume the claim's.
    fn adopt(&mut self, name: &str, provenance: &Provenance, nodes: &[String]) {
        let volume = self.volume_mut(name);
        volume.reclaim_policy = policy(provenance);
        if (volume.reclaim_policy == ReclaimPolicy::Delete || nodes.len() > 1 && !volume.terminating)
            && !volume.has_finalizer()
        {
            assert!(!volume.terminating, "the API takes no finalizer any more");
            volume.finalizers.push(names::VOLUME_FINALIZER.into());
        }
        volume.claim_uid = Some(UID.into());
        volume.volume_id_annotation = Some(UID.into());
        let text = serde_json::json!(provenance).to_string();
        volume.adoption_mark = Some(crate::model::volume::adoption_mark(&text, &volume.uid));
        volume.provenance = Some(text);
        volume.provisioned_by = Some(names::DEFAULT_PROVISIONER.into());
        volume.instance = Some("default".into());
        volume.claim_ref = Some(Reference { name: ObjectName::new("team", "data"), uid: Some(UID.into()) });
    }

    /// Changes the observation as the step would. Returns whether the reconcile continues.
    pub(super) fn carry_out(&mut self, step: Step) -> bool {
        match step {
            Step::Nothing
            | Step::WaitForSlot { .. }
            | Step::StartRun
            | Step::StartDelete { .. }
            | Step::RemoveJob { .. } => {
                return false;
            }
            Step::Stamp { attempt, nodes } => self.stamp(attempt, nodes),
            Step::AssignPooledVolume { volume } => {
                self.pooled_volume = None;
                let assigned = Volume { name: volume, volume_id_annotation: Some("ready".into()), ..adopted_volume() };
                self.volumes.push((assigned, vec!["name".into()]));
            }
            Step::BackfillStamp { .. } => {
                let stamp = Stamp { claim_uid: UID.into(), ts: "t".into(), attempt: 1, ..Stamp::default() };
                self.claim.stamp = Some(stamp);
            }
            Step::CompletePoolRequest | Step::Keep => return false,
            Step::Record => self.recorded.is_missing = false,
            Step::Refresh => self.fresh = true,
            Step::ProtectSource => {
                let claim = self.data_source.as_mut().and_then(|source| source.claim.as_mut()).expect("it is there");
                claim.finalizers.push(names::clone_finalizer(UID));
            }
            Step::UnprotectSource { copies } => self.source_users.retain(|copy| !copies.contains(&copy.uid)),
            Step::Adopt { volume: name, provenance, nodes, mark } => {
                self.lacks_mark = !mark;
                self.adopt(&name, &provenance, &nodes);
            }
            Step::MarkAdopted { .. } => self.lacks_mark = false,
            Step::Bind { volume } => {
                self.lacks_mark = false;
                self.unhold();
                self.claim.volume_name = Some(volume);
                self.claim.bind_completed = true;
            }
            Step::SetVolumeName { volume } => self.claim.volume_name = Some(volume),
            Step::Quarantine { volume: name, why } => self.volume_mut(&name).quarantine = Some(why),
            Step::RecordFailure { failure } => {
                if failure.operation == Operation::Delete {
                    (self.delete_run, self.delete_job) = (RunState::NotCached, None);
                }
                self.claim.last_failure = Some(failure);
            }
            Step::Reschedule { failure } => {
                self.claim.selected_node = None;
                self.claim.last_failure = failure.or(self.claim.last_failure.take());
            }
            Step::ConfirmNoVolume => self.no_volume = true,
            Step::ConfirmNoClassObject => self.class_certainty = ClassCertainty::Certain,
            Step::ConfirmNode { node } => {
                self.node_states.0.insert(node, NodeState::NotFound);
            }
            Step::MarkNodeClean { nodes_left } => {
                (self.delete_run, self.delete_job) = (RunState::NotCached, None);
                if nodes_left.is_empty() {
                    self.unhold();
                    return false;
                }
                self.claim.nodes_with_storage = nodes_left;
            }
            Step::EndHold => {
                self.unhold();
                return !self.claim.terminating;
            }
        }
        true
    }
}
