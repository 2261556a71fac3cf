//! The observation of a claim in the form that the decision takes.

use std::sync::Arc;

use flex_contract::operation::Operation;
use flex_core::claim::decide::{
    Candidate, ConfirmedFacts, Deletion, Nodes, Observed, PoolRelation, Preconditions, Runs, ServedClass,
    SourceRelation, Volumes,
};
use flex_core::model::claim::Claim;
use flex_core::run::view::{Job, Pod};

use super::names::{delete_job_name, provision_job_name};
use super::observe::{Confirmed, Observation};
use super::served::{is_selected_node_forbidden, served_class};
use super::unstarted::has_never_started;
use crate::reconcile::context::{Context, RunObjects};
use crate::reconcile::data_source;

/// Makes the observation of the decision, and uses it.
pub(super) fn observed<T>(
    context: &Context,
    claim: &Claim,
    observation: &Observation,
    confirmed: &Confirmed,
    then: impl FnOnce(&Observed<'_>) -> T,
) -> T {
    let jobs: Vec<&Job> = observation.runs.jobs.iter().map(Arc::as_ref).collect();
    let (volumes, many_wait) = {
        let index = context.cluster.index();
        let volumes = observation.volumes.all.iter().map(|verified| Candidate {
            volume: &verified.volume,
            mismatches: &verified.mismatches,
            reaching: &verified.reaching,
            seen_by_probe: index.is_synced(&verified.volume.name),
            lacks_mark: observation.volumes.lacks_mark(&verified.volume.name),
        });
        (volumes.collect::<Vec<_>>(), index.many_wait_for_sync())
    };
    then(&Observed {
        claim,
        class: match (served_class(claim, &observation.classes), observation.pool.request.class()) {
            (ServedClass::Ours(_), Some(class)) => ServedClass::Ours(class),
            (served_class, _) => served_class,
        },
        confirmed: ConfirmedFacts { fresh: confirmed.fresh, no_volume: confirmed.no_volume },
        runs: runs(context, claim, observation, &jobs),
        deletion: deletion(context, claim, observation),
        volumes: Volumes {
            all: &volumes,
            reserved: observation.volumes.reserved.as_ref().map(|volume| volume.name.as_str()),
            binding: context.writes.binding(),
            many_wait,
        },
        preconditions: Preconditions {
            class_certainty: observation.preconditions.class_certainty,
            has_revision: observation.preconditions.has_revision,
            no_slot: observation.preconditions.no_slot,
            namespace_refusal: observation.preconditions.namespace_refusal.as_deref(),
            quota_refusal: observation.preconditions.quota_refusal.as_deref(),
            has_pending_charge: observation.preconditions.has_pending_charge,
            has_namesake: observation.preconditions.has_namesake,
            left_refusal: observation.preconditions.left_refusal.as_deref(),
            attributes_error: observation.preconditions.attributes.as_ref().err().map(String::as_str),
        },
        nodes: Nodes {
            choice: &observation.nodes.choice,
            states: &observation.nodes.states,
            with_pods: &observation.nodes.with_pods,
            selected_forbidden: is_selected_node_forbidden(context, claim, &observation.classes),
        },
        source: SourceRelation {
            state: observation.source.data_source.as_ref().map(data_source::SourceObservation::data_source),
            users: &observation.source.users,
        },
        pool: PoolRelation {
            is_request: observation.pool.request.is_request(),
            volume: observation.pool.volume.as_ref().map(|volume| volume.name.as_str()),
        },
    })
}

/// Returns the observation of the provision runs.
fn runs<'a>(context: &Context, claim: &Claim, observation: &'a Observation, jobs: &'a [&'a Job]) -> Runs<'a> {
    let provision = |pod: &&Arc<Pod>| pod.run_labels.operation == Operation::Provision;
    let name = provision_job_name(claim);
    Runs {
        jobs,
        state: context.run_state(&observation.runs.jobs, &observation.runs.pods, &name),
        recipe: observation.recipes.stamped.as_deref(),
        has_running_pods: observation.runs.pods.iter().filter(provision).any(|pod| !pod.is_over()),
        never_started: has_never_started(context, claim, observation),
        removed: context.cluster.index().removed(&claim.volume_id(), &name),
        recorded: &observation.runs.recorded,
    }
}

/// Returns the observation of the delete run that is due.
fn deletion<'a>(context: &Context, claim: &Claim, observation: &'a Observation) -> Deletion<'a> {
    let name = delete_job_name(claim, &observation.nodes.states);
    let mut deletes = observation.runs.deletes.iter().map(Arc::as_ref);
    let is_known = observation.recipes.stamped.is_some()
        || matches!(served_class(claim, &observation.classes), ServedClass::Ours(_));
    Deletion {
        state: context.delete_state(
            Operation::Delete,
            &claim.volume_id(),
            RunObjects { jobs: &observation.runs.deletes, pods: &observation.runs.pods },
            &name,
        ),
        job: match claim.abandoned {
            false => deletes.find(|job| job.name.name == name),
            true => deletes.filter(|job| !job.is_over).min_by_key(|job| job.terminating),
        },
        recipe: observation.recipes.deletion.as_deref().filter(|_| is_known),
    }
}
