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
use orchestrator::ring::{Ring, annotation, phase, uid};
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
    // Three orders of the restore: the volume first, the claim first, and a volume without its claimRef.
    for order in ["volume-first", "claim-first", "no-reference"] {
        let _turn = match order {
            "volume-first" => (Some(RESTORED.write().await), None),
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
            "volume-first" => (vec!["doctor", "--fix"], "    vouched for"),
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

/// Creates a class on this test's directory with a mistake in it.
async fn mistaken(ring: &Ring, class: &str, more: &[(&str, &str)]) {
    local_class(ring, class, more).await;
    ring.claim("never", class).await;
    until("an event says what is wrong with the attempt", || async {
        let claim = ring.get_claim("never").await;
        let events = kubectl(ring.cluster(), &["-n", &ring.user, "get", "events", "-o", "json"]);
        match events.contains(reason::PROVISIONING_FAILED.name) && annotation(&claim, names::CLAIM_UID).is_some() {
            true => Ok(()),
            false => unexpected(phase(&claim)),
        }
    })
    .await;
}

#[tokio::test]
async fn a_claim_whose_runs_never_started_is_deleted_without_a_delete_run() {
    let ring = users("mistakes").await;
    let mistakes: [(&str, &[(&str, &str)]); 4] = [
        ("no-image", &[("image", "localhost/flex-provisioner/hostpth:0.1.0")]),
        ("no-command", &[("command", r#"["/provsion.sh"]"#)]),
        ("no-secret", &[("secret-env", "array-lgin")]),
        ("no-node", &[("node-selector", r#"{"disk": "sdd"}"#), ("placement", "any")]),
    ];
    for (class, more) in mistakes {
        mistaken(&ring, class, more).await;
        let id = uid(&ring.get_claim("never").await);
        ring.delete_claim("never").await;
        ring.claim_gone("never").await;
        assert!(ring.jobs(&ring.admin, "delete", &id).await.is_empty(), "{class}: a delete run");
        assert!(!volumes_in(&directory(class)).contains(&id));
        kubectl(ring.cluster(), &["-n", &ring.user, "delete", "events", "--all"]);
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
