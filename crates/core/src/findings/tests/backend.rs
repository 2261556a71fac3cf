//! Tests of the comparison with backends.

use flex_contract::listing::{Entry, State};

use super::*;
use crate::findings::backend::{Listing, views};
use crate::model::moved_in::MovedIn;

fn listing(node: Option<&str>, entries: &[(State, &str)], cluster: &Cluster) -> Listing {
    let entry =
        |(state, id): &(State, &str)| Entry { state: *state, id: (*id).into(), bytes: None, place: format!("/{id}") };
    Listing {
        key: views(cluster.searched())[0].key.clone(),
        class: "c".into(),
        node: node.map(str::to_owned),
        entries: Ok(entries.iter().map(entry).collect()),
    }
}

fn compare(before: &Cluster, after: &Cluster, listings: &[Listing]) -> Vec<Finding> {
    crate::findings::backend::compare(before.searched(), after.searched(), listings, &std::collections::BTreeSet::new())
}

fn kinds(findings: &[Finding]) -> Vec<FindingKind> {
    findings.iter().map(|finding| finding.kind).collect()
}

/// Returns a cluster with a bound volume of a class on the network.
fn networked() -> Cluster {
    Cluster::with(&[("placement", "any")]).bound().volume(|v| made_by(v, &[("placement", "any")], None))
}

fn made_by(volume: &mut Volume, data: &[(&str, &str)], node: Option<&str>) {
    let provenance = json!(Provenance {
        effective_config: effective_config(data),
        origin_node: node.map(str::to_owned),
        moved_in: None,
        cluster: None,
        others: Vec::new(),
    })
    .to_string();
    (volume.adoption_mark, volume.provenance) = (Some(adoption_mark(&provenance, &volume.uid)), Some(provenance));
}

#[test]
fn unknown_storage_is_a_finding() {
    let cluster = networked();
    let compare = |entries: &[(State, &str)]| compare(&cluster, &cluster, &[listing(None, entries, &cluster)]);
    assert_eq!(kinds(&compare(&[(State::Volume, UID)])), []);
    let found = compare(&[(State::Volume, UID), (State::Volume, OTHER), (State::Rubbish, "a"), (State::Kept, "b")]);
    assert_eq!(kinds(&found), [FindingKind::BackendUnknown, FindingKind::BackendRubbish]);
    assert!(found.iter().all(|finding| finding.removal.is_none()), "never removed");
    // A claim, run or volume of any owner has the id, before or after.
    let foreign = networked().volume(|v| (v.name, v.instance) = (names::pv_name(OTHER), Some("other".into())));
    let run = networked().job("provision", |job| job.run_labels.id = OTHER.into());
    for (before, after) in [(&foreign, &cluster), (&cluster, &foreign), (&run, &cluster), (&cluster, &run)] {
        let listing = listing(None, &[(State::Volume, UID), (State::Volume, OTHER)], &cluster);
        assert_eq!(self::compare(before, after, &[listing]), []);
    }
}

#[test]
fn missing_storage_is_a_finding() {
    let cluster = networked();
    let whole = |cluster: &Cluster, entries: &[(State, &str)]| {
        kinds(&compare(cluster, cluster, &[listing(None, entries, cluster)]))
    };
    assert_eq!(whole(&cluster, &[]), [FindingKind::BackendMissing]);
    assert_eq!(whole(&cluster, &[(State::Rubbish, UID)]), [FindingKind::BackendMissing], "rubbish is no volume");
    assert_eq!(whole(&cluster, &[(State::Kept, UID)]), []);
    // An incomplete list is reported, and says nothing else.
    let broken = Listing { entries: Err("cut".into()), ..listing(None, &[], &cluster) };
    assert_eq!(kinds(&compare(&cluster, &cluster, &[broken])), [FindingKind::BackendNotListed]);
    // A list of another location says nothing. Nor does a list about a volume that appeared or disappeared meanwhile.
    assert_eq!(kinds(&compare(&cluster, &cluster, &[listing(Some("a"), &[], &cluster)])), []);
    let empty = Cluster::with(&[("placement", "any")]).bound();
    assert_eq!(kinds(&compare(&empty, &cluster, &[listing(None, &[], &cluster)])), []);
    assert_eq!(kinds(&compare(&cluster, &empty, &[listing(None, &[], &cluster)])), []);
    let released = Cluster::with(&[("placement", "any")]).volume(gone);
    assert_eq!(kinds(&compare(&released, &released, &[listing(None, &[], &released)])), []);
}

#[test]
fn storage_at_the_place_of_a_volume_is_known_by_whatever_id() {
    let cluster = networked();
    let listing = listing(None, &[(State::Volume, UID), (State::Volume, OTHER), (State::Volume, "a")], &cluster);
    let places = [format!("/{OTHER}")].into();
    let found = crate::findings::backend::compare(cluster.searched(), cluster.searched(), &[listing], &places);
    assert_eq!(found.iter().map(|finding| finding.object.name.name.as_str()).collect::<Vec<_>>(), ["a"]);
}

#[test]
fn storage_that_moved_in_is_missed_only_if_the_list_could_name_it() {
    let missing = |kind: &'static str, name: &str| {
        let cluster = Cluster::with(&[("placement", "any")]).bound().volume(|volume| {
            let moved_in = Some(MovedIn { path: format!("/srv/{name}"), from: Some("x".into()), ..MovedIn::default() });
            let data = effective_config(&[("placement", "any")]);
            let provenance = json!(Provenance {
                effective_config: data,
                origin_node: None,
                moved_in,
                cluster: None,
                others: Vec::new()
            })
            .to_string();
            (volume.adoption_mark, volume.provenance) =
                (Some(adoption_mark(&provenance, &volume.uid)), Some(provenance));
            volume.source_kind = Some(kind);
        });
        kinds(&compare(&cluster, &cluster, &[listing(None, &[], &cluster)]))
    };
    let named = format!("{}_team_data", names::pv_name(UID));
    assert_eq!(missing("hostPath", &named), [FindingKind::BackendMissing]);
    assert_eq!(missing("hostPath", &format!("data-{UID}")), [], "the image takes it for nobody's");
    assert_eq!(missing("hostPath", "photos"), []);
    assert_eq!(missing("nfs", &format!("team-data-{}", names::pv_name(UID))), [FindingKind::BackendMissing]);
    assert_eq!(missing("nfs", "photos"), []);
}

#[test]
fn volumes_of_a_node_are_expected_in_its_list() {
    let cluster = Cluster::new().node("a").node("b").bound().volume(|v| made_by(v, &[], Some("a")));
    let views = views(cluster.searched());
    assert_eq!(views.len(), 1);
    assert_eq!(views[0].nodes, [Some("a".to_owned()), Some("b".to_owned())]);
    let on = |node: &str, entries: &[(State, &str)]| {
        kinds(&compare(&cluster, &cluster, &[listing(Some(node), entries, &cluster)]))
    };
    assert_eq!(on("a", &[(State::Volume, UID)]), []);
    assert_eq!(on("a", &[]), [FindingKind::BackendMissing]);
    assert_eq!(on("b", &[]), []);
}

#[test]
fn versions_of_a_config_share_a_list_only_with_the_same_backend() {
    // An older image with another timeout made the volume.
    let same = Cluster::with(&[("placement", "any")])
        .bound()
        .volume(|v| made_by(v, &[("placement", "any"), ("image", "old"), ("timeout", "9s")], None));
    assert_eq!(views(same.searched()).len(), 1);
    assert_eq!(kinds(&compare(&same, &same, &[listing(None, &[], &same)])), [FindingKind::BackendMissing]);
    // The volume was made when the config led elsewhere. If it is missing here, it may exist there.
    let moved = Cluster::with(&[("placement", "any")])
        .bound()
        .volume(|v| made_by(v, &[("placement", "any"), ("server", "old")], None));
    let both = views(moved.searched());
    assert_eq!(both.len(), 2);
    let current = both.iter().find(|view| !view.recipe.parameters.contains_key("server")).unwrap();
    let list = Listing { key: current.key.clone(), ..listing(None, &[], &moved) };
    assert_eq!(kinds(&compare(&moved, &moved, &[list])), []);
    // A class whose image cannot list is not asked.
    assert_eq!(views(Cluster::with(&[("capabilities", "")]).searched()).len(), 0);
}

#[test]
fn a_node_selector_bounds_the_listed_nodes() {
    let mut cluster = Cluster::with(&[("node-selector", "storage=yes")]).node("a").node("b");
    let labelled = Node { labels: [("storage".to_owned(), "yes".to_owned())].into(), ..(*cluster.0.nodes[1]).clone() };
    cluster.0.nodes[1] = Arc::new(labelled);
    assert_eq!(views(cluster.searched())[0].nodes, [Some("b".to_owned())]);
}

#[test]
fn nodes_without_runs_are_listed_only_if_they_have_volumes() {
    let taint = |key: &str| k8s_openapi::api::core::v1::Taint {
        key: key.into(),
        effect: "NoSchedule".into(),
        ..Default::default()
    };
    let tainted = |mut cluster: Cluster, key: &str| {
        cluster.0.nodes[0] = Arc::new(Node { taints: vec![taint(key)], ..(*cluster.0.nodes[0]).clone() });
        cluster
    };
    let two = || Cluster::new().node("a").node("b");
    let both = [Some("a".to_owned()), Some("b".to_owned())];
    assert_eq!(views(tainted(two(), "example.com/database").searched())[0].nodes, both[1..]);
    assert_eq!(views(tainted(two(), "node.kubernetes.io/unschedulable").searched())[0].nodes, both, "it passes");
    let with_volume = two().bound().volume(|v| made_by(v, &[], Some("a")));
    assert_eq!(views(tainted(with_volume, "example.com/database").searched())[0].nodes, both);
    let tolerant = Cluster::with(&[("tolerations", "[{operator: Exists}]")]).node("a").node("b");
    assert_eq!(views(tainted(tolerant, "example.com/database").searched())[0].nodes, both);
}
