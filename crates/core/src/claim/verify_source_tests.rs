//! Tests of all kinds of volume sources.

use flex_contract::volume::{VOLUME_SOURCE_KINDS, migrated_to};

use super::*;

/// Returns a volume of a kind, with the fields that some kind requires.
fn of_kind(kind: &str, more: &serde_json::Value) -> Volume {
    let mut body = json!({ "driver": "d", "volumeHandle": "h", "image": "i", "monitors": [], "iqn": "i", "lun": 1,
        "targetPortal": "t", "gateway": "g", "system": "s", "volumeID": "v", "path": "/srv/a", "server": "s",
        "endpoints": "e", "diskName": "n", "diskURI": "u", "pdName": "p", "pdID": "p", "shareName": "s",
        "registry": "r", "volume": "v", "volumePath": "v", "secretName": "", "targetWWNs": ["50060e801049cfd1"],
        "secretRef": null });
    if kind == "scaleIO" {
        body["secretRef"] = json!({});
    }
    for (field, value) in more.as_object().into_iter().flatten() {
        body[field] = value.clone();
    }
    with(json!({ "spec": { "nfs": null, kind: body } }))
}

/// Returns the rule that allows the volume of a kind.
fn rule_for(kind: &str) -> String {
    match (kind, migrated_to(kind)) {
        (_, Some(driver)) => format!("csi:{driver}"),
        ("hostPath" | "local", None) => format!("{kind}:/srv"),
        ("csi" | "flexVolume", None) => format!("{kind}:d"),
        _ => kind.to_owned(),
    }
}

proptest::proptest! {
    #[test]
    fn no_spelling_of_a_path_leads_out_of_the_directory_of_its_rule(
        path in "(/srv|/srv/a|/srvx|srv)(/(a|[.]{1,3})?){0,4}",
    ) {
        for (kind, directory) in [("local", "/srv/"), ("hostPath", "/srv/a/")] {
            let below = path.strip_prefix(directory).unwrap_or_default();
            let is_inside = !below.is_empty() && below.split('/').all(|part| part != "..");
            let fits = mismatches_of(&on(kind, &path), "local:/srv, hostPath:/srv/a").is_empty();
            assert!(is_inside || !fits, "{kind} at {path:?}");
        }
    }
}

#[test]
fn no_kind_but_nfs_is_allowed_without_its_rule() {
    for kind in VOLUME_SOURCE_KINDS {
        let volume = of_kind(kind, &json!({}));
        assert_eq!(volume.source_kind, Some(*kind));
        let rule = rule_for(kind);
        let found = |sources: &str| {
            let found = mismatches_of(&volume, sources);
            found.into_iter().filter(|mismatch| !mismatch.contains("Secret")).collect::<Vec<_>>()
        };
        assert_eq!(found(&rule), [""; 0], "{kind} with {rule}");
        let without = found("");
        match *kind {
            "nfs" => assert_eq!(without, [""; 0]),
            _ => assert!(without.len() == 1 && without[0].contains("`volume-sources: "), "{kind}: {without:?}"),
        }
        for other in VOLUME_SOURCE_KINDS.iter().filter(|other| *other != kind) {
            let other = rule_for(other);
            assert_eq!(found(&other).len(), 1, "{kind} with {other}");
        }
    }
}

#[test]
fn a_kind_that_kubernetes_hands_to_a_driver_counts_as_that_driver() {
    let migrated: Vec<_> = VOLUME_SOURCE_KINDS.iter().filter(|kind| migrated_to(kind).is_some()).collect();
    assert_eq!(migrated.len(), 7);
    for kind in migrated {
        let driver = migrated_to(kind).unwrap();
        let volume = of_kind(kind, &json!({}));
        for sources in ["", kind, "csi:another.driver"] {
            let found = mismatches_of(&volume, sources);
            assert!(found.len() == 1 && found[0].contains(&format!("driver {driver}: ")), "{sources}: {found:?}");
        }
        assert_eq!(mismatches(&volume, &claim(), &recipe_with(&[], driver, &[]), None), [""; 0], "it is replaced");
    }
}

#[test]
fn an_fc_volume_names_targets_and_never_disks() {
    let found = |more: serde_json::Value, sources: &str| mismatches_of(&of_kind("fc", &more), sources).join("; ");
    let targets = |wwns: &[&str]| json!({ "targetWWNs": wwns });
    assert_eq!(found(json!({}), "fc"), "");
    assert_eq!(found(json!({}), "fc:50060E801049CFD1"), "");
    let other = "5006000000000001";
    assert!(found(json!({}), &format!("fc:{other}")).contains("`fc:50060e801049cfd1` would"));
    let both = targets(&["50060e801049cfd1", other]);
    assert!(found(both.clone(), "fc:50060e801049cfd1").contains(other));
    assert_eq!(found(both, &format!("fc:50060e801049cfd1, fc:{other}")), "");
    let many: Vec<String> = (0..40).map(|n| format!("{n:016x}")).collect();
    for more in [
        json!({ "wwids": ["sda"], "targetWWNs": null }),
        json!({ "wwids": ["sda"] }),
        targets(&[]),
        json!({ "targetWWNs": many }),
    ] {
        assert!(found(more.clone(), "fc").contains("must name disks by `targetWWNs`"), "{more}");
    }
    for wwn in ["", "sda", "50060e801049cfd1-lun-0", "0x50060e801049cf"] {
        assert!(found(targets(&[wwn]), "fc").contains("has not 16 hexadecimal digits"), "{wwn}");
    }
}

#[test]
fn a_volume_has_only_the_finalizers_of_its_own_attacher() {
    let found = |kind: &str, more: serde_json::Value, sources: &str, finalizer: &str| {
        let mut volume = of_kind(kind, &more);
        volume.finalizers = vec![finalizer.into()];
        mismatches_of(&volume, sources)
    };
    let csi = json!({ "driver": "ebs.csi.aws.com" });
    for finalizer in ["external-attacher/ebs-csi-aws-com", "external-attacher/ebs.csi.aws.com"] {
        assert_eq!(found("csi", csi.clone(), "csi:ebs.csi.aws.com", finalizer), [""; 0]);
        assert_eq!(found("awsElasticBlockStore", json!({}), "csi:ebs.csi.aws.com", finalizer), [""; 0]);
        assert_eq!(found("nfs", json!({}), "nfs", finalizer).len(), 1, "no attacher attaches it");
    }
    for finalizer in ["external-attacher/never-comes", "external-attacher/", "kubernetes.io/pv-controller", "a/b"] {
        let found = found("csi", csi.clone(), "csi:ebs.csi.aws.com", finalizer);
        assert!(found.len() == 1 && found[0].contains(finalizer), "{finalizer}: {found:?}");
    }
}

/// Each kind that can name a Secret.
#[test]
fn a_volume_names_only_secrets_that_its_config_names() {
    let recipe = |kind: &str, keys: &[(&str, &str)], parameters: &[(&str, &str)]| {
        let rule = rule_for(kind);
        let keys = [keys, &[("volume-sources", rule.as_str())]].concat();
        recipe_with(&keys, if kind == "csi" { "d" } else { "" }, parameters)
    };
    let annotated = Claim { metadata: [("key".to_owned(), "by-annotation".to_owned())].into(), ..claim() };
    let reference = |kind: &str, namespace: &str, name: &str| match kind {
        "azureFile" => json!({ "secretName": name, "secretNamespace": namespace }),
        "csi" => json!({ "nodeExpandSecretRef": { "name": name, "namespace": namespace } }),
        _ => json!({ "secretRef": { "name": name, "namespace": namespace } }),
    };
    let (own, pv) = (format!("flex-cinder-{UID}"), format!("pvc-{UID}"));
    // Each row has the namespace and name of the Secret, keys of the config, and whether they allow it.
    type Row<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)], bool);
    let pair = |name| [("node-stage-secret-name", name), ("node-stage-secret-namespace", "vault")];
    let template = pair("${pv.name}-${pvc.name}-${pvc.namespace}-${pvc.annotations['key']}");
    let by_template = format!("{pv}-data-team-by-annotation");
    let table: &[Row<'_>] = &[
        ("storage", "other-vendors-login", &[], false),
        ("team", "db-password", &[], false),
        ("", "db-password", &[], false),
        ("storage", "login", &[("secret-env", "login")], true),
        ("storage", "login", &[("secret-volume", "a, login")], true),
        ("team", "login", &[("secret-env", "login")], false),
        ("storage", "login", &[("smb-secret-name", "login")], true),
        ("team", "login", &[("smb-secret-name", "login")], false),
        ("vault", "login", &pair("login"), true),
        ("vault", "another", &pair("login"), false),
        ("storage", "login", &pair("login"), false),
        ("vault", &by_template, &template, true),
        ("vault", "${pv.name}", &pair("${pv.nam}"), false),
        ("storage", &own, &[], true),
        ("vault", &own, &[("secret-namespace", "vault")], true),
        ("vault", &own, &[], false),
        ("vault", "ceph", &[("secret-namespace", "vault"), ("ceph-secret", "ceph")], true),
        ("vault", "ceph", &[("secret-namespace", "vault")], false),
        ("team", &own, &[("secret-namespace", "${pvc.namespace}")], true),
        ("", &own, &[("secret-namespace", "${pvc.namespace}")], true),
        ("vault", "any", &[("secret-namespaces", "vault")], true),
    ];
    for kind in ["csi", "flexVolume", "rbd", "cephfs", "iscsi", "scaleIO", "storageos", "cinder", "azureFile"] {
        for (namespace, name, keys, allowed) in table {
            let volume = of_kind(kind, &reference(kind, namespace, name));
            let found = mismatches(&volume, &annotated, &recipe(kind, keys, &[]), None);
            match allowed {
                true => assert_eq!(found, [""; 0], "{kind}: {namespace}/{name} with {keys:?}"),
                false => assert!(
                    found.len() == 1 && found[0].starts_with(&format!("it names the Secret {name} in the namespace")),
                    "{kind}: {namespace}/{name} with {keys:?}: {found:?}"
                ),
            }
        }
    }
    // A StorageClass of another provisioner names Secrets by its parameters, in both spellings.
    for parameters in [
        [
            ("csi.storage.k8s.io/node-stage-secret-name", "s"),
            ("csi.storage.k8s.io/node-stage-secret-namespace", "vault"),
        ],
        [("csiNodeStageSecretName", "s"), ("csiNodeStageSecretNamespace", "vault")],
    ] {
        let volume = of_kind("csi", &reference("csi", "vault", "s"));
        assert_eq!(mismatches(&volume, &claim(), &recipe("csi", &[], &parameters), None), [""; 0], "{parameters:?}");
    }
}
