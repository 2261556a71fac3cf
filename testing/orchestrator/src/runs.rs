//! The Jobs and pods of runs.

use std::time::Instant;

use flex_contract::names;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};

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

    /// Waits for the Job of a run in a namespace, by operation and volume id.
    pub async fn job(&self, namespace: &str, operation: &str, id: &str, attempt: u32) -> Job {
        let began = Instant::now();
        let found = until(format!("{operation} Job {attempt} of {id}"), || async {
            let jobs = self.jobs(namespace, operation, id).await;
            let wanted = jobs
                .iter()
                .find(|job| job.metadata.labels.as_ref().unwrap()[names::LABEL_ATTEMPT] == attempt.to_string());
            match wanted {
                Some(job) => Ok(job.clone()),
                // A terminating object may delay the Job.
                None if began.elapsed() > GUARD / 2 => unexpected(self.runs_in(namespace).await),
                None => unexpected(jobs.iter().map(|job| job.metadata.name.clone()).collect::<Vec<_>>()),
            }
        });
        self.explained(found).await
    }

    /// Lists all Jobs and pods of a namespace, with their finalizers.
    async fn runs_in(&self, namespace: &str) -> Vec<String> {
        let (jobs, pods) = (self.api::<Job>(namespace), self.api::<Pod>(namespace));
        let all = ListParams::default();
        let jobs = jobs.list(&all).await.unwrap().items.into_iter().map(|job| ("Job", job.metadata));
        let pods = pods.list(&all).await.unwrap().items.into_iter().map(|pod| ("Pod", pod.metadata));
        let lines = jobs.chain(pods).map(|(kind, of)| {
            let deleted = of.deletion_timestamp.map(|at| at.0);
            format!("{kind} {} deleted {deleted:?}, finalizers {:?}", of.name.unwrap_or_default(), of.finalizers)
        });
        lines.collect()
    }

    pub async fn jobs(&self, namespace: &str, operation: &str, id: &str) -> Vec<Job> {
        let labels = format!("{}={operation},{}={id}", names::LABEL_OPERATION, names::LABEL_VOLUME_ID);
        self.api::<Job>(namespace).list(&ListParams::default().labels(&labels)).await.unwrap().items
    }

    /// Waits for the Job of a run that is pinned to a node.
    pub async fn job_on(&self, operation: &str, id: &str, node: &str) -> Job {
        let found = until(format!("{operation} Job of {id} on {node}"), || async {
            let jobs = self.jobs(&self.admin, operation, id).await;
            let on = |job: &&Job| serde_json::to_string(&job.spec).unwrap().contains(&format!("\"{node}\""));
            let wanted = jobs.iter().filter(|job| job.metadata.deletion_timestamp.is_none()).find(on);
            wanted.cloned().ok_or_else(|| format!("{:?}", jobs.iter().map(|j| &j.metadata.name).collect::<Vec<_>>()))
        });
        self.explained(found).await
    }

    /// Waits for the pod of a Job.
    pub async fn pod_of(&self, job: &Job) -> Pod {
        let namespace = job.metadata.namespace.clone().unwrap();
        let (name, uid) = (job.metadata.name.clone().unwrap(), job.metadata.uid.as_ref());
        let found = until(format!("the pod of {name}"), || async {
            let list = ListParams::default().labels(&format!("job-name={name}"));
            let pods = self.api::<Pod>(&namespace).list(&list).await.map_err(|error| error.to_string())?;
            // A deleted Job of the same name may have left a pod.
            let own = |pod: &Pod| pod.metadata.owner_references.iter().flatten().any(|owner| Some(&owner.uid) == uid);
            pods.items.into_iter().find(own).ok_or_else(|| "none".to_owned())
        });
        self.explained(found).await
    }

    /// Waits until no Job and no pod is left in the config namespaces.
    pub async fn nothing_left(&self) {
        let leftovers = until("no Job, pod or volume is left", || async {
            let mut leftovers = Vec::new();
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
