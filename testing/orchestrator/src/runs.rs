//! The Jobs and pods of runs. A run begins when its pod has no gate any more.

use std::time::Instant;

use flex_contract::names;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};

use crate::kubelet::{gates, place};
use crate::ring::{ADMIN, OWN, Ring};
use crate::wait::{GUARD, unexpected, until};

impl Ring {
    /// Deletes failed Jobs, as if the time for which they are kept had passed.
    pub async fn forget_failed_jobs(&self) {
        let jobs = self.api::<Job>(&self.admin);
        for job in jobs.list(&ListParams::default()).await.unwrap() {
            let failed = job.status.as_ref().is_some_and(|status| status.failed.unwrap_or(0) > 0);
            if failed {
                match jobs.delete(&job.name_any(), &DeleteParams::background()).await {
                    // The orchestrator may have deleted it before.
                    Err(kube::Error::Api(status)) if status.is_not_found() => (),
                    other => drop(other.unwrap()),
                }
            }
        }
    }

    /// Waits for a run in a namespace, by operation and volume id, until it has begun. Returns its Job. From then on the
    /// run goes on, whatever happens to the orchestrator.
    pub async fn job(&self, namespace: &str, operation: &str, id: &str, attempt: u32) -> Job {
        self.found_job((namespace, operation, id, attempt), true).await
    }

    /// Waits for the Job of a run that gets no pod, or whose pod is not opened.
    pub async fn job_alone(&self, namespace: &str, operation: &str, id: &str, attempt: u32) -> Job {
        self.found_job((namespace, operation, id, attempt), false).await
    }

    async fn found_job(&self, (namespace, operation, id, attempt): (&str, &str, &str, u32), begun: bool) -> Job {
        let began = Instant::now();
        let found = until(format!("{operation} Job {attempt} of {id}"), || async {
            let jobs = self.jobs(namespace, operation, id).await;
            let wanted = jobs
                .iter()
                .find(|job| job.metadata.labels.as_ref().unwrap()[names::LABEL_ATTEMPT] == attempt.to_string());
            if let Some(job) = wanted
                && (!begun || self.has_begun(job).await)
            {
                return Ok(job.clone());
            }
            // A terminating object may delay the Job, or its pod.
            if began.elapsed() > GUARD / 2 {
                return unexpected(self.runs_in(namespace).await);
            }
            unexpected(jobs.iter().map(|job| job.metadata.name.clone()).collect::<Vec<_>>())
        });
        self.explained(found).await
    }

    /// Waits until a run has begun whose Job the test has found by itself. Returns whether it has: it may be stopped before.
    pub async fn begins(&self, job: &Job) -> bool {
        let (namespace, name) = (job.namespace().unwrap(), job.name_any());
        let begun = until(format!("run {name} has begun"), || async {
            let now = self.api::<Job>(&namespace).get_opt(&name).await.map_err(|error| error.to_string())?;
            let is_same = |now: &Job| now.uid() == job.uid() && now.metadata.deletion_timestamp.is_none();
            let Some(now) = now.filter(is_same) else { return Ok(false) };
            if self.has_begun(&now).await { Ok(true) } else { unexpected(self.runs_in(&namespace).await) }
        });
        self.explained(begun).await
    }

    /// Checks whether a run has begun. A Job whose template has no gate begins at once; one that is over or suspended gets
    /// no pod.
    async fn has_begun(&self, job: &Job) -> bool {
        let spec = job.spec.as_ref().unwrap();
        let mut conditions = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let is_over = conditions.any(|of| matches!(of.type_.as_str(), "Complete" | "Failed") && of.status == "True");
        let waits_for_nothing = gates(spec.template.spec.as_ref()).is_empty() || spec.suspend == Some(true) || is_over;
        waits_for_nothing || self.open_pod(job).await.is_ok()
    }

    /// Lists all Jobs and pods of a namespace, with their finalizers and the gates of pods.
    async fn runs_in(&self, namespace: &str) -> Vec<String> {
        let (jobs, pods) = (self.api::<Job>(namespace), self.api::<Pod>(namespace));
        let all = ListParams::default();
        let line = |kind: &str, of: &ObjectMeta, gates: &[&str]| {
            let (name, deleted) =
                (of.name.as_deref().unwrap_or_default(), of.deletion_timestamp.as_ref().map(|at| &at.0));
            format!("{kind} {name} deleted {deleted:?}, finalizers {:?}, gates {gates:?}", of.finalizers)
        };
        let (jobs, pods) = (jobs.list(&all).await.unwrap(), pods.list(&all).await.unwrap());
        let jobs = jobs.iter().map(|job| line("Job", &job.metadata, &[]));
        jobs.chain(pods.iter().map(|pod| line("Pod", &pod.metadata, &gates(pod.spec.as_ref())))).collect()
    }

    pub async fn jobs(&self, namespace: &str, operation: &str, id: &str) -> Vec<Job> {
        let labels = format!("{}={operation},{}={id}", names::LABEL_OPERATION, names::LABEL_VOLUME_ID);
        self.api::<Job>(namespace).list(&ListParams::default().labels(&labels)).await.unwrap().items
    }

    /// Waits for a run that is pinned to a node, until it has begun. Returns its Job.
    pub async fn job_on(&self, operation: &str, id: &str, node: &str) -> Job {
        let found = until(format!("{operation} Job of {id} on {node}"), || async {
            let jobs = self.jobs(&self.admin, operation, id).await;
            let on = |job: &&Job| serde_json::to_string(&job.spec).unwrap().contains(&format!("\"{node}\""));
            let wanted = jobs.iter().filter(|job| job.metadata.deletion_timestamp.is_none()).find(on);
            if let Some(job) = wanted
                && self.has_begun(job).await
            {
                return Ok(job.clone());
            }
            unexpected(jobs.iter().map(|j| &j.metadata.name).collect::<Vec<_>>())
        });
        self.explained(found).await
    }

    /// Lists the pods of a Job, with a gate or without.
    pub async fn pods_of(&self, job: &Job) -> Result<Vec<Pod>, String> {
        let (name, uid) = (job.metadata.name.clone().unwrap(), job.metadata.uid.as_ref());
        let list = ListParams::default().labels(&format!("job-name={name}"));
        let namespace = job.metadata.namespace.as_deref().unwrap();
        let pods = self.api::<Pod>(namespace).list(&list).await.map_err(|error| error.to_string())?;
        // A deleted Job of the same name may have left a pod.
        let own = |pod: &Pod| pod.metadata.owner_references.iter().flatten().any(|owner| Some(&owner.uid) == uid);
        Ok(pods.items.into_iter().filter(own).collect())
    }

    /// Waits for the pod of a Job, until it has no gate.
    pub async fn pod_of(&self, job: &Job) -> Pod {
        let what = format!("the pod of {}, without a gate", job.name_any());
        let found = until(what, || async { self.open_pod(job).await });
        self.explained(found).await
    }

    /// Returns a pod of a Job without a gate. Where there is no scheduler, it gets its place.
    async fn open_pod(&self, job: &Job) -> Result<Pod, String> {
        let pods = self.pods_of(job).await?;
        let closed: Vec<_> = pods.iter().map(|pod| (pod.name_any(), gates(pod.spec.as_ref()).join(", "))).collect();
        let open = |pod: &Pod| gates(pod.spec.as_ref()).is_empty();
        let pod = pods.into_iter().find(open).ok_or_else(|| format!("{closed:?}"))?;
        if self.cluster().node_name().is_err() {
            let pods = self.api(job.metadata.namespace.as_deref().unwrap());
            place(&pods, &pod).await.map_err(|error| error.to_string())?;
        }
        Ok(pod)
    }

    /// Waits until no Job and no pod is left in the config namespaces, and no record and no volume at all.
    pub async fn nothing_left(&self) {
        let leftovers = until("no Job, pod, record or volume is left", || async {
            let mut leftovers: Vec<_> = self.records().await.into_iter().map(|o| o.metadata.name).collect();
            for namespace in [ADMIN, OWN] {
                leftovers.extend(
                    self.api::<Job>(namespace)
                        .list(&ListParams::default())
                        .await
                        .unwrap()
                        .items
                        .into_iter()
                        .map(|o| o.metadata.name),
                );
                leftovers.extend(
                    self.api::<Pod>(namespace)
                        .list(&ListParams::default())
                        .await
                        .unwrap()
                        .items
                        .into_iter()
                        .map(|o| o.metadata.name),
                );
            }
            leftovers.extend(
                self.volumes().list(&ListParams::default()).await.unwrap().items.into_iter().map(|o| o.metadata.name),
            );
            if leftovers.is_empty() { Ok(()) } else { unexpected(leftovers) }
        });
        self.explained(leftovers).await;
    }
}
