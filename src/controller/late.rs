//! Runs whose claim is gone: observed, decided by [`late::decide`], and carried out.

use std::sync::Arc;
use std::time::Duration;

use contract::names;
use contract::request::{Operation, Request};

use super::claims::{recipe_of_jobs, start_delete_job, timestamp};
use super::{Context, Pass};
use crate::cluster::writes::WriteError;
use crate::config::{Placement, Recipe};
use crate::object::ObjectName;
use crate::run::job::{self, Place};
use crate::run::late::{self, Observed, SCOPE, Step};
use crate::run::view::Job;

/// A delete run that cannot be created is tried again after this time.
const REFUSED: Duration = Duration::from_secs(30);

/// What is left of a claim that is gone, by its name.
pub(super) async fn tidy(context: &Context, name: &ObjectName) -> Result<Pass, WriteError> {
    let jobs = context.shared.index().jobs_of_claim(name);
    let mut ids: Vec<String> = jobs.iter().filter(|job| !job.deleting).map(|job| job.marks.id.clone()).collect();
    ids.sort();
    ids.dedup();
    if ids.is_empty() {
        return Ok(Pass::Done);
    }
    // The cache may be behind: ask before something is stopped.
    if let Some(claim) = context.writes.read_claim(name).await? {
        ids.retain(|left| !claim.ids().any(|id| id == *left));
    }
    let mut next = Pass::Done;
    for id in ids {
        if let Pass::After(delay) = pass(context, &id).await? {
            next = match next {
                Pass::After(before) => Pass::After(before.min(delay)),
                _ => Pass::After(delay),
            };
        }
    }
    Ok(next)
}

/// One pass over the runs of a volume id that is no claim's any more.
pub(super) async fn pass(context: &Context, id: &str) -> Result<Pass, WriteError> {
    let (all, pods) = {
        let index = context.shared.index();
        (index.jobs_of(id), index.pods_of(id))
    };
    let jobs: Vec<Arc<Job>> = all.into_iter().filter(|job| job.volume.is_none() && !job.deleting).collect();
    let of = |operation: Operation| jobs.iter().filter(move |job| job.marks.operation == operation.as_str()).cloned();
    let provisions: Vec<_> = of(Operation::Provision).collect();
    let deletes = of(Operation::Delete).filter(|job| {
        let (attempt, name) = (job.marks.attempt, &job.name.name);
        *name == job::name(Operation::Delete, id, attempt, SCOPE)
    });
    let deletes: Vec<_> =
        deletes.map(|job| (job.marks.attempt, context.run_state(&jobs, &pods, &job.name.name))).collect();
    let recipe = recipe_of_jobs(context, &provisions);
    let volume = !provisions.is_empty() && context.writes.read_volume(&names::pv_name(id)).await?.is_some();
    let seen: Vec<&Job> = provisions.iter().map(Arc::as_ref).collect();
    let decision = late::decide(
        &Observed {
            provisions: &seen,
            pods_alive: pods.iter().any(|pod| pod.marks.operation == "provision" && !pod.is_over()),
            volume,
            recipe: recipe.as_deref(),
            deletes: &deletes,
        },
        context.clock.now(),
    );
    tracing::debug!(id, step = ?decision.step, "decided what is left of a claim that is gone");
    match (decision.step, &recipe, provisions.first()) {
        (Step::Clear, ..) => {
            for job in provisions.iter().chain(jobs.iter().filter(|job| job.marks.operation != "provision")) {
                context.writes.remove_job(&job.name, &job.uid).await?;
            }
            Ok(Pass::Done)
        }
        (Step::StartDelete { attempt }, Some(recipe), Some(provision)) => {
            start(context, recipe, provision, attempt).await
        }
        _ => Ok(context.wait(decision.wake_at, &[])),
    }
}

/// Its request is that of the provision run, which is all that is left.
async fn start(context: &Context, recipe: &Recipe, provision: &Job, attempt: u32) -> Result<Pass, WriteError> {
    let Some(job) = context.writes.read_job(&provision.name).await? else { return Ok(Pass::Done) };
    let env = job.spec.and_then(|spec| spec.template.spec?.containers.into_iter().next()?.env).unwrap_or_default();
    let request = Request::from_env(|name| env.iter().find(|variable| variable.name == name)?.value.clone());
    let request = match request {
        Ok(request) => Request {
            operation: Operation::Delete,
            attempt,
            provision_ts: timestamp(context),
            parameters: recipe.parameters.clone(),
            clone_of: None,
            ..request
        },
        Err(error) => {
            tracing::warn!(job = %provision.name, %error, "what a run of a claim that is gone was asked cannot be read; look whether it left storage behind, and remove the Job");
            return Ok(Pass::Done);
        }
    };
    let on =
        Some(request.node_name.clone()).filter(|node| recipe.placement == Placement::SelectedNode && !node.is_empty());
    let namespace = recipe.config.namespace.clone();
    let place = Place { namespace, scope: SCOPE.to_owned(), node: on, ..Place::default() };
    tracing::info!(job = %provision.name, "a run came when its claim was gone; what it may have made is deleted");
    match start_delete_job(context, recipe, &request, place, None).await? {
        None => Ok(Pass::Started),
        Some(cause) => {
            tracing::warn!(job = %provision.name, cause.message, "what a late run may have made cannot be deleted now");
            Ok(Pass::After(REFUSED))
        }
    }
}
