//! Pools: volumes that are made before claims ask for them, so that a claim gets one at once.
//!
//! A pooled volume begins as a *pool request*: a claim of the class in the orchestrator's own namespace. It is
//! reconciled like all claims, except for its end. The orchestrator adopts its volume without a claim, reserved for
//! nobody, and deletes the request. From then on the volume is *ready*, until the orchestrator assigns it to a claim.
//! To *drain* a volume, the orchestrator assigns it to a claim that cannot exist, and the volume is deleted like a
//! released one.
//!
//! [`decide`] is a pure function of the pool's volumes and requests. All [rules](Rule) that hold give their steps.

use strum::{EnumMessage, IntoStaticStr, VariantArray};

use crate::config::pool::Pool;
use crate::object::ObjectName;
use crate::rules::{self, Rule as _};

/// A pooled volume that is ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PooledVolume {
    /// The name of the volume.
    pub name: String,
    /// The size of the volume, in bytes.
    pub size: u64,
    /// The volume is like those that the class makes now, and is not terminating.
    pub right: bool,
    /// A claim could have the volume now, because its node answers.
    pub usable: bool,
}

/// A pool request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolRequest {
    /// The name of the request, which is a claim.
    pub name: ObjectName,
    /// The requested size, in bytes.
    pub size: u64,
    /// An attempt has begun.
    pub begun: bool,
    /// The request is about to be gone, and leaves a ready volume.
    pub has_volume: bool,
}

/// The observation on which the decision rests. Requests that are terminating and leave no volume do not count.
#[derive(Clone, Debug, Default)]
pub struct Observed<'a> {
    /// The pool of the class, by its config; `None` for no pool.
    pub pool: Option<&'a Pool>,
    /// The ready volumes.
    pub pooled: &'a [PooledVolume],
    /// The requests.
    pub requests: &'a [PoolRequest],
    /// The number of claims that the quota would admit without the pool, and for which nothing is being freed yet.
    pub claims_blocked_by_pool: usize,
    /// A claim waits for quota or for a slot.
    pub has_waiting_claims: bool,
    /// The number of further volumes that the quota admits. Requests that have not begun do not count as used.
    pub volumes_free: Option<u64>,
    /// The same in bytes.
    pub bytes_free: Option<u64>,
}

/// A step for a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Drains a volume.
    Drain(String),
    /// Deletes a request.
    DeleteRequest(ObjectName),
    /// Creates requests.
    CreateRequests {
        /// The size of the volumes, in bytes.
        size: u64,
        /// The number of requests.
        count: usize,
    },
}

/// The rules of a pool. All that hold apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumMessage, IntoStaticStr, VariantArray)]
pub enum Rule {
    /// A ready volume is terminating, has a size that is not in the pool, or differs from new ones. Drains the volume.
    VolumeOutdated,
    /// The size of a request is not in the pool. Deletes the request.
    SizeNotInPool,
    /// The quota of the class does not allow a request that has not begun. Deletes the request.
    RequestAboveQuota,
    /// There is more of a size than the high watermark, and a request has not begun. Deletes the request.
    RequestAboveWatermark,
    /// There is more of a size than the high watermark, with all requests that have begun. Drains a volume.
    VolumeAboveWatermark,
    /// The quota allows a claim only without the pool, and a request has not begun. Deletes the request.
    RequestBlocksClaim,
    /// The quota allows a claim only without the pool. Drains a volume.
    VolumeBlocksClaim,
    /// There is less of a size than the low watermark, and no claim waits. Creates requests, up to the high watermark,
    /// as far as `pool-max-bytes` and the quota of the class allow.
    BelowWatermark,
}

rules::table!(Rule, Step, "pool");

/// A decision about a pool.
pub type Decision = rules::Decision<Rule>;

fn drain(rule: Rule, pooled: &PooledVolume) -> Decision {
    rule.step(Step::Drain(pooled.name.clone()))
}

fn withdraw(rule: Rule, request: &PoolRequest) -> Decision {
    rule.step(Step::DeleteRequest(request.name.clone()))
}

/// Decides the next steps for a class's pool.
pub fn decide(o: &Observed<'_>) -> Vec<Decision> {
    let kept = |size: &u64| o.pool.and_then(|pool| pool.sizes.get(size));
    let is_wrong = |pooled: &&PooledVolume| !pooled.right || kept(&pooled.size).is_none();
    let mut steps: Vec<Decision> =
        o.pooled.iter().filter(is_wrong).map(|pooled| drain(Rule::VolumeOutdated, pooled)).collect();
    let unwanted = o.requests.iter().filter(|request| kept(&request.size).is_none() && !request.has_volume);
    steps.extend(unwanted.map(|request| withdraw(Rule::SizeNotInPool, request)));
    let Some(pool) = o.pool else { return steps };
    let mut bytes = 0u64;
    let mut volumes_left = o.volumes_free;
    let mut bytes_left = o.bytes_free;
    let open = |request: &&PoolRequest| !request.begun;
    for request in o.requests.iter().filter(open).filter(|request| kept(&request.size).is_some()) {
        let fits = volumes_left.is_none_or(|remaining| remaining > 0)
            && bytes_left.is_none_or(|remaining| remaining >= request.size);
        if !fits {
            steps.push(withdraw(Rule::RequestAboveQuota, request));
            continue;
        }
        volumes_left = volumes_left.map(|remaining| remaining - 1);
        bytes_left = bytes_left.map(|remaining| remaining - request.size);
    }
    let mut asks = Vec::new();
    for (size, watermarks) in &pool.sizes {
        let right: Vec<&PooledVolume> = o.pooled.iter().filter(|pooled| pooled.size == *size && pooled.right).collect();
        let requests: Vec<&PoolRequest> = o.requests.iter().filter(|request| request.size == *size).collect();
        let usable: Vec<&PooledVolume> = right.iter().copied().filter(|pooled| pooled.usable).collect();
        let count = usable.len() + requests.len();
        let surplus = count.saturating_sub(watermarks.high);
        let withdrawn: Vec<_> = requests.iter().copied().filter(open).rev().take(surplus).collect();
        steps.extend(withdrawn.iter().map(|request| withdraw(Rule::RequestAboveWatermark, request)));
        let drained = surplus - withdrawn.len();
        let drained = usable.iter().rev().take(drained);
        steps.extend(drained.map(|pooled| drain(Rule::VolumeAboveWatermark, pooled)));
        bytes = bytes.saturating_add(size.saturating_mul((right.len() + requests.len()) as u64));
        if count < watermarks.low {
            asks.push(Missing { size: *size, count: watermarks.high - count });
        }
    }
    if o.claims_blocked_by_pool > 0 {
        steps.extend(o.requests.iter().filter(open).map(|request| withdraw(Rule::RequestBlocksClaim, request)));
        let mut largest: Vec<&PooledVolume> = o.pooled.iter().filter(|pooled| pooled.right).collect();
        largest.sort_by(|a, b| (b.size, &b.name).cmp(&(a.size, &a.name)));
        let drained = largest.iter().take(o.claims_blocked_by_pool);
        steps.extend(drained.map(|pooled| drain(Rule::VolumeBlocksClaim, pooled)));
    }
    if o.has_waiting_claims || o.claims_blocked_by_pool > 0 {
        return once(steps);
    }
    steps.extend(create(asks, pool.max_bytes.map(|most| most.saturating_sub(bytes)), volumes_left, bytes_left));
    once(steps)
}

/// The requests of one size that are missing.
struct Missing {
    /// The size, in bytes.
    size: u64,
    count: usize,
}

/// Creates the missing requests of each size, as many as the pool's bytes and the quota allow.
fn create(
    missing: Vec<Missing>,
    mut pool_bytes_left: Option<u64>,
    mut volumes_left: Option<u64>,
    mut bytes_left: Option<u64>,
) -> Vec<Decision> {
    let mut decisions = Vec::new();
    for Missing { size, count: missing } in missing {
        let by_bytes = |remaining: u64| usize::try_from(remaining / size).unwrap_or(usize::MAX);
        let count = [
            Some(missing),
            pool_bytes_left.map(by_bytes),
            volumes_left.map(|remaining| usize::try_from(remaining).unwrap_or(usize::MAX)),
            bytes_left.map(by_bytes),
        ];
        let count = count.into_iter().flatten().min().unwrap_or_default();
        if count == 0 {
            continue;
        }
        let asked = size.saturating_mul(count as u64);
        pool_bytes_left = pool_bytes_left.map(|remaining| remaining - asked);
        volumes_left = volumes_left.map(|remaining| remaining - count as u64);
        bytes_left = bytes_left.map(|remaining| remaining - asked);
        decisions.push(Rule::BelowWatermark.step(Step::CreateRequests { size, count }));
    }
    decisions
}

/// Removes duplicate steps. The first rule of each remains.
fn once(decisions: Vec<Decision>) -> Vec<Decision> {
    let mut distinct: Vec<Decision> = Vec::new();
    for decision in decisions {
        if distinct.iter().all(|other| other.step != decision.step) {
            distinct.push(decision);
        }
    }
    distinct
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use std::collections::BTreeMap;

    use super::*;
    use crate::config::pool::Watermarks;

    fn pool(sizes: &[(u64, usize, usize)]) -> Pool {
        let sizes = sizes.iter().map(|(size, low, high)| (*size, Watermarks { low: *low, high: *high })).collect();
        Pool { sizes, max_bytes: None, in_flight: None, hash: "k".into() }
    }

    fn pooled(name: &str, size: u64) -> PooledVolume {
        PooledVolume { name: name.into(), size, right: true, usable: true }
    }

    fn request(name: &str, size: u64, begun: bool) -> PoolRequest {
        PoolRequest { name: ObjectName::new("own", name), size, begun, has_volume: false }
    }

    fn drain(rule: Rule, name: &str) -> Decision {
        rule.step(Step::Drain(name.into()))
    }

    fn withdraw(rule: Rule, name: &str) -> Decision {
        rule.step(Step::DeleteRequest(ObjectName::new("own", name)))
    }

    fn create(count: usize) -> Decision {
        Rule::BelowWatermark.step(Step::CreateRequests { size: 10, count })
    }

    #[test]
    fn a_pool_below_its_low_mark_is_filled_to_its_high_mark() {
        let pool = pool(&[(10, 2, 5)]);
        let with = |pooled: &[PooledVolume], requests: &[PoolRequest]| {
            decide(&Observed { pool: Some(&pool), pooled, requests, ..Observed::default() })
        };
        assert_eq!(with(&[], &[]), [create(5)]);
        assert_eq!(with(&[pooled("a", 10)], &[]), [create(4)]);
        assert_eq!(with(&[pooled("a", 10), pooled("b", 10)], &[]), [], "between the marks nothing is done");
        assert_eq!(with(&[pooled("a", 10)], &[request("r", 10, true)]), []);
        let away = PooledVolume { usable: false, ..pooled("a", 10) };
        assert_eq!(with(&[away, pooled("b", 10)], &[]), [create(4)], "nobody could have it");
    }

    #[test]
    fn surplus_and_mismatched_volumes_are_drained() {
        let pool = pool(&[(10, 1, 1)]);
        let with = |pool, pooled: &[PooledVolume], requests: &[PoolRequest]| {
            decide(&Observed { pool, pooled, requests, ..Observed::default() })
        };
        let away = PooledVolume { usable: false, ..pooled("b", 10) };
        let begun = [request("r", 10, true)];
        assert_eq!(
            with(Some(&pool), &[pooled("a", 10), away], &begun),
            [drain(Rule::VolumeAboveWatermark, "a")],
            "what counts is too much"
        );
        let wrong = PooledVolume { right: false, ..pooled("a", 10) };
        assert_eq!(with(Some(&pool), &[wrong, pooled("b", 10)], &[]), [drain(Rule::VolumeOutdated, "a")]);
        assert_eq!(with(Some(&pool), &[pooled("a", 10), pooled("b", 20)], &[]), [drain(Rule::VolumeOutdated, "b")]);
        assert_eq!(
            with(Some(&pool), &[pooled("a", 10), pooled("b", 10)], &[]),
            [drain(Rule::VolumeAboveWatermark, "b")]
        );
        let requests = [request("r", 10, true), request("s", 10, false), request("t", 20, false)];
        let surplus = [withdraw(Rule::SizeNotInPool, "t"), withdraw(Rule::RequestAboveWatermark, "s")];
        assert_eq!(with(Some(&pool), &[], &requests), surplus, "what has begun stays");
        let all = [drain(Rule::VolumeOutdated, "a"), withdraw(Rule::SizeNotInPool, "r")];
        assert_eq!(with(None, &[pooled("a", 10)], &requests[..1]), all);
        let terminating = [PoolRequest { has_volume: true, ..requests[0].clone() }];
        assert_eq!(with(None, &[], &terminating), [], "it goes by itself");
        assert_eq!(with(Some(&pool), &[], &terminating), [], "and leaves a volume");
    }

    #[test]
    fn claims_come_before_the_pool() {
        let pool = pool(&[(10, 3, 3), (20, 1, 1)]);
        let volumes = [pooled("a", 10), pooled("b", 20)];
        let requests = [request("r", 10, false)];
        let observed = Observed { pool: Some(&pool), pooled: &volumes, requests: &requests, ..Observed::default() };
        let waits = Observed { has_waiting_claims: true, ..observed.clone() };
        assert_eq!(decide(&waits), [], "while a claim waits nothing is asked for");
        let kept_out = Observed { has_waiting_claims: true, claims_blocked_by_pool: 1, ..observed.clone() };
        let freeing = [withdraw(Rule::RequestBlocksClaim, "r"), drain(Rule::VolumeBlocksClaim, "b")];
        assert_eq!(decide(&kept_out), freeing);
        let by_volumes = Observed { volumes_free: Some(2), ..observed.clone() };
        assert_eq!(decide(&by_volumes), [create(1)], "one is asked for already");
        let by_bytes = Observed { bytes_free: Some(15), ..observed.clone() };
        assert_eq!(decide(&by_bytes), []);
        let full = Observed { volumes_free: Some(0), ..observed.clone() };
        assert_eq!(decide(&full), [withdraw(Rule::RequestAboveQuota, "r")], "the quota does not allow it");
        let bounded = Pool { max_bytes: Some(45), ..pool.clone() };
        assert_eq!(
            decide(&Observed { pool: Some(&bounded), ..observed }),
            [],
            "30 of 45 and the request's 10 are taken"
        );
    }

    #[test]
    fn a_pool_uses_a_quarter_of_the_slots_or_its_own_limit() {
        let pool = pool(&[(10, 1, 1)]);
        assert_eq!([1, 3, 8, 100].map(|pooled| pool.slots(pooled)), [1, 1, 2, 25]);
        let says = Pool { in_flight: Some(50), ..pool };
        assert_eq!([10, 100].map(|pooled| says.slots(pooled)), [10, 50]);
    }

    prop_compose! {
        fn observed()(
            sizes in prop::collection::btree_map(1u64..4, (1usize..4, 0usize..4), 0..3),
            max_bytes in prop::option::of(0u64..30),
            ready in prop::collection::vec((1u64..5, any::<bool>(), any::<bool>()), 0..8),
            requests in prop::collection::vec((1u64..5, any::<bool>()), 0..6),
            (kept_out, waits) in (0usize..3, any::<bool>()),
            (volumes_left, bytes_left) in (prop::option::of(0u64..8), prop::option::of(0u64..20)),
        ) -> (Option<Pool>, Vec<PooledVolume>, Vec<PoolRequest>, usize, bool, Option<u64>, Option<u64>) {
            let sizes: BTreeMap<_, _> =
                sizes.into_iter().map(|(size, (low, more))| (size, Watermarks { low, high: low + more })).collect();
            let pool = (!sizes.is_empty()).then(|| Pool { sizes, max_bytes, in_flight: None, hash: "k".into() });
            let ready = ready.into_iter().enumerate();
            let ready = ready.map(|(n, (size, right, usable))| PooledVolume { name: format!("v{n}"), size, right, usable });
            let requests = requests.into_iter().enumerate();
            let requests = requests.map(|(n, (size, begun))| request(&format!("r{n}"), size, begun));
            (pool, ready.collect(), requests.collect(), kept_out, waits || kept_out > 0, volumes_left, bytes_left)
        }
    }

    proptest! {
        #[test]
        fn a_pool_comes_to_rest_within_its_bounds(
            (pool, mut ready, mut requests, kept_out, claims_wait, volumes_left, bytes_left) in observed()
        ) {
            let at = Observed {
                pool: pool.as_ref(), pooled: &ready, requests: &requests, claims_blocked_by_pool: kept_out, has_waiting_claims: claims_wait, volumes_free: volumes_left, bytes_free: bytes_left,
            };
            let steps: Vec<Step> = decide(&at).into_iter().map(|decision| decision.step).collect();
            for (n, step) in steps.iter().enumerate() {
                prop_assert!(!steps[..n].contains(step), "{:?} twice", step);
            }
            let asked: u64 = steps.iter().map(|step| match step {
                Step::CreateRequests { size, count } => size * *count as u64,
                _ => 0,
            }).sum();
            prop_assert!(asked == 0 || !claims_wait);
            let has: u64 = ready.iter().filter(|r| r.right).map(|r| r.size).sum();
            let most = pool.as_ref().and_then(|pool| pool.max_bytes);
            prop_assert!(asked == 0 || most.is_none_or(|most| asked <= most), "{asked} of {most:?}, {has} are there");
            // After the steps, the pool is full, or waits for the claims.
            let mut next = 0;
            for step in steps {
                match step {
                    Step::Drain(name) => ready.retain(|ready| ready.name != name),
                    Step::DeleteRequest(name) => requests.retain(|request| request.name != name),
                    Step::CreateRequests { size, count } => for _ in 0..count {
                        requests.push(request(&format!("n{next}"), size, true));
                        next += 1;
                    },
                }
            }
            let after = Observed {
                pool: pool.as_ref(), pooled: &ready, requests: &requests, claims_blocked_by_pool: 0, has_waiting_claims: true, ..Observed::default()
            };
            prop_assert_eq!(decide(&after), vec![]);
        }
    }
}
