//! `export-traces --watch`: sends each attempt when it has ended.

use std::collections::HashMap;
use std::time::Duration;

use flex_provisioner::api::says;
use flex_provisioner::api::trimmed::Trimmed;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Api;
use kube::runtime::watcher::{self, Event, watcher};
use tokio::signal::unix::{SignalKind, signal};
use uuid::Uuid;

use super::claims::{CLAIMS, Claims};
use super::collector::{Collector, Refused};
use super::ended::{Ended, Progress};
use super::spans;
use crate::out::{remark, say};

/// The longest time for which ended attempts wait for others, so that they are sent together.
const GATHER: Duration = Duration::from_secs(1);
/// The time before a collector that did not answer is tried again.
const RETRY: Duration = Duration::from_secs(10);
/// The largest number of claims that wait for the collector.
const WAITING: usize = 10_000;

/// The claims that were sent, and those that wait for the collector.
#[derive(Default)]
struct Ledger {
    sent: HashMap<Uuid, Progress>,
    waiting: HashMap<Uuid, Ended>,
    /// How many changes were left out because too many claims wait.
    dropped: usize,
}

impl Ledger {
    /// Takes a claim that has changed, if an attempt has ended since.
    fn changed(&mut self, mut ended: Ended) {
        let sent = self.sent.get(&ended.uid);
        if sent == Some(&ended.progress()) {
            return;
        }
        ended.sent = sent.map_or(0, |sent| sent.last_failed);
        if self.waiting.len() >= WAITING && !self.waiting.contains_key(&ended.uid) {
            self.dropped += 1;
            return;
        }
        self.waiting.insert(ended.uid, ended);
    }

    /// Forgets a claim that is gone. Its last attempt is sent all the same.
    fn gone(&mut self, uid: &Uuid) {
        self.sent.remove(uid);
    }

    /// Takes claims that wait.
    fn next(&mut self) -> Vec<Ended> {
        let uids: Vec<_> = self.waiting.keys().take(CLAIMS).copied().collect();
        uids.iter().filter_map(|uid| self.waiting.remove(uid)).collect()
    }
}

/// Sends attempts as they end, until the process is ended.
///
/// # Errors
/// If the claims cannot be listed.
pub(super) async fn follow(
    api: &Api<Trimmed<PersistentVolumeClaim>>,
    claims: &Claims,
    collector: &Collector,
    instance: &str,
) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        biased;
        interrupted = tokio::signal::ctrl_c() => Ok(interrupted?),
        _ = terminate.recv() => Ok(()),
        failed = run(api, claims, collector, instance) => failed,
    }
}

async fn run(
    api: &Api<Trimmed<PersistentVolumeClaim>>,
    claims: &Claims,
    collector: &Collector,
    instance: &str,
) -> anyhow::Result<()> {
    let config = watcher::Config {
        field_selector: claims.name.as_ref().map(|name| format!("metadata.name={name}")),
        ..watcher::Config::default()
    };
    let mut changes = watcher(api.clone(), config.clone()).boxed();
    let mut ledger = Ledger::default();
    let mut due = tokio::time::interval(GATHER);
    loop {
        tokio::select! {
            change = changes.try_next() => match change {
                Ok(Some(Event::Apply(claim) | Event::InitApply(claim))) => {
                    if let Some(ended) = Ended::of(&claim.0) {
                        ledger.changed(ended);
                    }
                }
                Ok(Some(Event::Delete(claim))) => {
                    if let Some(ended) = Ended::of(&claim.0) {
                        ledger.gone(&ended.uid);
                    }
                }
                Ok(Some(Event::Init | Event::InitDone)) => {}
                Ok(None) => return Ok(()),
                Err(error) if is_refused(&error) => return Err(anyhow::Error::new(error).context("the claims cannot be watched")),
                Err(error) => remark!("the claims cannot be watched now: {}", says::causes(&error.into())),
            },
            _ = due.tick() => match send(&mut ledger, collector, instance).await {
                false => due.reset_after(RETRY),
                // A new list shows the claims that were left out.
                true if std::mem::take(&mut ledger.dropped) > 0 => changes = watcher(api.clone(), config.clone()).boxed(),
                true => {}
            }
        }
    }
}

/// Checks whether the API server refuses the watch for lack of a right.
fn is_refused(error: &watcher::Error) -> bool {
    let (watcher::Error::InitialListFailed(kube::Error::Api(status))
    | watcher::Error::WatchStartFailed(kube::Error::Api(status))) = error
    else {
        return false;
    };
    status.code == 401 || status.code == 403
}

/// Sends what waits. Returns whether the collector took it.
async fn send(ledger: &mut Ledger, collector: &Collector, instance: &str) -> bool {
    loop {
        let ended = ledger.next();
        if ended.is_empty() {
            return true;
        }
        let all = spans::spans(&ended);
        let number = all.len();
        match collector.send(spans::request(all, instance)).await {
            Ok(refused) => {
                say!("{}", collector.sent(ended.len(), number));
                if let Some(Refused { number, message }) = refused {
                    remark!("the collector refused {number} spans: {message}");
                }
                ledger.sent.extend(ended.iter().map(|ended| (ended.uid, ended.progress())));
            }
            Err(error) => {
                remark!("{}; the next try is in {} s", says::causes(&error), RETRY.as_secs());
                // A newer state of a claim waits already.
                for ended in ended {
                    ledger.waiting.entry(ended.uid).or_insert(ended);
                }
                if ledger.dropped > 0 {
                    remark!(
                        "more than {WAITING} claims wait for the collector: the command sends the others after these"
                    );
                }
                return false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use flex_contract::names;
    use serde_json::json;

    use super::*;

    /// Returns a claim whose attempts failed, up to this one.
    fn ended(number: usize, attempts: u32) -> Ended {
        let uid = Uuid::from_u128(number as u128 + 1).to_string();
        let created = "2026-01-01T00:00:00Z";
        let attempt = |attempt: u32| json!({ "attempt": attempt, "created": 1_767_225_600_000i64, "ms": { "failed": 1 }, "reason": "r", "message": "m" });
        let failed = json!({ "attempts": (1..=attempts).map(attempt).collect::<Vec<_>>() });
        let annotations = json!({
            names::CLAIM_UID: uid, names::ATTEMPT: attempts.to_string(), names::FAILED_ATTEMPTS: failed.to_string(),
        });
        let metadata = json!({
            "name": "a", "namespace": "team", "uid": uid, "creationTimestamp": created, "annotations": annotations,
        });
        let claim = serde_json::from_value(json!({ "metadata": metadata, "spec": {} })).unwrap();
        Ended::of(&claim).expect("an attempt has ended")
    }

    #[test]
    fn a_claim_waits_again_when_a_further_attempt_has_ended() {
        let mut ledger = Ledger::default();
        ledger.changed(ended(1, 1));
        let [first] = &ledger.next()[..] else { panic!("one claim waits") };
        ledger.sent.insert(first.uid, first.progress());
        ledger.changed(ended(1, 1));
        assert!(ledger.next().is_empty(), "nothing new has ended");
        ledger.changed(ended(1, 2));
        assert_eq!(ledger.next().iter().map(|ended| ended.sent).collect::<Vec<_>>(), [1]);
        ledger.gone(&first.uid);
        assert!(ledger.sent.is_empty());
    }

    #[test]
    fn a_collector_that_is_away_for_long_costs_no_more_memory() {
        let mut ledger = Ledger::default();
        (0..WAITING + 5).for_each(|number| ledger.changed(ended(number, 1)));
        ledger.changed(ended(0, 2));
        assert_eq!((ledger.waiting.len(), ledger.dropped), (WAITING, 5), "a claim that waits already is replaced");
        assert_eq!(ledger.next().len(), CLAIMS);
    }
}
