//! Batches: the Job of one run for several claims or for several volumes, and each member's view of it.
//!
//! The cache holds the Job and its pod once. Each member sees them as the Job and the pod of a run of its own, with its
//! own labels and its own outcome, so that no other code needs to know of batches. [`decide`] decides when the Job is
//! created.

pub mod decide;

use std::collections::BTreeMap;
use std::sync::Arc;

use flex_contract::batch::{self, MemberFailure, Split};
use flex_contract::cause;
use flex_contract::names::CONTAINER;
use flex_contract::operation::Operation;
use flex_contract::request::{Property, RequestError, RunRequest};
use flex_contract::{names, variable};
use k8s_openapi::api::batch::v1 as api;

use crate::config::Recipe;
use crate::limits;
use crate::object::ObjectName;
use crate::run::job;
use crate::run::member::members;
pub use crate::run::member::{Member, MemberObject, name, operation};
use crate::run::mounts;
use crate::run::pod::{PodInput, PropertyFile, RunTarget};
use crate::run::view::{ContainerEnd, Job, JobEnd, Pod, RunLabels};

/// The failure of a member about which the image said nothing.
const NO_OUTCOME_MESSAGE: &str = "the run was for several members, and ended before it reported this one";

/// A member of a batch, with the request of its run.
#[derive(Clone, Debug)]
pub struct MemberRun {
    /// The member.
    pub member: Member,
    /// The request of its run.
    pub request: RunRequest,
}

/// The Job of a batch, with the number of members that fit into it.
#[derive(Clone, Debug)]
pub struct BatchJob {
    /// The Job.
    pub job: api::Job,
    /// The number of members in it.
    pub members: usize,
}

/// Builds the Job of a batch. The last members are left out if not all fit.
pub fn job(recipe: &Recipe, name: &str, members: &[MemberRun], target: &RunTarget) -> BatchJob {
    // The text of a script is added later.
    let most = if recipe.script.is_some() { limits::POD - limits::VALUE } else { limits::POD };
    let all = whole(recipe, name, members, target);
    if annotated(&all) <= most {
        return BatchJob { job: all, members: members.len() };
    }
    // A single member fits, as its own run would.
    let (mut fits, mut too_many) = (1, members.len());
    while fits + 1 < too_many {
        let middle = fits.midpoint(too_many);
        match annotated(&whole(recipe, name, &members[..middle], target)) <= most {
            true => fits = middle,
            false => too_many = middle,
        }
    }
    BatchJob { job: whole(recipe, name, &members[..fits], target), members: fits }
}

fn whole(recipe: &Recipe, name: &str, members: &[MemberRun], target: &RunTarget) -> api::Job {
    let requests: Vec<RunRequest> = members.iter().map(|run| run.request.clone()).collect();
    let Split { common, lines } = batch::split(&requests);
    let list = Property { name: batch::FILE.to_owned(), value: lines.join("\n") };
    let operation = requests.first().map_or(Operation::Provision, |first| first.operation);
    let input = PodInput {
        operation,
        properties: common,
        file: Some(PropertyFile { variable: batch::VARIABLE, property: list }),
        sight: mounts::sight(&requests),
    };
    let labels = requests.first().map(|first| job::labels(first, name)).unwrap_or_default();
    let annotations = BTreeMap::from([(names::RECIPE_VERSION.to_owned(), recipe.version())]);
    let members: Vec<&Member> = members.iter().map(|run| &run.member).collect();
    // The annotations of the pod cannot be changed later, unlike those of the Job.
    let mut of_pod = annotations.clone();
    of_pod.insert(names::BATCH.to_owned(), serde_json::json!(members).to_string());
    let metadata = job::RunMetadata { labels, job: annotations, pod: of_pod };
    job::with_metadata(recipe, target, name.to_owned(), metadata, &input)
}

/// Returns the bytes of the annotations of the Job's pod.
fn annotated(job: &api::Job) -> usize {
    let metadata = job.spec.iter().filter_map(|spec| spec.template.metadata.as_ref());
    let annotations = metadata.flat_map(|metadata| metadata.annotations.iter().flatten());
    annotations.map(|(key, value)| key.len() + value.len()).sum()
}

/// Estimates the bytes that a further request adds to a batch that begins with `first`.
pub fn weight(first: &RunRequest, request: &RunRequest) -> usize {
    let common: BTreeMap<String, String> = first.properties().into_iter().map(|p| (p.name, p.value)).collect();
    let own = request.properties().into_iter().filter(|property| {
        batch::OWN.contains(&property.name.as_str()) || common.get(&property.name) != Some(&property.value)
    });
    own.map(|property| property.name.len() + property.value.len() + 8).sum()
}

/// Returns the request of a run for an id, from a single run or a batch.
///
/// # Errors
/// If the Job's data cannot be read.
pub fn request_of(job: api::Job, id: &str) -> Result<RunRequest, RequestError> {
    let template = job.spec.map(|spec| spec.template).unwrap_or_default();
    let annotations = template.metadata.and_then(|metadata| metadata.annotations).unwrap_or_default();
    let lists = annotations.iter().filter(|(key, _)| key.starts_with(names::PROPERTY_PREFIX));
    let lists = lists.filter_map(|(_, text)| batch::read(text).ok());
    let is_its = |member: &batch::MemberVariables| {
        member.get(variable::CLAIM_UUID.name).is_some_and(|volume_id| volume_id == id)
    };
    let own = match members(Some(&annotations)).is_empty() {
        true => None,
        false => lists.flatten().find(is_its),
    };
    let env = template.spec.and_then(|spec| spec.containers.into_iter().next()?.env).unwrap_or_default();
    let common = |name: &str| env.iter().find(|variable| variable.name == name)?.value.clone();
    RunRequest::from_env(|name| own.as_ref().and_then(|own| own.get(name).cloned()).or_else(|| common(name)))
}

/// Returns the image's outcomes of the members; `None` if the image reported none, or has not ended.
fn outcomes(pod: &Pod) -> Option<Vec<MemberFailure>> {
    let end = pod.terminated.as_ref().filter(|end| end.container == CONTAINER)?;
    batch::read_outcomes(&end.message)
}

/// Returns the failure of a member, by its number from 0, if the image reported one.
fn failed(pod: &Pod, number: usize) -> Option<MemberFailure> {
    outcomes(pod)?.into_iter().find(|failed| failed.member == number + 1)
}

/// Returns the end of a member: as the image reported it, else as the pod ended. Returns `None` while the pod has not
/// ended.
fn end_of(pod: &Pod, number: usize) -> Option<ContainerEnd> {
    let end = pod.terminated.clone()?;
    Some(match (outcomes(pod), failed(pod, number)) {
        (_, Some(failed)) => ContainerEnd { code: failed.code, reason: "Error".into(), message: failed.message, ..end },
        (Some(_), None) if end.code == 0 => ContainerEnd { message: String::new(), ..end },
        (Some(_), None) => ContainerEnd { message: NO_OUTCOME_MESSAGE.to_owned(), ..end },
        (None, None) => end,
    })
}

impl Job {
    /// Returns the number of single runs that the Job replaces.
    pub fn runs(&self) -> usize {
        self.members.len().max(1)
    }

    /// Returns the claims of the Job.
    pub fn claims(&self) -> impl Iterator<Item = &ObjectName> {
        self.members.iter().filter_map(Member::claim).chain(&self.claim)
    }

    /// Returns the volume ids of the Job.
    pub fn ids(&self) -> impl Iterator<Item = &String> {
        let own = self.members.is_empty().then_some(&self.run_labels.id);
        self.members.iter().map(|member| &member.id).chain(own)
    }

    /// Returns the Job that a member sees, by its number from 0. `pods` are those of the batch; `leaving` says that the
    /// member does not want the run any more.
    pub fn as_seen_by(&self, number: usize, pods: &[&Pod], leaving: bool) -> Option<Job> {
        let member = self.members.get(number)?;
        let pod = pods.iter().filter(|pod| pod.job_uid == self.uid);
        let pod = pod.max_by_key(|pod| (pod.terminated.is_some(), pod.created));
        // The Job has completed. The pod, which arrives by another watch, says whether this member has succeeded.
        let outcome_unknown = self.complete && pod.is_some_and(|pod| pod.terminated.is_none());
        let failed = pod.filter(|_| self.complete || self.failed.is_some()).and_then(|pod| failed(pod, number));
        let mut shown = Job {
            name: ObjectName::new(&self.name.namespace, member.job_name()),
            run_labels: member_labels(&self.run_labels, member),
            claim: member.claim().cloned(),
            volume: member.volume().cloned(),
            attributes: member.attributes.clone(),
            is_first: member.is_first,
            terminating: self.terminating || leaving,
            complete: self.complete && !outcome_unknown,
            is_over: self.is_over && !outcome_unknown,
            members: Arc::default(),
            batch: Some(self.name.clone()),
            ..self.clone()
        };
        if let Some(failed) = failed {
            let at = self.failed.as_ref().map_or(0, |failed| failed.at);
            shown.complete = false;
            shown.failed = Some(JobEnd { reason: cause::MEMBER_FAILED.into(), message: failed.message, at });
        }
        Some(shown)
    }
}

impl Pod {
    /// Checks whether the image has ended and done what it was asked for, in a batch for one member at least.
    pub fn has_succeeded(&self) -> bool {
        let is_done = self.terminated.as_ref().is_some_and(|end| end.container == CONTAINER && end.code == 0);
        is_done && outcomes(self).is_none_or(|failed| failed.len() < self.members.len().max(1))
    }

    /// Returns the pod that a member sees, by its number from 0.
    pub fn as_seen_by(&self, number: usize) -> Option<Pod> {
        let member = self.members.get(number)?;
        Some(Pod {
            run_labels: member_labels(&self.run_labels, member),
            job: member.job_name(),
            terminated: end_of(self, number),
            // A member has no other words than those in the image's report.
            reads_log: self.reads_log || failed(self, number).is_some(),
            is_first: member.is_first,
            members: Arc::default(),
            ..self.clone()
        })
    }
}

fn member_labels(labels: &RunLabels, member: &Member) -> RunLabels {
    RunLabels { id: member.id.clone(), attempt: member.attempt, ..labels.clone() }
}

#[cfg(test)]
mod tests;
