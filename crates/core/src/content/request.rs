//! The request to an image for a snapshot.

use flex_contract::names::CONTAINER;
use flex_contract::operation::Operation;
use flex_contract::request::{ClaimRef, RunRequest, Snapshot};
use flex_contract::snapshot_handle;

use crate::config::Recipe;
use crate::config::classes::Identity;
use crate::model::snapshot::Content;
use crate::model::snapshot::SnapshotProvenance;
use crate::run::request::{AttemptStart, of_class};
use crate::run::view::{Job, Pod};

/// The provenance of a snapshot, with the recipe of its runs.
#[derive(Clone, Debug)]
pub struct SnapshotBasis {
    /// The provenance that the content has, or will get.
    pub provenance: SnapshotProvenance,
    /// The recipe of the runs.
    pub recipe: Recipe,
}

/// The volume of which a snapshot is taken, as a run gets it.
#[derive(Clone, Debug, Default)]
pub struct SourceVolume {
    /// The claim of the volume, where it is known.
    pub claim: ClaimRef,
    /// The spec of the volume as JSON.
    pub spec: String,
}

/// Builds the request of a snapshot or delete-snapshot run from the provenance on the content.
pub fn request(
    operation: Operation,
    content: &Content,
    SnapshotBasis { provenance, recipe }: &SnapshotBasis,
    identity: &Identity,
    kube_api: &str,
    start: AttemptStart,
    source: SourceVolume,
) -> RunRequest {
    RunRequest {
        volume_id: provenance.volume_id.clone(),
        pv_name: provenance.pv_name.clone(),
        claim: source.claim,
        size_bytes: provenance.size,
        snapshot: Some(Snapshot {
            id: content.id().to_owned(),
            namespace: content.snapshot.namespace.clone(),
            name: content.snapshot.name.clone(),
            ..snapshot_properties(content)
        }),
        volume_mode: provenance.volume_mode.as_str().into(),
        node_name: provenance.origin_node.clone().unwrap_or_default(),
        volume_source: source.spec,
        ..of_class(operation, recipe, identity, kube_api, start)
    }
}

/// Describes the snapshot for a provision run that restores it.
pub fn snapshot_properties(content: &Content) -> Snapshot {
    let made_by = content.made_by();
    let provenance = made_by.as_ref();
    Snapshot {
        id: content.source_id().to_owned(),
        handle: content.handed_back().unwrap_or_default().to_owned(),
        of: provenance.map(|made_by| made_by.volume_id.clone()).unwrap_or_default(),
        size_bytes: content.size.or(provenance.map(|made_by| made_by.size)),
        node: provenance.and_then(|made_by| made_by.origin_node.clone()).unwrap_or_default(),
        ..Snapshot::default()
    }
}

/// Returns what the pod of a run handed back, in an answer for the run's Job; `None` if none of the pods has ended well.
/// The answer is the handle, if there is one.
pub fn handed_back<'a>(job: &Job, pods: impl IntoIterator<Item = &'a Pod>) -> Option<Option<String>> {
    let own = pods.into_iter().filter(|pod| pod.job_uid == job.uid).filter_map(|pod| pod.terminated.as_ref());
    let mut ended = own.filter(|end| end.container == CONTAINER && end.code == 0);
    ended.next().map(|end| snapshot_handle::read(&end.message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::view::ContainerEnd;

    #[test]
    fn the_image_of_this_job_hands_back_the_handle() {
        let job = Job { uid: "j".into(), ..Job::default() };
        let pod = |job_uid: &str, container: &str, code: i32, message: &str| Pod {
            job_uid: job_uid.into(),
            terminated: Some(ContainerEnd {
                container: container.into(),
                code,
                reason: String::new(),
                message: message.into(),
                at: 1,
            }),
            ..Pod::default()
        };
        let good = "flex-snapshot 1 snap-1";
        let of = |pods: &[Pod]| handed_back(&job, pods);
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[Pod { job_uid: "j".into(), ..Pod::default() }]), None, "its end is not seen yet");
        assert_eq!(of(&[pod("other", CONTAINER, 0, good)]), None);
        assert_eq!(of(&[pod("j", "sidecar", 0, good)]), None);
        assert_eq!(of(&[pod("j", CONTAINER, 75, good)]), None);
        assert_eq!(of(&[pod("j", CONTAINER, 0, "done")]), Some(None));
        assert_eq!(of(&[pod("j", CONTAINER, 1, "x"), pod("j", CONTAINER, 0, good)]), Some(Some("snap-1".into())));
    }
}
