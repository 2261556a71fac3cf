//! What is left of a claim that is gone: its volume, the Jobs of its runs, and what their record says is to be undone.

use anyhow::{Context as _, bail};
use flex_contract::names;
use flex_core::config::classes::Identity;
use flex_core::model::claim::Claim;
use flex_core::model::failed_run::FailedRun;
use flex_core::model::stored::Stored;
use flex_core::model::volume::Volume;
use flex_core::object::ObjectName;
use flex_core::run::view;
use flex_provisioner::age::age;
use flex_provisioner::api::{pages, watch};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::api::ListParams;
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::name::{name, told};

/// What is left of a claim that is gone, or a volume that never had a claim.
#[derive(Debug)]
pub(super) struct Left {
    /// The claim that is gone; `None` for a volume that never had one.
    pub(super) claim: Option<ObjectName>,
    /// The last volume of the claim.
    pub(super) volume: Option<Volume>,
    /// The Jobs of its runs, as far as they can be listed, the oldest first.
    pub(super) jobs: Vec<view::Job>,
    /// The claim as it stands in the record of its last run, while the orchestrator undoes what the run may have made.
    pub(super) stand_in: Option<Box<Claim>>,
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
        let stand_in = stand_in(client, identity, claim).await.map(Box::new);
        let id = volume.as_ref().and_then(Volume::volume_id).unwrap_or_default();
        let jobs = jobs(client, identity, |job| is_of(job, Some(claim), id)).await;
        match (volume, jobs) {
            (None, Err(error)) if stand_in.is_none() => {
                Err(error).with_context(|| format!("claim {claim} does not exist, and its Jobs cannot be listed"))
            }
            (None, Ok(jobs)) if jobs.is_empty() && stand_in.is_none() => {
                bail!("claim {claim} does not exist, and neither a volume nor a Job of it is left")
            }
            (volume, jobs) => Ok(Left { claim: Some(claim.clone()), volume, jobs: jobs.unwrap_or_default(), stand_in }),
        }
    }

    /// Returns a volume without a claim that exists, with its Jobs.
    pub(super) async fn of_volume(client: &Client, identity: &Identity, volume: Volume) -> Self {
        let claim =
            volume.claim_ref.as_ref().map(|reference| &reference.name).or(volume.former_claim.as_ref()).cloned();
        let id = volume.volume_id().unwrap_or_default();
        let jobs = jobs(client, identity, |job| is_of(job, None, id)).await.unwrap_or_default();
        Left { claim, volume: Some(volume), jobs, stand_in: None }
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
            let (reason, message) = (told(run.reason), told(run.message));
            let ago = age(now - run.at);
            format!("Its {} run {} failed {ago} ago: {reason}: {message}", run.operation, run.attempt)
        };
        let failures: Vec<_> = self.volume.iter().flat_map(Volume::failed_runs).map(failed).collect();
        if let Some(volume) = self.volume.as_ref().filter(|_| !failures.is_empty()) {
            lines.extend(failures);
            lines.push(format!("  To try again now: {} retry pv/{}", name(), volume.name));
        }
        lines.extend(self.stand_in.iter().flat_map(|stand_in| undone(stand_in, now)));
        lines.extend(self.jobs.iter().map(|job| {
            let ago = age(now - job.created);
            let (operation, attempt) = (told(job.run_labels.operation.as_str()), job.run_labels.attempt);
            format!("Job {}, {ago} old: {operation} run {attempt} {}", job.real_name(), state(job))
        }));
        lines.join("\n") + "\n"
    }

    fn headline(&self) -> String {
        let Some(volume) = &self.volume else {
            let claim = self.claim.as_ref().map(ToString::to_string).unwrap_or_default();
            return match &self.stand_in {
                Some(_) => format!("Claim {claim} is deleted, and what its runs may have made is being undone."),
                None => format!("Claim {claim} is gone, and only Jobs of its runs are left."),
            };
        };
        let class = told(&volume.class);
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
            "record": self.stand_in.as_ref().and_then(|claim| Some(claim.record.as_ref()?.name.to_string())),
            "volume": volume.map(|volume| &volume.name),
            "class": volume.map(|volume| &volume.class),
            "phase": volume.map(|volume| volume.phase.as_str()),
            "failedRuns": volume.into_iter().flat_map(Volume::failed_runs).map(run).collect::<Vec<_>>(),
            "jobs": self.jobs.iter().map(job).collect::<Vec<_>>(),
        })
    }
}

/// Checks whether the name that an overview has for a claim is that of a claim that is gone.
pub(super) fn is_gone(name: &str) -> bool {
    name.contains('#')
}

/// Returns the name of a claim for people. A claim that is gone is shown while what its runs have made is undone.
pub(super) fn shown(name: &str) -> String {
    match name.split_once('#') {
        Some((name, _)) => format!("{name} (deleted)"),
        None => name.to_owned(),
    }
}

/// Says which record the orchestrator works by, and why it is not done yet.
fn undone(stand_in: &Claim, now: i64) -> Vec<String> {
    let record = stand_in.record.iter().map(|record| format!("Its record is the ControllerRevision {}.", record.name));
    let failure = stand_in.last_failure.iter().map(|failure| {
        let (reason, message) = (told(&failure.reason), told(&failure.message));
        let ago = age(now - failure.at);
        format!("Its {} run {} failed {ago} ago: {reason}: {message}", failure.operation, failure.attempt)
    });
    let again = stand_in.last_failure.iter();
    let again = again.map(|_| format!("  To try again now: {} retry {}", name(), stand_in.api_name()));
    record.chain(failure).chain(again).collect()
}

/// Returns a claim that is gone as it stands in the newest record of its runs, if the record can be read.
async fn stand_in(client: &Client, identity: &Identity, claim: &ObjectName) -> Option<Claim> {
    let ours = format!("{}={}", names::LABEL_INSTANCE, identity.instance);
    let revisions: Api<ControllerRevision> = Api::namespaced(client.clone(), &identity.namespace);
    let stored = pages::all(&revisions, ListParams::default().labels(&ours), watch::stored).await.ok()?;
    let of_record = |stored: Stored| {
        let Stored::Record(record) = stored else { return None };
        let claims = record.unsettled().filter_map(|uid| record.claim(uid));
        let found = claims.filter(|of| of.name == *claim).last()?.clone();
        Some(found.stand_in(record.reference(), &record.resource_version))
    };
    let all = stored.into_iter().flatten().filter_map(of_record);
    all.max_by_key(|claim| (claim.created, claim.own_stamp().map_or(0, |stamp| stamp.attempt)))
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
        Some(end) => format!("has failed: {}", told(&end.message)),
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
    use flex_core::model::claim::{Had, RecordRef, is_stand_in_name};
    use k8s_openapi::api::core::v1::PersistentVolumeClaim;

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
        let left = Left { claim: Some(claim), volume: Some(volume), jobs, stand_in: None };
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
        let left = Left { claim: Some(claim), volume: None, jobs: vec![job], stand_in: None };
        let text = "\
Claim team/data is gone, and only Jobs of its runs are left.
Job admin/delete-u-2, 30s old: delete run 2 has succeeded
";
        assert_eq!(left.text(NOW), text);
    }

    #[test]
    fn a_claim_that_is_gone_is_shown_by_its_own_name() {
        assert_eq!((shown("team/data"), is_gone("team/data")), ("team/data".to_owned(), false));
        let name = ObjectName::new("team", "data#0f8fad5b-d9cb-469f-a165-70867728950e");
        assert!(is_stand_in_name(&name) && is_gone(&name.to_string()));
        assert_eq!(shown(&name.to_string()), "team/data (deleted)");
    }

    #[test]
    fn what_a_claim_has_left_to_undo_names_its_record() {
        let failure = json!({
            "operation": "delete", "attempt": 2, "at": NOW - 90, "kind": "retry", "reason": "ExitCode", "message": "busy",
        });
        let annotations = json!({ names::CLAIM_UID: "u", names::ATTEMPT: "1", names::FAILURE: failure.to_string() });
        let object =
            json!({ "metadata": { "namespace": "team", "name": "data", "uid": "u", "annotations": annotations } });
        let claim = Claim::from(&serde_json::from_value::<PersistentVolumeClaim>(object).unwrap());
        let name = claim.name.clone();
        let record = RecordRef {
            name: ObjectName::new("flex", "flex-record-provision-u-1"),
            uid: "r".into(),
            had: Had::Unknown,
        };
        let stand_in = Some(Box::new(claim.stand_in(record, "7")));
        let left = Left { claim: Some(name), volume: None, jobs: vec![], stand_in };
        let text = "\
Claim team/data is deleted, and what its runs may have made is being undone.
Its record is the ControllerRevision flex/flex-record-provision-u-1.
Its delete run 2 failed 90s ago: ExitCode: busy
  To try again now: flex-provisioner retry team/data
";
        assert_eq!(left.text(NOW), text);
        assert_eq!(left.to_json()["record"], json!("flex/flex-record-provision-u-1"));
    }
}
