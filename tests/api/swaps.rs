//! Tests of a config that changes while claims are in progress: each attempt ends with the version with which it began,
//! and the next begins with the present one.

use flex_contract::names;
use flex_contract::reason;
use futures::future::{FutureExt, join_all};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::Api;
use kube::api::DeleteParams;
use serde_json::json;

use orchestrator::kubelet::nfs_volume;
use orchestrator::ring::{ADMIN, Ring, uid};
use orchestrator::wait::{unexpected, until};

/// A change to the config of a class that has the change's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Edited,
    Corrupted,
    Deleted,
    /// The config's label names another class now.
    Relabelled,
    /// Another config takes over the class, and this config takes over the class of the other.
    Exchanged,
    /// The StorageClass is replaced by one with other parameters.
    ClassReplaced,
}

/// The image and parameters of an attempt.
#[derive(Debug, PartialEq, Eq)]
struct Version {
    image: String,
    zone: String,
}

fn version(image: &str, zone: &str) -> Version {
    Version { image: image.into(), zone: zone.into() }
}

fn version_of(job: &Job) -> Version {
    let container = &job.spec.as_ref().unwrap().template.spec.as_ref().unwrap().containers[0];
    let zone = container.env.iter().flatten().find(|variable| variable.name == "ZONE");
    version(container.image.as_deref().unwrap(), zone.and_then(|zone| zone.value.as_deref()).unwrap_or_default())
}

impl Change {
    const ALL: [Change; 6] = [
        Change::Edited,
        Change::Corrupted,
        Change::Deleted,
        Change::Relabelled,
        Change::Exchanged,
        Change::ClassReplaced,
    ];

    /// Returns the class, and the name of the config that serves it.
    fn class(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    /// A claim of this class.
    fn claim(self, what: &str) -> String {
        format!("{}-{what}", self.class())
    }

    async fn prepare(self, ring: &Ring) {
        let class = self.class();
        let parameters = match self {
            Change::ClassReplaced => json!({ "provisioner-config": "admin/shared", "zone": "west" }),
            _ => json!({}),
        };
        ring.class(&class, names::DEFAULT_PROVISIONER, json!({ "parameters": parameters })).await;
        match self {
            Change::ClassReplaced => {
                drop(ring.config("shared", "nobody-s", &[("image", "old/image"), SHORT_BACKOFF]).await)
            }
            _ => drop(ring.config(&class, &class, &[("image", "old/image"), ("zone", "west"), SHORT_BACKOFF]).await),
        }
        if self == Change::Exchanged {
            ring.class("other", names::DEFAULT_PROVISIONER, json!({})).await;
            ring.config("other", "other", &[("image", "other/image"), ("zone", "north"), SHORT_BACKOFF]).await;
        }
    }

    async fn happen(self, ring: &Ring) {
        let class = self.class();
        let old = [("image", "old/image"), ("zone", "west"), SHORT_BACKOFF];
        match self {
            Change::Edited => {
                drop(ring.config(&class, &class, &[("image", "new/image"), ("zone", "east"), SHORT_BACKOFF]).await)
            }
            Change::Corrupted => {
                ring.config(
                    &class,
                    &class,
                    &[("image", "new/image"), ("zone", "east"), ("timeout", "never"), SHORT_BACKOFF],
                )
                .await;
            }
            Change::Deleted => {
                ring.api::<ConfigMap>(ADMIN).delete(&class, &DeleteParams::default()).await.unwrap();
            }
            Change::Relabelled => drop(ring.config(&class, "elsewhere", &old).await),
            Change::Exchanged => {
                ring.config(&class, "other", &old).await;
                ring.config("other", &class, &[("image", "other/image"), ("zone", "north"), SHORT_BACKOFF]).await;
            }
            Change::ClassReplaced => {
                let classes = Api::<StorageClass>::all(ring.client.clone());
                classes.delete(&class, &DeleteParams::default()).await.unwrap();
                let parameters = json!({ "provisioner-config": "admin/shared", "zone": "east" });
                ring.class(&class, names::DEFAULT_PROVISIONER, json!({ "parameters": parameters })).await;
            }
        }
    }

    /// Returns the version of an attempt that begins after the change, or nothing if no attempt can begin.
    fn next(self) -> Option<Version> {
        match self {
            Change::Edited => Some(version("new/image", "east")),
            Change::Corrupted => Some(version("old/image", "west")),
            Change::Deleted | Change::Relabelled => None,
            Change::Exchanged => Some(version("other/image", "north")),
            Change::ClassReplaced => Some(version("old/image", "east")),
        }
    }
}

/// A short pause until the next attempt.
const SHORT_BACKOFF: (&str, &str) = ("backoff", "1s");

/// Waits until the orchestrator has observed a change: a claim that is created after it gets the new version, or
/// waits. The watch of claims may be faster than those of configs and classes, so that it can take several claims.
async fn has_observed(ring: &Ring, change: Change) {
    let mut number = 0;
    let observed = until(format!("{change:?} is observed"), || {
        number += 1;
        later_claim(ring, change, format!("{}-{number}", change.claim("later")))
    });
    observed.await;
}

/// Creates a claim after a change. Fails if the claim is served as before the change.
async fn later_claim(ring: &Ring, change: Change, claim: String) -> Result<(), String> {
    let id = uid(&ring.claim(&claim, &change.class()).await);
    let begun = until(format!("{claim} has a run, or an event that says what it waits for"), || async {
        let job = ring.jobs(ADMIN, "provision", &id).await.pop();
        let waits = messages(ring, &claim).await;
        match job {
            Some(job) => Ok(Some(version_of(&job))),
            None if change.next().is_none() && !waits.is_empty() => Ok(None),
            None => unexpected(waits),
        }
    });
    let begun = begun.await;
    if begun == change.next() {
        return Ok(());
    }
    assert_eq!(begun, Some(version("old/image", "west")), "{change:?}: a claim that is created later");
    unexpected(begun)
}

/// Returns the messages of the orchestrator's events on a claim.
async fn messages(ring: &Ring, claim: &str) -> Vec<String> {
    let list = kube::api::ListParams::default().fields(&format!("involvedObject.name={claim}"));
    let events = ring.api::<k8s_openapi::api::core::v1::Event>(&ring.user).list(&list).await.unwrap();
    let waiting =
        events.items.into_iter().filter(|event| event.reason.as_deref() == Some(reason::WAITING_FOR_PROVISIONER.name));
    waiting.filter_map(|event| event.message).collect()
}

/// The image of a running attempt makes its volume; the claim is bound, and deleted as it was made.
async fn made_after(ring: &Ring, change: Change, job: &Job) {
    let claim = change.claim("made");
    let volume = nfs_volume(job);
    ring.create_volume(&volume).await;
    ring.bound(&claim).await;
    ring.pod_ends(job, 0, "").await;
    let id = uid(&ring.get_claim(&claim).await);
    ring.delete_claim(&claim).await;
    deleted_with_old_parameters(ring, change, &id).await;
    ring.volume_gone(volume.metadata.name.as_deref().unwrap()).await;
    ring.claim_gone(&claim).await;
}

/// The claim of a running attempt is deleted, and then its pod fails.
async fn deleted_half_way(ring: &Ring, change: Change, job: &Job) {
    let claim = change.claim("half-way");
    let id = uid(&ring.get_claim(&claim).await);
    ring.delete_claim(&claim).await;
    ring.pod_ends_or_is_deleted(job, 1, "killed during the run").await;
    deleted_with_old_parameters(ring, change, &id).await;
    ring.claim_gone(&claim).await;
}

/// Checks that a delete run gets the parameters with which the storage was made, and ends it well. Its image is the
/// present one if the same config still serves the class.
async fn deleted_with_old_parameters(ring: &Ring, change: Change, id: &str) {
    let job = ring.job(ADMIN, "delete", id, 1).await;
    let image = if matches!(change, Change::Edited) { "new/image" } else { "old/image" };
    assert_eq!(version_of(&job), version(image, "west"), "{change:?}: the delete run of {id}");
    ring.pod_ends(&job, 0, "").await;
}

/// A running attempt fails: the next attempt has the version that is valid by then.
async fn failed_after(ring: &Ring, change: Change, job: &Job) {
    let claim = change.claim("failed");
    let id = uid(&ring.get_claim(&claim).await);
    ring.pod_ends(job, 1, "no luck").await;
    match change.next() {
        Some(next) => {
            let again = ring.job(ADMIN, "provision", &id, 2).await;
            assert_eq!(version_of(&again), next, "{change:?}: the second attempt");
            ring.create_volume(&nfs_volume(&again)).await;
            ring.bound(&claim).await;
            ring.pod_ends(&again, 0, "").await;
        }
        None => {
            let waits = || async {
                let messages = messages(ring, &claim).await;
                if messages.is_empty() { unexpected(messages) } else { Ok(()) }
            };
            until(format!("{claim} has an event that says what it waits for"), waits).await;
            assert_eq!(ring.jobs(ADMIN, "provision", &id).await.len(), 1, "{change:?}: no second attempt may begin");
            ring.delete_claim(&claim).await;
            deleted_with_old_parameters(ring, change, &id).await;
            ring.claim_gone(&claim).await;
        }
    }
}

/// Makes one change, with claims in all states of an attempt.
async fn undergoes(ring: &Ring, change: Change) {
    change.prepare(ring).await;
    let mut jobs = Vec::new();
    for what in ["made", "half-way", "failed"] {
        ring.claim(&change.claim(what), &change.class()).await;
        let id = uid(&ring.stamped(&change.claim(what)).await);
        let job = ring.job(ADMIN, "provision", &id, 1).await;
        assert_eq!(version_of(&job), version("old/image", "west"));
        jobs.push(job);
    }
    change.happen(ring).await;
    has_observed(ring, change).await;
    let [made, half_way, failed] = jobs.try_into().unwrap();
    tokio::join!(
        made_after(ring, change, &made).boxed(),
        deleted_half_way(ring, change, &half_way).boxed(),
        failed_after(ring, change, &failed).boxed()
    );
}

#[tokio::test]
async fn each_attempt_ends_with_the_version_that_it_began_with() {
    let ring = Ring::start().await;
    join_all(Change::ALL.map(|change| undergoes(&ring, change).boxed())).await;
}
