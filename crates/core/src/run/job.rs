//! The Job of a run: a pure function of the recipe and the request.

use std::collections::BTreeMap;
use std::time::Duration;

use flex_contract::names;
use flex_contract::names::CONTAINER;
use flex_contract::operation::Operation;
use flex_contract::request::RunRequest;
use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::{EnvVar, PodTemplateSpec, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

pub use super::job_name::{name, prefix};
use super::mounts;
pub use super::pod::{ContentRef, RunTarget};
use super::pod::{PodInput, SERVICE_TOKEN, pod, seconds};
use super::pod_view::READS_LOG;
use super::script;
use super::template;
use crate::config::Recipe;
use crate::object::{ObjectName, label_value};

/// The time to live of a finished Job, if nothing deletes it before.
pub const JOB_TTL: Duration = Duration::from_secs(3600);

/// Builds the Job of one attempt.
pub fn job(recipe: &Recipe, request: &RunRequest, target: &RunTarget) -> Job {
    let labels = labels(request, run_id(request, target));
    let claim = ObjectName::new(&request.claim.namespace, &request.claim.name).to_string();
    let volume = target.volume.clone().map(|volume| (names::JOB_VOLUME, volume));
    let content = target.content.clone().map(|content| (names::JOB_CONTENT, content.name));
    let policy = target.content.as_ref().and_then(|content| content.policy.as_ref());
    let policy = policy.map(|policy| (names::JOB_DELETION_POLICY, policy.to_string()));
    let size = (request.operation == Operation::Expand).then(|| (names::JOB_SIZE, request.size_bytes.to_string()));
    let attributes =
        target.attributes.as_ref().map(|attributes| (names::ATTRIBUTES, serde_json::json!(attributes).to_string()));
    let first = target.is_first.then(|| (names::FIRST_JOB, names::FIRST_JOB_YES.to_owned()));
    let annotations: BTreeMap<String, String> = [(names::RECIPE_VERSION, recipe.version()), (names::JOB_CLAIM, claim)]
        .into_iter()
        .chain(volume)
        .chain(content)
        .chain(policy)
        .chain(size)
        .chain(attributes)
        .chain(first)
        .map(|(key, value)| (key.to_owned(), value))
        .collect();
    let input = PodInput {
        operation: request.operation,
        properties: request.properties(),
        file: None,
        sight: mounts::sight([request]),
    };
    let metadata = RunMetadata { labels, job: annotations.clone(), pod: annotations };
    with_metadata(recipe, target, name_of(request, target), metadata, &input)
}

/// Returns the name of the Job of one attempt.
pub fn name_of(request: &RunRequest, target: &RunTarget) -> String {
    name(request.operation, run_id(request, target), request.attempt, &target.scope)
}

/// Returns the id by which the Jobs of an object are found.
fn run_id<'a>(request: &'a RunRequest, target: &'a RunTarget) -> &'a str {
    target.content.as_ref().map_or(&request.volume_id, |content| &content.id)
}

/// Returns the labels of a run's Job and pod, with an id.
pub(crate) fn labels(request: &RunRequest, id: &str) -> BTreeMap<String, String> {
    [
        (names::LABEL_INSTANCE, request.instance.clone()),
        (names::LABEL_CLASS, label_value(&request.storage_class)),
        (names::LABEL_OPERATION, request.operation.to_string()),
        (names::LABEL_VOLUME_ID, id.to_owned()),
        (names::LABEL_ATTEMPT, request.attempt.to_string()),
        (names::LABEL_MANAGED_BY, names::FIELD_MANAGER.to_owned()),
        (names::LABEL_NO_BACKUP, "true".to_owned()),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value))
    .collect()
}

/// The labels and annotations of a run's Job and pod.
pub(crate) struct RunMetadata {
    /// The labels, which both have.
    pub labels: BTreeMap<String, String>,
    /// The annotations of the Job.
    pub job: BTreeMap<String, String>,
    /// The annotations of the pod.
    pub pod: BTreeMap<String, String>,
}

/// Builds a Job with these labels and annotations, and the data for its pod.
pub(crate) fn with_metadata(
    recipe: &Recipe,
    target: &RunTarget,
    name: String,
    metadata: RunMetadata,
    input: &PodInput,
) -> Job {
    let mut labels = metadata.labels;
    let generated = pod(recipe, input, target, labels.clone(), metadata.pod);
    let mut template = match &recipe.pod_template {
        Some(partial) => template::merge(partial.clone(), generated),
        None => generated,
    };
    script::attach(&mut template, recipe);
    mounts::restrict(&mut template, &recipe.storage_mounts, &input.sight);
    set_message_policy(&mut template);
    labels.extend(template.metadata.iter().flat_map(|m| m.labels.clone().unwrap_or_default()));
    Job {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: Some(target.namespace.clone()),
            labels: Some(labels),
            annotations: Some(metadata.job),
            ..ObjectMeta::default()
        },
        spec: Some(JobSpec {
            backoff_limit: Some(0),
            active_deadline_seconds: Some(seconds(recipe.timeout)),
            ttl_seconds_after_finished: Some(JOB_TTL.as_secs() as i32),
            pod_replacement_policy: Some("Failed".into()),
            template,
            ..JobSpec::default()
        }),
        status: None,
    }
}

/// Sets whether the end of the log counts as last words. It does not where the run has secrets, because a shell that
/// traces its commands prints them. The admin's template may override this.
fn set_message_policy(template: &mut PodTemplateSpec) {
    let Some(spec) = &mut template.spec else { return };
    let volumes: Vec<&str> =
        spec.volumes.iter().flatten().filter(|volume| is_secret(volume)).map(|volume| volume.name.as_str()).collect();
    let Some(container) = spec.containers.iter_mut().find(|container| container.name == CONTAINER) else { return };
    let mounted = container.volume_mounts.iter().flatten().any(|mount| volumes.contains(&mount.name.as_str()));
    let from_secret = |variable: &EnvVar| {
        let is_token = variable.name == SERVICE_TOKEN;
        is_token || variable.value_from.as_ref().is_some_and(|from| from.secret_key_ref.is_some())
    };
    let named = container.env.iter().flatten().any(from_secret);
    let all = container.env_from.iter().flatten().any(|from| from.secret_ref.is_some());
    let policy = if mounted || named || all { "File" } else { READS_LOG };
    container.termination_message_policy.get_or_insert_with(|| policy.into());
}

/// Checks whether a volume contains Secrets, or files of a CSI driver, as secret stores provide them.
fn is_secret(volume: &Volume) -> bool {
    let projected = volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten());
    volume.secret.is_some() || volume.csi.is_some() || projected.into_iter().any(|source| source.secret.is_some())
}

#[cfg(test)]
#[path = "job_tests.rs"]
pub(crate) mod tests;
