//! A provisioner that is one ConfigMap, on the whole cluster with pods.

use std::fs;

use flex_contract::names;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams};

use orchestrator::deployed::{clean, kubectl, log_of, users};
use orchestrator::ring::{OWN, uid};
use orchestrator::wait::{unexpected, until};

/// Where the class of `configmaps/script.yaml` keeps its volumes on the node.
const BASE: &str = "/var/lib/flex-script";

#[tokio::test]
async fn a_config_map_alone_provisions_and_its_volume_is_deleted_without_it() {
    let ring = users("script").await;
    kubectl(ring.cluster(), &["apply", "-f", "configmaps/script.yaml"]);
    kubectl(ring.cluster(), &["-n", &ring.user, "apply", "-f", "examples/script/claim.yaml"]);
    assert_eq!(log_of(&ring, "script-writer").await.trim(), "hello");
    let claim = ring.bound("script-example").await;
    let directory = format!("{BASE}/{}", uid(&claim));
    assert_eq!(fs::read_to_string(format!("{directory}/greeting")).unwrap().trim(), "hello");
    let volume = ring.volumes().get(&names::pv_name(&uid(&claim))).await.unwrap();
    assert_eq!(volume.spec.unwrap().local.unwrap().path, directory);

    ring.api::<ConfigMap>(OWN).delete("script", &DeleteParams::default()).await.unwrap();
    // The orchestrator has seen that the class is gone.
    until("no class is served without its config", || async {
        let status = ["-n", OWN, "exec", "deploy/flex-provisioner", "--", "/flex-provisioner", "status", "-o", "name"];
        let status = kubectl(ring.cluster(), &status);
        let served = status.lines().any(|line| line == "storageclass.storage.k8s.io/script");
        if served { unexpected(status) } else { Ok(()) }
    })
    .await;
    let kept = ring.api::<ControllerRevision>(OWN).list(&ListParams::default()).await.unwrap().items;
    let named = |object: &ControllerRevision| {
        object.metadata.name.as_deref().is_some_and(|name| name.starts_with("flex-script-"))
    };
    assert!(kept.iter().any(named), "the script outlives its config");
    clean(&ring).await;
    assert!(!fs::exists(&directory).unwrap(), "the directory is deleted");
}

#[tokio::test]
async fn a_script_has_the_programs_of_its_image_and_says_why_it_fails() {
    let ring = users("script-fails").await;
    let script = "set -eu\n[ \"$OPERATION\" = provision ] || exit 0\nname=$(echo '{\"a\": \"no array\"}' | jq -r .a)\ncurl --version >/dev/null\nexec flex-pv fail never \"$name answers to $PVC_NAME\"\n";
    ring.config("script-fails", "script-fails", &[("image", "-"), ("script", script)]).await;
    ring.claim("c", "script-fails").await;
    let failed = flex_contract::reason::PROVISIONING_FAILED;
    ring.event(&ring.user, "c", failed, "no array answers to c").await;
    clean(&ring).await;
    ring.api::<ConfigMap>(OWN).delete("script-fails", &DeleteParams::default()).await.unwrap();
}
