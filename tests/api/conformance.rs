//! Tests of `conformance --cluster` on an API server without nodes: the rights, pods that do not start, and what is left.

use flex_contract::names;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{PersistentVolume, Pod};
use kube::Api;
use kube::api::ListParams;
use orchestrator::deployed::root;
use orchestrator::kubelet::nfs_volume;
use orchestrator::programs::tool;
use orchestrator::ring::{ADMIN, Ring};
use orchestrator::wait::{unexpected, until};

/// Runs the command. Returns its exit code, and what it printed.
async fn conformance(ring: &Ring, flags: &[&str]) -> (i32, String) {
    let mut command = tokio::process::Command::new(tool());
    command.args(["conformance", "--cluster"]).args(flags).env("KUBECONFIG", ring.cluster().kubeconfig());
    let ended = command.output().await.unwrap();
    let text = String::from_utf8_lossy(&ended.stdout).into_owned() + &String::from_utf8_lossy(&ended.stderr);
    (ended.status.code().unwrap(), text)
}

/// Returns all objects with the instance label of a call.
async fn objects(ring: &Ring) -> Vec<String> {
    let labelled = ListParams::default().labels(names::LABEL_INSTANCE);
    let of_call = |metadata: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta| {
        let instance = metadata.labels.as_ref().and_then(|labels| labels.get(names::LABEL_INSTANCE));
        instance.filter(|instance| instance.starts_with("conformance-")).and(metadata.name.clone())
    };
    let jobs = Api::<Job>::all(ring.client.clone()).list(&labelled).await.unwrap().items;
    let pods = Api::<Pod>::all(ring.client.clone()).list(&labelled).await.unwrap().items;
    let volumes = Api::<PersistentVolume>::all(ring.client.clone()).list(&labelled).await.unwrap().items;
    let all = jobs.iter().map(|one| &one.metadata).chain(pods.iter().map(|one| &one.metadata));
    all.chain(volumes.iter().map(|one| &one.metadata)).filter_map(of_call).collect()
}

/// Waits for a Job of the command that the test has not seen.
async fn job(ring: &Ring, operation: &str, seen: &mut Vec<String>) -> Job {
    let labels = ListParams::default().labels(&format!("{}={operation}", names::LABEL_OPERATION));
    let job = until(format!("the command starts a {operation} run"), || async {
        let jobs = ring.api::<Job>(ADMIN).list(&labels).await.map_err(|error| error.to_string())?.items;
        let is_new = |job: &Job| !seen.contains(&job.metadata.name.clone().unwrap());
        jobs.into_iter().find(is_new).map_or_else(|| unexpected("no new Job"), Ok)
    })
    .await;
    seen.push(job.metadata.name.clone().unwrap());
    job
}

#[tokio::test]
async fn a_user_without_rights_gets_a_list_of_them_and_changes_nothing() {
    let ring = Ring::start().await;
    ring.config("nas", "nas", &[]).await;
    let config = format!("{ADMIN}/nas");
    // Only the config of the file declares copies, whose content pods compare.
    let of_mounts = "create/delete/get persistentvolumeclaims in namespace admin";
    for flags in [
        vec!["--cluster-config", config.as_str(), "--as", "somebody"],
        vec!["--config", "configmaps/nfs.yaml", "--namespace", ADMIN, "--as", "somebody"],
    ] {
        let has_copies = flags[0] == "--config";
        let file = root().join("configmaps/nfs.yaml").display().to_string();
        let flags: Vec<&str> =
            flags.into_iter().map(|flag| if flag.ends_with(".yaml") { &file } else { flag }).collect();
        let (code, text) = conformance(&ring, &flags).await;
        assert_eq!((code, text.contains(of_mounts)), (2, has_copies), "{text}");
        for right in [
            "create/delete/get/list jobs.batch in namespace admin",
            "manage volumes.flex-provisioner.io in the cluster",
        ] {
            assert!(text.contains(right), "{right}: {text}");
        }
    }
    assert!(objects(&ring).await.is_empty(), "nothing was created");
}

#[tokio::test]
async fn a_pod_that_does_not_start_ends_the_command_with_the_reason_and_nothing_is_left() {
    let ring = Ring::start().await;
    ring.config("nas", "nas", &[("service-account-name", "absent")]).await;
    let (code, text) = conformance(&ring, &["--cluster-config", &format!("{ADMIN}/nas"), "--only", "rights"]).await;
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("has not started within 30 s") && text.contains("\"absent\" not found"), "{text}");
    assert!(objects(&ring).await.is_empty(), "{text}");
}

#[tokio::test]
async fn a_run_has_the_job_of_the_orchestrator_which_ignores_it_and_its_volume_is_removed() {
    let ring = Ring::start().await;
    ring.config("nas", "nas", &[("volume-sources", "nfs")]).await;
    let kubelet = async {
        let mut seen = Vec::new();
        let made = job(&ring, "provision", &mut seen).await;
        let labels = made.metadata.labels.clone().unwrap();
        assert!(labels[names::LABEL_INSTANCE].starts_with("conformance-"), "{labels:?}");
        let image = made.spec.as_ref().unwrap().template.spec.as_ref().unwrap().containers[0].image.clone();
        assert_eq!(image.as_deref(), Some("other/image"));
        ring.create_volume(&nfs_volume(&made)).await;
        ring.pod_ends(&made, 0, "").await;
        for _ in 0..2 {
            let deleted = job(&ring, "delete", &mut seen).await;
            let asked = orchestrator::kubelet::request(&deleted);
            assert!(asked.volume_source.contains("10.0.0.1"), "{asked:?}");
            assert!(made.metadata.name.as_ref().unwrap().contains(&asked.volume_id), "{asked:?}");
            ring.pod_ends(&deleted, 0, "").await;
        }
        orchestrator::kubelet::request(&made).volume_id
    };
    let config = format!("{ADMIN}/nas");
    let flags = ["--cluster-config", &config, "--image", "other/image", "--only", "delete-twice"];
    let ((code, text), id) = tokio::join!(conformance(&ring, &flags), kubelet);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("1 cases passed, 0 failed"), "{text}");
    let log = ring.log_text();
    assert!(!log.is_empty() && !log.contains(&id), "the orchestrator has done something about {id}: {log}");
    assert!(objects(&ring).await.is_empty(), "{text}");
}
