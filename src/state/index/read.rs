//! The data that reconcilers observe. Nothing here can change the state.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use flex_contract::operation::Operation;
use flex_core::capacity::{Driver, Published};
use flex_core::claim::decide::RemovedJob;
use flex_core::claim::quota::ClassUsage;
use flex_core::config::classes::{Class, ClassLookup, Classes, Config, Identity};
use flex_core::config::external_provisioner::Drivers;
use flex_core::config::{Recipe, modify};
use flex_core::findings::ClusterObservation;
use flex_core::model::claim::Claim;
use flex_core::model::snapshot;
use flex_core::model::snapshot::{Content, Snapshot};
use flex_core::model::volume::Volume;
use flex_core::object::ObjectName;
use flex_core::run::node::{Node, NodeStates};
use flex_core::run::slot_wait::NoSlot;
use flex_core::run::view::{Job, Pod, WarningEvent};
use flex_core::{batch, sync_probe};

use super::{Index, PoolObservation, SlotRequest, UnknownPool, WorkItem};
use crate::state::pools::can_use_pool;

/// A run in the cache.
#[derive(Debug)]
pub struct CachedRun {
    /// The Job.
    pub job: Arc<Job>,
    /// The pods of its id.
    pub pods: Vec<Arc<Pod>>,
}

/// Claims and volumes.
impl Index {
    /// Returns a claim by its name.
    pub fn claim(&self, name: &ObjectName) -> Option<Arc<Claim>> {
        self.facts.cache.claims.get(name)
    }

    /// Returns a claim by its UID, which is the volume id of its runs.
    pub fn claim_by_id(&self, id: &str) -> Option<Arc<Claim>> {
        self.facts.cache.claims.by_id(id)
    }

    /// Returns all claims.
    pub fn claims(&self) -> impl Iterator<Item = Arc<Claim>> {
        self.facts.cache.claims.all()
    }

    /// Returns the names of all claims, without copies of their texts.
    pub fn claim_names(&self) -> Vec<Arc<ObjectName>> {
        self.facts.cache.claims.shared_names()
    }

    /// Returns all claims that are not settled, and perhaps others. Each unbound claim is among them.
    pub fn unsettled_claims(&self) -> impl Iterator<Item = Arc<Claim>> {
        self.facts.cache.claims.unsettled().cloned()
    }

    /// Checks whether a claim is a pool request.
    pub fn is_pool_request(&self, claim: &Claim) -> bool {
        self.facts.is_pool_request(claim)
    }

    /// Checks whether a claim may use its data source: it is in the same namespace, or a grant allows it.
    pub fn is_granted(&self, claim: &Claim) -> bool {
        self.facts.cache.grants.permit(claim)
    }

    /// Returns a VolumeAttributesClass by its name.
    pub fn attributes_class(&self, name: &str) -> Option<&modify::AttributesClass> {
        self.facts.cache.attributes_classes.get(name)
    }

    /// Returns a volume by its name.
    pub fn volume(&self, name: &str) -> Option<Arc<Volume>> {
        self.facts.cache.volumes.get(name)
    }

    /// Returns all volumes.
    pub fn volumes(&self) -> impl Iterator<Item = Arc<Volume>> {
        self.facts.cache.volumes.all()
    }

    /// Returns the names of all volumes, without copies of their texts.
    pub fn volume_names(&self) -> Vec<Arc<str>> {
        self.facts.cache.volumes.shared_names()
    }

    /// Returns all volumes that are not settled, and perhaps others. Each volume with a failed run is among them.
    pub fn unsettled_volumes(&self) -> impl Iterator<Item = Arc<Volume>> {
        self.facts.cache.volumes.unsettled().cloned()
    }

    /// Returns the volumes that name a claim, by annotation, claimRef or their own name.
    pub fn volumes_of(&self, uid: &str) -> Vec<Arc<Volume>> {
        self.facts.cache.volumes.of_claim(uid).collect()
    }

    /// Returns a volume that the PV controller will bind to a claim, and that no run made for it. The volume is reserved
    /// for the claim by name, or the PV controller has written the claim's UID already, and it fits.
    pub fn reserved_for(&self, claim: &Claim) -> Option<Arc<Volume>> {
        self.facts.cache.volumes.reserved_for(claim)
    }

    /// Checks whether the API has said that the claim of this volume is gone.
    pub fn is_claim_gone(&self, volume: &Volume) -> bool {
        self.facts.cache.volumes.is_claim_gone(volume)
    }

    /// Checks whether the PV controller has seen the volume with the claim in its claimRef.
    pub fn is_synced(&self, volume: &str) -> bool {
        self.sync_probes.is_synced(volume)
    }

    /// Returns how long an adopted volume waited until the PV controller had seen it.
    pub fn sync_time(&self, volume: &str) -> Option<Duration> {
        self.sync_probes.waited(volume)
    }

    /// Checks whether so many volumes wait for the PV controller that sync probes are worthwhile, with one more.
    pub fn many_wait_for_sync(&self) -> bool {
        self.sync_probes.many_wait()
    }

    /// Returns the volume with the adoption mark that this process has still to write; `None` if no mark is due.
    pub fn marked(&self, volume: &Volume) -> Option<Arc<Volume>> {
        self.unmarked.marked(volume)
    }

    /// Checks whether the cache of a claim or volume is older than this process's own write. Then its event requeues
    /// it.
    pub fn is_stale(&self, item: &WorkItem) -> bool {
        self.unseen_writes.is_stale(item, &self.facts.cache, self.facts.now())
    }
}

/// Runs.
impl Index {
    /// Returns all Jobs as they exist.
    pub fn jobs(&self) -> impl Iterator<Item = &Arc<Job>> {
        self.facts.cache.runs.jobs()
    }

    /// Returns all pods as they exist.
    pub fn pods(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.facts.cache.runs.pods()
    }

    /// Returns the Jobs of a volume id, and a batch as that id sees it. Two may have one name in its view, for a moment: a
    /// batch may have been created late. The one whose creation was answered comes first, and the other is never opened.
    pub fn jobs_of(&self, id: &str) -> Vec<Arc<Job>> {
        let mut jobs = self.members.jobs_of(id, &self.facts.cache.runs);
        jobs.sort_by_key(|job| self.answers.get(&job.uid).is_none());
        jobs
    }

    /// Returns the UIDs of all Jobs, also of copies.
    pub fn job_uids(&self) -> HashSet<String> {
        let runs = &self.facts.cache.runs;
        runs.jobs().chain(runs.copied_jobs()).map(|job| job.uid.clone()).collect()
    }

    /// Returns the Jobs of the runs for a claim by its name. The claim may be gone. A batch appears as each of its ids
    /// sees it.
    pub fn jobs_of_claim(&self, name: &ObjectName) -> Vec<Arc<Job>> {
        self.members.jobs_of_claim(name, &self.facts.cache.runs)
    }

    /// Returns the Jobs of the delete and expand runs of a volume by its name. The volume may be gone. A batch appears
    /// as that volume sees it.
    pub fn jobs_of_volume(&self, name: &str) -> Vec<Arc<Job>> {
        self.members.jobs_of_volume(name, &self.facts.cache.runs)
    }

    /// Returns the Jobs of the runs for a content by its name. The content may be gone.
    pub fn jobs_of_content(&self, name: &str) -> Vec<Arc<Job>> {
        self.jobs().filter(|job| job.content.as_deref() == Some(name)).cloned().collect()
    }

    /// Returns the pods of a volume id, and the pod of a batch as that id sees it.
    pub fn pods_of(&self, id: &str) -> Vec<Arc<Pod>> {
        self.members.pods_of(id, &self.facts.cache.runs)
    }

    /// Returns the warnings of Kubernetes about these objects.
    pub fn warning_events_of<'a>(&'a self, uids: impl Iterator<Item = &'a str>) -> Vec<Arc<WarningEvent>> {
        uids.filter_map(|uid| self.facts.cache.runs.warning(uid).cloned()).collect()
    }

    /// Returns the volume ids of provision runs that belong to no claim and whose recipes are stored.
    pub fn ids_without_claim(&self) -> BTreeSet<String> {
        let is_provision = |job: &&Arc<Job>| {
            job.is_for_claim() && job.run_labels.operation == Operation::Provision && !job.terminating
        };
        let provisions =
            self.jobs().filter(is_provision).filter(|job| self.revisions.recipe(&job.recipe_version).is_some());
        let ids = provisions.flat_map(|job| job.ids());
        ids.filter(|id| self.facts.cache.claims.name_of(id).is_none()).cloned().collect()
    }

    /// Returns all capacity runs.
    pub fn capacity_runs(&self) -> Vec<CachedRun> {
        let jobs = self.jobs().filter(|job| job.run_labels.operation == Operation::Capacity);
        jobs.map(|job| CachedRun { job: job.clone(), pods: self.pods_of(&job.run_labels.id) }).collect()
    }

    /// Checks that the pods of a run's first Job have ended, and none of their containers has run.
    pub fn has_ended_unstarted(&self, id: &str, job: &str) -> bool {
        self.unstarted.has_ended_unstarted(id, job)
    }

    /// Checks whether a run's Job may have been created a second time.
    pub fn is_repeated(&self, id: &str, job: &str) -> bool {
        self.unstarted.is_repeated(id, job)
    }

    /// Returns the number of the term in which this process leads.
    pub fn term(&self) -> u64 {
        self.unstarted.term()
    }

    /// Returns how often somebody deleted the provision Job with this name while it was in progress.
    pub fn removed(&self, id: &str, job: &str) -> Option<RemovedJob> {
        self.removed_jobs.get(id, job)
    }

    /// Checks whether a Job was created a moment ago and is not visible yet.
    pub fn is_expected(&self, job: &str) -> bool {
        self.slots.expectations().is_expected(job, self.facts.now())
    }

    /// Checks the same for all Jobs whose names have this prefix.
    pub fn has_expectation(&self, prefix: &str) -> bool {
        self.slots.expectations().has_any(prefix, self.facts.now())
    }
}

/// Slots, quota, batches, pools and sync probes.
impl Index {
    /// Returns why the class has no slot for this run, after those that wait before it; `None` if it has one. An item in
    /// the queue counts for the node with which it joined.
    pub fn no_slot(&self, slot_request: &SlotRequest, recipe: &Recipe) -> Option<NoSlot> {
        self.slots.no_slot(slot_request, recipe, &self.facts)
    }

    /// Counts the runs of a class that are in progress or about to begin.
    pub fn runs_in_flight(&self, class: &str) -> usize {
        self.slots.in_flight(class, &self.facts)
    }

    /// Returns the reason why no quota allows a claim to begin; `None` if all do.
    pub fn quota_refusal(&self, claim: &Claim, recipe: &Recipe) -> Option<String> {
        self.quota.error(claim, recipe, &self.facts)
    }

    /// Returns the reason why no quota allows another size of a volume; `None` if all do. The number of volumes stays
    /// the same.
    pub fn expand_quota_refusal(&self, volume: &Volume, claim: &Claim, bytes: u64, recipe: &Recipe) -> Option<String> {
        self.quota.expand_error(volume, claim, bytes, recipe, &self.facts)
    }

    /// Returns the usage of a class, in all and by namespace.
    pub fn class_usage(&self, class: &str) -> ClassUsage {
        self.quota.usage(class)
    }

    /// Checks whether a claim has a charge whose stamp is not visible. Such charges expire, because no write takes that
    /// long.
    pub fn has_pending_charge(&self, uid: &str) -> bool {
        self.quota.has_pending_charge(uid, self.facts.now())
    }

    /// Observes an open batch. Returns `None` if it is not open.
    pub fn observe_batch(&self, name: &str) -> Option<batch::decide::Observed> {
        self.batches.observe(name, &self.facts, self.slots.expectations())
    }

    /// Returns the pooled volume that a claim may get at once, if there is one. It is already assigned to the claim, or
    /// can be [assigned](Index::assign) next.
    pub fn pooled_volume_for(&self, claim: &Claim, class: &Class, recipe: &Recipe) -> Option<Arc<Volume>> {
        if recipe.pool.is_none() || !can_use_pool(claim, &self.facts) {
            return None;
        }
        if let Some(name) = self.pools.assigned_to(claim) {
            return self.volume(name);
        }
        let found = self.pools.find(claim, class, recipe, &self.facts)?;
        let refused = self.quota.is_namespace_full(claim, &found, recipe, &self.facts);
        (!refused).then_some(found)
    }

    /// Observes the pool of a class.
    ///
    /// # Errors
    /// If the pool of the class is not known. A class that nobody serves has no pool, but only after an admin had the time
    /// to create its ConfigMap or StorageClass again. A class that is left to another provisioner keeps its pool.
    pub fn observe_pool(&self, class: &str) -> Result<PoolObservation, UnknownPool> {
        let facts = &self.facts;
        let unknown = || UnknownPool { known_after: None };
        let (found, recipe) = match facts.configs.classes().lookup(class) {
            ClassLookup::Ours(found) => (Some(found), Some(found.recipe.as_ref().map_err(|_| unknown())?.clone())),
            ClassLookup::Foreign | ClassLookup::Unknown => {
                let may_return = facts.configs.may_return_for(class, facts.now()).ok_or_else(unknown)?;
                if may_return > Duration::ZERO {
                    return Err(UnknownPool { known_after: Some(may_return) });
                }
                (None, None)
            }
        };
        let ready = || self.pools.ready_of(class, &facts.cache);
        let blocked =
            recipe.as_ref().map_or(0, |recipe| self.quota_waiters.blocked_by_pool(recipe, ready(), &self.quota, facts));
        let usage = self.quota.usage(class).all;
        let quota = recipe.as_ref().map(|recipe| recipe.quota).unwrap_or_default();
        let remaining =
            |most: u64, used: u128| u64::try_from(u128::from(most).saturating_sub(used)).unwrap_or(u64::MAX);
        Ok(PoolObservation {
            pooled: self.pools.stock(class, found, facts),
            requests: self.pools.requests_of(class, facts),
            claims_blocked_by_pool: blocked.saturating_sub(self.pools.count_drained(class)),
            has_waiting_claims: blocked > 0 || self.slots.has_claims(class, facts.now()),
            volumes_free: quota.volumes.map(|most| most.saturating_sub(usage.volumes)),
            bytes_free: quota.bytes.map(|most| remaining(most, usage.bytes)),
            recipe,
        })
    }

    /// Checks whether a pool request was created that no watch has shown yet.
    pub fn expects_pool_request(&self, class: &str) -> bool {
        self.pools.expects_request(class, self.facts.now())
    }

    /// Counts the ready volumes of each class with a pool, by size.
    pub fn pooled_counts(&self) -> BTreeMap<(String, u64), usize> {
        self.pools.counts(&self.facts)
    }

    /// Observes the sync probes.
    pub fn observe_probes(&self) -> sync_probe::Observed<'_> {
        self.sync_probes.observe(self.facts.now())
    }

    /// Returns the UID of a sync probe.
    pub fn sync_probe(&self, name: &str) -> Option<String> {
        self.sync_probes.uid_of(name).cloned()
    }
}

/// Snapshots, nodes and capacities.
impl Index {
    /// Returns a VolumeSnapshot by its name.
    pub fn snapshot(&self, name: &ObjectName) -> Option<Arc<Snapshot>> {
        self.facts.cache.snapshots.snapshot(name).cloned()
    }

    /// Returns all VolumeSnapshots.
    pub fn snapshots(&self) -> impl Iterator<Item = &Arc<Snapshot>> {
        self.facts.cache.snapshots.snapshots()
    }

    /// Returns a content by its name.
    pub fn content(&self, name: &str) -> Option<Arc<Content>> {
        self.facts.cache.snapshots.content(name).cloned()
    }

    /// Returns all contents.
    pub fn contents(&self) -> impl Iterator<Item = &Arc<Content>> {
        self.facts.cache.snapshots.contents()
    }

    /// Returns the content that is kept while the claim with a UID is restored from it.
    pub fn content_kept_for(&self, claim: &str) -> Option<Arc<Content>> {
        self.facts.cache.snapshots.content_kept_for(claim).cloned()
    }

    /// Returns a VolumeSnapshotClass by its name.
    pub fn snapshot_class(&self, name: &str) -> Option<&snapshot::SnapshotClass> {
        self.facts.cache.snapshots.class(name)
    }

    /// Returns all VolumeSnapshotClasses.
    pub fn snapshot_classes(&self) -> impl Iterator<Item = &snapshot::SnapshotClass> {
        self.facts.cache.snapshots.classes()
    }

    /// Returns all nodes.
    pub fn nodes(&self) -> impl Iterator<Item = &Arc<Node>> {
        self.facts.cache.nodes.all()
    }

    /// Returns a node by its name.
    pub fn node(&self, name: &str) -> Option<Arc<Node>> {
        self.facts.cache.nodes.get(name).cloned()
    }

    /// Returns the states of nodes.
    pub fn node_states<'a>(&self, nodes: impl Iterator<Item = &'a String>) -> NodeStates {
        self.facts.cache.nodes.states(nodes)
    }

    /// Returns the published object with a name.
    pub fn capacity(&self, name: &str) -> Option<Arc<Published>> {
        self.facts.cache.capacities.get(name).cloned()
    }

    /// Returns all published objects, by name.
    pub fn capacities(&self) -> BTreeMap<String, Arc<Published>> {
        self.facts.cache.capacities.all().clone()
    }

    /// Returns the CSIDriver with the provisioner's name.
    pub fn driver(&self) -> Option<Arc<Driver>> {
        self.facts.cache.capacities.driver().cloned()
    }

    /// Checks whether capacities are published, or must be.
    pub fn has_capacities(&self) -> bool {
        self.facts.has_capacities()
    }
}

/// Configs and classes.
impl Index {
    /// Returns all classes and verdicts.
    pub fn classes(&self) -> Arc<Classes> {
        self.facts.configs.classes().clone()
    }

    /// Returns a config by its name.
    pub fn config(&self, name: &ObjectName) -> Option<&Config> {
        self.facts.configs.get(name)
    }

    /// Returns all configs.
    pub fn configs(&self) -> impl Iterator<Item = &Config> {
        self.facts.configs.all()
    }

    /// Returns the config of each class that has one.
    pub fn configs_of_classes(&self) -> HashMap<String, ObjectName> {
        let config =
            |class: &Class| class.recipe.as_ref().ok().map(|recipe| (class.name.clone(), recipe.config.clone()));
        self.facts.configs.classes().iter().filter_map(config).collect()
    }

    /// Returns the drivers whose external provisioners must be known.
    pub fn replaced_drivers(&self) -> Drivers {
        self.facts.configs.replaced_drivers(&self.facts.identity)
    }

    /// Checks whether the revision with a hash is stored.
    pub fn has_revision(&self, hash: &str) -> bool {
        self.revisions.stored().contains_key(hash)
    }

    /// Returns the recipe of a version, from its revision.
    pub fn recipe(&self, version: &str) -> Option<Arc<Recipe>> {
        self.revisions.recipe(version).cloned()
    }

    /// Returns the hashes of the stored recipes.
    pub fn recipe_hashes(&self) -> impl Iterator<Item = &str> {
        self.revisions.hashes()
    }

    /// Returns the cache at this time, in seconds since 1970, for the search of findings; `deep` as in
    /// [`ClusterObservation`].
    pub fn observe(&self, identity: &Identity, now: i64, deep: bool) -> ClusterObservation {
        ClusterObservation {
            identity: identity.clone(),
            classes: self.classes(),
            jobs: self.jobs().cloned().collect(),
            copied_jobs: self.facts.cache.runs.copied_jobs().cloned().collect(),
            pods: self.pods().cloned().collect(),
            snapshots: self.snapshots().cloned().collect(),
            contents: self.contents().cloned().collect(),
            nodes: self.nodes().cloned().collect(),
            namespaces: self.namespaces().clone(),
            recipes: self.recipe_hashes().map(str::to_owned).collect(),
            unused: self.unused_revisions(now),
            kept: self.kept_records().cloned().collect(),
            deep,
        }
    }
}
