//! Tests of deletion: nothing is left, whatever is already gone.

use flex_contract::names;
use flex_contract::reason;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, ServiceAccount};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;

use orchestrator::kubelet::{nfs_volume, request};
use orchestrator::ring::{ADMIN, OWN, Ring, WHILE, annotation, uid};
use orchestrator::wait::{stays, unexpected, until};

/// Ends the pod of each delete run for a volume id, until `reached` ends. There may be more than one run: the deadline
/// or the orchestrator may end a run before the test has seen its pod.
async fn with_deletions<T>(ring: &Ring, id: &str, code: i32, texts: &str, reached: impl Future<Output = T>) -> T {
    let kubelet = async {
        loop {
            for job in ring.jobs(ADMIN, "delete", id).await {
                let of_job = format!("job-name={}", job.name_any());
                let pending = ListParams::default().labels(&of_job).fields("status.phase=Pending");
                if !ring.api::<Pod>(ADMIN).list(&pending).await.unwrap().items.is_empty() {
                    ring.pod_ends_or_is_deleted(&job, code, texts).await;
                }
            }
            tokio::time::sleep(WHILE / 20).await;
        }
    };
    tokio::select! {
        reached = reached => reached,
        () = kubelet => unreachable!("the kubelet never ends"),
    }
}

/// Waits until the config of a zone is stored, so that the next attempt uses it.
async fn is_stored(ring: &Ring, zone: &str) {
    until(format!("the config of zone {zone} is stored"), || async {
        let stored = ring.api::<ControllerRevision>(OWN).list(&ListParams::default()).await.unwrap().items;
        let zone_of = |revision: ControllerRevision| revision.data.map(|data| data.0["data"]["zone"].clone());
        let stored: Vec<_> = stored.into_iter().filter_map(zone_of).collect();
        if stored.iter().any(|stored| stored == zone) { Ok(()) } else { unexpected(stored) }
    })
    .await;
}

/// A driver may have a backend for each zone: the delete run asks for the volume where the attempts did. A pod that could
/// run only there would wait for a node that does not matter for the storage.
#[tokio::test]
async fn a_delete_run_without_a_volume_asks_as_the_attempts_did() {
    let ring = Ring::start().await;
    ring.node("n1").await;
    ring.class("c", names::DEFAULT_PROVISIONER, json!({ "volumeBindingMode": "WaitForFirstConsumer" })).await;
    for (name, zones) in [("alike", ["a", "a"]), ("edited", ["a", "b"])] {
        ring.config("c", "c", &[("zone", zones[0])]).await;
        let selected = json!({ "metadata": { "annotations": { names::SELECTED_NODE: "n1" } } });
        ring.claim_with(name, "c", selected).await;
        let id = uid(&ring.stamped(name).await);
        let first = ring.job(ADMIN, "provision", &id, 1).await;
        assert_eq!(request(&first).node_name, "n1");
        ring.config("c", "c", &[("zone", zones[1])]).await;
        is_stored(&ring, zones[1]).await;
        ring.pod_ends(&first, 75, "busy").await;
        let second = ring.job(ADMIN, "provision", &id, 2).await;
        ring.pod_ends(&second, 75, "busy").await;
        ring.claim_when(name, "has two failed attempts", |claim| {
            annotation(claim, names::FAILURE).is_some_and(|failure| failure.contains(r#""attempt":2"#))
        })
        .await;
        ring.delete_claim(name).await;
        let deletion = ring.job(ADMIN, "delete", &id, 1).await;
        let asked = request(&deletion);
        assert_eq!((asked.node_name.as_str(), asked.attempts_alike), ("n1", zones[0] == zones[1]), "{name}");
        let pod = deletion.spec.clone().unwrap().template.spec.unwrap();
        let labels: Vec<_> = pod.node_selector.into_iter().flatten().map(|(key, _)| key).collect();
        assert_eq!((pod.node_name, labels.as_slice()), (None, [names::OS.to_owned()].as_slice()), "{name}");
        ring.pod_ends(&deletion, 0, "").await;
        if zones[0] != zones[1] {
            let other = until("what the attempt by the earlier config left is deleted, too", || async {
                let all = ring.jobs(ADMIN, "delete", &id).await;
                let other = all.into_iter().find(|job| job.metadata.uid != deletion.metadata.uid);
                other.ok_or_else(|| "there is no other Job".to_owned())
            })
            .await;
            ring.pod_ends(&other, 0, "").await;
        }
        ring.claim_gone(name).await;
    }
}

#[tokio::test]
async fn a_released_volume_is_deleted_by_its_record() {
    let ring = Ring::start().await;
    ring.account("foo").await;
    let data =
        [("zone", "west"), ("service-account-name", "foo"), ("secret-env", "s"), ("timeout", "10s"), ("backoff", "1s")];
    ring.config("c", "c", &data).await;
    ring.class("c", names::DEFAULT_PROVISIONER, json!({ "parameters": { "tier": "1" } })).await;
    ring.claim("a", "c").await;
    let id = uid(&ring.stamped("a").await);
    let job = ring.job(ADMIN, "provision", &id, 1).await;
    let volume = nfs_volume(&job);
    ring.create_volume(&volume).await;
    ring.bound("a").await;
    // Its time may be over.
    ring.pod_ends_or_is_deleted(&job, 0, "").await;
    ring.api::<ServiceAccount>(ADMIN).delete("foo", &DeleteParams::default()).await.unwrap();
    // Config and class change and are deleted: the delete run gets the values with which the volume was made.
    ring.config("c", "c", &[("zone", "moved")]).await;
    Api::<StorageClass>::all(ring.client.clone()).delete("c", &DeleteParams::default()).await.unwrap();
    ring.api::<ConfigMap>(ADMIN).delete("c", &DeleteParams::default()).await.unwrap();
    ring.delete_claim("a").await;
    ring.claim_gone("a").await;
    let job = ring.job_alone(ADMIN, "delete", &id, 1).await;
    let asked = request(&job);
    assert_eq!((asked.volume_id.as_str(), asked.pv_name.as_str()), (id.as_str(), names::pv_name(&id).as_str()));
    assert!(asked.volume_source.contains(&format!("\"path\":\"/{id}\"")), "{}", asked.volume_source);
    let spec = job.spec.clone().unwrap().template.spec.unwrap();
    let env = spec.containers[0].env.clone().unwrap();
    let value = |name: &str| env.iter().find(|v| v.name == name).and_then(|v| v.value.clone());
    assert_eq!((value("ZONE").as_deref(), value("TIER").as_deref()), (Some("west"), Some("1")));
    assert_eq!(spec.containers[0].env_from.as_ref().unwrap()[0].secret_ref.as_ref().unwrap().optional, Some(true));

    // The account is gone too: an event says so, and the next run uses no account.
    let name = volume.metadata.name.clone().unwrap();
    ring.event("default", &name, reason::VOLUME_FAILED_DELETE, "serviceaccount \"foo\" not found").await;
    let told = ring.event("default", &name, reason::VOLUME_FAILED_DELETE, "in use");
    with_deletions(&ring, &id, 75, "in use", told).await;
    with_deletions(&ring, &id, 0, "", ring.volume_gone(&name)).await;
    ring.forget_failed_jobs().await;
    ring.nothing_left().await;
}

#[tokio::test]
async fn a_volume_is_deleted_once_whatever_happens_to_it_during_the_delete_run() {
    let ring = Ring::start().await;
    ring.config("c", "c", &[]).await;
    ring.claim("a", "c").await;
    let (_, volume) = ring.provision("a").await;
    let (id, name) = (uid(&ring.get_claim("a").await), volume.metadata.name.unwrap());
    // A foreign finalizer keeps the volume longer than the orchestrator does.
    let patch = |patch: serde_json::Value| {
        let volumes = ring.volumes();
        let name = name.clone();
        async move {
            volumes
                .patch(&name, &PatchParams::default(), &Patch::Json::<()>(serde_json::from_value(patch).unwrap()))
                .await
        }
    };
    let other = json!([{ "op": "add", "path": "/metadata/finalizers/-", "value": "example.com/keeps" }]);
    patch(other).await.unwrap();
    ring.delete_claim("a").await;
    let job = ring.job(ADMIN, "delete", &id, 1).await;
    ring.pod_ends(&job, 0, "").await;
    let log_line = "the storage and the volume are deleted";
    ring.logged(log_line).await;
    until("only the foreign finalizer is left", || async {
        let held_by = ring.volumes().get(&name).await.unwrap().metadata.finalizers.unwrap_or_default();
        if held_by == ["example.com/keeps"] { Ok(()) } else { unexpected(held_by) }
    })
    .await;
    for round in 0..3 {
        patch(json!([{ "op": "add", "path": "/metadata/labels/example.com~1look", "value": round.to_string() }]))
            .await
            .unwrap();
        tokio::time::sleep(WHILE / 4).await;
    }
    patch(json!([{ "op": "remove", "path": "/metadata/finalizers" }])).await.unwrap();
    ring.volume_gone(&name).await;
    ring.nothing_left().await;
    let deletions = ring.log_text().lines().filter(|line| line.contains(log_line)).count();
    assert_eq!(deletions, 1, "the volume is deleted once");
}

/// The namespace waits for nobody, and its Role is deleted with it, so that requests there are forbidden. The orchestrator
/// deletes from its own namespace.
#[tokio::test]
async fn a_volume_and_what_a_claim_left_are_deleted_after_the_namespace_of_their_config() {
    let mut ring = Ring::without_orchestrator(&[]).await;
    ring.with_shipped_rights();
    ring.run().await;
    ring.config("c", "c", &[("zone", "west"), ("backoff", "1h..2h")]).await;
    ring.claim("bound", "c").await;
    let (_, volume) = ring.provision("bound").await;
    let bound = uid(&ring.get_claim("bound").await);
    let failed = uid(&ring.claim("failed", "c").await);
    let job = ring.job(ADMIN, "provision", &failed, 1).await;
    ring.pod_ends(&job, 75, "busy").await;
    ring.claim_when("failed", "has failed", |claim| annotation(claim, names::FAILURE).is_some()).await;
    ring.recorded("failed").await;
    ring.kill().await;
    let namespaces = Api::<Namespace>::all(ring.client.clone());
    namespaces.delete(ADMIN, &DeleteParams::default()).await.unwrap();
    until("the namespace is gone", || async {
        match namespaces.get_opt(ADMIN).await.unwrap() {
            None => Ok(()),
            Some(namespace) => unexpected(namespace.status),
        }
    })
    .await;
    ring.delete_claim("failed").await;
    ring.claim_vanished("failed").await;
    ring.run().await;
    ring.delete_claim("bound").await;
    for id in [&bound, &failed] {
        let job = ring.job(OWN, "delete", id, 1).await;
        let pod = job.spec.clone().unwrap().template.spec.unwrap();
        assert_eq!(pod.service_account_name, None);
        let zone = pod.containers[0].env.iter().flatten().find(|variable| variable.name == "ZONE").cloned();
        let zone = zone.and_then(|zone| zone.value);
        assert_eq!(zone.as_deref(), Some("west"), "volume and record keep the recipe of their run");
        ring.pod_ends(&job, 0, "").await;
    }
    ring.volume_gone(volume.metadata.name.as_deref().unwrap()).await;
    ring.no_records().await;
    ring.nothing_left().await;
}

/// An attempt in another zone may have left storage of the same id there.
#[tokio::test]
async fn what_other_configs_left_is_deleted_with_the_volume_and_not_before() {
    for binding in ["direct", "controller"] {
        let ring = Ring::start_with(&["--binding", binding]).await;
        ring.config("c", "c", &[("zone", "west"), ("backoff", "1s")]).await;
        let id = uid(&ring.claim("a", "c").await);
        let first = ring.job(ADMIN, "provision", &id, 1).await;
        ring.config("c", "c", &[("zone", "east"), ("backoff", "1s")]).await;
        is_stored(&ring, "east").await;
        ring.pod_ends(&first, 75, "busy").await;
        let second = ring.job(ADMIN, "provision", &id, 2).await;
        ring.create_volume(&nfs_volume(&second)).await;
        ring.bound("a").await;
        ring.pod_ends(&second, 0, "").await;
        ring.unrecorded("a").await;
        stays("no delete run begins", WHILE, || async {
            let jobs = ring.jobs(ADMIN, "delete", &id).await;
            if jobs.is_empty() { Ok(()) } else { unexpected(jobs) }
        })
        .await;
        ring.delete_claim("a").await;
        let east = ring.job_on("delete", &id, "east").await;
        assert_eq!(ring.jobs(ADMIN, "delete", &id).await.len(), 1, "one run after the other");
        ring.pod_ends(&east, 0, "").await;
        let west = ring.job_on("delete", &id, "west").await;
        assert!(request(&west).volume_source.is_empty() && !request(&east).volume_source.is_empty());
        ring.pod_ends(&west, 0, "").await;
        ring.volume_gone(&names::pv_name(&id)).await;
        ring.nothing_left().await;
    }
}

#[tokio::test]
async fn a_volume_deleted_by_hand_is_deleted_with_its_storage_once_its_claim_is_gone() {
    let ring = Ring::start().await;
    ring.config("c", "c", &[]).await;
    ring.claim("a", "c").await;
    let (_, volume) = ring.provision("a").await;
    let name = volume.metadata.name.unwrap();
    let id = uid(&ring.get_claim("a").await);
    ring.volumes().delete(&name, &DeleteParams::default()).await.unwrap();
    stays("no delete run while the claim lives", WHILE, || async {
        if ring.jobs(ADMIN, "delete", &id).await.is_empty() { Ok(()) } else { Err("a delete Job".into()) }
    })
    .await;
    ring.delete_claim("a").await;
    let job = ring.job(ADMIN, "delete", &id, 1).await;
    ring.pod_ends(&job, 0, "").await;
    ring.volume_gone(&name).await;
    ring.nothing_left().await;
}
