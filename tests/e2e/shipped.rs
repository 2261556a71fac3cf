//! The third ring: tests on the whole cluster with pods. Each test has its own namespace and classes, and counts the
//! backend's volumes before and after.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Instant;

use flex_contract::names;
use flex_contract::reason;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Secret};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::Api;
use kube::api::{DeleteParams, ListParams, LogParams, PostParams};
use serde_json::{Value, json};

use orchestrator::backup::Backup;
use orchestrator::commands::{doctor, found};
use orchestrator::deployed::{
    HOSTPATH, NODES, RESTORED, SCRATCH, clean, directory, drop_claim, ends_well, kubectl, local_class, log_of, pod,
    root, script_class, users, volumes_in,
};
use orchestrator::programs::tool;
use orchestrator::ring::{OWN, Ring, annotation, uid};
use orchestrator::wait::{unexpected, until};

#[tokio::test]
async fn pods_write_and_read_volumes_of_hostpath_and_its_examples() {
    let ring = users("examples-hostpath").await;
    let apply = |file: &str| kubectl(ring.cluster(), &["-n", &ring.user, "apply", "-f", file]);
    apply("examples/hostpath/claim.yaml");
    apply("examples/hostpath/writer.yaml");
    apply("examples/hostpath/pure.yaml");
    ends_well(&ring, "hostpath-writer").await;
    // Another pod reads the data later.
    apply("examples/hostpath/reader.yaml");
    assert_eq!(log_of(&ring, "hostpath-reader").await.trim(), "hello from the writer");
    assert_eq!(log_of(&ring, "scratch-example").await.trim(), "hello from scratch");

    let claim = ring.bound("hostpath-example").await;
    let volume = ring.volumes().get(&names::pv_name(&uid(&claim))).await.unwrap();
    let spec = volume.spec.unwrap();
    assert_eq!(spec.local.unwrap().path, format!("{HOSTPATH}/{}", uid(&claim)));
    assert!(spec.node_affinity.is_some(), "only its node has the volume");
    assert_eq!(
        fs::read_to_string(format!("{HOSTPATH}/{}/greeting", uid(&claim))).unwrap().trim(),
        "hello from the writer"
    );
    ring.event(&ring.user, "scratch-example", reason::CLASS_WITHOUT_OBJECT, "is harmless").await;

    let scratch = uid(&ring.get_claim("scratch-example").await);
    assert!(volumes_in(SCRATCH).contains(&scratch));
    clean(&ring).await;
    // Other clusters on this machine may use the same directories, so the test looks only for its own.
    let leftovers = |directory: &str, id: &str| volumes_in(directory).iter().any(|name| name.contains(id));
    assert!(!leftovers(HOSTPATH, &uid(&claim)) && !leftovers(SCRATCH, &scratch), "the directories are deleted");
}

#[tokio::test]
async fn a_clone_has_the_data_of_its_source() {
    let ring = users("clone").await;
    let source = json!({ "dataSource": { "kind": "PersistentVolumeClaim", "name": "source" } });
    // Without a StorageClass object. With one, `kinds::access_modes_work_as_kubernetes_defines_them` has a clone.
    let class = "scratch";
    ring.claim("source", class).await;
    let script = "mkdir /data/deep; echo from the source > /data/deep/text; ln -s deep /data/link";
    pod(&ring, "writer", "source", script).await;
    ends_well(&ring, "writer").await;
    ring.claim_with("copy", class, json!({ "spec": source })).await;
    let script = "cat /data/link/text; echo mine > /data/deep/text";
    pod(&ring, "reader", "copy", script).await;
    assert_eq!(log_of(&ring, "reader").await.trim(), "from the source");
    pod(&ring, "again", "source", "cat /data/deep/text").await;
    assert_eq!(log_of(&ring, "again").await.trim(), "from the source", "each volume has its own data");
    clean(&ring).await;
}

#[tokio::test]
async fn nfs_directories_are_made_and_deleted_on_a_real_server() {
    let ring = users("examples-nfs").await;
    let server = tokio::task::spawn_blocking(|| ganesha::Ganesha::start(ganesha::Options::default())).await.unwrap();
    let before = server.list("/");
    // The class of the project's own config and StorageClass, with this server's address.
    let config = fs::read_to_string(root().join("configmaps/nfs.yaml")).unwrap();
    let address = ring.cluster().host_address().unwrap().to_string();
    let config = config.replace("server: nfs.example", &format!("server: {address}\n  port: \"{}\"", server.port()));
    let config = config.replace("on-delete: archive", "on-delete: delete");
    let file = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
    fs::write(file.path(), config).unwrap();
    kubectl(ring.cluster(), &["apply", "-f", file.path().to_str().unwrap()]);
    kubectl(ring.cluster(), &["apply", "-f", "examples/nfs/storageclass.yaml"]);
    kubectl(ring.cluster(), &["-n", &ring.user, "apply", "-f", "examples/nfs/claim.yaml"]);
    let claim = ring.bound("nfs-example").await;
    let spec = ring.volumes().get(&names::pv_name(&uid(&claim))).await.unwrap().spec.unwrap();
    let source = spec.nfs.unwrap();
    assert_eq!(source.server, address);
    assert_eq!(spec.mount_options, Some(vec!["nfsvers=4.1".to_owned()]));
    let directory = source.path.strip_prefix("/exports/data/").expect("below the export").to_owned();
    assert!(server.list("/").contains(&directory), "{directory} in {:?}", server.list("/"));
    let is_there = || server.list("/").contains(&directory);
    let _beside = RESTORED.read().await;
    let backup = Backup::restored(&ring, "nfs-example", is_there).await;
    backup.vouched_for_and_deleted(&ring, is_there).await;
    clean(&ring).await;
    let leftovers: Vec<_> =
        server.list("/").into_iter().filter(|name| !before.contains(name) && name != ".flex-provisioner").collect();
    assert_eq!(leftovers, Vec::<String>::new(), "the directory is deleted");
    kubectl(ring.cluster(), &["delete", "-f", file.path().to_str().unwrap(), "-f", "examples/nfs/storageclass.yaml"]);
}

#[tokio::test]
async fn properties_and_secrets_reach_the_image_as_variables_and_files() {
    let ring = users("properties").await;
    let secret = json!({ "metadata": { "name": "array-login" }, "stringData": { "ARRAY_PASSWORD": "s3cret" } });
    let secrets = ring.api::<Secret>(OWN);
    let _ = secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await;
    let script = r#"cd /etc/flex; { for f in *; do printf '%s=%s\n' "$f" "$(cat "$f")"; done; echo "env $USE_NFS_SERVER $SERVICE_TOKEN $SIZE $PVC_NAMESPACE/$PVC_NAME $ARRAY_PASSWORD $(cat /etc/flex-secrets/array-login/ARRAY_PASSWORD) uid $(id -u) $GREETING"; } | tee /proc/1/fd/1 | grep ^env > /dev/termination-log; exit 65"#;
    let more = [
        ("use-nfs-server", "10.10.2.4"),
        ("greeting", "$(id) `id` 'quoted'"),
        ("service-token", "t0ken"),
        ("secret-env", "array-login"),
        ("secret-volume", "array-login"),
    ];
    script_class(&ring, "properties", script, &more).await;
    ring.claim("c", "properties").await;
    let message = ring.event(&ring.user, "c", reason::PROVISIONING_FAILED, "env ").await;
    let expected = "env 10.10.2.4 t0ken 1Gi properties/c s3cret s3cret uid 65532 $(id) `id` 'quoted'";
    assert!(message.contains(expected), "{message}");
    // The log of the failed pod stays readable.
    let job = ring.job(OWN, "provision", &uid(&ring.get_claim("c").await), 1).await;
    let failed = ring.pod_of(&job).await;
    let lines = [
        "use-nfs-server=10.10.2.4",
        "service-token=t0ken",
        "storage-class=properties",
        "pv-name=pvc-",
        "operation=provision",
    ];
    until("the failed pod's log has all lines", || async {
        let log = ring.api::<Pod>(OWN).logs(failed.metadata.name.as_deref().unwrap(), &LogParams::default()).await;
        let log = log.map_err(|error| error.to_string())?;
        if lines.iter().all(|line| log.contains(line)) { Ok(()) } else { unexpected(log) }
    })
    .await;
    drop_claim(&ring, "c").await;
}

#[tokio::test]
async fn every_kind_of_failure_reaches_the_claim_within_seconds() {
    let ring = users("failures").await;
    let image = |image: &'static str| [("image", image), ("image-pull-policy", "IfNotPresent")];
    /// Class, script, further keys, and the expected text.
    type Case<'a> = (&'a str, &'a str, Vec<(&'a str, &'a str)>, &'a str);
    let cases: [Case<'_>; 8] = [
        ("exit-code", "echo the array is on fire; exit 1", vec![], "the array is on fire"),
        ("last-words", "flex-pv fail no-room the pool is full", vec![], "the pool is full"),
        ("image-pull", "", image("localhost/nobody/nothing:1").to_vec(), "cannot be pulled"),
        ("unschedulable", "", vec![("node-selector", "nowhere=true")], "fits on no node"),
        (
            "deadline",
            "echo waiting for the array; sleep 100",
            vec![("timeout", "10s")],
            "did not end within 10 s (`timeout`)",
        ),
        ("no-volume", "exit 0", vec![], "exited 0 without creating"),
        ("no-secret", "", vec![("secret-env", "absent")], "secret \"absent\" not found"),
        ("no-command", "", vec![("command", "[/absent]")], "/absent"),
    ];
    for (class, script, more, _) in &cases {
        script_class(&ring, class, script, more).await;
        ring.claim(class, class).await;
    }
    let began = Instant::now();
    for (class, _, _, says) in &cases {
        let message = ring.event(&ring.user, class, reason::PROVISIONING_FAILED, says).await;
        println!("{class}: event after {:?}: {message}", began.elapsed());
    }
    for (class, ..) in &cases {
        drop_claim(&ring, class).await;
    }
}

#[tokio::test]
async fn a_claim_deleted_while_its_pod_runs_leaves_nothing_on_the_node() {
    let ring = users("half-way").await;
    let on_node = directory("half-way");
    let before = volumes_in(&on_node);
    // The script creates its directory, and never its volume.
    let slow = r#"case $OPERATION in provision) echo half >"$BASE_PATH/$CLAIM_UUID/file"; sleep 1000;; *) exec /provision.sh;; esac"#;
    let args = json!(["-c", slow]).to_string();
    local_class(&ring, "half-way", &[("command", "[sh]"), ("args", &args)]).await;
    ring.claim("c", "half-way").await;
    let id = uid(&ring.stamped("c").await);
    until("the image has begun", || async {
        let there = volumes_in(&on_node);
        if there.contains(&id) { Ok(()) } else { unexpected(there) }
    })
    .await;
    let began = Instant::now();
    ring.delete_claim("c").await;
    clean(&ring).await;
    println!("deleted half-way, nothing left after {:?}", began.elapsed());
    assert_eq!(volumes_in(&on_node), before);
}

#[tokio::test]
async fn a_volume_is_expanded_with_its_data_and_a_too_large_request_is_withdrawn() {
    let ring = users("grows").await;
    let on_node = directory("grows");
    let before = volumes_in(&on_node);
    local_class(&ring, "grows", &[("capabilities", "expand, list"), ("backoff", "1s")]).await;
    let more = json!({ "allowVolumeExpansion": true, "mountOptions": ["noexec"] });
    ring.class("grows", names::DEFAULT_PROVISIONER, more).await;
    ring.claim("c", "grows").await;
    pod(&ring, "writer", "c", "echo kept > /data/file; grep ' /data ' /proc/mounts").await;
    let mount = log_of(&ring, "writer").await;
    assert!(mount.contains("noexec"), "the mount options of the class reach the mount: {mount}");

    let ask = async |size: &str| {
        let requested = json!({ "spec": { "resources": { "requests": { "storage": size } } } });
        ring.claims().patch("c", &Default::default(), &kube::api::Patch::Merge(requested)).await.unwrap();
    };
    let has = async |size: &str| {
        let began = Instant::now();
        let is = |claim: &PersistentVolumeClaim| {
            let status = claim.status.clone().unwrap_or_default();
            status.capacity.is_some_and(|capacity| capacity["storage"].0 == size)
                && status.allocated_resource_statuses.unwrap_or_default().is_empty()
        };
        let claim = ring.claim_when("c", &format!("has {size}"), is).await;
        println!("{size} after {:?}", began.elapsed());
        let volume = ring.volumes().get(&names::pv_name(&uid(&claim))).await.unwrap();
        assert_eq!(volume.spec.unwrap().capacity.unwrap()["storage"].0, size);
    };
    ask("2Gi").await;
    has("2Gi").await;
    ask("4Ei").await;
    ring.event(&ring.user, "c", reason::VOLUME_RESIZE_FAILED, "bytes free on node").await;
    // More than the volume has, as Kubernetes requires.
    ask("3Gi").await;
    has("3Gi").await;
    pod(&ring, "reader", "c", "cat /data/file").await;
    assert_eq!(log_of(&ring, "reader").await.trim(), "kept");
    clean(&ring).await;
    Api::<StorageClass>::all(ring.client.clone()).delete("grows", &DeleteParams::default()).await.unwrap();
    assert_eq!(volumes_in(&on_node), before);
}

#[tokio::test]
async fn an_attempt_without_space_on_its_node_gets_an_event_and_leaves_nothing_there() {
    let ring = users("no-room").await;
    // The capacity is not published: with it the scheduler would not select the node.
    let more = json!({ "volumeBindingMode": "WaitForFirstConsumer" });
    ring.class("no-room", names::DEFAULT_PROVISIONER, more).await;
    local_class(&ring, "no-room", &[("capabilities", "-"), ("reclaim-policy", "-"), ("access-modes", "-")]).await;
    let pending = |size: &str| json!({ "spec": { "resources": { "requests": { "storage": size } } } });
    ring.claim_with("c", "no-room", pending("4Ei")).await;
    pod(&ring, "p", "c", "true").await;
    ring.event(&ring.user, "c", reason::RESCHEDULING, "no room on node").await;
    assert_eq!(annotation(&ring.get_claim("c").await, names::BIND_COMPLETED), None);
    clean(&ring).await;
    Api::<StorageClass>::all(ring.client.clone()).delete("no-room", &DeleteParams::default()).await.unwrap();
}

#[tokio::test]
async fn the_orchestrator_serves_its_pages_and_has_no_right_to_secrets() {
    let ring = users("pages").await;
    // Before its first volume, a process has no metrics of volumes.
    local_class(&ring, "pages", &[]).await;
    ring.claim("c", "pages").await;
    ring.bound("c").await;
    clean(&ring).await;
    let pods = ring
        .api::<Pod>(OWN)
        .list(&ListParams::default().labels("app.kubernetes.io/name=flex-provisioner"))
        .await
        .unwrap();
    let running = pods.items.iter().find(|pod| pod.metadata.deletion_timestamp.is_none()).unwrap();
    let name = running.metadata.name.as_deref().unwrap();
    let page = |path: &str| {
        kubectl(ring.cluster(), &["get", "--raw", &format!("/api/v1/namespaces/{OWN}/pods/{name}:8080/proxy/{path}")])
    };
    assert_eq!(page("healthz").trim(), "ok");
    assert_eq!(page("readyz").trim(), "ready");
    let metrics = [
        "controller_persistentvolumeclaim_provision_duration_seconds",
        "controller_persistentvolume_delete",
        "flex_leader",
    ];
    until("the page has the metrics", || async {
        let page = page("metrics");
        if metrics.iter().all(|metric| page.contains(metric)) { Ok(()) } else { unexpected(page) }
    })
    .await;
    for (verb, resource) in [("get", "secrets"), ("list", "secrets"), ("create", "pods"), ("create", "jobs.batch")] {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {
                "user": format!("system:serviceaccount:{OWN}:flex-provisioner"),
                "resourceAttributes": {
                    "namespace": "kube-system", "verb": verb,
                    "resource": resource.split('.').next(), "group": if resource.contains('.') { "batch" } else { "" },
                },
            },
        });
        let api: Api<k8s_openapi::api::authorization::v1::SubjectAccessReview> = Api::all(ring.client.clone());
        let answer = api.create(&PostParams::default(), &serde_json::from_value::<_>(review).unwrap()).await.unwrap();
        assert!(!answer.status.unwrap().allowed, "{verb} {resource} in kube-system");
    }
    let _: Value = serde_json::from_str(&status(&ring)).expect("status -o json is JSON");
}

/// Returns the output of `flex-provisioner status` for the cluster.
fn status(ring: &Ring) -> String {
    let output = std::process::Command::new(tool())
        .args(["status", "-o", "json"])
        .env("KUBECONFIG", ring.cluster().kubeconfig())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn the_doctor_lists_the_node_and_finds_unknown_storage() {
    let _its_only_node = NODES.lock().await;
    let ring = users("doctor").await;
    let on_node = directory("doctor");
    // A test that was stopped half-way leaves its volumes here, and its cluster is gone.
    let _ = fs::remove_dir_all(&on_node);
    local_class(&ring, "doctor", &[]).await;
    for claim in ["healthy", "lost"] {
        ring.claim(claim, "doctor").await;
    }
    ring.bound("healthy").await;
    let (healthy, lost) = (uid(&ring.get_claim("healthy").await), uid(&ring.bound("lost").await));
    // A directory of someone else, a half-finished deletion, another file, and a volume whose data is lost.
    let unknown = "c0ffee00-0000-4000-8000-00000000d0c7";
    let half = "c0ffee00-0000-4000-8000-00000000d0c8";
    for name in [unknown, &format!(".deleting-{half}"), "lost+found"] {
        fs::create_dir_all(format!("{on_node}/{name}")).unwrap();
    }
    // An empty directory with the usual mode may be that of a run that never began.
    fs::set_permissions(format!("{on_node}/{unknown}"), fs::Permissions::from_mode(0o777)).unwrap();
    fs::remove_dir(format!("{on_node}/{lost}")).unwrap();

    let began = Instant::now();
    let (code, message) = {
        let _alone = RESTORED.write().await;
        doctor(&ring, OWN, &["--backend", "--fix"])
    };
    println!("the doctor took {:?}", began.elapsed());
    let found = found(&message);
    let has = |kind: &str, name: &str| found.contains(&(kind.to_owned(), name.to_owned()));
    assert!(has("backend-unknown", unknown) && has("backend-rubbish", half), "{message}");
    assert!(has("backend-missing", &names::pv_name(&lost)), "{message}");
    let named = |name: &str| found.iter().any(|(_, found)| found.contains(name));
    assert!(!named(&healthy) && !named("lost+found"), "{message}");
    assert_eq!(code, 3, "data is lost");
    let listings = message["listings"].as_array().unwrap();
    let own = listings.iter().find(|listing| listing["class"] == "doctor").expect("the class was listed");
    assert_eq!(own["entries"].as_array().unwrap().len(), 3, "{own}");
    // The command deletes nothing on the backend, and no Job is left. The DaemonSet removes a mark that is old enough.
    let there = volumes_in(&on_node);
    assert!(there.contains(unknown), "{there:?}");
    until("no list Job is left", || async {
        let jobs = ring.jobs(OWN, "list", "").await;
        if jobs.is_empty() { Ok(()) } else { unexpected(jobs.len()) }
    })
    .await;
    let _ = fs::remove_dir(format!("{on_node}/.deleting-{half}"));
    for name in [unknown, "lost+found"] {
        fs::remove_dir(format!("{on_node}/{name}")).unwrap();
    }
    clean(&ring).await;
}
