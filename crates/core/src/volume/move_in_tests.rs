use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use serde_json::{Value, json};

use super::*;
use crate::config::effective_config::EffectiveConfig;

const ID: &str = "c0ffee00-0000-4000-8000-000000000001";
const LOCAL: (Former, &str) = (Former::LocalPath, "rancher.io/local-path");
const NFS: (Former, &str) = (Former::NfsSubdir, "cluster.local/nfs-subdir-external-provisioner");

fn recipe(class: &str, data: &[(&str, &str)]) -> Recipe {
    let data: BTreeMap<_, _> = data.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let config = ObjectName::new("admin", "c");
    EffectiveConfig { config, class: class.into(), data, ..EffectiveConfig::default() }.recipe().unwrap()
}

fn on_nodes() -> Recipe {
    let allowed = "hostPath:/opt/local-path-provisioner, local:/opt/local-path-provisioner";
    recipe("local-path", &[("image", "vendor/image:1"), ("volume-sources", allowed)])
}

fn on_server() -> Recipe {
    let data = [("image", "vendor/image:1"), ("volume-sources", "nfs"), ("placement", "any"), ("on-delete", "archive")];
    recipe("nfs-client", &data)
}

/// Returns a volume as the local-path provisioner makes it.
fn local_path() -> Value {
    json!({
        "metadata": {
            "name": format!("pvc-{ID}"),
            "annotations": { names::PROVISIONED_BY: LOCAL.1 },
            "finalizers": ["kubernetes.io/pv-protection", FORMER_FINALIZER],
        },
        "spec": {
            "storageClassName": "local-path",
            "capacity": { "storage": "1Gi" },
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Delete",
            "hostPath": { "path": format!("/opt/local-path-provisioner/pvc-{ID}_team_data"), "type": "DirectoryOrCreate" },
            "nodeAffinity": { "required": { "nodeSelectorTerms": [{
                "matchExpressions": [{ "key": names::HOSTNAME, "operator": "In", "values": ["node-1"] }],
            }] } },
            "claimRef": { "namespace": "team", "name": "data", "uid": ID },
        },
        "status": { "phase": "Bound" },
    })
}

/// Returns a volume as the NFS subdir external provisioner makes it.
fn nfs_subdir() -> Value {
    let mut object = local_path();
    object["metadata"]["annotations"][names::PROVISIONED_BY] = json!(NFS.1);
    let spec = object["spec"].as_object_mut().unwrap();
    spec.remove("hostPath");
    spec.remove("nodeAffinity");
    spec.insert("storageClassName".into(), json!("nfs-client"));
    spec.insert("nfs".into(), json!({ "server": "nas", "path": format!("/exports/team-data-pvc-{ID}") }));
    object
}

fn claim() -> Value {
    json!({
        "metadata": { "namespace": "team", "name": "data", "uid": ID },
        "spec": {
            "volumeName": format!("pvc-{ID}"),
            "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": { "storage": "1Gi" } },
        },
        "status": { "phase": "Bound" },
    })
}

fn node(name: &str, host: &str) -> Arc<Node> {
    let labels = [(names::HOSTNAME.to_owned(), host.to_owned())].into();
    Arc::new(Node { name: name.into(), labels, reachable: true, taints: Vec::new() })
}

fn mapped(volume: Value, claim: Option<Value>, of: (Former, &str), recipe: &Recipe) -> Result<Mapping, Refusal> {
    with_candidate(volume, claim, of, recipe, &[node("node-1", "node-1")], |candidate| candidate)
}

fn with_candidate(
    volume: Value,
    claim: Option<Value>,
    of: (Former, &str),
    recipe: &Recipe,
    nodes: &[Arc<Node>],
    change: impl for<'a> FnOnce(Candidate<'a>) -> Candidate<'a>,
) -> Result<Mapping, Refusal> {
    let volume: PersistentVolume = serde_json::from_value(volume).unwrap();
    let claim: Option<PersistentVolumeClaim> = claim.map(|claim| serde_json::from_value(claim).unwrap());
    let place = Place::of(volume.spec.as_ref().unwrap());
    let (volume, claim, config) =
        (Volume::from(&volume), claim.as_ref().map(Claim::from), ObjectName::new("admin", "c"));
    let served = Some(recipe).filter(|recipe| recipe.class == volume.class);
    let candidate = Candidate {
        volume: &volume,
        place: place.as_ref(),
        claim: claim.as_ref(),
        neighbour: None,
        servers_differ: false,
        nodes,
        recipe: served,
        config: &config,
    };
    let (kind, name) = of;
    map(&change(candidate), &FormerProvisioner { kind, name }, &Identity::of_tests())
}

fn moved(path: &str, from: &str) -> Option<MovedIn> {
    Some(MovedIn {
        path: path.into(),
        from: Some(from.into()),
        size: 1 << 30,
        finalizers: vec![FORMER_FINALIZER.into()],
    })
}

#[test]
fn a_volume_of_local_path_is_served_on_its_node() {
    let mut object = local_path();
    for kind in ["hostPath", "local"] {
        let recipe = on_nodes();
        let mapping = mapped(object.clone(), Some(claim()), LOCAL, &recipe).expect(kind);
        assert_eq!((mapping.id.as_str(), mapping.claim_uid.as_str()), (ID, ID));
        assert_eq!(mapping.claim, ObjectName::new("team", "data"));
        assert_eq!(
            mapping.provenance,
            Provenance {
                effective_config: recipe.effective_config,
                origin_node: Some("node-1".into()),
                moved_in: moved(&format!("/opt/local-path-provisioner/pvc-{ID}_team_data"), LOCAL.1),
                cluster: None,
                others: Vec::new(),
            }
        );
        assert_eq!(mapping.finalizers, ["kubernetes.io/pv-protection", names::VOLUME_FINALIZER]);
        // Newer versions can make volumes of the kind `local`.
        let path = object["spec"].as_object_mut().unwrap().remove("hostPath");
        if let Some(path) = path {
            object["spec"]["local"] = json!({ "path": path["path"] });
        }
    }
}

#[test]
fn a_volume_of_nfs_subdir_is_served_from_any_node() {
    let mapping = mapped(nfs_subdir(), Some(claim()), NFS, &on_server()).unwrap();
    assert_eq!(
        mapping.provenance,
        Provenance {
            effective_config: on_server().effective_config,
            origin_node: None,
            moved_in: moved(&format!("/exports/team-data-pvc-{ID}"), NFS.1),
            cluster: None,
            others: Vec::new(),
        }
    );
    let mut retained = nfs_subdir();
    retained["spec"]["persistentVolumeReclaimPolicy"] = json!("Retain");
    let mapping = mapped(retained, Some(claim()), NFS, &on_server()).unwrap();
    assert_eq!(mapping.finalizers, ["kubernetes.io/pv-protection"], "a retained volume is not held");
}

#[test]
fn each_volume_that_cannot_move_in_is_refused_with_the_reason() {
    let refused = |change: &dyn Fn(&mut Value)| {
        let mut object = local_path();
        change(&mut object);
        mapped(object, Some(claim()), LOCAL, &on_nodes()).expect_err("this volume cannot move in")
    };
    let annotation = |key: &'static str, value: &'static str| {
        move |object: &mut Value| object["metadata"]["annotations"][key] = json!(value)
    };
    assert_eq!(refused(&annotation(names::PROVISIONED_BY, "x")), Refusal::OtherProvisioner(Some("x".into())));
    assert_eq!(refused(&annotation(names::PROVISIONED_BY, names::DEFAULT_PROVISIONER)), Refusal::Own);
    assert_eq!(refused(&annotation(names::PROVENANCE, "{}")), Refusal::Own);
    let label = |object: &mut Value| object["metadata"]["labels"] = json!({ names::LABEL_INSTANCE: "other" });
    assert_eq!(refused(&label), Refusal::OtherOrchestrator("other".into()));
    assert_eq!(refused(&|object| object["status"]["phase"] = json!("Available")), Refusal::Phase("Available".into()));
    assert_eq!(
        refused(&|object| object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z")),
        Refusal::Terminating
    );
    assert_eq!(refused(&|object| object["metadata"]["name"] = json!("data")), Refusal::Name);
    assert_eq!(refused(&|object| object["metadata"]["name"] = json!("pvc-a.b")), Refusal::Name);
    assert_eq!(refused(&|object| object["spec"]["claimRef"] = Value::Null), Refusal::NoClaim);
    assert_eq!(refused(&|object| object["spec"]["claimRef"]["uid"] = Value::Null), Refusal::NoClaim);
    let other = Refusal::OtherClaim(ObjectName::new("team", "data"));
    assert_eq!(refused(&|object| object["spec"]["claimRef"]["uid"] = json!("newer")), other);
    assert_eq!(refused(&|object| object["metadata"]["name"] = json!(format!("pvc-{ID}1"))), Refusal::Name);
    assert_eq!(
        refused(&|object| object["spec"]["storageClassName"] = json!("fast")),
        Refusal::Class { class: "fast".into(), config: ObjectName::new("admin", "c") }
    );
    assert_eq!(refused(&|object| object["spec"]["hostPath"] = Value::Null), Refusal::SourceKind(None));
    for path in [
        "/etc",
        "/opt/local-path-provisioner/.hidden",
        "/opt/local-path-provisioner/../x",
        "/opt/local-path-provisioner/a b",
    ] {
        assert!(
            matches!(refused(&|object| object["spec"]["hostPath"]["path"] = json!(path)), Refusal::Source(_)),
            "{path}"
        );
    }
    let id = format!("/opt/local-path-provisioner/{ID}");
    assert!(matches!(refused(&|object| object["spec"]["hostPath"]["path"] = json!(id)), Refusal::Source(_)));
    assert_eq!(refused(&|object| object["spec"]["nodeAffinity"] = Value::Null), Refusal::Node);
    let anywhere = [("image", "i"), ("volume-sources", "hostPath:/opt/local-path-provisioner"), ("placement", "any")];
    let on_any = mapped(local_path(), Some(claim()), LOCAL, &recipe("local-path", &anywhere));
    assert_eq!(on_any, Err(Refusal::OnOneNode("node-1".into())));
    let nfs = mapped(nfs_subdir(), Some(claim()), (Former::LocalPath, NFS.1), &on_server());
    assert_eq!(nfs, Err(Refusal::SourceKind(Some("nfs"))));
}

#[test]
fn a_volume_moves_in_only_with_the_claim_that_is_bound_to_it() {
    let with = |change: &dyn Fn(&mut Value)| {
        let mut claim = claim();
        change(&mut claim);
        mapped(local_path(), Some(claim), LOCAL, &on_nodes())
    };
    let other = Err(Refusal::OtherClaim(ObjectName::new("team", "data")));
    assert_eq!(mapped(local_path(), None, LOCAL, &on_nodes()), Err(Refusal::NoClaim));
    assert_eq!(with(&|claim| claim["metadata"]["uid"] = json!("newer")), other);
    assert_eq!(with(&|claim| claim["spec"]["volumeName"] = json!("pvc-other")), other);
    assert_eq!(with(&|claim| claim["status"]["phase"] = json!("Pending")), other);
    assert_eq!(
        with(&|claim| claim["metadata"]["annotations"][names::HELD] = claim["metadata"]["uid"].clone()),
        Err(Refusal::ClaimBusy(ObjectName::new("team", "data")))
    );
    assert_eq!(
        with(&|claim| claim["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z")),
        Err(Refusal::ClaimTerminating(ObjectName::new("team", "data")))
    );
}

#[test]
fn a_refusal_says_what_is_wrong() {
    let class = Refusal::Class { class: "fast".into(), config: ObjectName::new("admin", "c") };
    for (refusal, says) in [
        (Refusal::OtherProvisioner(Some("x".into())), "provisioner x made it"),
        (class, "its class fast is not served by the config admin/c"),
        (Refusal::Source("hostPath is not allowed".into()), "the config does not allow it: hostPath"),
        (Refusal::Node, "does not name exactly one node"),
    ] {
        assert!(refusal.to_string().contains(says), "{refusal}");
    }
}

/// Returns the result for a volume of local-path, as these neighbours and this answer of the admin have it.
fn beside(neighbour: Option<(&'static str, Overlap)>, servers_differ: bool) -> Result<Mapping, Refusal> {
    with_candidate(local_path(), Some(claim()), LOCAL, &on_nodes(), &[node("node-1", "node-1")], |candidate| {
        let neighbour = neighbour.map(|(volume, overlap)| Neighbour { volume, overlap });
        Candidate { neighbour, servers_differ, ..candidate }
    })
}

#[test]
fn a_volume_that_may_share_its_files_stays() {
    assert_eq!(beside(Some(("x", Overlap::Same)), true), Err(Refusal::Overlaps("x".into())));
    assert_eq!(beside(Some(("x", Overlap::OtherServer)), false), Err(Refusal::OtherServer("x".into())));
    assert!(beside(Some(("x", Overlap::OtherServer)), true).is_ok());
    assert!(beside(Some(("x", Overlap::OtherNode)), false).is_ok(), "as with local storage on each node");
}

#[test]
fn the_record_has_the_name_of_the_node_and_not_its_host_name() {
    let nodes = |nodes: &[Arc<Node>]| {
        let mapped = with_candidate(local_path(), Some(claim()), LOCAL, &on_nodes(), nodes, |candidate| candidate);
        mapped.map(|mapping| mapping.provenance.origin_node)
    };
    assert_eq!(nodes(&[node("worker-7", "node-1"), node("node-1", "other")]), Ok(Some("worker-7".into())));
    let none = Err(Refusal::NoNode("node-1".into()));
    assert_eq!(nodes(&[node("node-1", "other")]), none);
    assert_eq!(nodes(&[node("a", "node-1"), node("b", "node-1")]), none);
}

#[test]
fn the_config_must_do_with_deleted_volumes_as_the_class_says() {
    let with = |config: &str, class: &[(&str, &str)]| {
        let data = [("image", "i"), ("volume-sources", "nfs"), ("placement", "any"), ("on-delete", config)];
        let mut recipe = recipe("nfs-client", &data);
        recipe.effective_config.parameters =
            class.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        mapped(nfs_subdir(), Some(claim()), NFS, &recipe).map(drop)
    };
    for (config, class, wanted) in [
        ("archive", &[][..], None),
        ("delete", &[], Some("on-delete: archive")),
        ("", &[], Some("on-delete: archive")),
        ("archive", &[("archiveOnDelete", "true")], None),
        ("delete", &[("archiveOnDelete", "false")], None),
        ("", &[("archiveOnDelete", "false")], None),
        ("archive", &[("archiveOnDelete", "false")], Some("on-delete: delete")),
        ("keep", &[("onDelete", "retain")], None),
        ("retain", &[("onDelete", "retain")], None),
        ("archive", &[("onDelete", "retain")], Some("on-delete: keep")),
        ("archive", &[("onDelete", "delete"), ("archiveOnDelete", "true")], Some("on-delete: delete")),
    ] {
        match (with(config, class), wanted) {
            (Ok(()), None) => {}
            (Err(Refusal::OnDelete(why)), Some(wanted)) => assert!(why.contains(wanted), "{why}"),
            (other, _) => panic!("{config} {class:?}: {other:?}"),
        }
    }
}

#[test]
fn volumes_of_this_orchestrator_are_not_meant() {
    let is_of = |change: &dyn Fn(&mut Value)| {
        let mut object = local_path();
        change(&mut object);
        let object: PersistentVolume = serde_json::from_value(object).unwrap();
        super::is_of_provisioner(&Volume::from(&object), LOCAL.1, &Identity::of_tests())
    };
    assert!(is_of(&|_| {}));
    assert!(!is_of(&|object| object["metadata"]["labels"] = json!({ names::LABEL_INSTANCE: "default" })));
    assert!(!is_of(&|object| object["metadata"]["annotations"][names::PROVISIONED_BY] = json!("x")));
    let mapping = mapped(local_path(), Some(claim()), LOCAL, &on_nodes()).unwrap();
    assert!(is_of(
        &|object| object["metadata"]["annotations"][names::PROVENANCE] = json!(json!(mapping.provenance).to_string())
    ));
}

#[test]
fn a_move_that_was_interrupted_is_finished() {
    let mapping = mapped(local_path(), Some(claim()), LOCAL, &on_nodes()).unwrap();
    let half = |change: &dyn Fn(&mut Value)| {
        let mut record = json!(mapping.provenance);
        change(&mut record);
        let mut half = local_path();
        half["metadata"]["annotations"][names::PROVENANCE] = json!(record.to_string());
        half["metadata"]["annotations"][names::PROVISIONED_BY] = json!(names::DEFAULT_PROVISIONER);
        half["metadata"]["labels"] = json!({ names::LABEL_INSTANCE: "default" });
        half["metadata"]["finalizers"] = json!(["kubernetes.io/pv-protection", names::VOLUME_FINALIZER]);
        half
    };
    let again = |object: Value| mapped(object, Some(claim()), LOCAL, &on_nodes());
    assert_eq!(again(half(&|_| {})), Ok(mapping.clone()));
    // Nobody has confirmed the record, so that the config and the volume decide.
    let forged = half(&|record| {
        record["data"]["image"] = json!("stranger/image");
        record["node"] = json!("control-plane");
        record["moved-in"]["path"] = json!("/opt/local-path-provisioner/other");
        record["moved-in"]["finalizers"] = json!([FORMER_FINALIZER, "stranger.example/stuck"]);
    });
    assert_eq!(again(forged), Ok(mapping.clone()));
    let other = half(&|record| record["moved-in"]["from"] = json!("other"));
    assert_eq!(again(other), Err(Refusal::OtherRecord(Some("other".into()))));
    let mut done = half(&|_| {});
    let record = done["metadata"]["annotations"][names::PROVENANCE].as_str().unwrap().to_owned();
    let uid = done["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    done["status"]["reason"] = json!(crate::model::volume::adoption_mark(&record, &uid));
    assert_eq!(again(done), Err(Refusal::Moved));
}
