//! All that `status` shows, read from a cluster.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use flex_contract::names;
use k8s_openapi::api::storage::v1::CSIStorageCapacity;
use kube::api::ListParams;
use kube::{Api, Client};

use crate::api::policies as live;
use crate::capacity::Published;
use crate::claim::quota::Usage;
use crate::class_health::row::{Row, row};
use crate::cli::{beside, doctor};
use crate::clock::Clock;
use crate::config::classes::{Class, Classes, Identity};
use crate::config::pool::Watermarks;
use crate::model::volume::Volume;
use crate::object::ObjectName;
use crate::policies::{self, CheckedPolicy};
use crate::state::index::Index;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;

/// The published capacities, or the reason why they are not known.
pub(super) type Capacities = Result<Vec<Published>, String>;
/// The admission policies, or the reason why they are not known.
pub(super) type Policies = Result<Vec<CheckedPolicy>, String>;

/// What seldom changes, and is read by requests of its own.
pub(super) struct Surroundings {
    /// Who leads, in a sentence; or why nobody does, or why that is not known.
    pub(super) leader: Result<String, String>,
    pub(super) capacities: Capacities,
    pub(super) policies: Policies,
    /// Configs in namespaces where the orchestrator does not look.
    pub(super) unseen_configs: Vec<ObjectName>,
}

impl Surroundings {
    pub(super) async fn read(client: &Client, identity: &Identity, clock: &Clock) -> Self {
        let ours = ListParams::default().labels(&format!("{}={}", names::LABEL_INSTANCE, identity.instance));
        let api: Api<CSIStorageCapacity> = Api::namespaced(client.clone(), &identity.namespace);
        let capacities = api.list(&ours).await.map_err(|error| error.to_string());
        Surroundings {
            leader: leader(doctor::leader(client, identity, clock).await),
            capacities: capacities.map(|list| list.items.iter().map(Published::from).collect()),
            policies: live::read(client).await.map(|live| policies::states(&live)),
            unseen_configs: beside::unseen_configs(client, identity).await,
        }
    }
}

fn leader(found: anyhow::Result<doctor::Leader>) -> Result<String, String> {
    let leader = found.map_err(|error| format!("whether anybody leads is not known: {error:#}"))?;
    match (leader.missing, leader.holder) {
        (Some(missing), _) => Err(format!("nobody leads: {}; {}", missing.detail, missing.remedy)),
        (None, holder) => Ok(format!("{} leads", holder.unwrap_or_default())),
    }
}

/// The use of a class.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ClassUse {
    /// The runs in progress; `None` if the Jobs could not be listed.
    pub(super) runs: Option<usize>,
    /// The volumes that count for the quota.
    pub(super) quota: Usage,
    /// The volumes made within the last minute.
    pub(super) last_minute: usize,
    /// The volumes made within the last hour.
    pub(super) last_hour: usize,
}

/// All that `status` shows.
pub(super) struct Overview<'a> {
    pub(super) identity: &'a Identity,
    pub(super) surroundings: &'a Surroundings,
    pub(super) table: Arc<Classes>,
    /// The overview is of one class.
    pub(super) of_one: bool,
    /// The classes of the overview.
    pub(super) classes: Vec<Class>,
    /// Their use, by name.
    pub(super) uses: BTreeMap<String, ClassUse>,
    /// The claims of these classes.
    pub(super) rows: Vec<Row>,
    /// The orchestrator's volumes of these classes.
    pub(super) volumes: Vec<Arc<Volume>>,
    /// Why the Jobs could not be listed.
    pub(super) without_jobs: Option<&'a str>,
}

/// The sources of an overview.
pub(super) struct Sources<'a> {
    pub(super) identity: &'a Identity,
    pub(super) surroundings: &'a Surroundings,
    pub(super) without_jobs: Option<&'a str>,
}

impl<'a> Overview<'a> {
    /// Makes the overview of one class or of all. `now` is in seconds since 1970.
    pub(super) fn of(index: &Index, sources: &Sources<'a>, class: Option<&str>, now: i64) -> Self {
        let table = index.classes();
        let is_shown = |name: &str| class.is_none_or(|class| class == name);
        let classes: Vec<Class> = table.iter().filter(|class| is_shown(&class.name)).cloned().collect();
        let rows = index.claims().filter_map(|claim| row(&table, &claim, now)).filter(|row| is_shown(&row.class));
        let ours = |volume: &Arc<Volume>| volume.instance.as_deref() == Some(&sources.identity.instance);
        let volumes: Vec<_> =
            index.volumes().filter(ours).filter(|volume| class.is_none() || is_shown(&volume.class)).collect();
        let mut made: HashMap<&str, (usize, usize)> = HashMap::new();
        for volume in volumes.iter().filter(|volume| volume.is_adopted()) {
            let (last_minute, last_hour) = made.entry(&volume.class).or_default();
            *last_minute += usize::from(now - volume.created < MINUTE);
            *last_hour += usize::from(now - volume.created < HOUR);
        }
        let uses = classes.iter().map(|class| {
            let name = class.name.as_str();
            let (last_minute, last_hour) = made.get(name).copied().unwrap_or_default();
            let runs = sources.without_jobs.is_none().then(|| index.runs_in_flight(name));
            (class.name.clone(), ClassUse { runs, quota: index.class_usage(name), last_minute, last_hour })
        });
        let uses = uses.collect();
        Overview {
            identity: sources.identity,
            surroundings: sources.surroundings,
            uses,
            rows: rows.collect(),
            table,
            of_one: class.is_some(),
            classes,
            volumes,
            without_jobs: sources.without_jobs,
        }
    }

    /// Returns the use of a class.
    pub(super) fn use_of(&self, class: &str) -> ClassUse {
        self.uses.get(class).copied().unwrap_or_default()
    }

    /// Returns the claims that are not bound: first those whose attempts fail, then the oldest.
    pub(super) fn open_claims(&self) -> Vec<&Row> {
        let mut open: Vec<_> = self.rows.iter().filter(|row| row.state != "Bound").collect();
        open.sort_by(|a, b| (b.failure.is_some(), b.age, &a.claim).cmp(&(a.failure.is_some(), a.age, &b.claim)));
        open
    }
}

/// Counts the claims of a class by state, such as `Bound 3, Failed 1`.
pub(super) fn states(rows: &[Row], class: &str) -> Vec<(&'static str, usize)> {
    ["Bound", "Growing", "Modifying", "Running", "Waiting", "Failed", "Deleting"]
        .into_iter()
        .map(|state| (state, rows.iter().filter(|row| row.class == class && row.state == state).count()))
        .filter(|(_, count)| *count > 0)
        .collect()
}

/// The pooled volumes of a class, for one size.
pub(super) struct PoolRow<'a> {
    pub(super) class: &'a str,
    pub(super) size: u64,
    pub(super) watermarks: Watermarks,
    pub(super) ready: usize,
}

/// Returns the pools of the classes.
pub(super) fn pools<'a>(classes: &'a [Class], volumes: &[Arc<Volume>]) -> Vec<PoolRow<'a>> {
    let classes = classes.iter().filter_map(|class| Some((class, class.recipe.as_ref().ok()?.pool.as_ref()?)));
    let kept = classes.flat_map(|(class, pool)| {
        pool.sizes.iter().map(move |(size, watermarks)| {
            let is_one = |volume: &&Arc<Volume>| {
                let right = volume.pool_hash() == Some(&pool.hash) && !volume.terminating;
                right && volume.class == class.name && volume.pool_size == Some(*size)
            };
            (class, size, watermarks, is_one)
        })
    });
    kept.map(|(class, size, watermarks, is_one)| {
        let ready = volumes.iter().filter(is_one).count();
        PoolRow { class: &class.name, size: *size, watermarks: *watermarks, ready }
    })
    .collect()
}
