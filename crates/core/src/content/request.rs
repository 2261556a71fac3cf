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
        handle: content.storage_id().unwrap_or_default().to_owned(),
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
    use flex_contract::names;
    use serde_json::json;

    use super::*;
    use crate::config::effective_config::EffectiveConfig;
    use crate::limits;
    use crate::model::snapshot::api::VolumeSnapshotContent;
    use crate::object::ObjectName;
    use crate::run::view::ContainerEnd;
    use crate::status_reason::message_of;

    const UID: &str = "0d9c2f0e-0000-4000-8000-000000000001";

    fn basis() -> SnapshotBasis {
        let data = [("image", "x"), ("backoff", "10s..60s")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        let effective_config = EffectiveConfig {
            config: ObjectName::new("admin", "silver"),
            class: "silver".into(),
            data: data.into(),
            ..EffectiveConfig::default()
        };
        let recipe = effective_config.recipe().unwrap();
        let provenance = SnapshotProvenance {
            effective_config,
            origin_node: None,
            volume_id: "v".into(),
            pv_name: "pvc-v".into(),
            size: 1 << 30,
            volume_mode: "Filesystem".into(),
            content_uid: Some("c".into()),
        };
        SnapshotBasis { provenance, recipe }
    }

    /// Returns a content with the handles of its spec and of its status. It has the record of a snapshot if that is
    /// wanted.
    fn content(name: &str, is_recorded: bool, handle: Option<&str>, status: Option<&str>) -> Content {
        let annotations = match is_recorded {
            true => json!({ names::PROVENANCE: json!(basis().provenance).to_string() }),
            false => json!({}),
        };
        let stored = json!({
            "metadata": { "name": name, "uid": "again", "annotations": annotations },
            "spec": {
                "deletionPolicy": "Delete", "driver": names::DEFAULT_PROVISIONER, "source": { "snapshotHandle": handle },
                "volumeSnapshotRef": { "namespace": "team", "name": "monday", "uid": UID },
            },
            "status": { "snapshotHandle": status, "readyToUse": true },
        });
        Content::from(&serde_json::from_value::<VolumeSnapshotContent>(stored).unwrap())
    }

    /// Returns `SNAPSHOT_ID`, `SNAPSHOT_HANDLE` and `SNAPSHOT_OF`, which are the same in all later runs.
    fn ids(content: &Content) -> (String, String, String) {
        let ids = |snapshot: Snapshot| (snapshot.id, snapshot.handle, snapshot.of);
        let restore = ids(snapshot_properties(content));
        let start = AttemptStart { attempt: 1, ts: "now".into() };
        let (operation, identity) = (Operation::DeleteSnapshot, Identity::of_tests());
        let delete = request(operation, content, &basis(), &identity, "", start, SourceVolume::default());
        assert_eq!(ids(delete.snapshot.unwrap()), restore);
        restore
    }

    fn texts(id: &str, handle: &str, of: &str) -> (String, String, String) {
        (id.into(), handle.into(), of.into())
    }

    /// An exported content has its annotations, and a person writes the storage's id into its spec.
    #[test]
    fn a_content_that_is_created_again_has_the_id_of_the_storage() {
        let own = names::content_name(UID);
        for name in ["saved", own.as_str()] {
            for status in [None, Some("snap-7")] {
                let again = content(name, true, Some("snap-7"), status);
                assert_eq!(ids(&again), texts("snap-7", "snap-7", "v"), "{name} {status:?}");
            }
        }
        assert_eq!(ids(&content(&own, true, None, Some("snap-7"))), texts(UID, "snap-7", "v"), "as the run left it");
        // The storage gave no id, so that the exported status has the UID.
        assert_eq!(ids(&content(&own, true, None, Some(UID))), texts(UID, "", "v"));
        assert_eq!(ids(&content(&own, true, Some(UID), None)), texts(UID, "", "v"));
        assert_eq!(ids(&content("saved", false, Some("snap-7"), None)), texts("snap-7", "", ""), "made by hand");
    }

    #[test]
    fn the_longest_id_of_the_storage_reaches_all_later_runs() {
        let own = names::content_name(UID);
        let longest = "x".repeat(snapshot_handle::LONGEST);
        let words = message_of(snapshot_handle::line(&longest));
        let job = Job { uid: "j".into(), ..Job::default() };
        let end = ContainerEnd { container: CONTAINER.into(), code: 0, reason: String::new(), message: words, at: 1 };
        let pod = Pod { job_uid: "j".into(), terminated: Some(end), ..Pod::default() };
        assert_eq!(handed_back(&job, [&pod]), Some(Some(longest.clone())));
        let made = content(&own, true, None, Some(&longest));
        assert_eq!(ids(&made), texts(UID, &longest, "v"));
        let again = content("saved", true, Some(&longest), None);
        assert_eq!(ids(&again), texts(&longest, &longest, "v"));
        let by_hand = content("saved", false, Some(&longest), None);
        assert_eq!(ids(&by_hand), texts(&longest, "", ""));
        assert!(!made.has_long_id() && !again.has_long_id() && !by_hand.has_long_id());

        // A longer one is not taken for another snapshot's, however much of it is kept.
        for more in ["x", "é", &"é".repeat(limits::HANDLE)] {
            let longer = format!("{longest}{more}");
            assert!(content(&own, true, None, Some(&longer)).has_long_id());
            assert!(content("saved", true, Some(&longer), None).has_long_id());
            assert!(content("saved", false, Some(&longer), None).has_long_id());
        }
    }

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
