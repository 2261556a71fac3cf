//! Makes the overview from a cache.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use flex_contract::operation::Operation;
use flex_core::claim::progress::Progress;
use flex_core::claim::quota::{ClassUsage, Usage};
use flex_core::config::Recipe;
use flex_core::config::classes::{BindingMode, Class, ClassLookup, Classes};
use flex_core::model::claim::Claim;
use flex_core::model::namespace::Namespaces;
use flex_core::model::volume::Volume;
use flex_core::text::line;

use super::{ClassRow, ConfigRow, Overview, PoolRow, RecipeRow, VolumeRow, urgency};
use crate::class_health::health::Health;
use crate::class_health::row::{MAX_FAILURE_TEXT, Row, row};
use crate::state::ClusterState;
use crate::state::index::Index;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
/// The objects that are read under one lock of the index.
const AT_ONCE: usize = 1000;

/// The claims and volumes that an overview keeps.
#[derive(Clone, Copy, Debug)]
pub enum Scope {
    /// All claims and volumes: for scripts.
    Whole,
    /// The claims that are not bound, and the volumes with failed runs, so many of each at most: for people.
    Open(usize),
}

/// Returns the overview of one class or of all, from an index of which nobody else needs the lock. `instance` is the
/// name of the orchestrator, and `now` in seconds since 1970. `has_jobs` says whether the index knows the Jobs.
pub fn overview(
    index: &Index,
    (instance, class): (&str, Option<&str>),
    scope: Scope,
    now: i64,
    has_jobs: bool,
) -> Overview {
    let mut collector = Collector::new(index, instance, class, scope, now);
    index.claims().for_each(|claim| collector.claim(&claim));
    index.volumes().for_each(|volume| collector.volume(&volume));
    Overview { kept: kept(index, class), ..collector.end(&uses(index), has_jobs) }
}

/// Returns the overview of one class or of all. The lock of the index is held for parts of the work only, so that watches
/// and workers need not wait. Objects that change meanwhile appear in one of their states.
pub fn overview_in_parts(
    cluster: &ClusterState,
    (instance, class): (&str, Option<&str>),
    scope: Scope,
    now: i64,
) -> Overview {
    let (mut collector, claims, volumes) = {
        let index = cluster.index();
        (Collector::new(&index, instance, class, scope, now), index.claim_names(), index.volume_names())
    };
    for names in claims.chunks(AT_ONCE) {
        let index = cluster.index();
        names.iter().filter_map(|name| index.claim(name)).for_each(|claim| collector.claim(&claim));
    }
    for names in volumes.chunks(AT_ONCE) {
        let index = cluster.index();
        names.iter().filter_map(|name| index.volume(name)).for_each(|volume| collector.volume(&volume));
    }
    let (uses, kept) = {
        let index = cluster.index();
        (uses(&index), kept(&index, class))
    };
    Overview { kept, ..collector.end(&uses, true) }
}

/// Returns all classes, as these claims and volumes show them: those in progress, and those that matter for the health of
/// classes.
pub fn classes(
    cluster: &ClusterState,
    instance: &str,
    claims: &[Arc<Claim>],
    volumes: &[Arc<Volume>],
    now: i64,
) -> Vec<ClassRow> {
    let (mut collector, uses, ready) = {
        let index = cluster.index();
        (Collector::new(&index, instance, None, Scope::Open(usize::MAX), now), uses(&index), index.pooled_counts())
    };
    claims.iter().for_each(|claim| collector.claim(claim));
    volumes.iter().for_each(|volume| collector.volume(volume));
    collector.ready = ready.into_iter().collect();
    collector.end(&uses, true).classes
}

/// Returns the deleted claims, of one class or of all, whose attempts may have made storage that is kept.
fn kept(index: &Index, class: Option<&str>) -> Vec<String> {
    let claims = index.kept_records().flat_map(|record| record.kept());
    let shown = claims.filter(|claim| class.is_none() || claim.class.as_deref() == class);
    shown.map(|claim| claim.name.to_string()).collect()
}

/// The runs in progress, the operations with an outage and the usage, by class.
type Uses = HashMap<String, (usize, Vec<Operation>, ClassUsage)>;

fn uses(index: &Index) -> Uses {
    let use_of = |class: &Class| {
        let name = &class.name;
        (index.runs_in_flight(name), index.outages_of(name), index.class_usage(name))
    };
    index.classes().iter().map(|class| (class.name.clone(), use_of(class))).collect()
}

/// Counts claims and volumes one by one.
struct Collector<'a> {
    classes: Arc<Classes>,
    namespaces: Arc<Namespaces>,
    instance: &'a str,
    class: Option<&'a str>,
    scope: Scope,
    now: i64,
    rows: Vec<Row>,
    volumes: Vec<VolumeRow>,
    /// The claims in each state, by class.
    states: HashMap<String, BTreeMap<Progress, usize>>,
    /// The volumes of each class that were made within the last minute, and within the last hour.
    made: HashMap<String, (usize, usize)>,
    /// The pooled volumes that a claim can take, by class and size.
    ready: HashMap<(String, u64), usize>,
    /// The newest adopted volume of each class.
    newest: HashMap<String, Arc<Volume>>,
    /// The volumes with failed runs.
    troubled: Vec<Arc<Volume>>,
}

impl<'a> Collector<'a> {
    fn new(index: &Index, instance: &'a str, class: Option<&'a str>, scope: Scope, now: i64) -> Self {
        Collector {
            classes: index.classes(),
            namespaces: index.namespaces().clone(),
            instance,
            class,
            scope,
            now,
            rows: Vec::new(),
            volumes: Vec::new(),
            states: HashMap::new(),
            made: HashMap::new(),
            ready: HashMap::new(),
            newest: HashMap::new(),
            troubled: Vec::new(),
        }
    }

    fn shows(&self, class: &str) -> bool {
        self.class.is_none_or(|shown| shown == class)
    }

    fn claim(&mut self, claim: &Claim) {
        let row = row(&self.classes, &self.namespaces, claim, self.now).filter(|row| self.shows(&row.class));
        let Some(mut row) = row else { return };
        if let (Scope::Open(most), Some(failure)) = (self.scope, &mut row.failure)
            && most < usize::MAX
        {
            // Many claims may fail at one time, and each message may be long.
            failure.message = line(&failure.message, 2 * MAX_FAILURE_TEXT);
        }
        *of(&mut self.states, &row.class).entry(row.state).or_default() += 1;
        if matches!(self.scope, Scope::Whole) || row.state != Progress::Bound {
            self.rows.push(row);
        }
    }

    fn volume(&mut self, volume: &Arc<Volume>) {
        if volume.instance.as_deref() != Some(self.instance) || !self.shows(&volume.class) {
            return;
        }
        if volume.is_adopted() {
            let age = self.now - volume.created;
            let (last_minute, last_hour) = of(&mut self.made, &volume.class);
            *last_minute += usize::from(age < MINUTE);
            *last_hour += usize::from(age < HOUR);
            let newest = self.newest.get(&volume.class);
            if newest.is_none_or(|newest| newest.created < volume.created) {
                self.newest.insert(volume.class.clone(), volume.clone());
            }
        }
        if let (Some(size), true) = (volume.pool_size, self.is_ready(volume)) {
            *self.ready.entry((volume.class.clone(), size)).or_default() += 1;
        }
        if volume.failed_runs().next().is_some() {
            self.troubled.push(volume.clone());
        }
        if matches!(self.scope, Scope::Whole) {
            self.volumes.push(VolumeRow::of(volume));
        }
    }

    /// Checks whether a claim can take the volume from its class's pool.
    fn is_ready(&self, volume: &Volume) -> bool {
        let ClassLookup::Ours(class) = self.classes.lookup(&volume.class) else { return false };
        let pool = class.recipe.as_ref().ok().and_then(|recipe| recipe.pool.as_ref());
        pool.is_some_and(|pool| volume.pool_hash() == Some(&pool.hash)) && !volume.terminating
    }

    fn end(mut self, uses: &Uses, has_jobs: bool) -> Overview {
        let classes = self.classes.clone();
        // A volume that was made since shows that attempts succeed again; older ones tell nothing more.
        let for_health: Vec<_> = self.troubled.iter().chain(self.newest.values()).cloned().collect();
        let shown = classes.iter().filter(|class| self.shows(&class.name));
        let shown: Vec<_> = shown
            .map(|class| {
                let (runs, outages, usage) = uses.get(&class.name).cloned().unwrap_or_default();
                let health = Health { outages, ..Health::of(&class.name, &classes, &self.rows, &for_health) };
                self.class_row(class, health, has_jobs.then_some(runs), &usage)
            })
            .collect();
        let (mut more_claims, mut more_volumes) = (0, 0);
        if let Scope::Open(most) = self.scope {
            self.rows.sort_by(|a, b| urgency(a).cmp(&urgency(b)));
            more_claims = cut(&mut self.rows, most);
            more_volumes = cut(&mut self.troubled, most);
            self.volumes = self.troubled.iter().map(|volume| VolumeRow::of(volume)).collect();
        }
        let configs = classes.verdicts.iter().map(|(name, verdict)| ConfigRow {
            name: name.to_string(),
            classes: verdict.classes.clone(),
            problems: verdict.problems.clone(),
            warnings: verdict.warnings.clone(),
        });
        let left = classes.all_left_to_external_provisioners();
        Overview {
            classes: shown,
            claims: self.rows,
            more_claims,
            volumes: self.volumes,
            more_volumes,
            configs: configs.collect(),
            left: left.map(|(class, why)| (class.to_owned(), why.to_owned())).collect(),
            kept: Vec::new(),
        }
    }

    fn class_row(&self, class: &Class, health: Health, runs: Option<usize>, usage: &ClassUsage) -> ClassRow {
        let name = &class.name;
        let (last_minute, last_hour) = self.made.get(name).copied().unwrap_or_default();
        ClassRow {
            name: name.clone(),
            provisioner: class.provisioner.clone(),
            has_object: class.has_object,
            waits_for_consumer: class.binding == BindingMode::WaitForFirstConsumer,
            last_good: class.last_good,
            recipe: class.recipe.as_ref().map(|recipe| RecipeRow::of(recipe)).map_err(Clone::clone),
            verdict: health.verdict(class),
            health,
            claims: self.states.get(name).cloned().unwrap_or_default(),
            runs,
            used_volumes: usage.all.volumes,
            used_bytes: bytes(&usage.all),
            most_volumes: most(usage, |usage| usage.volumes),
            most_bytes: most(usage, bytes),
            last_minute,
            last_hour,
            pools: self.pools(class),
        }
    }

    fn pools(&self, class: &Class) -> Vec<PoolRow> {
        let pool = class.recipe.as_ref().ok().and_then(|recipe| recipe.pool.as_ref());
        let sizes = pool.into_iter().flat_map(|pool| &pool.sizes);
        let ready = |size: u64| self.ready.get(&(class.name.clone(), size)).copied().unwrap_or_default();
        sizes
            .map(|(size, marks)| PoolRow { size: *size, low: marks.low, high: marks.high, ready: ready(*size) })
            .collect()
    }
}

fn bytes(usage: &Usage) -> u64 {
    u64::try_from(usage.bytes).unwrap_or(u64::MAX)
}

/// Returns the namespace that uses most of a class, and how much. Of several the first by name. Pooled volumes have no
/// namespace.
fn most(usage: &ClassUsage, number: impl Fn(&Usage) -> u64) -> Option<(String, u64)> {
    let owned = usage.namespaces.iter().filter(|(namespace, _)| !namespace.is_empty());
    let used = owned.map(|(namespace, usage)| (number(usage), Reverse(namespace)));
    used.max().map(|(number, Reverse(namespace))| (namespace.clone(), number))
}

/// Cuts a list, and returns how many entries are left out.
fn cut<T>(list: &mut Vec<T>, most: usize) -> usize {
    let more = list.len().saturating_sub(most);
    list.truncate(most);
    more
}

/// Returns the entry of a class. Most classes have one already, so that the name is seldom copied.
fn of<'a, V: Default>(map: &'a mut HashMap<String, V>, class: &str) -> &'a mut V {
    if !map.contains_key(class) {
        map.insert(class.to_owned(), V::default());
    }
    map.get_mut(class).expect("the class has just been added")
}

impl RecipeRow {
    fn of(recipe: &Recipe) -> Self {
        RecipeRow {
            version: recipe.version(),
            image: recipe.image.clone(),
            capabilities: recipe.capabilities.clone(),
            reclaim_policy: recipe.reclaim_policy.as_str().to_owned(),
            parameters: recipe.parameters.clone(),
            max_in_flight: recipe.max_in_flight,
            max_in_flight_per_namespace: recipe.max_in_flight_per_namespace,
            max_in_flight_per_node: recipe.max_in_flight_per_node,
            max_volumes: recipe.quota.volumes,
            max_bytes: recipe.quota.bytes,
            max_volumes_per_namespace: recipe.namespace_quota.volumes,
            max_bytes_per_namespace: recipe.namespace_quota.bytes,
        }
    }
}

impl VolumeRow {
    fn of(volume: &Volume) -> Self {
        VolumeRow {
            name: volume.name.clone(),
            class: volume.class.clone(),
            phase: volume.phase.as_str().to_owned(),
            size: volume.size.clone().ok(),
            last_failure: volume.last_failure.clone(),
            expansion: volume.last_failed_expansion.as_deref().cloned(),
            modification: volume.pending_modification.as_deref().cloned(),
        }
    }
}
