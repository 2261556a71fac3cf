//! Tests of provisioner ConfigMaps: checked as a whole, followed live, and kept in their last valid version.

use flex_contract::names;
use flex_contract::reason;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::{ConfigMap, ServiceAccount};
use kube::api::{DeleteParams, ListParams};
use serde_json::json;

use crate::hostile::status;
use orchestrator::commands::doctor;
use orchestrator::ring::{ADMIN, OWN, Ring, USER, WHILE, annotation, uid};
use orchestrator::wait::{stays, unexpected, until};

/// Waits until the verdict on a config contains a text.
pub async fn verdict(ring: &Ring, name: &str, text: &str) -> String {
    until(format!("the verdict on {name} says `{text}`"), || async {
        let config = ring.api::<ConfigMap>(ADMIN).get(name).await.unwrap();
        let verdict = config.metadata.annotations.unwrap_or_default().remove(names::VERDICT).unwrap_or_default();
        if verdict.contains(text) { Ok(verdict) } else { unexpected(verdict) }
    })
    .await
}

#[tokio::test]
async fn the_first_example_works_as_written() {
    let ring = Ring::start().await;
    let data = [
        ("image", "custom/iscsi-provision"),
        ("service-account-name", "foo"),
        ("service-token", "23092390532lksf90kwelklfw"),
        ("use-nfs-server", "10.10.2.4"),
        ("zone", "west"),
    ];
    ring.config("custom-isci-provisioner", "silver", &data).await;
    let message = verdict(&ring, "custom-isci-provisioner", "ok").await;
    assert!(message.contains("secret-env"), "the Secret to use instead is shown: {message}");
    ring.claim("toms", "silver").await;
    let claim = ring.stamped("toms").await;
    // The account of the example does not exist here.
    let job = ring.job_alone(ADMIN, "provision", &uid(&claim), 1).await;
    let spec = job.spec.unwrap().template.spec.unwrap();
    assert_eq!(spec.service_account_name.as_deref(), Some("foo"));
    let container = &spec.containers[0];
    assert_eq!(container.image.as_deref(), Some("custom/iscsi-provision"));
    let env = |name: &str| {
        container.env.as_ref().unwrap().iter().find(|v| v.name == name).unwrap_or_else(|| panic!("no {name}"))
    };
    assert_eq!(env("USE_NFS_SERVER").value.as_deref(), Some("10.10.2.4"));
    assert_eq!(env("ZONE").value.as_deref(), Some("west"));
    assert_eq!(env("STORAGE_CLASS").value.as_deref(), Some("silver"));
    assert_eq!(env("SERVICE_ACCOUNT").value.as_deref(), Some("foo"));
    assert!(env("KUBE_API").value.as_ref().unwrap().starts_with("https://"));
    let token = env("SERVICE_TOKEN").value_from.as_ref().unwrap().config_map_key_ref.as_ref().unwrap();
    assert_eq!((token.name.as_str(), token.key.as_str()), ("custom-isci-provisioner", "service-token"));
    let kept = ring.api::<ControllerRevision>(OWN).list(&ListParams::default()).await.unwrap();
    assert!(!serde_json::to_string(&kept.items).unwrap().contains("23092390532"), "the token is never copied");
    assert!(!serde_json::to_string(&spec).unwrap().contains("23092390532"), "the token is never copied");
}

#[tokio::test]
async fn a_verdict_lists_all_errors_at_once_and_an_edit_fixes_them() {
    let ring = Ring::start().await;
    ring.config(
        "bad",
        "bad",
        &[("image", "-"), ("path", "/x"), ("timeout", "soon"), ("pool", "5"), ("capabilities", "resize")],
    )
    .await;
    let message = verdict(&ring, "bad", "refused").await;
    for part in ["image: is missing", "PATH", "timeout", "pool: ", "resize"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    ring.event(ADMIN, "bad", reason::CONFIG_REFUSED, "image: is missing").await;
    ring.claim("waits", "bad").await;
    ring.event(USER, "waits", reason::WAITING_FOR_PROVISIONER, "admin/bad has errors").await;
    ring.config("bad", "bad", &[("image", "good/image")]).await;
    verdict(&ring, "bad", "ok").await;
    ring.event(ADMIN, "bad", reason::CONFIG_ACCEPTED, "serves bad").await;
    ring.stamped("waits").await;

    // A class that waits for pods needs an object, and any other is harmless without one.
    ring.config("pure", "pure", &[("volume-binding-mode", "WaitForFirstConsumer")]).await;
    let message = verdict(&ring, "pure", "refused").await;
    assert!(message.contains("kind: StorageClass") && message.contains("name: pure"), "{message}");
    ring.config("pure", "pure", &[]).await;
    ring.claim("p", "pure").await;
    ring.event(USER, "p", reason::CLASS_WITHOUT_OBJECT, "is harmless").await;
    ring.event(USER, "p", "ProvisioningFailed", "storageclass.storage.k8s.io \"pure\" not found").await;
}

#[tokio::test]
async fn verdict_and_doctor_name_a_missing_account_until_it_exists() {
    let mut ring = Ring::without_orchestrator(&[]).await;
    ring.with_shipped_rights();
    ring.run().await;
    ring.config("c", "c", &[("service-account-name", "maker")]).await;
    let message = verdict(&ring, "c", "ok; service-account-name: there is no ServiceAccount maker").await;
    assert!(message.contains("--clusterrole=flex-provisioner-image --serviceaccount=admin:maker"), "{message}");
    assert!(status(&ring, &[]).contains("service-account-name: there is no ServiceAccount maker"));
    let missing = || {
        let (_, message) = doctor(&ring, ADMIN, &[]);
        let findings = message["findings"].as_array().unwrap().clone();
        findings.into_iter().filter(|finding| finding["kind"] == "account-missing").collect::<Vec<_>>()
    };
    let found = missing();
    assert_eq!((found.len(), &found[0]["object"]["name"]), (1, &json!("c")), "{found:?}");
    assert!(found[0]["detail"].as_str().unwrap().contains("`maker`"), "{found:?}");
    ring.account("maker").await;
    assert_eq!(missing().len(), 0);
    until("the verdict has no warning any more", || async {
        let annotations = ring.api::<ConfigMap>(ADMIN).get("c").await.unwrap().metadata.annotations.unwrap_or_default();
        match annotations.get(names::VERDICT) {
            Some(verdict) if verdict == "ok" => Ok(()),
            other => unexpected(other),
        }
    })
    .await;
    ring.api::<ServiceAccount>(ADMIN).delete("maker", &DeleteParams::default()).await.unwrap();
    verdict(&ring, "c", "there is no ServiceAccount maker").await;
}

#[tokio::test]
async fn the_last_good_version_stays_in_use_also_after_a_restart() {
    let mut ring = Ring::start().await;
    ring.config("gold", "gold", &[("image", "good/one")]).await;
    verdict(&ring, "gold", "ok").await;
    ring.config("gold", "gold", &[("image", "good/one"), ("timeout", "never")]).await;
    verdict(&ring, "gold", "the last good version stays in use").await;
    // This config keeps no replica from leading.
    let two = [("replaces-provisioner", "rancher.io/local-path, openebs.io/local")];
    ring.config("two", "two", &two).await;
    assert!(verdict(&ring, "two", "refused").await.contains("cannot be the name of a CSI driver"));
    for (claim, restart) in [("before", false), ("after", true)] {
        if restart {
            ring.restart().await;
        }
        ring.claim(claim, "gold").await;
        let stamped = ring.stamped(claim).await;
        let job = ring.job(ADMIN, "provision", &uid(&stamped), 1).await;
        assert_eq!(job.spec.unwrap().template.spec.unwrap().containers[0].image.as_deref(), Some("good/one"));
    }
    // The next claim uses a valid edit at once.
    ring.config("gold", "gold", &[("image", "good/two")]).await;
    verdict(&ring, "gold", "ok").await;
    ring.claim("new", "gold").await;
    let stamped = ring.stamped("new").await;
    let job = ring.job(ADMIN, "provision", &uid(&stamped), 1).await;
    assert_eq!(job.spec.unwrap().template.spec.unwrap().containers[0].image.as_deref(), Some("good/two"));
}

#[tokio::test]
async fn creation_deletion_and_conflicts_of_configs_take_effect_at_once() {
    let ring = Ring::start().await;
    ring.claim("early", "late-class").await;
    assert_eq!(annotation(&ring.get_claim("early").await, names::ATTEMPT), None, "no config, no stamp");
    ring.config("first", "late-class", &[("image", "the/first")]).await;
    ring.stamped("early").await;
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    ring.config("second", "late-class", &[("image", "the/second")]).await;
    let message = verdict(&ring, "second", "refused").await;
    assert!(message.contains("the ConfigMap admin/first"), "{message}");
    ring.claim("still-first", "late-class").await;
    let claim = ring.stamped("still-first").await;
    assert!(annotation(&claim, names::RECIPE_VERSION).unwrap().starts_with("admin/first@"));
    // Somebody replaces the ConfigMap, as `kubectl replace --force` does.
    ring.api::<ConfigMap>(ADMIN).delete("first", &DeleteParams::default()).await.unwrap();
    ring.config("first", "late-class", &[("image", "the/first")]).await;
    ring.claim("first-again", "late-class").await;
    let claim = ring.stamped("first-again").await;
    assert!(annotation(&claim, names::RECIPE_VERSION).unwrap().starts_with("admin/first@"));
    verdict(&ring, "second", "refused").await;
    // Now it is gone for good.
    ring.api::<ConfigMap>(ADMIN).delete("first", &DeleteParams::default()).await.unwrap();
    verdict(&ring, "second", "the ConfigMap admin/first, which served class `late-class`, was deleted").await;
    ring.claim("now-second", "late-class").await;
    let claim = ring.stamped("now-second").await;
    assert!(annotation(&claim, names::RECIPE_VERSION).unwrap().starts_with("admin/second@"));
}

#[tokio::test]
async fn configs_in_other_namespaces_and_of_other_provisioners_are_left_alone() {
    let ring = Ring::start().await;
    ring.config_in(USER, "takeover", "mine", &[]).await;
    ring.config("other-plugin", "theirs", &[("plugin-name", "example.com/other")]).await;
    ring.class("foreign", "example.com/provisioner", json!({})).await;
    ring.config("claims-foreign", "foreign", &[]).await;
    let message = verdict(&ring, "claims-foreign", "refused").await;
    assert!(message.contains("belongs to the provisioner example.com/provisioner"), "{message}");
    for class in ["mine", "theirs", "foreign"] {
        ring.claim(class, class).await;
    }
    stays("claims of other provisioners are not touched", WHILE, || async {
        for class in ["mine", "theirs", "foreign"] {
            let claim = ring.get_claim(class).await;
            if annotation(&claim, names::CLAIM_UID).is_some() {
                return Err(format!("{class} is stamped"));
            }
        }
        Ok(())
    })
    .await;
    let message = status(&ring, &[]);
    assert!(
        message
            .contains(&format!("ConfigMap {USER}/takeover is ignored: the provisioner reads configs only in {ADMIN}")),
        "{message}"
    );
    assert!(!message.contains("other-plugin is ignored"), "{message}");
    for (namespace, name) in [(USER, "takeover"), (ADMIN, "other-plugin")] {
        let config = ring.api::<ConfigMap>(namespace).get(name).await.unwrap();
        assert!(!config.metadata.annotations.unwrap_or_default().contains_key(names::VERDICT), "{name}");
    }
}

#[tokio::test]
async fn the_fields_of_a_storage_class_object_win() {
    let ring = Ring::start().await;
    ring.config("shared", "unused-label", &[("zone", "west"), ("reclaim-policy", "Delete")]).await;
    let parameters = json!({ "parameters": { "provisioner-config": "admin/shared", "zone": "east", "tier": "1" }, "reclaimPolicy": "Retain", "mountOptions": ["noatime", "ro"] });
    ring.class("object", names::DEFAULT_PROVISIONER, parameters).await;
    ring.class(
        "wrong-pair",
        names::DEFAULT_PROVISIONER,
        json!({ "parameters": { "provisioner-config": "admin/shared", "image": "evil" } }),
    )
    .await;
    ring.class("outside", names::DEFAULT_PROVISIONER, json!({ "parameters": { "provisioner-config": "team/shared" } }))
        .await;
    ring.claim("c", "object").await;
    let claim = ring.stamped("c").await;
    let job = ring.job(ADMIN, "provision", &uid(&claim), 1).await;
    let request = orchestrator::kubelet::request(&job);
    assert_eq!(
        (request.reclaim_policy.as_str(), request.mount_options),
        ("Retain", vec!["noatime".to_owned(), "ro".to_owned()])
    );
    let env = job.spec.unwrap().template.spec.unwrap().containers[0].env.clone().unwrap();
    let value = |name: &str| env.iter().find(|v| v.name == name).and_then(|v| v.value.clone());
    assert_eq!((value("ZONE").as_deref(), value("TIER").as_deref()), (Some("east"), Some("1")));
    assert_eq!(value("PROVISIONER_CONFIG"), None, "the provisioner's own parameter does not reach the image");
    ring.claim("w", "wrong-pair").await;
    ring.event(USER, "w", reason::WAITING_FOR_PROVISIONER, "image: as a parameter of the StorageClass is not allowed")
        .await;
    ring.claim("o", "outside").await;
    ring.event(USER, "o", reason::WAITING_FOR_PROVISIONER, "configs are only read in admin").await;
}
