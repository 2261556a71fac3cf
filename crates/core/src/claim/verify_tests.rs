use serde_json::json;

use super::*;
use crate::config::effective_config::EffectiveConfig;
use crate::model::modify_status::ModifyStatus;
use crate::model::volume::Reference;
use crate::object::ObjectName;
use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};

const UID: &str = "0d9c2f0e-0000-4000-8000-000000000001";

fn recipe(sources: &str) -> Recipe {
    let data = [("image", "x"), ("volume-sources", sources)];
    let data = data.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    EffectiveConfig { class: "silver".into(), data, ..EffectiveConfig::default() }.recipe().unwrap()
}

fn claim() -> Claim {
    let text = format!(
        "metadata: {{name: data, namespace: team, uid: {UID}}}\nspec: {{storageClassName: silver, accessModes: [ReadWriteOnce, ReadOnlyMany], resources: {{requests: {{storage: 1Gi}}}}}}\n"
    );
    Claim::from(&crate::config::values::yaml::<k8s_openapi::api::core::v1::PersistentVolumeClaim>(&text).unwrap())
}

/// Returns a volume as an image makes it for the claim.
fn volume() -> Volume {
    let text = format!(
        "metadata: {{name: pvc-{UID}, annotations: {{'{}': {UID}}}}}\nspec: {{storageClassName: silver, capacity: {{storage: 1Gi}}, accessModes: [ReadWriteOnce, ReadOnlyMany], nfs: {{server: s, path: /p}}}}\n",
        names::CLAIM_UID
    );
    Volume::from(&crate::config::values::yaml::<k8s_openapi::api::core::v1::PersistentVolume>(&text).unwrap())
}

fn on(kind: &'static str, path: &str) -> Volume {
    Volume { source_kind: Some(kind), path: Some(path.into()), ..volume() }
}

fn mismatches_of(volume: &Volume, sources: &str) -> Vec<String> {
    mismatches(volume, &claim(), &recipe(sources), None)
}

#[track_caller]
fn refused(volume: Volume, says: &str) {
    let found = mismatches_of(&volume, "");
    assert!(found.len() == 1 && found[0].contains(says), "{found:?} does not say {says:?}");
}

fn zone(value: &str) -> Box<NodeSelector> {
    let expression =
        NodeSelectorRequirement { key: "zone".into(), operator: "In".into(), values: Some(vec![value.into()]) };
    let term = NodeSelectorTerm { match_expressions: Some(vec![expression]), match_fields: None };
    Box::new(NodeSelector { node_selector_terms: vec![term] })
}

#[test]
fn a_bound_claim_may_ask_for_more() {
    let grown = Claim { size: Ok(2 << 30), capacity: Some(1 << 30), ..claim() };
    let found = |claim: &Claim| mismatches(&volume(), claim, &recipe(""), None);
    let bound = Claim { volume_name: Some(volume().name), phase: "Bound".into(), ..grown.clone() };
    assert_eq!(found(&bound), [""; 0], "it got its request when it was bound");
    assert!(found(&grown)[0].contains("asks for 2Gi"), "before the binding the present request counts");
    let unknown = Claim { capacity: None, ..bound };
    assert!(found(&unknown)[0].contains("asks for 2Gi"), "its former request is not known");
}

#[test]
fn a_matching_volume_is_accepted() {
    assert_eq!(mismatches_of(&volume(), ""), [""; 0]);
    assert_eq!(mismatches_of(&Volume { size: Ok(2 << 30), ..volume() }, ""), [""; 0], "a larger volume matches");
    let modes = ["ReadWriteMany", "ReadOnlyMany", "ReadWriteOnce"].map(str::to_owned).into();
    assert_eq!(mismatches_of(&Volume { access_modes: modes, ..volume() }, ""), [""; 0], "further modes match");
    assert_eq!(mismatches_of(&Volume { claim_uid: None, ..volume() }, ""), [""; 0], "the name is enough");
}

#[test]
fn each_mismatch_is_reported() {
    refused(Volume { name: "vol-1".into(), ..volume() }, &format!("its name is `vol-1`, not PV_NAME `pvc-{UID}`"));
    refused(Volume { class: "gold".into(), ..volume() }, "its class is `gold`, the claim's is `silver`");
    refused(Volume { class: String::new(), ..volume() }, "its class is ``");
    refused(Volume { size: Ok(1023 << 20), ..volume() }, "its size is 1023Mi, the claim asks for 1Gi");
    refused(Volume { size: Err("no size".into()), ..volume() }, "no size");
    refused(Volume { access_modes: vec!["ReadOnlyMany".into()], ..volume() }, "it lacks the access mode ReadWriteOnce");
    refused(Volume { volume_mode: "Block".into(), ..volume() }, "its volume mode is Block, the claim's is Filesystem");
    refused(Volume { claim_uid: Some("other".into()), ..volume() }, "its annotation names another claim");
    refused(Volume { source_kind: None, ..volume() }, "it has no volume source, or several");
}

/// Both provisioners give the volume of a claim one name.
#[test]
fn a_volume_of_the_replaced_provisioner_is_no_result_of_a_run() {
    let found = |replaces: &str, volume: Volume| {
        let mut recipe = recipe("local:/srv, nfs");
        recipe.effective_config.replaces = replaces.into();
        mismatches(&volume, &claim(), &recipe, None)
    };
    let on_node =
        |name: &str| Volume { provisioned_by: Some("x.io/old".into()), ..on("local", &format!("/srv/{name}")) };
    assert_eq!(found("x.io/old", on_node(UID)), [""; 0]);
    let theirs = format!("pvc-{UID}_team_data");
    assert!(found("x.io/old", on_node(&theirs))[0].contains("may have made it"));
    let unsigned = Volume { claim_uid: None, ..on_node(UID) };
    assert!(found("x.io/old", unsigned.clone())[0].contains("the provisioner x.io/old made it"));
    assert_eq!(found("", unsigned), [""; 0]);
    let served = Volume { provisioned_by: Some("x.io/old".into()), ..volume() };
    assert_eq!(found("x.io/old", served.clone()), [""; 0], "directories on servers have any names");
    assert!(found("x.io/old", Volume { claim_uid: None, ..served })[0].contains("x.io/old made it"));
    assert_eq!(found("csi.example.com", on_node(&theirs)), [""; 0], "a driver makes its volumes itself");
}

/// The path of a volume on a server is checked as one on a node is.
#[test]
fn the_message_about_a_path_that_cannot_move_in_says_what_is_wrong_with_it() {
    for (path, says) in [
        ("/exports/a b", "the last name may have"),
        ("/exports/../a", "not absolute and clean"),
        ("/exports/a/", "ends with a slash"),
        ("exports/a", "not absolute and clean"),
    ] {
        let why = verify_moved_in_source(&volume(), &recipe("nfs"), path).unwrap_err();
        assert!(why.contains(says), "{path}: {why}");
    }
}

#[test]
fn all_mismatches_are_reported_at_once() {
    let volume = Volume {
        name: "a".into(),
        class: "b".into(),
        size: Ok(1),
        access_modes: vec![],
        source_kind: None,
        ..volume()
    };
    assert_eq!(mismatches_of(&volume, "").len(), 5, "{:?}", mismatches_of(&volume, ""));
}

#[test]
fn a_claim_ref_may_be_absent_a_placeholder_or_that_of_the_claim() {
    let with = |name: &str, uid: &str| {
        let reference =
            Reference { name: ObjectName::new("team", name), uid: Some(uid.to_owned()).filter(|uid| !uid.is_empty()) };
        Volume { claim_ref: Some(reference), ..volume() }
    };
    assert_eq!(mismatches_of(&with("data", UID), ""), [""; 0]);
    assert_eq!(mismatches_of(&with(UID, ""), ""), [""; 0], "a placeholder has no UID");
    refused(with("theirs", "another"), "its claimRef names another claim, team/theirs with UID another");
}

#[test]
fn paths_on_nodes_need_a_rule() {
    for kind in ["hostPath", "local"] {
        refused(on(kind, "/srv/a"), &format!("a {kind} volume needs `volume-sources: {kind}:/directory`"));
        for (path, fits) in [
            ("/srv/a", true),
            ("/srv/a/b", true),
            ("/srv", false),
            ("/srv/", false),
            ("/srvx/a", false),
            ("/etc", false),
            ("/srv/../etc", false),
            ("/srv//a", false),
            ("srv/a", false),
            ("", false),
        ] {
            assert_eq!(
                mismatches_of(&on(kind, path), &format!("nfs, {kind}:/srv")).is_empty(),
                fits,
                "{kind} at {path:?}"
            );
        }
        let other = if kind == "local" { "hostPath:/srv" } else { "local:/srv" };
        let found = mismatches_of(&on(kind, "/srv/a"), other);
        assert!(found.len() == 1 && found[0].contains(&format!("does not allow {kind} at `/srv/a`")), "{found:?}");
    }
}

#[test]
fn only_listed_sources_are_allowed() {
    assert_eq!(mismatches_of(&volume(), "iscsi, nfs"), [""; 0]);
    let found = mismatches_of(&volume(), "iscsi, hostPath:/srv");
    assert_eq!(found, ["`volume-sources` of the provisioner config does not allow nfs"]);
}

#[test]
fn the_selected_node_must_reach_the_volume() {
    let labels = BTreeMap::from([("zone".to_owned(), "west".to_owned())]);
    let node_1 = NodeLabels { node: "node-1", labels: &labels };
    let at = |zone_of_volume: &str, node: Option<NodeLabels<'_>>| {
        mismatches(&Volume { affinity: Some(zone(zone_of_volume)), ..volume() }, &claim(), &recipe(""), node)
    };
    assert_eq!(at("west", Some(node_1)), [""; 0]);
    assert_eq!(at("east", Some(node_1)), ["its node affinity excludes the selected node node-1"]);
    assert_eq!(at("east", None), [""; 0], "no node is selected, so the pod follows the volume");
    let finalizers = vec![flex_contract::names::VOLUME_FINALIZER.to_owned()];
    let by_image = Volume { affinity: Some(zone("east")), finalizers, ..volume() };
    let refused = mismatches(&by_image, &claim(), &recipe(""), Some(node_1));
    assert_eq!(refused, ["its node affinity excludes the selected node node-1"], "an image writes the finalizer");
    let claim_ref = Some(Reference { name: ObjectName::new("team", "data"), uid: Some(UID.into()) });
    let half_way = Volume { provenance: Some("{}".into()), claim_ref, ..by_image };
    let selected_since = mismatches(&half_way, &claim(), &recipe(""), Some(node_1));
    assert_eq!(selected_since, [""; 0], "its adoption began with another selected node, or with none");
}

#[test]
fn a_bound_claim_may_ask_for_other_attributes() {
    let volume = Volume { attributes_class: Some("silver".into()), ..volume() };
    let had = |class: &str| {
        let status = serde_json::json!({ "currentVolumeAttributesClassName": class });
        ModifyStatus::of(&serde_json::from_value(status).unwrap())
    };
    let asks = |class: &str, had| Claim { attributes_class: Some(class.into()), modify_status: had, ..claim() };
    let bound = |claim| Claim { volume_name: Some(volume.name.clone()), phase: "Bound".into(), ..claim };
    let found = |claim: Claim| mismatches(&volume, &claim, &recipe(""), None);
    let refused = ["it names a VolumeAttributesClass that the claim does not ask for"];
    for (claim, expected, why) in [
        (asks("silver", None), [].as_slice(), "it is what it asks for"),
        (asks("gold", None), &refused, "it is not"),
        (asks("gold", had("silver")), &refused, "before it is bound, what it asks for now counts"),
        (bound(asks("gold", had("silver"))), &[], "it had what it asked for when it was bound"),
        (bound(asks("gold", had("bronze"))), &refused, "it had something else"),
        (bound(asks("silver", None)), &[], "the PV controller has yet to say it"),
        (bound(asks("gold", None)), &refused, "what it had is not known"),
    ] {
        assert_eq!(found(claim), expected, "{why}");
    }
}

#[test]
fn the_message_about_a_volume_is_bounded() {
    let found = mismatches_of(&on("hostPath", &"/x".repeat(100_000)), "");
    assert!(found.len() == 1 && found[0].len() <= crate::limits::MISMATCH, "{} bytes", found[0].len());
    let mut asks = claim();
    asks.access_modes = (0..1000).map(|n| format!("mode-{n}")).collect();
    let found = mismatches(&volume(), &asks, &recipe(""), None);
    assert!(found.len() == 1 && found[0].len() <= crate::limits::MISMATCH, "{found:?}");
}

#[test]
fn a_volume_leaves_space_for_the_orchestrator_s_annotations() {
    let with = |annotation: &str, source: &str| {
        let text = format!(
            "metadata: {{name: pvc-{UID}, annotations: {{a: '{annotation}', '{}': '{}'}}}}\nspec: {{storageClassName: silver, capacity: {{storage: 1Gi}}, accessModes: [ReadWriteOnce, ReadOnlyMany], csi: {{driver: d, volumeHandle: '{source}'}}}}\n",
            names::PROVENANCE,
            "x".repeat(100_000),
        );
        Volume::from(&crate::config::values::yaml::<k8s_openapi::api::core::v1::PersistentVolume>(&text).unwrap())
    };
    let half = "x".repeat(crate::limits::VOLUME / 2);
    assert_eq!(mismatches_of(&with("", &half), "csi:d"), [""; 0], "the adoption overwrites a provenance");
    assert_eq!(mismatches_of(&with(&half, ""), "csi:d"), [""; 0]);
    let found = mismatches_of(&with(&half, &half), "csi:d");
    assert!(found.len() == 1 && found[0].contains("32768 leave room for what the provisioner writes"), "{found:?}");
}

/// Returns the volume of the claim with added or replaced fields.
fn with(more: serde_json::Value) -> Volume {
    fn merge(into: &mut serde_json::Value, from: serde_json::Value) {
        match (into, from) {
            (serde_json::Value::Object(into), serde_json::Value::Object(from)) => {
                from.into_iter().for_each(|(key, value)| merge(into.entry(key).or_insert_with(|| json!({})), value));
            }
            (into, from) => *into = from,
        }
    }
    let mut volume = json!({
        "metadata": { "name": format!("pvc-{UID}"), "annotations": { names::CLAIM_UID: UID } },
        "spec": { "storageClassName": "silver", "capacity": { "storage": "1Gi" },
            "accessModes": ["ReadWriteOnce", "ReadOnlyMany"], "nfs": { "server": "s", "path": "/p" } },
    });
    merge(&mut volume, more);
    Volume::from(&serde_json::from_value::<k8s_openapi::api::core::v1::PersistentVolume>(volume).unwrap())
}

fn recipe_with(keys: &[(&str, &str)], replaces: &str, parameters: &[(&str, &str)]) -> Recipe {
    let map = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let mut data: BTreeMap<String, String> = map(keys);
    data.insert("image".into(), "x".into());
    EffectiveConfig {
        config: ObjectName::new("storage", "silver"),
        class: "silver".into(),
        data,
        replaces: replaces.into(),
        parameters: map(parameters),
        ..EffectiveConfig::default()
    }
    .recipe()
    .unwrap()
}

#[test]
fn foreign_metadata_is_refused_unless_the_config_allows_it() {
    let secret = |namespace: &str| {
        let annotations = json!({ names::DELETION_SECRET_NAME: "s", names::DELETION_SECRET_NAMESPACE: namespace });
        json!({ "metadata": { "annotations": annotations } })
    };
    let owner = json!([{ "apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u" }]);
    // Each row has the written field, the key that allows it, and the message without that key.
    let table = [
        (json!({ "metadata": { "ownerReferences": owner } }), None, "owned by ConfigMap o (ownerReferences)"),
        (
            json!({ "metadata": { "finalizers": ["example.com/hold"] } }),
            Some(("volume-finalizers", "example.com/hold")),
            "has the finalizer example.com/hold",
        ),
        (
            secret("kube-system"),
            Some(("secret-namespaces", "kube-system")),
            "the Secret s in the namespace kube-system",
        ),
        (json!({ "spec": { "mountOptions": ["suid"] } }), Some(("volume-mount-options", "suid")), "mount option suid"),
        (
            json!({ "spec": { "mountOptions": ["suid"] } }),
            Some(("mount-options", "noatime, suid")),
            "mount option suid",
        ),
        (
            json!({ "metadata": { "annotations": { "volume.beta.kubernetes.io/mount-options": "suid" } } }),
            Some(("volume-mount-options", "suid")),
            "mount option suid",
        ),
        (
            json!({ "metadata": { "annotations": { "pv.beta.kubernetes.io/gid": "0" } } }),
            Some(("volume-metadata", "pv.beta.kubernetes.io/gid")),
            "has pv.beta.kubernetes.io/gid",
        ),
        (
            json!({ "metadata": { "labels": { "topology.kubernetes.io/zone": "a" } } }),
            Some(("volume-metadata", "topology.kubernetes.io/zone")),
            "has topology.kubernetes.io/zone",
        ),
        (json!({ "spec": { "capacity": { "storage": "1Pi" } } }), Some(("max-surplus", "1Pi")), "at most 10Gi larger"),
        (
            json!({ "spec": { "nfs": null, "csi": { "driver": "d", "volumeHandle": "h" } } }),
            Some(("volume-sources", "csi:d")),
            "needs `volume-sources: csi:DRIVER`",
        ),
        (
            json!({ "spec": { "nfs": null, "flexVolume": { "driver": "a/d" } } }),
            Some(("volume-sources", "flexVolume:a/d")),
            "needs `volume-sources: flexVolume:DRIVER`",
        ),
    ];
    for (written, key, says) in table {
        let volume = with(written.clone());
        let found = mismatches(&volume, &claim(), &recipe_with(&[], "", &[]), None);
        assert!(found.len() == 1 && found[0].contains(says), "{written}: {found:?}");
        if let Some(key) = key {
            assert!(key.0 == "mount-options" || found[0].contains(key.0), "{found:?} does not name {}", key.0);
            let found = mismatches(&volume, &claim(), &recipe_with(&[key], "", &[]), None);
            assert_eq!(found, [""; 0], "{written} with {key:?}");
        }
    }
}

#[test]
fn volumes_of_usual_images_match() {
    let csi = |driver: &str| json!({ "spec": { "nfs": null, "csi": { "driver": driver, "volumeHandle": "h" } } });
    let fits = |written: serde_json::Value, recipe: Recipe| mismatches(&with(written), &claim(), &recipe, None);
    let any = [("volume-sources", "csi")];
    // The class may use the driver that it replaces.
    assert_eq!(fits(csi("d"), recipe_with(&[], "d", &[])), [""; 0]);
    for keys in [&[][..], &any, &[("volume-sources", "csi:e")]] {
        let found = fits(csi("f"), recipe_with(keys, "d", &[]));
        assert!(found.len() == 1 && found[0].contains("`f`"), "{keys:?}: {found:?}");
    }
    assert_eq!(fits(csi("f"), recipe_with(&[("volume-sources", "csi:f, csi:g")], "d", &[])), [""; 0]);
    let finalizers = json!(["kubernetes.io/pv-protection", names::VOLUME_FINALIZER]);
    assert_eq!(fits(json!({ "metadata": { "finalizers": finalizers } }), recipe_with(&[], "", &[])), [""; 0]);
    // Backends round up: by 10 GiB at least, and by as much again as the requested size.
    let sized = |has: &str, asked: u64| {
        let claim = Claim { size: Ok(asked << 30), ..claim() };
        mismatches(
            &with(json!({ "spec": { "capacity": { "storage": has } } })),
            &claim,
            &recipe_with(&[], "", &[]),
            None,
        )
    };
    assert_eq!([sized("11Gi", 1), sized("200Gi", 100), sized("100Gi", 100)], [const { Vec::<String>::new() }; 3]);
    assert!(sized("12Gi", 1).len() == 1 && sized("201Gi", 100).len() == 1);
    // An adopted volume was checked before. The mark of another volume says nothing.
    let marked = |uid: &str| {
        let metadata = json!({ "uid": "v", "annotations": { names::PROVENANCE: "x" } });
        let status = json!({ "reason": crate::model::volume::adoption_mark("x", uid) });
        with(json!({ "metadata": metadata, "spec": { "mountOptions": ["suid"] }, "status": status })).foreign_metadata
    };
    assert!(marked("v").is_none() && marked("another").is_some());
}

/// A run may make a link to `/` in its own directory.
#[test]
fn a_run_that_sees_only_its_directory_makes_its_volume_from_that_alone() {
    let template = "spec: {containers: [{name: provisioner, volumeMounts: [{name: a, mountPath: /a}, {name: b, mountPath: /b}, {name: n, mountPath: /n}]}], volumes: [{name: a, hostPath: {path: /srv/a/}}, {name: b, hostPath: {path: /b}}, {name: n, nfs: {server: s, path: /p}}]}";
    let recipe = |mounts: &str| {
        let data = [
            ("image", "x"),
            ("volume-sources", "local:/srv/a, local:/b, nfs"),
            ("pod-template", template),
            ("storage-mounts", mounts),
        ];
        let data = data.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        EffectiveConfig { class: "silver".into(), data, ..EffectiveConfig::default() }.recipe().unwrap()
    };
    let found = |volume: &Volume, mounts: &str| mismatches(volume, &claim(), &recipe(mounts), None);
    let other = UID.replace("0001", "0002");
    let own = format!("/srv/a/{UID}");
    let strange = [
        format!("{own}/link"),
        format!("{own}/"),
        format!("/srv/a/{other}"),
        format!("/srv/a/.snapshot-{UID}"),
        "/srv/a/link".into(),
    ];
    assert_eq!(found(&on("local", &own), "/a"), [""; 0]);
    for path in &strange {
        let found_mismatches = found(&on("local", path), "/a");
        assert!(
            found_mismatches.len() == 1 && found_mismatches[0].contains("is not the directory that its run was given"),
            "{path}: {found_mismatches:?}"
        );
        assert_eq!(found(&on("local", path), ""), [""; 0], "without the key as before");
    }
    assert_eq!(found(&on("local", &format!("/b/{UID}")), "/a, /b"), [""; 0]);
    assert_eq!(found(&on("local", &format!("/b/{UID}")), "/a").len(), 1, "not where the run has the whole directory");
    // Other kinds have no path on a node, and other storage has no directory of a volume.
    assert_eq!(found(&volume(), "/a"), [""; 0]);
    assert_eq!(found(&on("local", &strange[0]), "/n"), [""; 0]);
}

#[path = "verify_source_tests.rs"]
mod of_sources;
