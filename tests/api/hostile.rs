//! Tests of hostile users and hostile images, with the admission policies and without. Users are impersonated. An image
//! has the token that its pod would have mounted.

mod images;
mod people;
mod users;
mod written;

use flex_contract::names;
use k8s_openapi::api::core::v1::{Event, PersistentVolumeClaim, Pod};
use kube::Api;
use kube::api::{DynamicObject, ListParams, PostParams};
use kube::discovery::ApiResource;
use serde_json::{Value, json};

use orchestrator::programs::tool;
use orchestrator::ring::{ADMIN, OWN, Ring, WHILE, annotation, claim_of};
use orchestrator::wait::{stays, unexpected, until};

use self::people::*;

#[tokio::test]
async fn the_shipped_policies_are_sound() {
    let ring = ring(true).await;
    // All of the kustomization, as an admin installs it.
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/kustomize");
    let applied = ring.cluster().kubectl().args(["apply", "--dry-run=server", "-k", shipped]).output().unwrap();
    assert!(applied.status.success(), "{}", String::from_utf8_lossy(&applied.stderr));
    let known = status(&ring, &["-o", "json"]);
    let known: Value = serde_json::from_str(&known).expect("JSON");
    let known = known["policies"].as_array().unwrap();
    assert_eq!(known.len(), 9);
    for policy in known {
        assert_eq!(policy["state"], "installed", "{policy}");
    }
    ring.logged("the admission policies are installed").await;
    let kinds = [
        ("MutatingAdmissionPolicy", "mutatingadmissionpolicies", 4),
        ("ValidatingAdmissionPolicy", "validatingadmissionpolicies", 5),
    ];
    for (kind, plural, count) in kinds {
        let resource = ApiResource {
            group: "admissionregistration.k8s.io".into(),
            version: "v1".into(),
            api_version: "admissionregistration.k8s.io/v1".into(),
            kind: kind.into(),
            plural: plural.into(),
        };
        let api: Api<DynamicObject> = Api::all_with(ring.client.clone(), &resource);
        let own_policies = ListParams::default().labels(names::LABEL_POLICY);
        assert_eq!(api.list(&own_policies).await.unwrap().items.len(), count, "{kind}");
    }
    until("the controller manager has checked the types of all expressions", || async {
        let api: Api<k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy> =
            Api::all(ring.client.clone());
        for policy in api.list(&ListParams::default().labels(names::LABEL_POLICY)).await.unwrap() {
            let name = policy.metadata.name.unwrap();
            let Some(checked) = policy.status.and_then(|status| status.type_checking) else { return unexpected(name) };
            let warnings = checked.expression_warnings.unwrap_or_default();
            assert!(warnings.is_empty(), "{name}: {warnings:?}");
        }
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn status_and_log_list_the_policies_that_do_not_act() {
    let ring = ring(false).await;
    let message = ring.logged("9 of 9 admission policies do not act").await;
    says(
        &message,
        &["USERNAME and USER_GROUPS are empty", "taken by another claim", "kubectl apply -k deploy/kustomize"],
    );
    let message = status(&ring, &[]);
    says(
        &message,
        &[
            "reservations   MutatingAdmissionPolicy     not installed",
            "Off without them:",
            "USERNAME",
            "Install them: kubectl apply -k",
        ],
    );
    // One policy, with a binding that only audits.
    let policies =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/kustomize/policies.yaml")).unwrap();
    let images: Vec<_> = policies.split("\n---\n").filter(|document| document.contains("policy: images")).collect();
    let file = ring.file("images.yaml", &images.join("\n---\n").replace("[Deny]", "[Audit]"));
    // The API server may know a deleted policy for a moment longer.
    ring.cluster().end_with_test();
    let apply = ring.cluster().kubectl().arg("apply").arg("-f").arg(&file).output().unwrap();
    assert!(apply.status.success(), "{}", String::from_utf8_lossy(&apply.stderr));
    says(&status(&ring, &[]), &["images         ValidatingAdmissionPolicy   without a binding that acts"]);
    // As shipped, but for a selector by which a tenant would pass with a label.
    let selector =
        json!({ "spec": { "matchConstraints": { "objectSelector": { "matchLabels": { "watch": "me" } } } } });
    let policy = ["patch", "validatingadmissionpolicy", "flex-provisioner-images", "--type", "merge", "-p"];
    let patched = ring.cluster().kubectl().args(policy).arg(selector.to_string()).output().unwrap();
    assert!(patched.status.success(), "{}", String::from_utf8_lossy(&patched.stderr));
    says(&status(&ring, &[]), &["not as shipped with this version, at spec.matchConstraints.objectSelector"]);
}

/// A backup tool creates the pod of a run again, which had begun and so has no gate. Its claim may be gone by now.
#[tokio::test]
async fn the_pod_of_a_run_that_had_begun_is_not_created_again() {
    let ring = ring(true).await;
    class_of_images(&ring, "c", &[]).await;
    ring.claim("a", "c").await;
    let (_, job) = attempt(&ring, "a").await;
    let begun = serde_json::to_value(ring.pod_of(&job).await).unwrap();
    let labels = begun["metadata"]["labels"].clone();
    let restored = |labels: &Value, gates: Value| {
        let mut spec = begun["spec"].clone();
        spec.as_object_mut().unwrap().remove("nodeName");
        spec["schedulingGates"] = gates;
        object::<Pod>(json!({ "metadata": { "name": "restored", "labels": labels }, "spec": spec }))
    };
    let pods = ring.api::<Pod>(ADMIN);
    let message = refusal(pods.create(&PostParams::default(), &restored(&labels, json!([]))).await);
    let remedy = "Exclude Jobs and pods with the label app.kubernetes.io/managed-by=flex-provisioner from backups";
    says(&message, &["pod admin/restored", names::START_GATE, remedy]);
    // A pod with the gate waits for good, and pods of others are nobody's business.
    let gate = json!([{ "name": names::START_GATE }]);
    pods.create(&dry(), &restored(&labels, gate)).await.unwrap();
    pods.create(&dry(), &restored(&json!({ "app": "other" }), json!([]))).await.unwrap();
    // Commands create the Jobs of these runs, and nobody would open them.
    for (label, value) in [
        (names::LABEL_INSTANCE, "conformance-12345678"),
        (names::LABEL_OPERATION, "list"),
        (names::LABEL_OPERATION, "move-in"),
        (names::LABEL_OPERATION, "move-out"),
    ] {
        let mut of_command = labels.clone();
        of_command[label] = json!(value);
        pods.create(&dry(), &restored(&of_command, json!([]))).await.unwrap();
    }
}

/// Without the policy the PV controller may write the claim at the moment at which the orchestrator stamps it.
#[tokio::test]
async fn healthy_claims_get_no_warning_of_the_pv_controller() {
    let ring = ring(true).await;
    ring.config("c", "c", &[]).await;
    let labelled = |class: &str| json!({ "metadata": { "name": class, "labels": { names::LABEL_CLASS: class } } });
    ring.class("c", names::DEFAULT_PROVISIONER, labelled("c")).await;
    ring.class("in-place", "driver.example", labelled("in-place")).await;
    ring.class("foreign", "somebody.else", json!({})).await;
    let asked = |claim: &PersistentVolumeClaim| {
        [names::STORAGE_PROVISIONER, names::STORAGE_PROVISIONER_BETA].map(|key| annotation(claim, key))
    };
    let dry = |class: &'static str, more: Value| {
        let claim = claim_of(class, "probe", more);
        let claims = ring.claims();
        async move { claims.create(&dry(), &claim).await.unwrap() }
    };
    let provisioner = Some(names::DEFAULT_PROVISIONER.to_owned());
    until("the policy knows the classes of all provisioners", || async {
        let (own, in_place) = (asked(&dry("c", json!({})).await), asked(&dry("in-place", json!({})).await));
        let knows_own = own == [provisioner.clone(), provisioner.clone()];
        let knows_in_place = in_place[0].as_deref() == Some("driver.example");
        if knows_own && knows_in_place { Ok(()) } else { unexpected((own, in_place)) }
    })
    .await;
    let by_annotation = json!({ "metadata": { "annotations": { "volume.beta.kubernetes.io/storage-class": "c" } } });
    assert_eq!(asked(&dry("foreign", by_annotation).await)[0], provisioner, "the old annotation wins over the field");
    for (class, more) in
        [("foreign", json!({})), ("nobody", json!({})), ("c", json!({ "spec": { "volumeName": "mine" } }))]
    {
        assert_eq!(asked(&dry(class, more).await), [None, None], "{class}");
    }
    for number in 0..30 {
        ring.claim(&format!("data-{number}"), "c").await;
    }
    for number in 0..30 {
        ring.stamped(&format!("data-{number}")).await;
    }
    stays("no event warns", WHILE, || async {
        let events = ring.api::<Event>(&ring.user).list(&ListParams::default()).await.unwrap();
        let texts: Vec<_> = events.into_iter().filter_map(|event| event.message).collect();
        match texts.iter().find(|texts| texts.contains("Error saving claim")) {
            None => Ok(()),
            Some(warning) => unexpected(warning),
        }
    })
    .await;
}

/// Returns what `flex-provisioner status` prints.
pub fn status(ring: &Ring, more: &[&str]) -> String {
    let output = std::process::Command::new(tool())
        .args(["status", "--flex-namespace", OWN, "--config-namespace", ADMIN])
        .args(more)
        .env("KUBECONFIG", ring.cluster().kubeconfig())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn whoever_applies_a_config_with_a_slip_gets_a_warning() {
    let ring = ring(true).await;
    let apply = |text: &str| {
        let file = ring.file("config.yaml", text);
        let applied = ring.cluster().kubectl().args(["apply", "--dry-run=server", "-f"]).arg(file).output().unwrap();
        let message = String::from_utf8(applied.stderr).unwrap();
        assert!(applied.status.success(), "{message}");
        message
    };
    let config = |labels: Value, data: Value| {
        let metadata = json!({ "name": "a", "namespace": ADMIN, "labels": labels });
        apply(&json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data }).to_string())
    };
    let marked = json!({ "type": "provisioner-config", "storage-class": "c" });
    let data = json!({ "plugin-name": names::DEFAULT_PLUGIN, "image": "example/image" });
    let with = |key: &str, value: Value| {
        let mut data = data.clone();
        data[key] = value;
        data
    };
    until("the policy acts", || async {
        let message = config(json!({ "type": "config", "storage-class": "c" }), data.clone());
        if message.contains("the provisioner does not see it with the label type: config") {
            Ok(())
        } else {
            unexpected(message)
        }
    })
    .await;
    for label in ["storageclass", "storage_class", "storageClass"] {
        let message = config(json!({ "type": "provisioner-config", label: "c" }), data.clone());
        says(&message, &[&format!("ConfigMap admin/a: the label {label} has no effect"), "is storage-class"]);
    }
    let message = config(json!({ "storage-class": "c" }), data.clone());
    says(&message, &["does not see it without a label type; write type: provisioner-config"]);
    let message = config(marked.clone(), json!({ "image": "example/image" }));
    says(&message, &["the key plugin-name is missing"]);
    for near in ["kubernetes.io/flex-provisoner", "kubernets.io/flex_provisioner", "flex-provisioner"] {
        let message = config(marked.clone(), with("plugin-name", json!(near)));
        says(
            &message,
            &[
                &format!("the plugin-name {near} names another provisioner"),
                "did you mean kubernetes.io/flex-provisioner?",
            ],
        );
    }
    for other in ["example.com/flex-provisioner", "kubernetes.io/flex-provisioner-2"] {
        let message = config(marked.clone(), with("plugin-name", json!(other)));
        assert!(!message.contains("plugin-name"), "{message}");
    }
    for (slip, key) in [
        ("timout", "timeout"),
        ("TIMEOUT", "timeout"),
        ("max_in_flight", "max-in-flight"),
        ("nodeSelector", "node-selector"),
        ("capability", "capabilities"),
    ] {
        let message = config(marked.clone(), with(slip, json!("1")));
        says(&message, &[&format!("{slip} is no key; did you mean {key}?")]);
    }
    for name in ["password", "arrayPassword", "api-key", "OS_TOKEN"] {
        let message = config(marked.clone(), with(name, json!("x")));
        says(&message, &[&format!("the parameter {name} looks like a secret"), "name that in secret-env"]);
    }
    for value in ["nas ", "nas\n", "nas\r", "a\r\nb\r\n"] {
        let message = config(marked.clone(), with("server", json!(value)));
        says(&message, &["the value of server has white space at its ends"]);
    }
    for (name, value) in [
        ("secret-namespace", "vault"),
        ("ceph-secret", "rbd"),
        ("csi.storage.k8s.io-secret-name", "array"),
        ("password", "/etc/flex-secrets/array/password"),
        ("service-token", "abc"),
        ("text", "a\nb\n"),
    ] {
        assert_eq!(config(marked.clone(), with(name, json!(value))), "", "{name}");
    }
    // Correct configs, and those of other provisioners, get no warning; no shipped config has a slip.
    for message in [
        config(marked, with("timeout-of-the-array", json!("1"))),
        config(json!({ "storage-class": "c", "type": "other" }), json!({ "timout": "1" })),
    ] {
        assert_eq!(message, "");
    }
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = ["configmaps", "configmaps/moving-in", "configmaps/recipes"]
        .map(|folder| std::fs::read_dir(root.join(folder)).unwrap());
    let shipped = folders.into_iter().flatten().map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    let mut applied = 0;
    for file in shipped.map(|file| std::fs::read_to_string(file).unwrap()) {
        let configs = file.split("\n---\n").filter(|document| document.contains("\nkind: ConfigMap"));
        for text in configs.map(|text| text.replace("namespace: flex-provisioner", &format!("namespace: {ADMIN}"))) {
            assert_eq!(apply(&text), "", "{text}");
            applied += 1;
        }
    }
    assert!(applied >= 10, "only {applied} of the shipped configs were found");
}

/// Subjects that may write Secrets or create pods in the orchestrator's namespace can get the token of its account.
#[test]
fn no_shipped_role_leads_to_the_account_of_the_orchestrator() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = ["configmaps", "configmaps/moving-in", "configmaps/recipes", "deploy/kustomize"]
        .map(|folder| std::fs::read_dir(root.join(folder)).unwrap());
    let mut roles = 0;
    for file in files.into_iter().flatten().map(|file| file.unwrap().path()).filter(|file| file.is_file()) {
        let text = std::fs::read_to_string(&file).unwrap();
        for document in text.split("\n---\n").filter(|document| document.contains("\nkind: ")) {
            let object: Value = serde_saphyr::from_str(document).unwrap();
            let is_role = ["Role", "ClusterRole"].iter().any(|kind| object["kind"] == *kind);
            // A ClusterRole is for all namespaces, and a Role without one gets the orchestrator's.
            if !is_role || object["metadata"]["namespace"] == "flex-cinder-secrets" {
                continue;
            }
            roles += 1;
            for rule in object["rules"].as_array().unwrap() {
                let has = |key: &str, any: &[&str]| {
                    rule[key].as_array().unwrap().iter().any(|item| any.iter().any(|one| item == one))
                };
                let name = &object["metadata"]["name"];
                let writes = has("verbs", &["create", "patch", "update", "impersonate", "*"]);
                // A right to read ServiceAccounts gives no access to the account.
                let leads = has("resources", &["secrets", "serviceaccounts/token", "*"])
                    || has("resources", &["serviceaccounts"]) && writes;
                assert!(!leads, "{}: {name} gives {rule}", file.display());
                let runs = has("resources", &["pods", "jobs", "deployments", "cronjobs", "daemonsets", "statefulsets"]);
                let creates = has("verbs", &["create", "patch", "update", "*"]);
                // The orchestrator's own Role creates Jobs.
                assert!(
                    !(runs && creates) || name == "flex-provisioner-configs",
                    "{}: {name} gives {rule}",
                    file.display()
                );
            }
        }
    }
    assert!(roles >= 10, "{roles} were found");
}
