//! Tests of claims and volumes that are lost and restored as backup tools do it, and of claims whose runs never start.
//! They use the whole cluster, with real data.

use std::fs;
use std::path::Path;
use std::time::Duration;

use flex_contract::names;
use flex_contract::reason;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::helm::accepted;
use orchestrator::backup::{Backup, flex};
use orchestrator::deployed::{
    RESTORED, clean, directory, ends_well, kubectl, local_class, log_of, pod, users, volumes_in,
};
use orchestrator::ring::{Ring, uid};
use orchestrator::wait::{unexpected, until};

/// Creates a claim `kept` of a class; a pod writes to it.
async fn written(ring: &Ring, class: &str) {
    ring.claim("kept", class).await;
    pod(ring, "writer", "kept", "echo precious > /data/text").await;
    ends_well(ring, "writer").await;
    kubectl(ring.cluster(), &["-n", &ring.user, "delete", "pod", "writer"]);
}

/// Reads the file of a volume, in the directory of any name.
fn data(class: &str, id: &str) -> Option<String> {
    fs::read_to_string(Path::new(&directory(class)).join(id).join("text")).ok().map(|text| text.trim().to_owned())
}

#[tokio::test]
async fn a_restored_volume_keeps_its_data_and_is_deleted_by_its_own_record_once_vouched_for() {
    let ring = users("restored").await;
    let class = "restored";
    local_class(&ring, class, &[("placement", "any")]).await;
    // The claim is restored first, or a volume without its claimRef. `csi` has the volume first.
    for order in ["claim-first", "no-reference"] {
        let _turn = match order {
            "claim-first" => (Some(RESTORED.write().await), None),
            _ => (None, Some(RESTORED.read().await)),
        };
        written(&ring, class).await;
        let mut backup = Backup::of(&ring, "kept").await;
        let id = backup.volume_name().strip_prefix(names::PV_PREFIX).unwrap().to_owned();
        backup.lose(&ring).await;
        assert_eq!(data(class, &id).as_deref(), Some("precious"));
        if order == "no-reference" {
            backup.volume["spec"].as_object_mut().unwrap().remove("claimRef");
        }
        if order == "claim-first" {
            Backup::create(&ring, &backup.claim);
        }
        Backup::create(&ring, &backup.volume);
        // Long enough for the orchestrator to begin a delete run.
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(data(class, &id).as_deref(), Some("precious"), "{order}");
        if order != "claim-first" {
            Backup::create(&ring, &backup.claim);
        }
        let claim = ring.bound("kept").await;
        assert_ne!(uid(&claim), id, "the restored claim is another object");
        ring.event("", backup.volume_name(), reason::VOLUME_RESTORED, "flex-provisioner vouch").await;
        pod(&ring, "reader", "kept", "cat /data/text").await;
        assert_eq!(log_of(&ring, "reader").await.trim(), "precious", "{order}");
        kubectl(ring.cluster(), &["-n", &ring.user, "delete", "pod", "reader"]);

        let dry = flex(&ring, &["vouch", "--dry-run", backup.volume_name()]);
        assert!(dry.status.success(), "{dry:?}");
        assert!(String::from_utf8_lossy(&dry.stdout).contains("would be confirmed"), "{dry:?}");
        // The doctor ignores young objects: something may still be in progress.
        let (command, word) = match order {
            "claim-first" => (vec!["doctor", "--fix"], "    vouched for"),
            _ => (vec!["vouch", backup.volume_name()], ": confirmed"),
        };
        until("the volume is vouched for", || async {
            let message = String::from_utf8_lossy(&flex(&ring, &command).stdout).into_owned();
            if message.contains(word) { Ok(()) } else { unexpected(message) }
        })
        .await;
        // The class makes its volumes elsewhere now: this volume is deleted from its own directory.
        let config: Api<ConfigMap> = ring.api(&ring.admin);
        let elsewhere = |path: &str| json!({ "data": { "mode": path } });
        config.patch(class, &PatchParams::default(), &Patch::Merge(elsewhere("0700"))).await.unwrap();
        ring.delete_claim("kept").await;
        ring.volume_gone(backup.volume_name()).await;
        assert!(!volumes_in(&directory(class)).contains(&id), "{order}: the directory is deleted");
        config.patch(class, &PatchParams::default(), &Patch::Merge(elsewhere("0777"))).await.unwrap();
    }
    clean(&ring).await;
}

#[tokio::test]
async fn a_restored_volume_outlives_its_claim_until_it_is_vouched_for() {
    let ring = users("unvouched").await;
    let _beside = RESTORED.read().await;
    let class = "unvouched";
    local_class(&ring, class, &[("placement", "any")]).await;
    written(&ring, class).await;
    let backup = Backup::of(&ring, "kept").await;
    let id = backup.volume_name().strip_prefix(names::PV_PREFIX).unwrap().to_owned();
    backup.lose(&ring).await;
    Backup::create(&ring, &backup.volume);
    Backup::create(&ring, &backup.claim);
    ring.bound("kept").await;
    ring.delete_claim("kept").await;
    ring.claim_gone("kept").await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(data(class, &id).as_deref(), Some("precious"), "released, but it is not known from which claim");
    let refused = flex(&ring, &["vouch", backup.volume_name()]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stdout).contains("delete its storage at once"), "{refused:?}");
    let done = flex(&ring, &["vouch", "--also-released", backup.volume_name()]);
    assert!(done.status.success(), "{done:?}");
    ring.volume_gone(backup.volume_name()).await;
    assert!(!volumes_in(&directory(class)).contains(&id));
    clean(&ring).await;
}

#[tokio::test]
async fn a_claim_whose_runs_never_started_is_deleted_without_a_delete_run() {
    let ring = users("mistakes").await;
    /// Class and claim, the keys with the mistake, and the text of the event.
    type Mistake<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a str);
    let mistakes: [Mistake<'_>; 4] = [
        ("no-image", &[("image", "localhost/flex-provisioner/hostpth:0.1.0")], "cannot be pulled"),
        ("no-command", &[("command", r#"["/provsion.sh"]"#)], "/provsion.sh"),
        ("no-secret", &[("secret-env", "array-lgin")], "secret \"array-lgin\" not found"),
        ("no-node", &[("node-selector", r#"{"disk": "sdd"}"#), ("placement", "any")], "fits on no node"),
    ];
    for (class, more, _) in mistakes {
        local_class(&ring, class, more).await;
        ring.claim(class, class).await;
    }
    for (class, _, says) in mistakes {
        ring.event(&ring.user, class, reason::PROVISIONING_FAILED, says).await;
    }
    let mut ids = Vec::new();
    for (class, ..) in mistakes {
        ids.push(uid(&ring.get_claim(class).await));
        ring.delete_claim(class).await;
    }
    for ((class, ..), id) in mistakes.into_iter().zip(ids) {
        ring.claim_gone(class).await;
        assert!(ring.jobs(&ring.admin, "delete", &id).await.is_empty(), "{class}: a delete run");
        assert!(!volumes_in(&directory(class)).contains(&id));
    }
    clean(&ring).await;
}

#[tokio::test]
async fn a_delete_run_uses_the_image_that_the_config_names_now() {
    let ring = users("mended").await;
    let class = "mended";
    local_class(&ring, class, &[("placement", "any")]).await;
    written(&ring, class).await;
    let claim = ring.bound("kept").await;
    let (id, volume) = (uid(&claim), names::pv_name(&uid(&claim)));
    let config: Api<ConfigMap> = ring.api(&ring.admin);
    let image = |image: &str| Patch::Merge(json!({ "data": { "image": image } }));
    let (wrong, right) = ("localhost/flex-provisioner/hostpth:0.1.0", orchestrator::deployed::IMAGE);
    // The orchestrator writes a verdict again when it knows the change.
    let unseen = json!({ "metadata": { "annotations": { names::VERDICT: null } }, "data": { "image": wrong } });
    config.patch(class, &PatchParams::default(), &Patch::Merge(unseen)).await.unwrap();
    accepted(&ring, class, "image", wrong).await;
    ring.delete_claim("kept").await;
    ring.event("", &volume, reason::VOLUME_FAILED_DELETE, "cannot be pulled").await;
    assert!(volumes_in(&directory(class)).contains(&id));
    config.patch(class, &PatchParams::default(), &image(right)).await.unwrap();
    ring.volume_gone(&volume).await;
    assert!(!volumes_in(&directory(class)).contains(&id), "the directory is deleted");
    clean(&ring).await;
}
