//! The third ring: each kind of volume and of use that Kubernetes knows, with pods and real data. Each test has its own
//! namespace, so that they run at one time.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use cluster::Snapshotter;
use flex_contract::names;
use flex_contract::reason;
use flex_core::model::snapshot::api::{VolumeSnapshot, VolumeSnapshotClass};
use k8s_openapi::api::apps::v1::{DaemonSet, StatefulSet};
use k8s_openapi::api::core::v1::{ConfigMap, Event, PersistentVolume, Pod, Secret};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use orchestrator::deployed::{
    HOSTPATH, IMAGE, clean, directory, ends_well, local_class, log_of, pod, root, script_class, users, volumes_in,
};
use orchestrator::ring::{OWN, Ring, WHILE, merge, uid};
use orchestrator::wait::{stays, unexpected, until};
use serde_json::{Value, json};

/// Creates a pod with more than one script on one claim.
pub async fn pod_with(ring: &Ring, name: &str, script: &str, more: Value) {
    let mut pod = json!({
        "metadata": { "name": name },
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "containers": [{ "name": "main", "image": IMAGE, "command": ["sh", "-c", script] }],
        },
    });
    let mut container = pod["spec"]["containers"][0].clone();
    merge(&mut container, more["container"].clone());
    pod["spec"]["containers"][0] = container;
    pod["spec"]["volumes"] = more["volumes"].clone();
    ring.api::<Pod>(&ring.user).create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
}

pub fn mounted(volume: Value) -> Value {
    let mount = json!({ "name": "data", "mountPath": "/data" });
    let mut named = json!({ "name": "data" });
    merge(&mut named, volume);
    json!({ "container": { "volumeMounts": [mount] }, "volumes": [named] })
}

pub async fn is_running(ring: &Ring, name: &str) {
    let pods = ring.api::<Pod>(&ring.user);
    until(format!("pod {name} runs"), || async {
        let status = pods.get(name).await.map_err(|error| error.to_string())?.status;
        match status.as_ref().and_then(|status| status.phase.as_deref()) {
            Some("Running") => Ok(()),
            _ => unexpected(status),
        }
    })
    .await;
}

pub async fn delete_pod(ring: &Ring, name: &str) {
    let now = DeleteParams::default().grace_period(0);
    ring.api::<Pod>(&ring.user).delete(name, &now).await.unwrap();
}

/// Returns the directory of a claim of the class `hostpath`.
fn home(id: &str) -> String {
    format!("{HOSTPATH}/{id}")
}

#[tokio::test]
async fn an_ephemeral_volume_is_deleted_with_its_pod() {
    let ring = users("ephemeral").await;
    let spec = json!({
        "storageClassName": "hostpath", "accessModes": ["ReadWriteOnce"],
        "resources": { "requests": { "storage": "1Gi" } },
    });
    let volume = json!({ "ephemeral": { "volumeClaimTemplate": { "spec": spec } } });
    pod_with(&ring, "p", "echo kept > /data/file; cat /data/file", mounted(volume)).await;
    assert_eq!(log_of(&ring, "p").await.trim(), "kept");
    let claim = ring.bound("p-data").await;
    assert_eq!(fs::read_to_string(format!("{}/file", home(&uid(&claim)))).unwrap().trim(), "kept");
    delete_pod(&ring, "p").await;
    ring.claim_gone("p-data").await;
    ring.volume_gone(&names::pv_name(&uid(&claim))).await;
    assert!(!volumes_in(HOSTPATH).contains(&uid(&claim)));
}

#[tokio::test]
async fn a_stateful_set_has_a_volume_for_each_replica() {
    let ring = users("replicas").await;
    let on_node = directory("replicas");
    let before = volumes_in(&on_node);
    local_class(&ring, "replicas", &[]).await;
    let (labels, count) = (json!({ "app": "set" }), 6);
    let container = json!({
        "name": "main", "image": IMAGE, "command": ["sh", "-c", "hostname > /data/name; exec sleep 1000"],
        "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
    });
    let template = json!({
        "metadata": { "name": "data" },
        "spec": {
            "storageClassName": "replicas", "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": { "storage": "1Gi" } },
        },
    });
    let set = json!({
        "metadata": { "name": "set" },
        "spec": {
            "serviceName": "set", "replicas": count, "podManagementPolicy": "Parallel",
            "selector": { "matchLabels": labels },
            "persistentVolumeClaimRetentionPolicy": { "whenDeleted": "Delete", "whenScaled": "Retain" },
            "template": {
                "metadata": { "labels": labels },
                "spec": { "terminationGracePeriodSeconds": 0, "containers": [container] },
            },
            "volumeClaimTemplates": [template],
        },
    });
    let sets = ring.api::<StatefulSet>(&ring.user);
    let began = Instant::now();
    sets.create(&PostParams::default(), &serde_json::from_value(set).unwrap()).await.unwrap();
    until("all replicas are ready", || async {
        let status = sets.get("set").await.map_err(|error| error.to_string())?.status.unwrap_or_default();
        if status.ready_replicas == Some(count) { Ok(()) } else { unexpected(status) }
    })
    .await;
    println!("{count} replicas ready after {:?}", began.elapsed());
    let claims = ring.claims().list(&ListParams::default()).await.unwrap().items;
    for claim in &claims {
        let name = claim.metadata.name.as_deref().unwrap().strip_prefix("data-").unwrap();
        // A container is ready before its program has run.
        until("each replica has its own volume", || async {
            let written = fs::read_to_string(format!("{on_node}/{}/name", uid(claim)));
            if written.as_ref().is_ok_and(|text| text.trim() == name) { Ok(()) } else { unexpected(written) }
        })
        .await;
    }
    assert_eq!((claims.len(), volumes_in(&on_node).len()), (count as usize, before.len() + count as usize));
    sets.delete("set", &DeleteParams::default()).await.unwrap();
    clean(&ring).await;
    assert_eq!(volumes_in(&on_node), before);
}

#[tokio::test]
async fn access_modes_work_as_kubernetes_defines_them() {
    let ring = users("modes").await;
    let mode = |mode: &str| json!({ "spec": { "accessModes": [mode] } });
    let of = |claim: &str, read_only: bool| {
        mounted(json!({ "persistentVolumeClaim": { "claimName": claim, "readOnly": read_only } }))
    };
    ring.claim_with("alone", "hostpath", mode("ReadWriteOncePod")).await;
    ring.claim_with("shared", "hostpath", mode("ReadWriteMany")).await;
    pod_with(&ring, "first", "exec sleep 1000", of("alone", false)).await;
    pod_with(&ring, "writer", "echo for all > /data/text; exec sleep 1000", of("shared", false)).await;
    is_running(&ring, "first").await;
    is_running(&ring, "writer").await;

    // Both pods at one time.
    let read = "until [ -s /data/text ]; do sleep 0.1; done; cat /data/text";
    pod_with(&ring, "reader", read, of("shared", false)).await;
    assert_eq!(log_of(&ring, "reader").await.trim(), "for all");
    // A volume that many may read is a clone of one that a pod has written.
    let source = json!({ "dataSource": { "kind": "PersistentVolumeClaim", "name": "shared" } });
    let mut many = mode("ReadOnlyMany");
    merge(&mut many, json!({ "spec": source }));
    ring.claim_with("readable", "hostpath", many).await;
    let script = "cat /data/text; touch /data/mine 2>/dev/null || echo refused";
    for name in ["one", "two"] {
        pod_with(&ring, name, script, of("readable", true)).await;
    }
    for name in ["one", "two"] {
        assert_eq!(log_of(&ring, name).await.trim(), "for all\nrefused");
    }

    pod_with(&ring, "second", "echo mine", of("alone", false)).await;
    ring.event(&ring.user, "second", "FailedScheduling", "ReadWriteOncePod").await;
    delete_pod(&ring, "first").await;
    assert_eq!(log_of(&ring, "second").await.trim(), "mine");
    for (claim, mode) in [("alone", "ReadWriteOncePod"), ("shared", "ReadWriteMany"), ("readable", "ReadOnlyMany")] {
        let claim = ring.get_claim(claim).await;
        assert_eq!(claim.status.unwrap().access_modes, Some(vec![mode.to_owned()]));
    }
    clean(&ring).await;
}

#[tokio::test]
async fn a_block_volume_returns_the_bytes_that_were_written() {
    let ring = users("block").await;
    let on_node = directory("block");
    fs::create_dir_all(&on_node).unwrap();
    let before = volumes_in(&on_node);
    // The shipped config, with a directory of this test and devices of its own.
    let devices = "/dev/flex-tests-block";
    let shipped = fs::read_to_string(root().join("configmaps/hostpath-block.yaml")).unwrap();
    let shipped = shipped.replace("/var/lib/flex-hostpath-block", &on_node).replace("/dev/flex-hostpath", devices);
    let mut documents = shipped.split("\n---\n");
    let map: ConfigMap = serde_saphyr::from_str(documents.next().unwrap()).unwrap();
    let data = map.data.unwrap();
    let data: Vec<_> = data.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    ring.config("block", "block", &[&data[..], &[("placement", "selected-node")]].concat()).await;
    let requested = json!({ "spec": { "volumeMode": "Block", "resources": { "requests": { "storage": "16Mi" } } } });
    ring.claim_with("c", "block", requested).await;
    let block = json!({
        "container": { "volumeDevices": [{ "name": "data", "devicePath": "/dev/data" }], "securityContext": { "runAsUser": 0 } },
        "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": "c" } }],
    });
    let write = "printf 'kept in block 7' | dd of=/dev/data bs=512 seek=7 conv=notrunc,fsync 2>/dev/null; blockdev --getsize64 /dev/data";
    pod_with(&ring, "writer", write, block.clone()).await;
    assert_eq!(log_of(&ring, "writer").await.trim(), (16 << 20).to_string(), "as large as was asked for");
    delete_pod(&ring, "writer").await;
    // A pod may detach its device, which needs no right. Another device holds the file, and the device stays.
    pod_with(&ring, "careless", "losetup -d /dev/data; echo $?", block.clone()).await;
    ends_well(&ring, "careless").await;
    delete_pod(&ring, "careless").await;
    pod_with(&ring, "reader", "dd if=/dev/data bs=512 skip=7 count=1 2>/dev/null | head -c 15", block.clone()).await;
    assert_eq!(log_of(&ring, "reader").await, "kept in block 7");
    let id = uid(&ring.bound("c").await);
    let image = fs::read(format!("{on_node}/{id}/disk")).unwrap();
    assert_eq!(&image[7 * 512..7 * 512 + 15], b"kept in block 7");
    // The node restarts: its devices are gone, and the DaemonSet attaches the files again before a pod can have them.
    delete_pod(&ring, "reader").await;
    let link = format!("{devices}/{id}");
    until("no pod has the device", || async {
        let taken = ring.api::<Pod>(&ring.user).list(&ListParams::default()).await.unwrap().items.len();
        if taken == 0 { Ok(()) } else { unexpected(taken) }
    })
    .await;
    let device = fs::read_link(&link).unwrap();
    let file_of = |block: &str| fs::read_to_string(format!("/sys/block/{block}/loop/backing_file")).unwrap_or_default();
    let blocks = || -> Vec<String> {
        fs::read_dir("/sys/block").unwrap().map(|block| block.unwrap().file_name().into_string().unwrap()).collect()
    };
    // For a pod, the kubelet attaches a device to the device, and it needs the link to detach it.
    until("the kubelet has released the device", || async {
        let is_above = |file: &str| file.contains(&names::pv_name(&id)) || Path::new(file.trim()) == device;
        match blocks().into_iter().find(|block| is_above(&file_of(block))) {
            Some(block) => unexpected(block),
            None => Ok(()),
        }
    })
    .await;
    fs::remove_dir_all(devices).unwrap();
    // A pod cannot use this against other volumes: a holder device keeps the device, and is detached with the node,
    // too.
    let holder = blocks()
        .into_iter()
        .find(|block| file_of(block).contains(&format!(".hold-{id}-")))
        .expect("a holder device has the file");
    for device in [&device, Path::new(&format!("/dev/{holder}"))] {
        assert!(Command::new("losetup").arg("-d").arg(device).status().unwrap().success());
    }
    until("its device is detached", || async {
        let file = file_of(device.file_name().unwrap().to_str().unwrap());
        if file.contains(&id) { unexpected(file) } else { Ok(()) }
    })
    .await;
    let mut attach: DaemonSet = serde_saphyr::from_str(documents.next().unwrap()).unwrap();
    attach.metadata.namespace = None;
    let sets = ring.api::<DaemonSet>(OWN);
    let _ = sets.delete("hostpath-block-attach", &DeleteParams::default()).await;
    until("the device is attached again", || async {
        let made = sets.create(&PostParams::default(), &attach).await;
        let again = fs::read_link(&link).ok();
        if again.is_some() { Ok(()) } else { unexpected((made.err().map(|error| error.to_string()), again)) }
    })
    .await;
    pod_with(&ring, "again", "dd if=/dev/data bs=512 skip=7 count=1 2>/dev/null | head -c 15", block.clone()).await;
    assert_eq!(log_of(&ring, "again").await, "kept in block 7");
    sets.delete("hostpath-block-attach", &DeleteParams::default()).await.unwrap();
    clean(&ring).await;
    assert_eq!(volumes_in(&on_node), before);
    assert!(volumes_in(devices).is_empty(), "no device file is left");
    let _ = fs::remove_dir(devices);
}

/// A shell that traces its commands prints the values of their variables. The end of such a log is no termination
/// message.
#[tokio::test]
async fn a_secret_that_a_shell_traces_reaches_no_event() {
    let ring = users("traces").await;
    let secret = json!({ "metadata": { "name": "traces-login" }, "stringData": { "ARRAY_PASSWORD": "hunter22" } });
    let secrets = ring.api::<Secret>(OWN);
    secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    let traces = r#"[ "$OPERATION" != delete ] || exit 0; set -x; : login "$ARRAY_PASSWORD"; [ "$PVC_NAME" = traced ] || exec flex-pv fail retry "no login as $ARRAY_PASSWORD"; exit 75"#;
    let keys = [("secret-env", "traces-login"), ("backoff", "1h")];
    script_class(&ring, "traces", traces, &keys).await;
    for (claim, says) in [("traced", "exit code 75"), ("told", "no login as ***")] {
        ring.claim(claim, "traces").await;
        ring.event(&ring.user, claim, reason::PROVISIONING_FAILED, says).await;
        let events = ring.api::<Event>(&ring.user).list(&ListParams::default()).await.unwrap();
        let message = format!("{:?} {:?}", ring.get_claim(claim).await, events.items);
        assert!(!message.contains("hunter22"), "{message}");
        ring.delete_claim(claim).await;
    }
    clean(&ring).await;
    secrets.delete("traces-login", &DeleteParams::default()).await.unwrap();
}

#[tokio::test]
async fn a_reclaim_policy_changed_on_the_volume_counts() {
    let ring = users("policy").await;
    local_class(&ring, "policy", &[]).await;
    ring.claim("c", "policy").await;
    let id = uid(&ring.bound("c").await);
    let (volume, data) = (names::pv_name(&id), format!("{}/{id}", directory("policy")));
    let policy = async |policy: &str| {
        let change = json!({ "spec": { "persistentVolumeReclaimPolicy": policy } });
        ring.volumes().patch(&volume, &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
    };
    policy("Retain").await;
    ring.delete_claim("c").await;
    ring.claim_gone("c").await;
    stays("the retained volume exists", WHILE, || async {
        let found = ring.volumes().get_opt(&volume).await.map_err(|error| error.to_string())?;
        if found.is_some() && fs::exists(&data).unwrap() { Ok(()) } else { unexpected(found.is_some()) }
    })
    .await;
    policy("Delete").await;
    ring.volume_gone(&volume).await;
    assert!(!volumes_in(&directory("policy")).contains(&id));
}

#[tokio::test]
async fn a_new_claim_with_an_old_name_gets_a_volume_of_its_own() {
    let ring = users("old-name").await;
    let on_node = directory("old-name");
    // The delete run waits until the file `go` exists.
    let script = r#"case $OPERATION in delete) until [ -e "$BASE_PATH/$CLAIM_UUID/go" ]; do sleep 0.1; done;; esac; exec /provision.sh"#;
    let args = json!(["-c", script]).to_string();
    local_class(&ring, "old-name", &[("command", "[sh]"), ("args", &args)]).await;
    ring.claim("c", "old-name").await;
    pod(&ring, "before", "c", "echo before > /data/text").await;
    ends_well(&ring, "before").await;
    let old = uid(&ring.get_claim("c").await);
    delete_pod(&ring, "before").await;
    ring.delete_claim("c").await;
    ring.claim_gone("c").await;
    ring.job(OWN, "delete", &old, 1).await;
    ring.claim("c", "old-name").await;
    pod(&ring, "after", "c", "ls -A /data; echo end; echo after > /data/text").await;
    assert_eq!(log_of(&ring, "after").await.trim(), "end", "the new volume is empty");
    assert!(fs::exists(format!("{on_node}/{old}/text")).unwrap(), "the old volume still has its data");
    let go = |id: &str| fs::write(format!("{on_node}/{id}/go"), "").unwrap();
    go(&old);
    ring.volume_gone(&names::pv_name(&old)).await;
    let new = uid(&ring.get_claim("c").await);
    assert_eq!(fs::read_to_string(format!("{on_node}/{new}/text")).unwrap().trim(), "after");
    go(&new);
    clean(&ring).await;
}

#[tokio::test]
async fn a_volume_that_the_user_names_is_bound_and_never_deleted() {
    let ring = users("named").await;
    let path = directory("named");
    fs::create_dir_all(&path).unwrap();
    fs::write(format!("{path}/text"), "made by an admin").unwrap();
    let name = format!("by-hand-{}", cluster::tests_name());
    let volume = json!({
        "metadata": { "name": name },
        "spec": {
            "storageClassName": "hostpath", "accessModes": ["ReadWriteOnce"], "capacity": { "storage": "1Gi" },
            "persistentVolumeReclaimPolicy": "Retain", "hostPath": { "path": path },
        },
    });
    ring.volumes()
        .create(&PostParams::default(), &serde_json::from_value::<PersistentVolume>(volume).unwrap())
        .await
        .unwrap();
    ring.claim_with("c", "hostpath", json!({ "spec": { "volumeName": name } })).await;
    pod(&ring, "p", "c", "cat /data/text").await;
    assert_eq!(log_of(&ring, "p").await.trim(), "made by an admin");
    let id = uid(&ring.get_claim("c").await);
    assert!(ring.jobs(OWN, "provision", &id).await.is_empty() && !fs::exists(home(&id)).unwrap());
    clean(&ring).await;
    let released = ring.volumes().get(&name).await.unwrap();
    assert_eq!(released.metadata.finalizers.unwrap_or_default(), ["kubernetes.io/pv-protection"]);
    ring.volumes().delete(&name, &DeleteParams::default()).await.unwrap();
    assert!(fs::exists(format!("{path}/text")).unwrap());
    fs::remove_dir_all(&path).unwrap();
}

#[tokio::test]
async fn a_larger_claim_restored_from_a_snapshot_has_the_data_of_a_pod() {
    let ring = users("restore").await;
    Snapshotter::ensure().unwrap().install(ring.cluster()).unwrap();
    let kind: Api<VolumeSnapshotClass> = Api::all(ring.client.clone());
    let class = json!({
        "metadata": { "name": "restore" }, "driver": names::DEFAULT_PROVISIONER, "deletionPolicy": "Delete",
    });
    kind.create(&PostParams::default(), &serde_json::from_value(class).unwrap()).await.unwrap();
    ring.claim("data", "hostpath").await;
    pod(&ring, "writer", "data", "mkdir /data/deep; echo monday > /data/deep/text").await;
    ends_well(&ring, "writer").await;
    let snapshots = ring.api::<VolumeSnapshot>(&ring.user);
    let spec = json!({ "volumeSnapshotClassName": "restore", "source": { "persistentVolumeClaimName": "data" } });
    let snapshot = json!({ "metadata": { "name": "monday" }, "spec": spec });
    let made = snapshots.create(&PostParams::default(), &serde_json::from_value(snapshot).unwrap()).await.unwrap();
    let stored = format!(".snapshot-{}", made.metadata.uid.unwrap());
    // The orchestrator checks for the custom resources now and then.
    until("the snapshot is ready", || async {
        let status = snapshots.get("monday").await.map_err(|error| error.to_string())?.status;
        let ready = status.as_ref().is_some_and(|status| status.ready_to_use == Some(true));
        if ready { Ok(()) } else { unexpected(status) }
    })
    .await;
    pod(&ring, "later", "data", "echo tuesday > /data/deep/text").await;
    ends_well(&ring, "later").await;
    // Restored after the source volume was deleted.
    for name in ["writer", "later"] {
        delete_pod(&ring, name).await;
    }
    let old = names::pv_name(&uid(&ring.get_claim("data").await));
    ring.delete_claim("data").await;
    ring.volume_gone(&old).await;
    let source = json!({ "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "monday" });
    let spec = json!({ "dataSource": source, "resources": { "requests": { "storage": "2Gi" } } });
    ring.claim_with("restored", "hostpath", json!({ "spec": spec })).await;
    pod(&ring, "reader", "restored", "cat /data/deep/text").await;
    assert_eq!(log_of(&ring, "reader").await.trim(), "monday");
    let claim = ring.get_claim("restored").await;
    assert_eq!(claim.status.unwrap().capacity.unwrap()["storage"].0, "2Gi");
    assert!(volumes_in(HOSTPATH).contains(&stored));
    snapshots.delete("monday", &DeleteParams::default()).await.unwrap();
    until("the snapshot is deleted", || async {
        match snapshots.get_opt("monday").await.map_err(|error| error.to_string())? {
            None => Ok(()),
            Some(snapshot) => unexpected(snapshot.metadata),
        }
    })
    .await;
    assert!(!volumes_in(HOSTPATH).contains(&stored), "the stored snapshot is deleted");
    clean(&ring).await;
    kind.delete("restore", &DeleteParams::default()).await.unwrap();
}
