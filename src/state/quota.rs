//! Quota: the usage of each class, and charges that are not visible yet.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use flex_contract::names;
use flex_contract::operation::Operation;
use flex_core::claim::quota::{
    ClassUsage, class_quota_refusal, expand_quota_refusal, namespace_quota_refusal, quota_refusal,
};
use flex_core::config::Recipe;
use flex_core::model::claim::{Claim, WRITE_OUTCOME_AFTER};
use flex_core::model::volume::Volume;
use flex_core::run::failure::LastFailure;
use flex_core::run::view::Job;

use crate::state::facts::Facts;
use crate::state::id::Id;
use crate::state::watch_change::Changed;
use crate::state::words::Words;

/// An object that counts against a quota.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum ChargeKey {
    /// The name of a volume.
    Volume(Id),
    /// The UID of a claim whose attempts have begun and that has no volume yet.
    Claim(Id),
    /// The UID of a claim with a charge that the watches do not show yet.
    Pending(Id),
}

/// A [`Charge`] with shared words, because there is one for each volume.
#[derive(Clone, Debug)]
struct KeptCharge {
    class: Arc<str>,
    namespace: Arc<str>,
    bytes: u64,
}

/// The usage by one object.
#[derive(Clone, Debug)]
pub struct Charge {
    /// The class.
    pub class: String,
    /// The namespace of the user.
    pub namespace: String,
    /// The size.
    pub bytes: u64,
}

/// The charge of a claim for a stamp whose write may have failed.
#[derive(Clone, Debug)]
struct PendingCharge {
    charge: Charge,
    /// The resourceVersion of the claim for which the stamp is written. The stamp cannot be on a later version.
    version: Option<u64>,
    /// The time when the write of the stamp began.
    since: Duration,
    /// The API has confirmed the write. The watches may show it much later.
    is_written: bool,
}

impl PendingCharge {
    /// Checks by the observed claim whether no stamp can have been written any more. The claim has no usage of its own.
    fn has_lapsed(&self, claim: &Claim) -> bool {
        let version = claim.resource_version.parse().ok();
        self.version.is_some() && version > self.version
    }

    /// Checks whether the charge has expired: no write takes that long, and none is known to have succeeded.
    fn is_expired(&self, now: Duration) -> bool {
        !self.is_written && now.saturating_sub(self.since) > WRITE_OUTCOME_AFTER
    }
}

/// The usage, updated with each change, because quotas are checked often and there may be many volumes.
#[derive(Debug, Default)]
pub struct QuotaLedger {
    charges: HashMap<ChargeKey, KeptCharge>,
    words: Words,
    usage: HashMap<String, ClassUsage>,
    /// Charges that are not yet visible, by the UID of a claim.
    pending: BTreeMap<String, PendingCharge>,
    /// The new sizes of volumes that are about to expand, by their names.
    expanding: HashMap<String, u64>,
}

/// Charges that do not count against their own claim or volume.
#[derive(Clone, Copy)]
struct LeftOut<'a> {
    /// The UID of the claim, with whose volumes it is left out.
    claim_uid: Option<&'a str>,
    /// The name of the volume.
    volume: Option<&'a str>,
}

impl<'a> LeftOut<'a> {
    fn claim(uid: &'a str) -> Self {
        LeftOut { claim_uid: Some(uid), volume: None }
    }
}

/// Questions.
impl QuotaLedger {
    /// Returns the reason why no quota allows a claim to begin; `None` if all do.
    pub fn error(&self, claim: &Claim, recipe: &Recipe, facts: &Facts) -> Option<String> {
        if !recipe.has_quota() || has_charge(claim, facts) {
            return None;
        }
        let usage = self.usage_without(&recipe.class, &claim.name.namespace, LeftOut::claim(&claim.uid), facts);
        error_with(claim, recipe, &usage, facts)
    }

    /// Checks whether the quota of a claim's namespace does not allow an existing volume, which already counts for the
    /// class.
    pub fn is_namespace_full(&self, claim: &Claim, volume: &Volume, recipe: &Recipe, facts: &Facts) -> bool {
        let namespace = &claim.name.namespace;
        let bytes = volume.size.as_ref().copied().unwrap_or_default();
        let usage = || {
            self.usage_without(
                &recipe.class,
                namespace,
                LeftOut { claim_uid: Some(&claim.uid), volume: Some(&volume.name) },
                facts,
            )
        };
        recipe.has_quota() && namespace_quota_refusal(recipe, &usage(), namespace, bytes).is_some()
    }

    /// Returns the reason why no quota allows another size of a volume; `None` if all do. The number of volumes stays
    /// the same.
    pub fn expand_error(
        &self,
        volume: &Volume,
        claim: &Claim,
        bytes: u64,
        recipe: &Recipe,
        facts: &Facts,
    ) -> Option<String> {
        if !recipe.has_quota() {
            return None;
        }
        let namespace = &claim.name.namespace;
        let usage = self.usage_without(
            &volume.class,
            namespace,
            LeftOut { claim_uid: None, volume: Some(&volume.name) },
            facts,
        );
        expand_quota_refusal(recipe, &usage, namespace, bytes)
    }

    /// Returns the usage of a class.
    pub fn usage(&self, class: &str) -> ClassUsage {
        self.usage.get(class).cloned().unwrap_or_default()
    }

    /// Returns the usage of a class, in all and in one namespace. Leaves out one claim with its volumes, or one
    /// volume.
    fn usage_without(&self, class: &str, namespace: &str, left_out: LeftOut<'_>, facts: &Facts) -> ClassUsage {
        let mut usage = ClassUsage::default();
        if let Some(of) = self.usage.get(class) {
            let own = of.namespaces.get_key_value(namespace).map(|(name, usage)| (name.clone(), *usage));
            usage = ClassUsage { all: of.all, namespaces: own.into_iter().collect() };
        }
        let of_claim = |uid| {
            let volumes = facts.cache.volumes.of_claim(uid);
            volumes.filter(move |volume| volume.claim_uid.as_deref() == Some(uid)).map(|volume| volume.name.clone())
        };
        let volumes = left_out.claim_uid.into_iter().flat_map(of_claim);
        let volumes: BTreeSet<String> = volumes.chain(left_out.volume.map(str::to_owned)).collect();
        let mut without: Vec<ChargeKey> = volumes.iter().map(|name| ChargeKey::Volume(name.as_str().into())).collect();
        let keys = |uid: &str| [ChargeKey::Claim(uid.into()), ChargeKey::Pending(uid.into())];
        without.extend(left_out.claim_uid.into_iter().flat_map(keys));
        let without = without.iter().filter_map(|key| self.charges.get(key)).filter(|charge| *charge.class == *class);
        without.for_each(|charge| usage.subtract(&charge.namespace, charge.bytes));
        usage
    }

    /// Returns the charge of a claim that is not visible yet, if it counts.
    pub fn reservation_of(&self, uid: &str) -> Option<&Charge> {
        let counts = self.charges.contains_key(&ChargeKey::Pending(uid.into()));
        self.pending.get(uid).filter(|_| counts).map(|pending| &pending.charge)
    }

    /// Checks whether a claim has a charge whose stamp is not visible. Such charges expire, unless the API has
    /// confirmed the stamp.
    pub fn has_pending_charge(&self, uid: &str, now: Duration) -> bool {
        self.pending.get(uid).is_some_and(|pending| !pending.is_expired(now))
    }

    /// Returns the size of a volume, or its new size during an expansion.
    pub fn bytes_of(&self, volume: &Volume, facts: &Facts) -> u64 {
        let runs = volume.volume_id().into_iter().flat_map(|id| facts.cache.runs.jobs_named(id));
        let runs = runs.filter(|job| is_expand(job) && !has_failed(job));
        let runs = runs.filter(|job| job.volume.as_ref() == Some(&volume.name)).filter_map(|job| job.size);
        let size = volume.size.as_ref().copied().unwrap_or_default();
        runs.chain(self.expanding.get(&volume.name).copied()).fold(size, u64::max)
    }

    #[cfg(test)]
    pub fn pending(&self) -> impl Iterator<Item = (&String, &Charge)> {
        self.pending.iter().map(|(uid, pending)| (uid, &pending.charge))
    }
}

/// Charges.
impl QuotaLedger {
    /// Charges a claim that is about to be stamped. Returns whether the charge is new: an earlier stamp may exist that
    /// no watch has shown yet.
    pub fn charge(&mut self, claim: &Claim, class: &str, facts: &Facts) -> bool {
        if has_begun(claim, facts) {
            return false;
        }
        let (class, namespace) = (class.to_owned(), claim.name.namespace.clone());
        let bytes = claim.size.as_ref().copied().unwrap_or_default();
        let version = claim.resource_version.parse().ok();
        let is_written = self.pending.get(&claim.uid).is_some_and(|pending| pending.is_written);
        let charge = Charge { class, namespace, bytes };
        let pending = PendingCharge { charge, version, since: facts.now(), is_written };
        let first = self.pending.insert(claim.uid.clone(), pending).is_none();
        self.count(ChargeKey::Pending(claim.uid.as_str().into()), facts);
        first
    }

    /// Charges a claim that is about to get a pooled volume to its namespace.
    pub fn charge_without_stamp(&mut self, claim: &Claim, class: &str, facts: &Facts) {
        self.charge(claim, class, facts);
        if let Some(pending) = self.pending.get_mut(&claim.uid) {
            pending.version = None;
        }
    }

    /// Notes that a charged claim is stamped, or has its pooled volume. The charge ends when the watches show that.
    pub fn note_written(&mut self, uid: &str) {
        if let Some(pending) = self.pending.get_mut(uid) {
            pending.is_written = true;
        }
    }

    /// Drops the charge of a claim if it has expired.
    pub fn drop_expired_charge(&mut self, uid: &str, facts: &Facts) {
        if self.pending.get(uid).is_some_and(|pending| pending.is_expired(facts.now())) {
            self.settle(uid, facts);
        }
    }

    /// Takes back the charge of a claim that was not stamped. Returns the class that has more quota by that.
    pub fn refund(&mut self, uid: &str, facts: &Facts) -> Option<String> {
        let pending = self.pending.remove(uid);
        self.count(ChargeKey::Pending(uid.into()), facts);
        pending.map(|pending| pending.charge.class)
    }

    /// Settles the charge of a claim that is known to be stamped, or to be gone.
    pub fn settle(&mut self, uid: &str, facts: &Facts) {
        self.refund(uid, facts);
    }

    /// Charges the new size of a volume that is about to be expanded.
    pub fn charge_expand(&mut self, volume: &str, bytes: u64, facts: &Facts) {
        self.expanding.insert(volume.to_owned(), bytes);
        self.count(ChargeKey::Volume(volume.into()), facts);
    }

    /// Takes back the charge of a new size. Returns whether there was one.
    pub fn refund_expand(&mut self, volume: &str, facts: &Facts) -> bool {
        let size = self.expanding.remove(volume);
        self.count(ChargeKey::Volume(volume.into()), facts);
        size.is_some()
    }
}

/// Changes of the cache. Each is applied after the cache, and returns the classes that have more quota by it.
impl QuotaLedger {
    /// Applies a change of a claim: first by its own usage, then by its charge, which may have lapsed.
    pub fn on_claim(&mut self, claim: &Changed<Claim>, facts: &Facts) -> Vec<String> {
        let Some(now) = &claim.now else {
            let gone = claim.last();
            self.settle(&gone.uid, facts);
            self.count_claim(gone, facts);
            return gone.class.iter().cloned().collect();
        };
        if has_begun(now, facts) {
            self.settle(&now.uid, facts);
        }
        claim.before.iter().chain([now]).for_each(|claim| self.count_claim(claim, facts));
        let mut freed = Vec::new();
        if claim.before.as_ref().is_some_and(|before| has_charge(before, facts)) && !has_charge(now, facts) {
            freed.extend(now.class.clone());
        }
        let lapsed = |pending: &PendingCharge| !has_begun(now, facts) && pending.has_lapsed(now);
        if self.pending.get(&now.uid).is_some_and(lapsed) {
            freed.extend(self.refund(&now.uid, facts));
        }
        freed
    }

    /// Applies a change of a volume: its existence, its size, or its class.
    pub fn on_volume(&mut self, volume: &Changed<Volume>, facts: &Facts) -> Option<String> {
        let Some(now) = &volume.now else {
            let gone = volume.last();
            self.expanding.remove(&gone.name);
            self.count_volume(gone, facts);
            return Some(gone.class.clone());
        };
        let has = |bytes: &u64| now.size.as_ref().is_ok_and(|size| size >= bytes);
        if self.expanding.get(&now.name).is_some_and(has) {
            self.expanding.remove(&now.name);
        }
        volume.before.iter().chain([now]).for_each(|volume| self.count_volume(volume, facts));
        let before = volume.before.as_ref();
        before.filter(|before| before.size != now.size || before.class != now.class).map(|_| now.class.clone())
    }

    /// Applies an expand run that has appeared, ended or vanished. The charge follows its Job.
    pub fn on_job(&mut self, job: &Changed<Job>, facts: &Facts) -> Option<String> {
        let (gone, job) = (job.now.is_none(), job.last());
        let volume = job.volume.as_ref().filter(|_| is_expand(job))?;
        if gone || !job.complete {
            self.expanding.remove(volume);
        }
        self.count(ChargeKey::Volume(volume.as_str().into()), facts);
        let class = facts.cache.volumes.get(volume).map(|volume| volume.class.clone());
        class.filter(|_| gone || has_failed(job))
    }

    /// Counts an object again that has changed, or that another object may count now.
    fn count(&mut self, key: ChargeKey, facts: &Facts) {
        let charge = match &key {
            ChargeKey::Volume(name) => {
                facts.cache.volumes.get(&name.to_string()).and_then(|volume| self.charge_of_volume(&volume, facts))
            }
            ChargeKey::Claim(uid) => {
                facts.cache.claims.by_id(&uid.to_string()).and_then(|claim| charge_of_claim(&claim, facts))
            }
            ChargeKey::Pending(uid) => self.charge_of_pending(&uid.to_string(), facts),
        };
        self.set(key, charge);
    }

    fn set(&mut self, key: ChargeKey, charge: Option<Charge>) {
        if let Some(before) = self.charges.remove(&key) {
            if let Some(usage) = self.usage.get_mut(&*before.class) {
                usage.subtract(&before.namespace, before.bytes);
                if usage.all.volumes == 0 {
                    self.usage.remove(&*before.class);
                }
            }
            self.words.release(before.class);
            self.words.release(before.namespace);
        }
        if let Some(Charge { class, namespace, bytes }) = charge {
            let kept = KeptCharge { class: self.words.share(&class), namespace: self.words.share(&namespace), bytes };
            self.usage.entry(class).or_default().add(&namespace, bytes);
            self.charges.insert(key, kept);
        }
    }

    /// Counts a claim, its volumes, and its charge that is not visible yet.
    fn count_claim(&mut self, claim: &Claim, facts: &Facts) {
        let volumes: BTreeSet<String> = facts.cache.volumes.names_of(&claim.uid).map(str::to_owned).collect();
        volumes.into_iter().for_each(|name| self.count(ChargeKey::Volume(name.as_str().into()), facts));
        self.count(ChargeKey::Claim(claim.uid.as_str().into()), facts);
        self.count(ChargeKey::Pending(claim.uid.as_str().into()), facts);
    }

    /// Counts a volume, and the claims to which it may belong.
    fn count_volume(&mut self, volume: &Volume, facts: &Facts) {
        self.count(ChargeKey::Volume(volume.name.as_str().into()), facts);
        let reference = volume.claim_ref_uid();
        let ids: BTreeSet<&str> =
            volume.volume_id().into_iter().chain(volume.claim_uid.as_deref()).chain(reference).collect();
        for uid in ids {
            self.count(ChargeKey::Claim(uid.into()), facts);
            self.count(ChargeKey::Pending(uid.into()), facts);
        }
    }

    fn charge_of_volume(&self, volume: &Volume, facts: &Facts) -> Option<Charge> {
        let reference = volume.claim_ref.as_ref().filter(|reference| reference.uid.is_some());
        // Until a volume is adopted, it is reserved in another namespace.
        let claim = volume.claim_uid.as_ref().and_then(|uid| facts.cache.claims.name_of(uid));
        let namespace = reference.map(|reference| &reference.name).or(claim).map(|name| name.namespace.clone());
        let (class, namespace) = (volume.class.clone(), namespace.unwrap_or_default());
        let bytes = || self.bytes_of(volume, facts);
        volume.belongs_to(&facts.identity).then(|| Charge { class, namespace, bytes: bytes() })
    }

    /// Returns the charge of a claim whose stamp is not visible, if the claim exists. A try that began before the claim
    /// was deleted may charge it after that.
    fn charge_of_pending(&self, uid: &str, facts: &Facts) -> Option<Charge> {
        let counts = |claim: &Claim| claim.uid == uid && !has_charge(claim, facts);
        let charge = &self.pending.get(uid)?.charge;
        let counts = facts.cache.claims.by_id(uid).is_some_and(|claim| counts(&claim));
        (counts && !has_volume(uid, &charge.class, facts)).then(|| charge.clone())
    }
}

/// Returns the reason why no quota allows a claim's volume, with this usage by others. A pooled volume has no
/// namespace.
pub(super) fn error_with(claim: &Claim, recipe: &Recipe, usage: &ClassUsage, facts: &Facts) -> Option<String> {
    let bytes = claim.size.as_ref().copied().unwrap_or_default();
    match facts.is_pool_request(claim) {
        true => class_quota_refusal(recipe, usage, bytes),
        false => quota_refusal(recipe, usage, &claim.name.namespace, bytes),
    }
}

/// Checks whether a claim has usage by its stamp or by a volume that does not fit. Such a claim may not count by its
/// own fields.
pub fn has_charge(claim: &Claim, facts: &Facts) -> bool {
    has_begun(claim, facts) || claim.own_stamp().is_some() && facts.cache.volumes.has_any_of(&claim.uid)
}

/// Checks whether a claim is stamped, and does not only wait for its next attempt. Others may use the quota of a claim that
/// has given up, or that can have made no volume so far.
pub fn has_begun(claim: &Claim, facts: &Facts) -> bool {
    let Some(stamp) = claim.own_stamp() else { return false };
    let of_attempt = |failure: &&LastFailure| {
        failure.operation == Operation::Provision && failure.attempt == stamp.attempt && !claim.is_bound()
    };
    let retries = || facts.configs.recipe_of(claim.class.as_deref()?).map(|recipe| recipe.retries);
    let failure = claim.last_failure.as_ref().filter(of_attempt);
    !failure.is_some_and(|failure| {
        failure.empty_attempts >= stamp.attempt || failure.gives_up(retries().unwrap_or(u32::MAX))
    })
}

/// Returns the usage of a claim that has begun and has no volume yet.
fn charge_of_claim(claim: &Claim, facts: &Facts) -> Option<Charge> {
    let class = claim.class.clone()?;
    // What a claim that is gone left on a node that is gone may wait for ever.
    let waits = |node: &String| facts.cache.nodes.get(node).is_none();
    if claim.is_stand_in() && claim.nodes_with_storage.iter().any(waits) {
        return None;
    }
    // The claim may be visible as bound before its volume is visible.
    let own = claim.volume_name.as_ref().is_none_or(|volume| *volume == names::pv_name(&claim.uid));
    let begun = own && has_charge(claim, facts);
    let counted = has_volume(&claim.uid, &class, facts);
    let bytes = claim.size.as_ref().copied().unwrap_or_default();
    (begun && !counted).then(|| Charge { class, namespace: claim.name.namespace.clone(), bytes })
}

/// Checks whether a volume of a class counts that has this id, or claims to have it.
fn has_volume(id: &str, class: &str, facts: &Facts) -> bool {
    let volumes = facts.cache.volumes.of_claim(id);
    let mut volumes = volumes.filter(|volume| volume.class == class && volume.belongs_to(&facts.identity));
    volumes.any(|volume| volume.volume_id() == Some(id) || volume.claim_uid.as_deref() == Some(id))
}

fn is_expand(job: &Job) -> bool {
    job.run_labels.operation == Operation::Expand
}

fn has_failed(job: &Job) -> bool {
    job.is_over && !job.complete
}

#[cfg(test)]
#[path = "quota_tests.rs"]
mod tests;
