use k8s_openapi::api::core::v1 as core;

use flex_contract::names::CONTAINER;

use super::*;

#[test]
fn a_job_of_another_cluster_is_a_copy() {
    let is_copy = |cluster: Option<&str>, own: &str| {
        let annotations = cluster.map(|cluster| serde_json::json!({ names::CLUSTER: cluster }));
        let job = serde_json::json!({ "metadata": { "annotations": annotations } });
        let identity = Identity { cluster: own.to_owned(), ..Identity::of_tests() };
        Job::from(&serde_json::from_value::<batch::Job>(job).unwrap()).is_copy(&identity)
    };
    assert!(is_copy(Some("there"), "here"));
    assert!(!is_copy(Some("here"), "here"));
    assert!(!is_copy(None, "here") && !is_copy(Some(""), "here"), "a Job of an earlier version");
    assert!(!is_copy(Some("there"), ""), "the orchestrator does not know its cluster");
}

#[test]
fn a_job_that_is_much_younger_than_its_request_may_be_restored() {
    let may_be_restored = |created: &str, requested: Option<&str>| {
        let annotations = requested.map(|at| serde_json::json!({ names::JOB_REQUESTED: at }));
        let job = serde_json::json!({ "metadata": { "creationTimestamp": created, "annotations": annotations } });
        Job::from(&serde_json::from_value::<batch::Job>(job).unwrap()).may_be_restored()
    };
    let requested = Some("2026-01-01T00:00:00.123456Z");
    assert!(!may_be_restored("2026-01-01T00:00:00Z", requested));
    assert!(!may_be_restored("2026-01-01T00:10:00Z", requested), "the request was on its way");
    assert!(may_be_restored("2026-01-01T00:10:01Z", requested));
    assert!(may_be_restored("2026-02-01T00:00:00Z", requested));
    assert!(!may_be_restored("2025-12-31T23:00:00Z", requested), "clocks differ");
    assert!(!may_be_restored("2026-02-01T00:00:00Z", None), "a Job of an earlier version");
}

/// Kubernetes says that a pod with gates has no node, and says so until the scheduler has looked at the opened pod.
#[test]
fn a_closed_pod_proves_nothing_and_only_gates_of_others_hold_a_run() {
    let pod = |gates: &[&str], reason: &str, container: bool| {
        let gates: Vec<_> = gates.iter().map(|name| serde_json::json!({ "name": name })).collect();
        let never = serde_json::json!({
            "name": CONTAINER, "image": "i", "imageID": "", "ready": false, "restartCount": 0,
            "state": { "terminated": { "exitCode": 137, "reason": "ContainerStatusUnknown" } },
        });
        let condition =
            serde_json::json!({ "type": "PodScheduled", "status": "False", "reason": reason, "message": "words" });
        let pod = serde_json::json!({
            "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" },
            "spec": { "containers": [], "schedulingGates": gates },
            "status": {
                "phase": if container { "Failed" } else { "Pending" },
                "conditions": [condition],
                "containerStatuses": if container { vec![never] } else { vec![] },
            },
        });
        Pod::from(&serde_json::from_value::<core::Pod>(pod).unwrap())
    };
    for container in [false, true] {
        assert!(!pod(&[names::START_GATE], "SchedulingGated", container).never_started);
        assert!(pod(&["example.org/hold"], "SchedulingGated", container).never_started);
        assert!(pod(&[], "Unschedulable", container).never_started);
    }
    let held = |gates: &[&str], reason| pod(gates, reason, false).stuck.map(|stuck| stuck.message);
    assert_eq!(held(&[names::START_GATE], "SchedulingGated"), None);
    assert_eq!(held(&[], "SchedulingGated"), None, "the scheduler has not looked at it since its opening");
    assert!(held(&[names::START_GATE, "example.org/hold"], "SchedulingGated").unwrap().ends_with(": example.org/hold"));
    assert_eq!(held(&[], "Unschedulable").as_deref(), Some("words"));
}

/// These are the statuses of Kubernetes 1.36 for deleted pods, by the reason why they had not started.
#[test]
fn the_statuses_of_kubernetes_show_whether_a_container_has_run() {
    let pod = |node: Option<&str>, phase: &str, container: serde_json::Value| {
        let mut status = serde_json::json!({ "name": CONTAINER, "image": "i", "ready": false, "restartCount": 0 });
        status.as_object_mut().unwrap().extend(container.as_object().unwrap().clone());
        let pod = serde_json::json!({
            "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" },
            "spec": { "nodeName": node, "containers": [] },
            "status": { "phase": phase, "containerStatuses": [status] },
        });
        Pod::from(&serde_json::from_value::<core::Pod>(pod).unwrap())
    };
    let unknown = serde_json::json!({
        "imageID": "", "state": { "terminated": { "exitCode": 137, "reason": "ContainerStatusUnknown", "message": "The container could not be located when the pod was terminated" } },
    });
    let unpulled = pod(Some("n"), "Failed", unknown.clone());
    assert!(
        unpulled.never_started && !unpulled.started && unpulled.terminated.is_none(),
        "invented words are no last words"
    );
    let mut lost = unknown;
    lost["imageID"] = "sha256:1".into();
    assert!(!pod(Some("n"), "Failed", lost).never_started, "the container may have run, and is lost");
    let refused = serde_json::json!({
        "imageID": "sha256:1", "containerID": "containerd://1",
        "state": { "terminated": { "exitCode": 128, "reason": "StartError", "message": "no such file", "startedAt": "1970-01-01T00:00:00Z" } },
    });
    let refused = pod(Some("n"), "Failed", refused);
    assert!(refused.never_started && refused.terminated.is_some(), "the reason why it could not start is reported");
    let waiting = serde_json::json!({ "imageID": "", "state": { "waiting": { "reason": "ErrImagePull" } } });
    assert!(!pod(Some("n"), "Pending", waiting.clone()).never_started, "the container may still start");
    assert!(!pod(None, "Pending", waiting).never_started, "the scheduler has not reported that it has no node");
    let unplaced: core::Pod = serde_json::from_value(serde_json::json!({
        "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" },
        "status": { "phase": "Pending", "conditions": [{ "type": "PodScheduled", "status": "False", "reason": "Unschedulable" }] },
    }))
    .unwrap();
    assert!(Pod::from(&unplaced).never_started, "a deleted pod gets no node any more");
    let ended = serde_json::json!({ "imageID": "sha256:1", "state": { "terminated": { "exitCode": 1, "startedAt": "2026-01-01T00:00:00Z" } } });
    assert!(!pod(Some("n"), "Failed", ended).never_started);
}

#[test]
fn the_policy_of_the_image_says_whether_its_log_is_read() {
    let reads_log = |containers: serde_json::Value| {
        let pod = serde_json::json!({ "spec": { "containers": containers } });
        Pod::from(&serde_json::from_value::<core::Pod>(pod).unwrap()).reads_log
    };
    let container = |name: &str, policy: &str| serde_json::json!({ "name": name, "terminationMessagePolicy": policy });
    let (fallback, file) = ("FallbackToLogsOnError", "File");
    assert!(reads_log(serde_json::json!([container("side", file), container(CONTAINER, fallback)])));
    assert!(!reads_log(serde_json::json!([container("side", fallback), container(CONTAINER, file)])));
    assert!(!reads_log(serde_json::json!([])));
}

#[test]
fn a_pod_belongs_to_its_run_also_without_its_job() {
    let pod = |metadata: serde_json::Value| {
        Pod::from(&serde_json::from_value::<core::Pod>(serde_json::json!({ "metadata": metadata })).unwrap()).job
    };
    let owner = serde_json::json!([{ "apiVersion": "batch/v1", "kind": "Job", "name": "a", "uid": "u" }]);
    assert_eq!(pod(serde_json::json!({ "ownerReferences": owner })), "a");
    assert_eq!(
        pod(serde_json::json!({ "labels": { "batch.kubernetes.io/job-name": "a" } })),
        "a",
        "after --cascade=orphan"
    );
    assert_eq!(pod(serde_json::json!({})), "");
}
