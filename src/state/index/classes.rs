//! Changes of configs, classes and their stored versions.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use flex_core::claim::decide::ClassCertainty;
use flex_core::config::accounts::Account;
use flex_core::config::classes::{Class, ClassObject, Config, KeptScript};
use flex_core::config::effective_config::{EffectiveConfig, hash_of};
use flex_core::config::external_provisioner::ExternalProvisioners;
use flex_core::config::script;
use flex_core::kept_script;
use flex_core::model::claim::Claim;
use flex_core::model::record::is_record;
use flex_core::model::stored::Stored;
use flex_core::object::ObjectName;

use super::{Index, WatchChange, Woken, WorkItem};

/// A script that a class uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsedScript {
    /// The name of its config.
    pub config: ObjectName,
    /// The text.
    pub text: Arc<str>,
}

/// A kept script.
#[derive(Debug)]
pub struct ObservedScript {
    /// The script.
    pub script: KeptScript,
    /// The observation on which the decision about it rests.
    pub observed: kept_script::Observed,
}

impl Index {
    /// Applies a change of a provisioner ConfigMap.
    pub fn change_config(&mut self, change: WatchChange<Config>) -> Vec<WorkItem> {
        let news = self.facts.configs.change_config(change, self.facts.now());
        [self.decide_classes(news), self.with_less_left()].concat()
    }

    /// Applies a change of a ServiceAccount.
    pub fn change_account(&mut self, change: WatchChange<Account>) -> Vec<WorkItem> {
        let news = self.facts.configs.change_account(change);
        self.decide_classes(news)
    }

    /// Applies a change of a StorageClass.
    pub fn change_class(&mut self, change: WatchChange<ClassObject>) -> Vec<WorkItem> {
        let now = self.facts.now();
        let news = self.facts.configs.change_class(change, now);
        self.decide_classes(news)
    }

    /// Notes that the API had no StorageClass of this name at a resourceVersion.
    pub fn note_absent_class_object(&mut self, class: &str, at: Option<&str>) {
        self.facts.configs.note_absent_object(class, at);
    }

    /// Notes that all StorageClasses are known, as in a file with all objects of one moment.
    pub fn note_all_class_objects_known(&mut self) {
        self.facts.configs.note_all_objects_known();
    }

    /// Returns the certainty about the StorageClass of a class, for a claim.
    pub fn class_certainty(&self, class: &Class, claim: &Claim) -> ClassCertainty {
        self.facts.configs.class_certainty(class, claim, self.facts.now())
    }

    /// Applies the state of the drivers' external provisioners.
    pub fn change_external_provisioners(&mut self, external_provisioners: ExternalProvisioners) -> Vec<WorkItem> {
        let news = self.facts.configs.change_external_provisioners(external_provisioners);
        self.decide_classes(news)
    }

    /// Applies a change of a revision or of a kept script.
    pub fn change_stored(&mut self, change: WatchChange<Stored>) -> Vec<WorkItem> {
        let mut items = Vec::new();
        let change = match change {
            WatchChange::Apply(Stored::Record(record)) => return self.apply_record(record),
            WatchChange::Delete(name) if is_record(&name.name) => return self.remove_record(&name),
            WatchChange::Apply(Stored::Script(script)) => {
                self.kept_scripts.apply(script);
                return Vec::new();
            }
            WatchChange::Delete(name) => match script::kept_hash(&name.name) {
                Some(hash) if self.kept_scripts.remove(hash) => return self.woken_by_gone_script(),
                Some(_) => return Vec::new(),
                None => WatchChange::Delete(name),
            },
            WatchChange::Apply(Stored::Recipe(hash, revision)) => WatchChange::Apply((hash, revision)),
            WatchChange::Retain(all) | WatchChange::RetainIn(_, all) => {
                self.kept_scripts.retain(&all);
                let missing = self.missing_records(&all);
                items = self.remove_missing(missing, Index::remove_record);
                WatchChange::Retain(all)
            }
        };
        let news = self.revisions.change(change, self.facts.now());
        items.extend(self.decide_classes(news));
        items
    }

    /// Returns the text of a script: as it is kept, or as a config has it now.
    pub fn script(&self, hash: &str) -> Option<Arc<str>> {
        let kept = self.kept_scripts.get(hash).map(|script| script.text.clone());
        kept.or_else(|| self.facts.configs.script(hash).map(Arc::from))
    }

    /// Returns the scripts that classes use and that are not kept yet.
    pub fn scripts_to_store(&self) -> Vec<UsedScript> {
        let classes = self.facts.configs.classes();
        let recipes = classes.iter().filter_map(|class| class.recipe.as_ref().ok());
        let new: BTreeMap<&str, &ObjectName> = recipes
            .filter_map(|recipe| Some((recipe.script.as_deref()?, &recipe.config)))
            .filter(|(hash, _)| self.kept_scripts.get(hash).is_none())
            .collect();
        new.into_iter()
            .filter_map(|(hash, config)| Some(UsedScript { config: config.clone(), text: self.script(hash)? }))
            .collect()
    }

    /// Returns the kept scripts.
    pub fn observe_scripts(&self) -> Vec<ObservedScript> {
        let (configs, cache) = (&self.facts.configs, &self.facts.cache);
        let of_config = |hash: &str| {
            let is_its = |effective_config: &EffectiveConfig| effective_config.script.as_deref() == Some(hash);
            let recipe = |class: &Class| class.recipe.as_ref().is_ok_and(|recipe| is_its(&recipe.effective_config));
            self.revisions.all().any(|revision| is_its(&revision.effective_config))
                || configs.classes().iter().any(recipe)
                || configs.script(hash).is_some()
        };
        // A provenance that nobody can read counts by its text, too.
        let of_storage = |hash: &str| {
            let names_it = |provenance: &Option<String>| provenance.as_ref().is_some_and(|text| text.contains(hash));
            cache.volumes.all().any(|volume| names_it(&volume.provenance))
                || cache.snapshots.contents().any(|content| names_it(&content.provenance))
        };
        let observed = |(script, unnamed_since): (&KeptScript, Option<i64>)| {
            let is_named_by_config = of_config(&script.hash);
            let is_named_by_storage = !is_named_by_config && of_storage(&script.hash);
            let created = script.created;
            let observed = kept_script::Observed { created, is_named_by_config, is_named_by_storage, unnamed_since };
            ObservedScript { script: script.clone(), observed }
        };
        self.kept_scripts.all().map(observed).collect()
    }

    /// Records whether nobody names a script, and since when.
    pub fn note_unnamed_script(&mut self, hash: &str, since: Option<i64>) {
        self.kept_scripts.note_unnamed(hash, since);
    }

    /// Serves classes by their label if their StorageClass was not created again in time, and by another config if their
    /// ConfigMap was not. Returns the time for which others are still waited for.
    pub fn serve_without_deleted(&mut self) -> Woken<Option<Duration>> {
        let now = self.facts.now();
        let news = self.facts.configs.forget_deleted(now);
        let items = self.decide_classes(news);
        Woken { value: self.facts.configs.next_forgotten(now), items }
    }

    /// Applies a change that is a part of a list. The classes are decided again at the [end](Self::end_list) of the
    /// list, and not with each object.
    pub fn list(&mut self, change: impl FnOnce(&mut Index) -> Vec<WorkItem>) -> Vec<WorkItem> {
        self.facts.configs.set_listing(true);
        let items = change(self);
        self.facts.configs.set_listing(false);
        items
    }

    /// Ends a list. Returns the work items to requeue.
    pub fn end_list(&mut self) -> Vec<WorkItem> {
        self.decide_classes(self.facts.configs.is_stale())
    }

    /// Decides all classes again if there is news. Returns the work items to requeue.
    fn decide_classes(&mut self, news: bool) -> Vec<WorkItem> {
        let now = self.facts.now();
        if news && self.facts.configs.derive_classes(&self.facts.identity, self.revisions.stored(), now) {
            self.woken_by_classes()
        } else {
            Vec::new()
        }
    }

    /// Returns the revisions to which no class and no claim in progress refers any more. `now` is in seconds since 1970.
    pub fn unused_revisions(&self, now: i64) -> Vec<String> {
        let cache = &self.facts.cache;
        let mut used: HashSet<&str> = HashSet::new();
        let classes = self.facts.configs.classes();
        used.extend(classes.iter().filter_map(|class| Some(class.recipe.as_ref().ok()?.hash.as_str())));
        let stamps =
            cache.claims.all().filter_map(|claim| Some(hash_of(&claim.stamp.as_ref()?.recipe_version)?.to_owned()));
        let stamps: HashSet<String> = stamps.collect();
        used.extend(stamps.iter().map(String::as_str));
        let recorded = self.recorded_versions();
        used.extend(recorded.iter().filter_map(|version| hash_of(version)));
        used.extend(cache.runs.jobs().filter_map(|job| hash_of(&job.recipe_version)));
        self.revisions.unused(&used, |config| self.facts.configs.may_exist_again(config, self.facts.now()), now)
    }

    /// Begins the deletion of a revision, so that no attempt begins with it any more. Returns false if one may have
    /// begun that is not visible yet. If the revision stays,
    /// [`cancel_revision_deletion`](Self::cancel_revision_deletion) must follow.
    pub fn begin_revision_deletion(&mut self, hash: &str) -> bool {
        self.revisions.begin_deletion(hash, self.facts.now())
    }

    /// Cancels the deletion of a revision that was not deleted, or may not have been.
    pub fn cancel_revision_deletion(&mut self, hash: &str) -> Vec<WorkItem> {
        let news = self.revisions.cancel_deletion(hash, self.facts.now());
        self.decide_classes(news)
    }

    /// Forgets a revision whose deletion has begun and that is gone.
    pub fn forget_revision(&mut self, hash: &str) {
        self.revisions.forget(hash);
    }
}
