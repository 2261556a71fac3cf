//! The writers of a Job, as the API server records them: who created the Job, and who suspended it.

use flex_contract::names;
use k8s_openapi::api::batch::v1 as batch;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};

use super::run_labels::seconds;
use crate::text::name;

/// The labels of Velero on all objects that it creates again.
const OF_VELERO: [&str; 2] = ["velero.io/restore-name", "velero.io/backup-name"];

/// The longest time that admission may take between the API server's record of the writer and the creation, in seconds.
/// No request takes longer.
const LONGEST_ADMISSION: i64 = 60;

/// Checks whether somebody else than an orchestrator created the Job, as the API server records. The request of the
/// orchestrator names its field manager. Another client has another name; a tool that saves and restores the record,
/// too, restores the time of the earlier Job. Without any record only the labels count.
pub(super) fn was_created_by_other(metadata: &ObjectMeta) -> bool {
    let labels = metadata.labels.as_ref();
    let is_of_velero = OF_VELERO.iter().any(|key| labels.is_some_and(|labels| labels.contains_key(*key)));
    let created = seconds(metadata.creation_timestamp.as_ref());
    let is_own = |entry: &ManagedFieldsEntry| {
        entry.manager.as_deref() == Some(names::FIELD_MANAGER)
            && entry.operation.as_deref() == Some("Update")
            && entry.subresource.as_deref().unwrap_or_default().is_empty()
            && seconds(entry.time.as_ref()).saturating_add(LONGEST_ADMISSION) >= created
    };
    let writers = metadata.managed_fields.as_deref().unwrap_or_default();
    is_of_velero || (!writers.is_empty() && !writers.iter().any(is_own))
}

/// The suspension of a Job, for which Kubernetes makes no pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Suspension {
    /// The field manager that suspended the Job; `None` if that happened while the Job was created.
    pub by: Option<String>,
    /// The time, in seconds since 1970.
    pub since: i64,
}

/// Reads whether a Job is suspended.
pub(super) fn suspension(job: &batch::Job) -> Option<Suspension> {
    job.spec.as_ref().filter(|spec| spec.suspend == Some(true))?;
    let conditions = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let told = conditions.filter(|c| c.type_ == "Suspended" && c.status == "True").find_map(|c| {
        let at = seconds(c.last_transition_time.as_ref());
        (at > 0).then_some(at)
    });
    let wrote = |entry: &&ManagedFieldsEntry| {
        entry.fields_v1.as_ref().is_some_and(|fields| fields.0.pointer("/f:spec/f:suspend").is_some())
    };
    let managers = job
        .metadata
        .managed_fields
        .iter()
        .flatten()
        .filter(wrote)
        .filter_map(|entry| entry.manager.as_deref().map(name));
    Some(Suspension {
        by: managers.into_iter().find(|manager| manager != names::FIELD_MANAGER),
        since: told.unwrap_or_else(|| seconds(job.metadata.creation_timestamp.as_ref())),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const CREATED: &str = "2026-01-01T00:10:00Z";

    fn is_of_other(labels: Value, writers: Value) -> bool {
        let metadata = json!({ "creationTimestamp": CREATED, "labels": labels, "managedFields": writers });
        was_created_by_other(&serde_json::from_value(metadata).unwrap())
    }

    fn writer(manager: &str, operation: &str, time: &str) -> Value {
        json!({ "manager": manager, "operation": operation, "apiVersion": "batch/v1", "time": time,
                "fieldsType": "FieldsV1", "fieldsV1": { "f:spec": { "f:suspend": {} } } })
    }

    #[test]
    fn a_job_counts_as_created_by_other_unless_the_orchestrator_wrote_it_then() {
        let own = writer(names::FIELD_MANAGER, "Update", CREATED);
        let mut status = writer("kube-controller-manager", "Update", "2026-01-01T00:10:05Z");
        status["subresource"] = "status".into();
        let tool = writer("velero-server", "Update", CREATED);
        for (why, is_other, labels, writers) in [
            ("the orchestrator's request", false, json!({}), json!([own])),
            ("the Job controller reports", false, json!({}), json!([own, status])),
            ("a queue has changed it since", false, json!({}), json!([own, writer("kueue", "Apply", CREATED)])),
            (
                "slow webhooks",
                false,
                json!({}),
                json!([writer(names::FIELD_MANAGER, "Update", "2026-01-01T00:09:20Z")]),
            ),
            ("nothing is recorded", false, json!({}), json!([])),
            ("a tool without labels", true, json!({}), json!([tool, status])),
            ("server-side apply of a saved Job", true, json!({}), json!([writer("kubectl", "Apply", CREATED)])),
            ("a label", true, json!({ OF_VELERO[0]: "a" }), json!([own])),
            ("the other label", true, json!({ OF_VELERO[1]: "b" }), json!([])),
            (
                "the record of the earlier Job",
                true,
                json!({}),
                json!([writer(names::FIELD_MANAGER, "Update", "2026-01-01T00:08:59Z")]),
            ),
        ] {
            assert_eq!(is_of_other(labels, writers), is_other, "{why}");
        }
    }

    #[test]
    fn a_suspended_job_names_who_suspended_it() {
        let of = |suspend: Value, writers: Value, conditions: Value| {
            let job = json!({
                "metadata": { "creationTimestamp": CREATED, "managedFields": writers },
                "spec": { "suspend": suspend, "template": {} },
                "status": { "conditions": conditions },
            });
            suspension(&serde_json::from_value(job).unwrap())
        };
        let own = writer(names::FIELD_MANAGER, "Update", CREATED);
        let told = json!([{ "type": "Suspended", "status": "True", "lastTransitionTime": "2026-01-01T00:10:30Z" }]);
        let at_creation = of(json!(true), json!([own]), json!([])).unwrap();
        let by_queue = of(json!(true), json!([own, writer("kueue", "Update", CREATED)]), told).unwrap();
        assert_eq!((at_creation.by, by_queue.by.as_deref()), (None, Some("kueue")));
        assert_eq!(by_queue.since - at_creation.since, 30);
        assert_eq!(of(json!(false), json!([own]), json!([])), None);
        assert_eq!(of(Value::Null, json!([]), json!([])), None, "resumed, or never suspended");
    }
}
