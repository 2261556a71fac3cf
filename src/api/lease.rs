//! Leader election: one of several replicas leads, by a Lease.
//!
//! Each write of the Lease carries the resourceVersion that was read, so that two replicas can never both win a term. A
//! replica judges the end of another's term by the time for which it saw the Lease unchanged. It never compares the
//! clocks of machines.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use flex_contract::names::{LEADER_VERSION, LOG_FILTER};
use flex_core::object::ObjectName;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::watch;

use super::fence::Fence;
use crate::metrics::Age;
use crate::state::ClusterState;

/// The time without a renewal after which a term ends.
pub const TERM: Duration = Duration::from_secs(15);
/// The time without a renewal after which a holder stops by itself, well before others may begin.
const RENEW_BY: Duration = Duration::from_secs(10);
/// The time between two reads of the Lease.
const LEASE_POLL: Duration = Duration::from_secs(2);

/// Returns the name of the leader; none between two leaders.
pub fn leader(lease: Option<&Lease>) -> Option<&str> {
    let spec = lease.and_then(|lease| lease.spec.as_ref());
    spec.and_then(|spec| spec.holder_identity.as_deref()).filter(|holder| !holder.is_empty())
}

/// Returns the version of the leader; none if it is too old to tell, or none leads.
pub fn version(lease: Option<&Lease>) -> Option<&str> {
    let holder = leader(lease)?;
    let (version, by) = lease?.metadata.annotations.as_ref()?.get(LEADER_VERSION)?.split_once(' ')?;
    (by == holder).then_some(version)
}

/// Checks that the leader has the version of this command. An older orchestrator ignores what newer commands write.
///
/// # Errors
/// If it has another version, or none leads. The text is for the admin.
pub fn verify_version(lease: Option<&Lease>) -> Result<(), String> {
    let own = env!("CARGO_PKG_VERSION");
    let Some(holder) = leader(lease) else {
        return Err("no orchestrator leads, so its version is not known: see --flex-namespace and --instance".into());
    };
    match version(lease) {
        Some(version) if version == own => Ok(()),
        Some(version) => Err(format!(
            "the orchestrator has version {version}, and this command {own}: use the command of the orchestrator's version"
        )),
        None => Err(format!(
            "the orchestrator {holder} is older than this command, and would ignore what the command writes: upgrade the orchestrator first"
        )),
    }
}

/// The Lease as it was last read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedLease {
    /// The holder; empty after a graceful stop.
    pub holder: String,
    /// The resourceVersion, which changes with each renewal.
    pub version: String,
    /// The time for which this process has seen that version.
    pub unchanged: Duration,
}

/// The next step of a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseStep {
    /// Creates the Lease, which does not exist.
    Create,
    /// Renews the candidate's own Lease.
    Renew,
    /// Takes the Lease, whose holder is gone.
    Take,
    /// Waits, because another replica leads.
    Wait,
}

/// A term: each replica that takes the Lease counts its transitions up.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    /// The UID of the Lease.
    lease: String,
    transitions: i32,
}

impl Term {
    fn of(lease: &Lease) -> Self {
        let transitions = lease.spec.as_ref().and_then(|spec| spec.lease_transitions);
        Term { lease: lease.metadata.uid.clone().unwrap_or_default(), transitions: transitions.unwrap_or_default() }
    }
}

/// What a candidate has written.
enum Written {
    /// The Lease, which it holds for this term.
    Lease(Term),
    /// Nothing, because another replica leads.
    Nothing,
    /// Nothing, because somebody else has written the Lease meanwhile.
    Conflict,
}

/// Decides the next step of a candidate: a pure function.
pub fn decide(observed: Option<&ObservedLease>, me: &str) -> LeaseStep {
    match observed {
        None => LeaseStep::Create,
        Some(observed) if observed.holder == me => LeaseStep::Renew,
        Some(observed) if observed.holder.is_empty() || observed.unchanged >= TERM => LeaseStep::Take,
        Some(_) => LeaseStep::Wait,
    }
}

/// Returns the time to wait, at most `requested`. It never passes the time at which a holder stops by itself. A
/// candidate that does not lead, or should have stopped already, waits for `requested`.
fn remaining(renewed: Option<Instant>, requested: Duration) -> Duration {
    let remaining = renewed.map(|at| RENEW_BY.saturating_sub(at.elapsed()));
    remaining.filter(|remaining| !remaining.is_zero()).map_or(requested, |remaining| remaining.min(requested))
}

/// A replica that competes for the Lease.
pub struct LeaderElector {
    api: Api<Lease>,
    name: String,
    me: String,
    leading: watch::Sender<bool>,
    /// The annotation with another log filter, as the Lease was last read.
    log_filter: watch::Sender<Option<String>>,
    holder: watch::Sender<String>,
    fence: Fence,
    renewed: Age,
    cluster: ClusterState,
}

impl LeaderElector {
    /// Makes a candidate with the name `me` for a Lease. The candidate leads when the receiver says so: meanwhile the queue of
    /// the cluster works, and the fence is open. `renewed` is the time since the candidate's last write of the Lease.
    pub fn new(
        client: Client,
        lease: ObjectName,
        me: String,
        fence: Fence,
        renewed: Age,
        cluster: ClusterState,
    ) -> (Self, watch::Receiver<bool>) {
        let (leading, receiver) = watch::channel(false);
        let (api, name) = (Api::namespaced(client, &lease.namespace), lease.name);
        let (holder, log_filter) = (watch::Sender::default(), watch::Sender::new(None));
        (LeaderElector { api, name, me, leading, log_filter, holder, fence, renewed, cluster }, receiver)
    }

    /// Returns the annotation of the Lease with another log filter, and its changes.
    pub fn log_filter(&self) -> watch::Receiver<Option<String>> {
        self.log_filter.subscribe()
    }

    /// Returns the holder that the Lease named when it was last read; empty if none did.
    pub fn holder(&self) -> watch::Receiver<String> {
        self.holder.subscribe()
    }

    /// Competes until `stop` says otherwise, then releases the Lease.
    pub async fn run(self, mut stop: watch::Receiver<bool>) {
        let mut observed: Option<(String, Instant)> = None;
        let (mut renewed, mut term): (Option<Instant>, Option<Term>) = (None, None);
        loop {
            // The term counts from before the write, because from then on others may see the Lease unchanged.
            let began = Instant::now();
            match tokio::time::timeout(remaining(renewed, LEASE_POLL * 2), self.poll(&mut observed)).await {
                Ok(Ok(Some(held))) => {
                    renewed = Some(began);
                    self.hold(&mut term, held, began);
                }
                Ok(Ok(None)) => {
                    renewed = None;
                    self.renewed.forget();
                    self.lead(false);
                }
                Ok(Err(error)) => tracing::warn!(%error, "the Lease could not be read or written"),
                Err(_) => tracing::warn!("the Lease could not be read or written in time"),
            }
            if renewed.is_some_and(|at| at.elapsed() >= RENEW_BY) {
                tracing::warn!("the Lease could not be renewed; work pauses until it can");
                renewed = None;
                self.lead(false);
            }
            let stopped = tokio::select! {
                () = tokio::time::sleep(remaining(renewed, LEASE_POLL)) => false,
                _ = stop.wait_for(|stop| *stop) => true,
            };
            if stopped {
                break;
            }
        }
        if *self.leading.borrow() {
            self.lead(false);
            self.renewed.forget();
            self.give_back().await;
        }
    }

    /// Leads from a write of the Lease on. `term` is the last in which this replica led.
    ///
    /// Whoever takes the Lease counts its transitions up, by a write that rests on the Lease's version. So while Lease and
    /// count stay the same, nobody else has led, even if this replica paused because it could not renew: what it knows of its
    /// Jobs is still true, and the term goes on. Otherwise the ledgers would forget the Jobs that it created, and close them.
    fn hold(&self, term: &mut Option<Term>, held: Term, began: Instant) {
        let goes_on = term.as_ref() == Some(&held);
        if !goes_on {
            self.lead(false);
        }
        // The ledgers are those of the term before any of its writes can pass the fence.
        if !*self.leading.borrow() {
            match goes_on {
                true => self.cluster.resume_term(),
                false => self.cluster.begin_term(),
            }
        }
        *term = Some(held);
        self.fence.open(began + RENEW_BY);
        self.renewed.begin(began);
        self.lead(true);
    }

    fn lead(&self, leads: bool) {
        if !leads {
            self.fence.close();
        }
        let changed = self.leading.send_if_modified(|leading| std::mem::replace(leading, leads) != leads);
        if changed && !leads {
            self.cluster.queue.pause();
        }
        if changed {
            tracing::info!(me = self.me, leads, "leadership changed");
        }
    }

    /// Reads the Lease, and takes one step. Returns the term, if this candidate leads.
    async fn poll(&self, observed: &mut Option<(String, Instant)>) -> Result<Option<Term>, kube::Error> {
        match self.step(observed).await? {
            Written::Conflict => {}
            Written::Lease(term) => return Ok(Some(term)),
            Written::Nothing => return Ok(None),
        }
        // Somebody else wrote first: another replica, or an admin who annotates the Lease. The holder says which.
        match self.step(observed).await? {
            Written::Lease(term) => Ok(Some(term)),
            Written::Nothing | Written::Conflict => Ok(None),
        }
    }

    /// Reads the Lease once, and takes one step.
    async fn step(&self, observed: &mut Option<(String, Instant)>) -> Result<Written, kube::Error> {
        let lease = self.api.get_opt(&self.name).await?;
        let annotations = lease.as_ref().and_then(|lease| lease.metadata.annotations.as_ref());
        let log_filter = annotations.and_then(|annotations| annotations.get(LOG_FILTER).cloned());
        self.log_filter.send_if_modified(|known| std::mem::replace(known, log_filter.clone()) != log_filter);
        let view = lease.as_ref().map(|lease| {
            let version = lease.metadata.resource_version.clone().unwrap_or_default();
            if observed.as_ref().is_none_or(|(before, _)| *before != version) {
                *observed = Some((version.clone(), Instant::now()));
            }
            let unchanged = observed.as_ref().map_or(Duration::ZERO, |(_, at)| at.elapsed());
            let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.clone()).unwrap_or_default();
            ObservedLease { holder, version, unchanged }
        });
        let holder = view.as_ref().map(|view| view.holder.clone()).unwrap_or_default();
        self.holder.send_if_modified(|known| std::mem::replace(known, holder.clone()) != holder);
        let wanted = |before: Option<Lease>, takes: bool| {
            let spec = before.as_ref().and_then(|lease| lease.spec.clone()).unwrap_or_default();
            let now = MicroTime(jiff::Timestamp::now());
            let new = || ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
            Lease {
                metadata: with_version(before.map_or_else(new, |lease| lease.metadata), &self.me),
                spec: Some(LeaseSpec {
                    holder_identity: Some(self.me.clone()),
                    lease_duration_seconds: Some(TERM.as_secs() as i32),
                    acquire_time: if takes { Some(now.clone()) } else { spec.acquire_time },
                    renew_time: Some(now),
                    lease_transitions: Some(spec.lease_transitions.unwrap_or(0) + i32::from(takes)),
                    ..LeaseSpec::default()
                }),
            }
        };
        let written = match decide(view.as_ref(), &self.me) {
            LeaseStep::Wait => return Ok(Written::Nothing),
            LeaseStep::Create => self.api.create(&PostParams::default(), &wanted(None, true)).await,
            LeaseStep::Renew => self.api.replace(&self.name, &PostParams::default(), &wanted(lease, false)).await,
            LeaseStep::Take => self.api.replace(&self.name, &PostParams::default(), &wanted(lease, true)).await,
        };
        match written {
            Ok(lease) => Ok(Written::Lease(Term::of(&lease))),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(Written::Conflict),
            Err(error) => Err(error),
        }
    }

    /// Releases the Lease, so that a standby need not wait for the end of the term.
    async fn give_back(&self) {
        let Ok(Some(mut lease)) = self.api.get_opt(&self.name).await else { return };
        let spec = lease.spec.get_or_insert_default();
        if spec.holder_identity.as_deref() == Some(&self.me) {
            spec.holder_identity = Some(String::new());
            if let Err(error) = self.api.replace(&self.name, &PostParams::default(), &lease).await {
                tracing::debug!(%error, "the Lease was not released");
            }
        }
    }
}

fn with_version(mut metadata: ObjectMeta, me: &str) -> ObjectMeta {
    let version = format!("{} {me}", env!("CARGO_PKG_VERSION"));
    metadata.annotations.get_or_insert_with(BTreeMap::new).insert(LEADER_VERSION.to_owned(), version);
    metadata
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use kube::client::Body;

    use super::*;
    use crate::clock::Clock;
    use crate::state::testing::default_identity;

    #[test]
    fn a_command_writes_only_for_a_leader_of_its_own_version() {
        let lease = |holder: &str, written: Option<&str>| {
            let annotations = written.map(|text| BTreeMap::from([(LEADER_VERSION.to_owned(), text.to_owned())]));
            Lease {
                metadata: ObjectMeta { annotations, ..ObjectMeta::default() },
                spec: Some(LeaseSpec { holder_identity: Some(holder.into()), ..LeaseSpec::default() }),
            }
        };
        let own = with_version(ObjectMeta::default(), "a").annotations.unwrap()[LEADER_VERSION].clone();
        assert_eq!(verify_version(Some(&lease("a", Some(&own)))), Ok(()));
        assert_eq!(version(Some(&lease("a", Some("0.0.1 a")))), Some("0.0.1"));
        assert_eq!(version(Some(&lease("b", Some(&own)))), None);
        for (lease, says) in [
            (Some(lease("a", Some("0.0.1 a"))), "has version 0.0.1"),
            // An older program took the Lease over, and left the annotation of the newer.
            (Some(lease("b", Some(&own))), "the orchestrator b is older"),
            (Some(lease("b", None)), "the orchestrator b is older"),
            (Some(lease("", Some(&own))), "no orchestrator leads"),
            (None, "no orchestrator leads"),
        ] {
            assert!(verify_version(lease.as_ref()).is_err_and(|why| why.contains(says)), "{says}");
        }
    }

    #[tokio::test]
    async fn the_ledgers_are_those_of_a_term_when_its_writes_pass_and_a_pause_ends_no_term() {
        let cluster = ClusterState::new(default_identity(), Clock::default());
        cluster.queue.pause();
        let fence = Fence::default();
        let silent = |_: http::Request<Body>| std::future::pending::<Result<http::Response<Body>, Infallible>>();
        let client = Client::new(tower::service_fn(silent), "own");
        let lease = ObjectName::new("own", "lease");
        let (elector, leading) =
            LeaderElector::new(client, lease, "me".into(), fence.clone(), Age::default(), cluster.clone());
        let held = |lease: &str, transitions| Term { lease: lease.into(), transitions };
        let mut term = None;
        let mut number = cluster.index().term();
        // Another replica took the Lease in between, or it was deleted.
        for next in [held("uid", 1), held("uid", 3), held("another", 3)] {
            elector.hold(&mut term, next.clone(), Instant::now());
            number += 1;
            assert_eq!((fence.is_open(), *leading.borrow(), cluster.index().term()), (true, true, number));
            assert!(!cluster.index_mut().begin_opening("job", "pod"), "the answer was of another term");
            cluster.index_mut().record_answer("job".into());
            elector.hold(&mut term, next.clone(), Instant::now());
            // It cannot renew for a while.
            elector.lead(false);
            assert_eq!((fence.is_open(), *leading.borrow()), (false, false));
            elector.hold(&mut term, next, Instant::now());
            assert_eq!((fence.is_open(), *leading.borrow(), cluster.index().term()), (true, true, number));
            assert!(cluster.index_mut().begin_opening("job", "pod"), "the Job is still its own");
        }
    }

    #[test]
    fn a_holder_wakes_when_it_has_to_stop() {
        let ago = |seconds: u64| Instant::now().checked_sub(Duration::from_secs(seconds));
        assert_eq!(remaining(None, LEASE_POLL), LEASE_POLL);
        assert_eq!(remaining(ago(1), LEASE_POLL), LEASE_POLL);
        assert!(remaining(ago(9), LEASE_POLL) <= Duration::from_secs(1));
        assert_eq!(remaining(ago(30), LEASE_POLL), LEASE_POLL, "the holder has stopped, and need not hurry");
    }

    #[test]
    fn each_row_of_the_table_holds() {
        let observed = |holder: &str, unchanged: u64| ObservedLease {
            holder: holder.into(),
            version: "1".into(),
            unchanged: Duration::from_secs(unchanged),
        };
        assert_eq!(decide(None, "a"), LeaseStep::Create);
        assert_eq!(decide(Some(&observed("a", 100)), "a"), LeaseStep::Renew);
        assert_eq!(decide(Some(&observed("b", 14)), "a"), LeaseStep::Wait);
        assert_eq!(decide(Some(&observed("b", 15)), "a"), LeaseStep::Take);
        assert_eq!(decide(Some(&observed("", 0)), "a"), LeaseStep::Take);
    }
}
