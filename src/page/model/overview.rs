//! The overview: the classes with their limits and pools, and the admission policies.

use std::collections::BTreeMap;
use std::time::Duration;

use flex_contract::quantity::quantity;
use flex_core::claim::progress::Progress;
use flex_core::claim::quota::Usage;
use flex_core::config::Recipe;
use flex_core::config::classes::{BindingMode, Class};
use flex_core::policies::CheckedPolicy;
use serde::Serialize;

use super::{message, name};
use crate::last_hour::BoundClaims;

/// The overview.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Overview {
    /// The classes that the orchestrator serves, by name.
    pub classes: Vec<ClassRow>,
    /// The admission policies.
    pub policies: Policies,
    /// The work items that wait.
    pub queue: usize,
    /// The Jobs in progress.
    pub runs: usize,
}

/// The admission policies, as they were when the process began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Policies {
    /// The policies; empty if they are not known.
    pub policies: Vec<PolicyRow>,
    /// The reason why they are not known.
    pub unknown: Option<String>,
}

/// An admission policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyRow {
    /// The name.
    pub name: &'static str,
    /// The policy works as shipped.
    pub is_installed: bool,
    /// The state.
    pub state: String,
    /// What is off without the policy; `None` if it works.
    pub without: Option<&'static str>,
}

impl Policies {
    /// Describes the policies. `None` as the argument means that they have not been read yet.
    pub fn of(read: Option<&Result<Vec<CheckedPolicy>, String>>) -> Self {
        let states = match read {
            Some(Ok(states)) => states,
            Some(Err(why)) => return Policies { unknown: Some(message(why)), ..Policies::default() },
            None => return Policies { unknown: Some("they are being read".into()), ..Policies::default() },
        };
        let row = |CheckedPolicy { policy, state }: &CheckedPolicy| PolicyRow {
            name: policy.name,
            is_installed: state.is_installed(),
            state: state.describe(),
            without: (!state.is_installed()).then_some(policy.without),
        };
        Policies { policies: states.iter().map(row).collect(), unknown: None }
    }
}

/// A class.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClassRow {
    /// The name.
    pub name: String,
    /// The ConfigMap, `namespace/name`; `None` if none works.
    pub config: Option<String>,
    /// Whether the class is served.
    pub state: ClassState,
    /// The reason why the class is not served as its config says, or what is wrong with its runs.
    pub why: Option<String>,
    /// The class makes a volume when the first pod of a claim is scheduled.
    pub waits_for_pod: bool,
    /// The Jobs of the class in progress.
    pub runs: usize,
    /// The limits of the class.
    pub limits: Limits,
    /// The number of volumes of the class.
    pub volumes: u64,
    /// The sum of their sizes.
    pub bytes: String,
    /// The pool, by size.
    pub pools: Vec<PoolRow>,
    /// The claims that are not bound, by state.
    pub claims: ClaimCounts,
    /// The claims that were bound within the last hour.
    pub hour: Hour,
}

/// Whether a class is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClassState {
    /// By the present version of its config.
    #[default]
    Served,
    /// By the present version of its config, but its attempts or deletions fail.
    Failing,
    /// By the last valid version of its config.
    LastGood,
    /// Not at all.
    NotServed,
}

/// The limits of a class; `None` for no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Limits {
    /// The runs at one time.
    pub runs: Option<usize>,
    /// The same for the claims of one namespace.
    pub runs_per_namespace: Option<usize>,
    /// The same on one node.
    pub runs_per_node: Option<usize>,
    /// The number of volumes.
    pub volumes: Option<u64>,
    /// The sum of their sizes.
    pub bytes: Option<String>,
    /// The number of volumes of one namespace.
    pub namespace_volumes: Option<u64>,
    /// The sum of the sizes of the volumes of one namespace.
    pub namespace_bytes: Option<String>,
}

impl Limits {
    fn of(recipe: &Recipe) -> Self {
        let text = |bytes: Option<u64>| bytes.map(|bytes| quantity(bytes).0);
        Limits {
            runs: Some(recipe.max_in_flight),
            runs_per_namespace: recipe.max_in_flight_per_namespace,
            runs_per_node: recipe.max_in_flight_per_node,
            volumes: recipe.quota.volumes,
            bytes: text(recipe.quota.bytes),
            namespace_volumes: recipe.namespace_quota.volumes,
            namespace_bytes: text(recipe.namespace_quota.bytes),
        }
    }
}

/// The pooled volumes of one size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolRow {
    /// The size.
    pub size: String,
    /// The ready volumes.
    pub ready: usize,
    /// The number below which the pool is filled.
    pub low: usize,
    /// The number up to which the pool is filled.
    pub high: usize,
}

/// The claims that are not bound, by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimCounts {
    /// No attempt has begun.
    pub waiting: usize,
    /// An attempt is in progress.
    pub running: usize,
    /// The last attempt failed.
    pub failed: usize,
    /// The claim is being deleted.
    pub deleting: usize,
}

impl ClaimCounts {
    /// Counts a claim.
    pub fn add(&mut self, progress: Progress) {
        match progress {
            Progress::Waiting => self.waiting += 1,
            Progress::Running => self.running += 1,
            Progress::Failed => self.failed += 1,
            Progress::Deleting => self.deleting += 1,
        }
    }

    /// Returns the number of all.
    pub fn all(self) -> usize {
        self.waiting + self.running + self.failed + self.deleting
    }
}

/// The claims that were bound within the last hour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Hour {
    /// Their number.
    pub bound: u64,
    /// The time that half of them needed at most, in seconds.
    pub p50: Option<f64>,
    /// The time that 95 of 100 needed at most, in seconds.
    pub p95: Option<f64>,
}

impl From<BoundClaims> for Hour {
    fn from(bound: BoundClaims) -> Self {
        // The histogram knows no more digits.
        let rounded = |time: Duration| (time.as_secs_f64() * 100.0).round() / 100.0;
        Hour { bound: bound.count, p50: bound.p50.map(rounded), p95: bound.p95.map(rounded) }
    }
}

/// What the page knows of a class.
#[derive(Debug)]
pub struct ClassFacts<'a> {
    /// The class.
    pub class: &'a Class,
    /// The Jobs in progress.
    pub runs: usize,
    /// The volumes.
    pub usage: Usage,
    /// The numbers of ready pooled volumes, by class and size in bytes.
    pub ready: &'a BTreeMap<(String, u64), usize>,
    /// The claims that are not bound.
    pub claims: ClaimCounts,
    /// The claims that were bound within the last hour.
    pub hour: BoundClaims,
    /// Attempts or deletions fail.
    pub is_failing: bool,
    /// The fault of the runs.
    pub troubles: Vec<String>,
}

impl ClassRow {
    /// Describes a class.
    pub fn of(facts: &ClassFacts<'_>) -> Self {
        let ClassFacts { class, runs, usage, ready, claims, hour, is_failing, troubles } = facts;
        let recipe = class.recipe.as_ref().ok();
        let (state, of_config) = match (&class.recipe, class.last_good) {
            (Err(why), _) => (ClassState::NotServed, Some(message(why))),
            (Ok(_), true) => {
                (ClassState::LastGood, Some("the config has errors; its last valid version stays in use".to_owned()))
            }
            (Ok(_), false) => (if *is_failing { ClassState::Failing } else { ClassState::Served }, None),
        };
        let why: Vec<_> = of_config.into_iter().chain(troubles.iter().map(|trouble| message(trouble))).collect();
        ClassRow {
            name: name(&class.name),
            config: recipe.map(|recipe| name(&recipe.config.to_string())),
            state,
            why: (!why.is_empty()).then(|| why.join("; ")),
            waits_for_pod: class.binding == BindingMode::WaitForFirstConsumer,
            runs: *runs,
            limits: recipe.map(|recipe| Limits::of(recipe)).unwrap_or_default(),
            volumes: usage.volumes,
            bytes: size(usage.bytes),
            pools: recipe.map(|recipe| pools(&class.name, recipe, ready)).unwrap_or_default(),
            claims: *claims,
            hour: (*hour).into(),
        }
    }
}

/// Returns a size with one digit behind the point, such as `1.5 GiB`.
fn size(bytes: u128) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut unit = 0;
    let mut value = bytes as f64;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let text = format!("{value:.1}");
    format!("{} {}", text.strip_suffix(".0").unwrap_or(&text), UNITS[unit])
}

fn pools(class: &str, recipe: &Recipe, ready: &BTreeMap<(String, u64), usize>) -> Vec<PoolRow> {
    let sizes = recipe.pool.iter().flat_map(|pool| &pool.sizes);
    sizes
        .map(|(size, watermarks)| PoolRow {
            size: quantity(*size).0,
            ready: ready.get(&(class.to_owned(), *size)).copied().unwrap_or(0),
            low: watermarks.low,
            high: watermarks.high,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use flex_core::policies;

    use super::*;
    use crate::page::testing;

    fn troubled(class: &Class, is_failing: bool, troubles: &[&str]) -> ClassRow {
        let ready = [(("gold".to_owned(), 1 << 30), 3)].into();
        let facts = ClassFacts {
            class,
            runs: 2,
            usage: Usage { volumes: 7, bytes: 7 << 30 },
            ready: &ready,
            claims: ClaimCounts { waiting: 1, ..ClaimCounts::default() },
            hour: BoundClaims { count: 12, p50: Some(Duration::from_millis(1234)), p95: None },
            is_failing,
            troubles: troubles.iter().map(|text| (*text).to_owned()).collect(),
        };
        ClassRow::of(&facts)
    }

    fn row(class: &Class) -> ClassRow {
        troubled(class, false, &[])
    }

    #[test]
    fn a_class_whose_runs_fail_says_so_beside_the_state_of_its_config() {
        let class = testing::class("gold", &[]);
        let failing = troubled(&class, true, &["failing: 1 claim, last team/a: ExitCode: \u{202e}"]);
        let says = Some("failing: 1 claim, last team/a: ExitCode: \\u{202e}");
        assert_eq!((failing.state, failing.why.as_deref()), (ClassState::Failing, says));
        let slow = troubled(&class, false, &["no result for 120 s: 1"]);
        assert_eq!((slow.state, slow.why.as_deref()), (ClassState::Served, Some("no result for 120 s: 1")));
        let old = troubled(&Class { last_good: true, ..class }, true, &["failing: 1 claim"]);
        assert_eq!(old.state, ClassState::LastGood);
        assert!(old.why.is_some_and(|why| why.ends_with("stays in use; failing: 1 claim")));
    }

    #[test]
    fn a_class_shows_its_limits_and_pools_and_whether_it_is_served() {
        let class = testing::class(
            "gold",
            &[("max-in-flight", "4"), ("max-volumes", "9"), ("pool", "1Gi=2..5"), ("capabilities", "pool")],
        );
        let served = row(&class);
        assert_eq!((served.state, served.config.as_deref()), (ClassState::Served, Some("admin/gold")));
        let limits = Limits { runs: Some(4), volumes: Some(9), ..Limits::default() };
        assert_eq!(served.limits, limits);
        assert_eq!(served.pools, [PoolRow { size: "1Gi".into(), ready: 3, low: 2, high: 5 }]);
        assert_eq!((served.volumes, served.bytes.as_str()), (7, "7 GiB"));
        assert_eq!(served.hour, Hour { bound: 12, p50: Some(1.23), p95: None });
        let old = row(&Class { last_good: true, ..class.clone() });
        assert_eq!(old.state, ClassState::LastGood);
        assert!(old.why.is_some());
        let none = row(&Class { recipe: Err("image: is\u{202e} missing".into()), ..class });
        assert_eq!((none.state, none.why.as_deref()), (ClassState::NotServed, Some("image: is\\u{202e} missing")));
        assert_eq!((none.limits, none.pools), (Limits::default(), Vec::new()));
    }

    #[test]
    fn sizes_have_one_digit_behind_the_point() {
        for (bytes, text) in [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (7 << 30, "7 GiB"), (u128::MAX, "EiB")] {
            assert!(size(bytes).ends_with(text), "{bytes}: {}", size(bytes));
        }
    }

    #[test]
    fn policies_are_known_or_the_reason_is_shown() {
        assert_eq!(Policies::of(None).unknown.as_deref(), Some("they are being read"));
        assert_eq!(Policies::of(Some(&Err("forbidden".into()))).unknown.as_deref(), Some("forbidden"));
        let missing = Policies::of(Some(&Ok(policies::states(&[]))));
        assert!(!missing.policies.is_empty() && missing.unknown.is_none());
        assert!(missing.policies.iter().all(|row| !row.is_installed && row.without.is_some()));
    }

    #[test]
    fn claims_are_counted_by_state() {
        let mut counts = ClaimCounts::default();
        [Progress::Waiting, Progress::Failed, Progress::Failed].into_iter().for_each(|one| counts.add(one));
        assert_eq!(counts, ClaimCounts { waiting: 1, failed: 2, ..ClaimCounts::default() });
        assert_eq!(counts.all(), 3);
    }
}
