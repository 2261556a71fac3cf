//! The observation of a claim in the form that the decision takes.

use std::sync::Arc;

use flex_contract::request::Operation;

use super::names::{delete_name, provision_name};
use super::observe::{Confirmed, Observation};
use super::served::{is_selected_node_forbidden, serving};
use super::unstarted::has_never_started;
use crate::claim::decide::{
    Admission, Candidate, ConfirmedFacts, Deletion, Nodes, Observed, Pool, Runs, ServedClass, Source, Volumes,
};
use crate::model::claim::Claim;
use crate::reconcile::context::Context;
use crate::reconcile::data_source;
use crate::run::view::{Job, Pod};

/// Makes the observation of the decision, and uses it.
pub(super) fn observed<T>(
    context: &Context,
    claim: &Claim,
    s: &Observation,
    confirmed: &Confirmed,
    then: impl FnOnce(&Observed<'_>) -> T,
) -> T {
    let jobs: Vec<&Job> = s.runs.jobs.iter().map(Arc::as_ref).collect();
    let (volumes, many_wait) = {
        let index = context.shared.index();
        let volumes = s.volumes.all.iter().map(|(volume, mismatches)| Candidate {
            volume,
            mismatches,
            synced: index.is_synced(&volume.name),
            lacks_mark: s.volumes.lacks_mark(&volume.name),
        });
        (volumes.collect::<Vec<_>>(), index.many_wait_for_sync())
    };
    then(&Observed {
        claim,
        class: match (serving(claim, &s.classes), &s.pool.request) {
            (ServedClass::Ours(_), Some(Some(class))) => ServedClass::Ours(class),
            (serving, _) => serving,
        },
        confirmed: ConfirmedFacts { fresh: confirmed.fresh, no_volume: confirmed.no_volume },
        runs: runs(context, claim, s, &jobs),
        deletion: deletion(context, claim, s),
        volumes: Volumes {
            all: &volumes,
            reserved: s.volumes.reserved.as_ref().map(|volume| volume.name.as_str()),
            binding: context.writes.binding(),
            many_wait,
        },
        admission: Admission {
            has_revision: s.admission.has_revision,
            has_slot: s.admission.has_slot,
            quota_error: s.admission.quota_error.as_deref(),
            has_pending_charge: s.admission.has_pending_charge,
            attributes_error: s.admission.attributes.as_ref().err().map(String::as_str),
        },
        nodes: Nodes {
            choice: &s.nodes.choice,
            states: &s.nodes.states,
            with_pods: &s.nodes.with_pods,
            selected_forbidden: is_selected_node_forbidden(context, claim, &s.classes),
        },
        source: Source {
            state: s.source.original.as_ref().map(data_source::SourceObservation::data_source),
            users: &s.source.users,
        },
        pool: Pool {
            is_request: s.pool.request.is_some(),
            volume: s.pool.volume.as_ref().map(|volume| volume.name.as_str()),
        },
    })
}

/// Returns the observation of the provision runs.
fn runs<'a>(context: &Context, claim: &Claim, s: &'a Observation, jobs: &'a [&'a Job]) -> Runs<'a> {
    let provision = |pod: &&Arc<Pod>| pod.run_labels.operation == Operation::Provision;
    let name = provision_name(claim);
    Runs {
        jobs,
        state: context.run_state(&s.runs.jobs, &s.runs.pods, &name),
        recipe: s.recipes.stamped.as_deref(),
        has_running_pods: s.runs.pods.iter().filter(provision).any(|pod| !pod.is_over()),
        never_started: has_never_started(context, claim, s),
        removed: context.shared.index().removed(&claim.id(), &name),
        missed_batch: s.runs.missed_batch,
    }
}

/// Returns the observation of the delete run that is due.
fn deletion<'a>(context: &Context, claim: &Claim, s: &'a Observation) -> Deletion<'a> {
    let name = delete_name(claim, &s.nodes.states);
    let is_known = s.recipes.stamped.is_some() || matches!(serving(claim, &s.classes), ServedClass::Ours(_));
    Deletion {
        state: context.delete_state(Operation::Delete, &claim.id(), (&s.runs.deletes, &s.runs.pods), &name),
        job: s.runs.deletes.iter().map(Arc::as_ref).find(|job| job.name.name == name),
        recipe: s.recipes.deletion.as_deref().filter(|_| is_known),
    }
}
