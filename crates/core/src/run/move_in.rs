//! The Job of a run for storage that moves in or out. An admin's command starts it.

use flex_contract::names;
use flex_contract::request::RunRequest;
use k8s_openapi::api::batch::v1::Job;

use super::job::{RunTarget, job};
use super::list::{LIST_JOB_TTL, of_no_claim};
use crate::config::Recipe;
use crate::object::hash;

/// Builds the Job of a run for a volume. The orchestrator does not take it for a run of its own: it has no volume id.
pub fn move_in(recipe: &Recipe, request: &RunRequest) -> Job {
    let node = recipe.required_node(request.node()).map(str::to_owned);
    let target = RunTarget { namespace: recipe.config.namespace.clone(), node, ..RunTarget::default() };
    let mut job = job(recipe, request, &target);
    let which = format!("{}\0{}\0{}", recipe.version(), request.pv_name, request.provision_ts);
    job.metadata.name = Some(format!("{}-{}", request.operation, hash(which.as_bytes())));
    job.spec.get_or_insert_default().ttl_seconds_after_finished = Some(LIST_JOB_TTL);
    let template = job.spec.as_mut().and_then(|spec| spec.template.metadata.as_mut());
    for metadata in template.into_iter().chain([&mut job.metadata]) {
        metadata.labels.get_or_insert_default().insert(names::LABEL_VOLUME_ID.to_owned(), String::new());
    }
    of_no_claim(&mut job);
    job
}
