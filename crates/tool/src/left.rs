//! What is left of a claim that is gone: its volume, and the Jobs of its runs.

use anyhow::{Context as _, bail};
use flex_contract::names;
use flex_core::config::classes::Identity;
use flex_core::model::failed_run::FailedRun;
use flex_core::model::volume::Volume;
use flex_core::object::ObjectName;
use flex_core::run::view;
use flex_core::text::line;
use flex_provisioner::age::age;
use flex_provisioner::api::pages;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::api::ListParams;
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::name::name;

/// What is left of a claim that is gone, or a volume that never had a claim.
#[derive(Debug)]
pub(super) struct Left {
    /// The claim that is gone; `None` for a volume that never had one.
    pub(super) claim: Option<ObjectName>,
    /// The last volume of the claim.
    pub(super) volume: Option<Volume>,
    /// The Jobs of its runs, as far as they can be listed, the oldest first.
    pub(super) jobs: Vec<view::Job>,
}

impl Left {
    /// Looks for what is left of a claim that does not exist.
    ///
    /// # Errors
    /// If nothing is left, or if nobody can know that, because volumes or Jobs cannot be listed.
    pub(super) async fn of_claim(client: &Client, identity: &Identity, claim: &ObjectName) -> anyhow::Result<Self> {
        let volumes: Api<PersistentVolume> = Api::all(client.clone());
        let of_claim = |volume: PersistentVolume| Some(Volume::from(&volume)).filter(|volume| had(volume, claim));
        let volumes = pages::all(&volumes, ListParams::default(), of_claim).await;
        let volumes = volumes.with_context(|| format!("claim {claim} does not exist, and volumes cannot be listed"))?;
        let volume = volumes.into_iter().flatten().max_by_key(|volume| volume.created);
        let id = volume.as_ref().and_then(Volume::volume_id).unwrap_or_default();
        let jobs = jobs(client, identity, |job| is_of(job, Some(claim), id)).await;
        match (volume, jobs) {
            (None, Err(error)) => {
                Err(error).with_context(|| format!("claim {claim} does not exist, and its Jobs cannot be listed"))
            }
            (None, Ok(jobs)) if jobs.is_empty() => {
                bail!("claim {claim} does not exist, and neither a volume nor a Job of it is left")
            }
            (volume, jobs) => Ok(Left { claim: Some(claim.clone()), volume, jobs: jobs.unwrap_or_default() }),
        }
    }

    /// Returns a volume without a claim that exists, with its Jobs.
    pub(super) async fn of_volume(client: &Client, identity: &Identity, volume: Volume) -> Self {
        let claim =
            volume.claim_ref.as_ref().map(|reference| &reference.name).or(volume.former_claim.as_ref()).cloned();
        let id = volume.volume_id().unwrap_or_default();
        let jobs = jobs(client, identity, |job| is_of(job, None, id)).await.unwrap_or_default();
        Left { claim, volume: Some(volume), jobs }
    }

    /// Returns the name of what is left, with its kind.
    pub(super) fn title(&self) -> String {
        match (&self.claim, &self.volume) {
            (_, Some(volume)) => format!("volume {}", volume.name),
            (Some(claim), None) => format!("claim {claim}"),
            (None, None) => String::new(),
        }
    }

    /// Says what is left, in lines for people. `now` is in seconds since 1970.
    pub(super) fn text(&self, now: i64) -> String {
        let mut lines = vec![self.headline()];
        let failed = |run: FailedRun<'_>| {
            let (reason, message) = (line(run.reason, usize::MAX), line(run.message, usize::MAX));
            let ago = age(now - run.at);
            format!("Its {} run {} failed {ago} ago: {reason}: {message}", run.operation, run.attempt)
        };
        let failures: Vec<_> = self.volume.iter().flat_map(Volume::failed_runs).map(failed).collect();
        if let Some(volume) = self.volume.as_ref().filter(|_| !failures.is_empty()) {
            lines.extend(failures);
            lines.push(format!("  To try again now: {} retry pv/{}", name(), volume.name));
        }
        lines.extend(self.jobs.iter().map(|job| {
            let ago = age(now - job.created);
            let (operation, attempt) = (line(job.run_labels.operation.as_str(), usize::MAX), job.run_labels.attempt);
            format!("Job {}, {ago} old: {operation} run {attempt} {}", job.real_name(), state(job))
        }));
        lines.join("\n") + "\n"
    }

    fn headline(&self) -> String {
        let Some(volume) = &self.volume else {
            let claim = self.claim.as_ref().map(ToString::to_string).unwrap_or_default();
            return format!("Claim {claim} is gone, and only Jobs of its runs are left.");
        };
        let class = line(&volume.class, usize::MAX);
        let is = match volume.terminating {
            true => "is being deleted".to_owned(),
            false => format!("is {}, with the policy {}", volume.phase.as_str(), volume.reclaim_policy.as_str()),
        };
        let of = match &self.claim {
            Some(claim) => format!("its claim {claim} is gone, and the volume"),
            None => "it has no claim, and".to_owned(),
        };
        format!("Volume {} of class {class}: {of} {is}.", volume.name)
    }

    /// Returns the same for scripts.
    pub(super) fn to_json(&self) -> Value {
        let run = |run: FailedRun<'_>| {
            json!({
                "operation": run.operation.as_str(), "attempt": run.attempt, "at": run.at, "reason": run.reason,
                "message": run.message,
            })
        };
        let job = |job: &view::Job| {
            json!({
                "name": job.real_name().to_string(), "operation": job.run_labels.operation.as_str(),
                "attempt": job.run_labels.attempt, "created": job.created, "state": state(job),
            })
        };
        let volume = self.volume.as_ref();
        json!({
            "claim": self.claim.as_ref().map(ToString::to_string),
            "bound": false,
            "gone": true,
            "volume": volume.map(|volume| &volume.name),
            "class": volume.map(|volume| &volume.class),
            "phase": volume.map(|volume| volume.phase.as_str()),
            "failedRuns": volume.into_iter().flat_map(Volume::failed_runs).map(run).collect::<Vec<_>>(),
            "jobs": self.jobs.iter().map(job).collect::<Vec<_>>(),
        })
    }
}

/// Checks whether a volume is or was that of a claim.
fn had(volume: &Volume, claim: &ObjectName) -> bool {
    let reference = volume.claim_ref.as_ref().map(|reference| &reference.name);
    reference.or(volume.former_claim.as_ref()) == Some(claim)
}

/// Checks whether a Job works for a claim, or for a volume with this id.
fn is_of(job: &view::Job, claim: Option<&ObjectName>, id: &str) -> bool {
    let is_claim = claim.is_some() && job.claim.as_ref() == claim;
    let has = |of: &str| !id.is_empty() && of == id;
    let is_member = job.members.iter().any(|member| has(&member.id) || (claim.is_some() && member.claim() == claim));
    is_claim || has(&job.run_labels.id) || is_member
}

/// Says how far a Job is.
fn state(job: &view::Job) -> String {
    match &job.failed {
        _ if job.complete => "has succeeded".to_owned(),
        Some(end) => format!("has failed: {}", line(&end.message, usize::MAX)),
        None => "is in progress".to_owned(),
    }
}

/// Returns some of the orchestrator's Jobs, the oldest first.
async fn jobs(
    client: &Client,
    identity: &Identity,
    is_of: impl Fn(&view::Job) -> bool,
) -> kube::Result<Vec<view::Job>> {
    let ours = format!("{}={}", names::LABEL_INSTANCE, identity.instance);
    let mut found = Vec::new();
    for namespace in &identity.config_namespaces {
        let api: Api<Job> = Api::namespaced(client.clone(), namespace);
        let listed =
            pages::all(&api, ListParams::default().labels(&ours), |job| Some(view::Job::from(&job)).filter(&is_of));
        found.extend(listed.await?.into_iter().flatten());
    }
    found.sort_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_800_000_000;

    fn volume(phase: &str, annotations: &Value) -> Volume {
        let object = json!({
            "metadata": { "name": "pvc-u", "uid": "v", "annotations": annotations },
            "spec": {
                "storageClassName": "gold", "persistentVolumeReclaimPolicy": "Delete",
                "claimRef": { "namespace": "team", "name": "data", "uid": "u" },
            },
            "status": { "phase": phase },
        });
        Volume::from(&serde_json::from_value::<PersistentVolume>(object).unwrap())
    }

    fn job(annotations: &Value, status: &Value) -> view::Job {
        let labels = json!({
            names::LABEL_OPERATION: "delete", names::LABEL_ATTEMPT: "2", names::LABEL_VOLUME_ID: "u",
        });
        let created = jiff::Timestamp::from_second(NOW - 30).unwrap().to_string();
        let metadata = json!({
            "name": "delete-u-2", "namespace": "admin", "labels": labels, "annotations": annotations,
            "creationTimestamp": created,
        });
        view::Job::from(&serde_json::from_value::<Job>(json!({ "metadata": metadata, "status": status })).unwrap())
    }

    #[test]
    fn what_is_left_of_a_claim_says_why_it_is_left() {
        let failure = json!({
            "operation": "delete", "attempt": 1, "at": NOW - 90, "kind": "retry", "reason": "ExitCode",
            "message": "exit code 75:\nbusy",
        });
        let volume = volume("Released", &json!({ names::FAILURE: failure.to_string() }));
        let claim = ObjectName::new("team", "data");
        assert!(had(&volume, &claim) && !had(&volume, &ObjectName::new("team", "other")));
        let jobs = vec![job(&json!({}), &json!({}))];
        let left = Left { claim: Some(claim), volume: Some(volume), jobs };
        let text = "\
Volume pvc-u of class gold: its claim team/data is gone, and the volume is Released, with the policy Delete.
Its delete run 1 failed 90s ago: ExitCode: exit code 75:\\nbusy
  To try again now: flex-provisioner retry pv/pvc-u
Job admin/delete-u-2, 30s old: delete run 2 is in progress
";
        assert_eq!((left.text(NOW).as_str(), left.title().as_str()), (text, "volume pvc-u"));
        let document = left.to_json();
        assert_eq!((&document["failedRuns"][0]["attempt"], &document["claim"]), (&json!(1), &json!("team/data")));
    }

    #[test]
    fn jobs_alone_may_be_left() {
        let claim = ObjectName::new("team", "data");
        let ended = json!({ "conditions": [{ "type": "Complete", "status": "True" }] });
        let job = job(&json!({ names::JOB_CLAIM: "team/data" }), &ended);
        assert!(is_of(&job, Some(&claim), "") && is_of(&job, None, "u"));
        assert!(!is_of(&job, None, "") && !is_of(&job, Some(&ObjectName::new("team", "other")), "w"));
        let left = Left { claim: Some(claim), volume: None, jobs: vec![job] };
        let text = "\
Claim team/data is gone, and only Jobs of its runs are left.
Job admin/delete-u-2, 30s old: delete run 2 has succeeded
";
        assert_eq!(left.text(NOW), text);
    }
}
