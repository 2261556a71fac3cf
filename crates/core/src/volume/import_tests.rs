use super::*;
use crate::config::effective_config::EffectiveConfig;
use flex_contract::storage;

fn recipe(data: &[(&str, &str)]) -> Recipe {
    let usual = [("image", "vendor/image:1")];
    let data = usual.iter().chain(data).map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let config = ObjectName::new("admin", "c");
    EffectiveConfig { config, class: "c".into(), data, ..EffectiveConfig::default() }.recipe().unwrap()
}

fn imported(path: &str, server: &str, node: Option<&str>, recipe: &Recipe) -> Result<Imported, String> {
    let labels = std::collections::BTreeMap::from([(names::HOSTNAME.to_owned(), "host-1".to_owned())]);
    let of = Import {
        path,
        server: Some(server).filter(|server| !server.is_empty()),
        node: node.map(|node| NodeLabels { node, labels: &labels }),
        claim: &ObjectName::new("team", "data"),
        size: 3 << 30,
        access_modes: &["ReadWriteOnce".to_owned()],
        policy: if server.is_empty() { ReclaimPolicy::Retain } else { ReclaimPolicy::Delete },
    };
    import(&of, recipe, &Identity::of_tests())
}

#[test]
fn a_directory_of_a_node_becomes_a_volume_there_and_its_claim_names_it() {
    let recipe = recipe(&[("volume-sources", "local:/srv")]);
    let made = imported("/srv/photos", "", Some("node-1"), &recipe).unwrap();
    assert!(storage::is_uuid(&made.id), "{}", made.id);
    assert_eq!(made.provenance.origin_node.as_deref(), Some("node-1"));
    assert_eq!(made.provenance.moved_in.as_ref().unwrap().path, "/srv/photos");
    let object = made.volume("uid");
    let volume = Volume::from(&object);
    assert_eq!((volume.volume_id(), volume.name.as_str()), (Some(made.id.as_str()), names::pv_name(&made.id).as_str()));
    assert_eq!((volume.reclaim_policy.clone(), volume.has_finalizer()), (ReclaimPolicy::Retain, false));
    assert_eq!(volume.claim_ref_uid(), Some("uid"));
    assert!(
        volume.belongs_to(&Identity::of_tests()) && volume.is_restored(),
        "nothing is done with it before it has the mark"
    );
    let spec = made.claim.spec.as_ref().unwrap();
    assert_eq!(spec.volume_name.as_deref(), Some(volume.name.as_str()));
    assert!(json!(object.spec).to_string().contains("host-1"));
    let again = imported("/srv/photos", "", Some("node-1"), &recipe).unwrap();
    assert_eq!(again.id, made.id, "a repeated command makes no second volume");
    assert_ne!(imported("/srv/photos", "", Some("node-2"), &recipe).unwrap().id, made.id);
}

#[test]
fn a_directory_of_a_server_becomes_a_volume_of_all_nodes() {
    let recipe = recipe(&[("volume-sources", "nfs"), ("placement", "any")]);
    let made = imported("/exports/photos", "nas", None, &recipe).unwrap();
    let volume = Volume::from(&made.volume("uid"));
    assert_eq!((volume.source_kind, volume.has_finalizer()), (Some("nfs"), true));
    assert!(imported("/exports/photos", "nas", Some("node-1"), &recipe).unwrap_err().contains("have no node"));
}

#[test]
fn data_on_one_node_are_not_served_from_any() {
    let recipe = recipe(&[("volume-sources", "local:/srv"), ("placement", "any")]);
    assert!(imported("/srv/photos", "", Some("node-1"), &recipe).unwrap_err().contains("placement: selected-node"));
}

#[test]
fn data_that_the_config_could_not_serve_are_refused() {
    let recipe = recipe(&[("volume-sources", "local:/srv")]);
    for (path, node, says) in [
        ("/srv/photos", None, "--node"),
        ("/etc/photos", Some("node-1"), "does not allow"),
        ("/srv/.hidden", Some("node-1"), "cannot move in"),
        ("/srv/../etc", Some("node-1"), "not absolute and clean"),
        ("/srv/c0ffee00-0000-4000-8000-000000000001", Some("node-1"), "cannot move in"),
        ("/srv", Some("node-1"), "does not allow"),
    ] {
        let why = imported(path, "", node, &recipe).unwrap_err();
        assert!(why.contains(says), "{path}: {why}");
    }
}
