//! No claim ever gets the phase Lost, however late the PV controller learns of its volume.
//!
//! The PV controller sets the phase Lost on a claim that is completely bound and whose volume is not in the
//! controller's cache. A proxy between the controller manager and the API server delays the watch of volumes.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cluster::{Cluster, Component};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Event, PersistentVolume, PersistentVolumeClaim};
use kube::ResourceExt;
use kube::api::ListParams;
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::json;

use crate::node::Node;
use crate::proxy::Proxy;
use orchestrator::ring::{Ring, USER, phase};
use orchestrator::wait::{unexpected, until};

/// Claims of a burst.
const BURST: usize = 50;
/// The delays with which the PV controller learns of a volume.
const DELAYS: [Duration; 4] =
    [Duration::ZERO, Duration::from_millis(100), Duration::from_millis(700), Duration::from_secs(2)];

/// The observations of a burst, with their times.
#[derive(Default)]
struct Story {
    /// The phases of each claim, in their order.
    phases: BTreeMap<String, Vec<String>>,
    bound: BTreeMap<String, Instant>,
    /// The time at which the volume of a claim's UID appeared.
    made: BTreeMap<String, Instant>,
}

impl Story {
    fn claim(&mut self, claim: &PersistentVolumeClaim) {
        let (uid, phase) = (claim.uid().unwrap_or_default(), phase(claim));
        let phases = self.phases.entry(claim.name_any()).or_default();
        if phases.last() != Some(&phase) {
            phases.push(phase.clone());
        }
        if phase == "Bound" {
            self.bound.entry(uid).or_insert_with(Instant::now);
        }
    }

    fn volume(&mut self, volume: &PersistentVolume) {
        let name = volume.name_any();
        let uid = name.strip_prefix(flex_contract::names::PV_PREFIX).unwrap_or_default();
        self.made.entry(uid.to_owned()).or_insert_with(Instant::now);
    }

    /// Returns the times from the volume's creation to the claim's binding, of claims bound since a moment; sorted.
    fn latencies(&self, since: Instant) -> Vec<Duration> {
        let bound = self.bound.iter().filter(|(_, at)| **at >= since);
        let mut all: Vec<_> =
            bound.filter_map(|(uid, at)| Some(at.saturating_duration_since(*self.made.get(uid)?))).collect();
        all.sort();
        all
    }
}

fn follow<K>(api: kube::Api<K>, story: &Arc<Mutex<Story>>, observe: fn(&mut Story, &K))
where
    K: kube::Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let story = story.clone();
    tokio::spawn(async move {
        let mut stream = pin!(watcher(api, watcher::Config::default()).default_backoff());
        while let Some(event) = stream.next().await {
            if let Ok(watcher::Event::Apply(object) | watcher::Event::InitApply(object)) = event {
                observe(&mut story.lock().unwrap(), &object);
            }
        }
    });
}

/// Makes the controller manager use a proxy from now on.
async fn through(cluster: &Cluster, proxy: &Proxy) {
    proxy.kubeconfig(&cluster.kubeconfig_of(Component::ControllerManager), json!({}));
    cluster.restart(Component::ControllerManager).await.unwrap();
}

async fn bursts(binding: &str) {
    let mut ring = Ring::without_orchestrator(&["--binding", binding]).await;
    let proxy = Proxy::start(ring.client.clone(), None).await;
    through(ring.cluster(), &proxy).await;
    let _node = Node::start(ring.client.clone()).await;
    ring.run().await;
    ring.class("c", flex_contract::names::DEFAULT_PROVISIONER, json!({})).await;
    ring.config("c", "c", &[("max-in-flight", "100")]).await;
    let story = Arc::new(Mutex::new(Story::default()));
    follow(ring.claims(), &story, Story::claim);
    follow(ring.volumes(), &story, Story::volume);
    for (number, delay) in DELAYS.into_iter().enumerate() {
        proxy.delay("persistentvolumes", delay);
        let began = Instant::now();
        for claim in 0..BURST {
            ring.claim(&format!("c-{number}-{claim}"), "c").await;
        }
        let bound = until(format!("all claims are bound, {delay:?} late"), || async {
            let latencies = story.lock().unwrap().latencies(began);
            if latencies.len() == BURST { Ok(latencies) } else { unexpected(latencies.len()) }
        });
        let bound = bound.await;
        let of = |part: f64| bound[(part * (BURST - 1) as f64) as usize];
        println!(
            "{binding}, the PV controller learns of volumes {delay:?} late: created → Bound p50 {:.0?}, p99 {:.0?}; burst of {BURST} in {:.1?}",
            of(0.5),
            of(0.99),
            began.elapsed()
        );
        assert!(delay <= of(1.0) || delay < Duration::from_secs(1), "the delay has no effect: {bound:?}");
    }
    // The controller then observes the delayed volumes.
    until("the orchestrator has finished with all claims", || async {
        let claims = ring.claims().list(&ListParams::default()).await.map_err(|error| error.to_string())?;
        let held = |claim: &&PersistentVolumeClaim| claim.annotations().contains_key(flex_contract::names::HELD);
        match claims.iter().find(held) {
            None => Ok(()),
            Some(claim) => unexpected((claim.name_any(), claim.annotations().clone())),
        }
    })
    .await;
    tokio::time::sleep(DELAYS[3] + Duration::from_secs(1)).await;
    let phases = story.lock().unwrap().phases.clone();
    // A watch that begins again shows the last phase alone.
    let rest = |phases: &'_ Vec<String>| match phases.as_slice() {
        [first, rest @ ..] if first == "Pending" => rest.to_vec(),
        all => all.to_vec(),
    };
    let ways: BTreeSet<Vec<String>> = phases.values().map(rest).collect();
    assert_eq!(phases.len(), BURST * DELAYS.len());
    assert_eq!(ways, BTreeSet::from([vec!["Bound".to_owned()]]), "a claim had other phases");
    let events = ring.api::<Event>(USER).list(&ListParams::default()).await.unwrap();
    let lost: Vec<_> = events.iter().filter(|event| event.reason.as_deref() == Some("ClaimLost")).collect();
    assert!(lost.is_empty(), "{lost:#?}");
    println!("{binding}: {} claims, 0 Lost", BURST * DELAYS.len());
}

#[tokio::test]
async fn no_claim_is_lost_when_the_orchestrator_binds_it() {
    bursts("direct").await;
}

#[tokio::test]
async fn no_claim_is_lost_when_the_pv_controller_binds_it() {
    bursts("controller").await;
}
