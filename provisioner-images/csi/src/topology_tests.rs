use super::*;

/// Returns a provision request for a claim.
pub(crate) fn request() -> RunRequest {
    RunRequest::from_env(|name| match name {
        "OPERATION" => Some("provision".into()),
        "SIZE_BYTES" => Some("1073741824".into()),
        "PV_NAME" => Some("pvc-1".into()),
        "PVC_NAME" => Some("data".into()),
        "ACCESS_MODES" => Some("ReadWriteOnce".into()),
        _ => Some("x".into()).filter(|_| matches!(name, "CLAIM_UUID" | "STORAGE_CLASS")),
    })
    .unwrap()
}

fn parameters(strict: bool, immediate: bool) -> Parameters {
    let text = |yes: bool| if yes { "true" } else { "false" }.to_owned();
    let all = [
        ("csi-endpoint".to_owned(), "/s".to_owned()),
        ("csi-strict-topology".to_owned(), text(strict)),
        ("csi-immediate-topology".to_owned(), text(immediate)),
    ];
    Parameters::of(&all.into()).unwrap()
}

fn node(name: &str, labels: &[(&str, &str)], keys: &[&str]) -> Node {
    Node {
        name: name.into(),
        labels: labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        keys: keys.iter().map(|key| (*key).to_owned()).collect(),
    }
}

/// Returns two zones, of which the first has two nodes, and a node without the driver.
fn nodes() -> Vec<Node> {
    vec![
        node("n1", &[("zone", "a"), ("rack", "1")], &["zone"]),
        node("n2", &[("zone", "b"), ("rack", "1")], &["zone"]),
        node("n3", &[("zone", "a"), ("rack", "2")], &["zone"]),
        node("n4", &[("zone", "c")], &[]),
        node("n5", &[("rack", "9")], &["zone"]),
    ]
}

fn terms(topologies: &[Topology]) -> String {
    let one = |topology: &Topology| {
        topology.segments.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
    };
    topologies.iter().map(one).collect::<Vec<_>>().join(" ")
}

#[test]
fn each_row_of_the_table_holds() {
    const A_AND_B: &str = r#"[{"zone":["a","b"]}]"#;
    for (selected, strict, allowed, immediate, requisite, preferred) in [
        ("n2", true, "", true, "zone=b", "zone=b"),
        ("n2", true, A_AND_B, true, "zone=b", "zone=b"),
        ("n2", false, "", true, "zone=a zone=b zone=c", "zone=b zone=c zone=a"),
        ("n2", false, A_AND_B, true, "zone=a zone=b", "zone=b zone=a"),
        ("n1", false, A_AND_B, false, "zone=a zone=b", "zone=a zone=b"),
        ("", true, A_AND_B, true, "zone=a zone=b", "zone=b zone=a"),
        ("", false, "", true, "zone=a zone=b zone=c", "zone=b zone=c zone=a"),
        ("", true, "", false, "", ""),
    ] {
        let request = RunRequest { node_name: selected.into(), class_topologies: allowed.into(), ..request() };
        let found = requirement(&request, &parameters(strict, immediate), &nodes()).unwrap().unwrap_or_default();
        let found = (terms(&found.requisite), terms(&found.preferred));
        // Without a selected node any topology may be the first.
        let same = match selected {
            "" => found.0 == requisite && found.1.len() == preferred.len(),
            _ => found == (requisite.to_owned(), preferred.to_owned()),
        };
        assert!(same, "{selected:?} {strict} {allowed} {immediate}: {found:?}");
    }
}

#[test]
fn terms_of_a_class_are_multiplied() {
    let json = r#"[{"zone":["a","b"],"rack":["1","2"]},{"zone":["c"]}]"#;
    let found: Vec<_> = allowed(json).unwrap().into_iter().map(|segments| Topology { segments }).collect();
    assert_eq!(terms(&found), "rack=1,zone=a rack=1,zone=b rack=2,zone=a rack=2,zone=b zone=c");
    assert_eq!(allowed("").unwrap(), []);
    assert_eq!(allowed("[{}]").unwrap(), []);
    assert_eq!(allowed("{").unwrap_err().code, 65);
}

#[test]
fn impossible_topologies_are_refused() {
    for (selected, strict, allowed, nodes, code, says) in [
        ("gone", false, "", nodes(), 69, "is gone"),
        ("n4", false, "", nodes(), 69, "does not run there"),
        ("n5", false, "", nodes(), 75, "does not have all of the labels zone"),
        ("n1", true, r#"[{"zone":["b"]}]"#, nodes(), 69, "outside of the allowedTopologies"),
        ("n1", false, r#"[{"zone":["b"]}]"#, nodes(), 69, "outside of the allowedTopologies"),
        ("", false, "", vec![node("n4", &[("zone", "c")], &[])], 75, "does not run yet"),
        ("", false, "", vec![node("n5", &[], &["zone"])], 75, "no node has the labels"),
    ] {
        let request = RunRequest { node_name: selected.into(), class_topologies: allowed.into(), ..request() };
        let failure = requirement(&request, &parameters(strict, true), &nodes).expect_err(says);
        assert_eq!(failure.code, code, "{failure}");
        assert!(failure.message.contains(says), "{failure}");
    }
}

#[test]
fn claims_of_a_stateful_set_are_spread() {
    let at = |name: &str| spread(name) % 3;
    assert_eq!((at("data-web-0") + 1) % 3, at("data-web-1"));
    assert_eq!((at("data-web-1") + 1) % 3, at("data-web-2"));
    assert_eq!(spread("data"), spread("data"));
    assert_ne!(spread("data"), spread("other"));
}

#[test]
fn an_answer_must_be_in_the_requested_topology() {
    let segment = |zone: &str| Topology { segments: [("zone".to_owned(), zone.to_owned())].into() };
    let asked = TopologyRequirement { requisite: vec![segment("a"), segment("b")], preferred: vec![] };
    let (n1, n2) = (&nodes()[0], &nodes()[1]);
    for (answer, selected, expected) in [
        (vec![segment("a")], None, true),
        (vec![segment("c")], None, false),
        (vec![segment("c"), segment("b")], None, true),
        (vec![segment("a")], Some(n1), true),
        (vec![segment("b")], Some(n1), false),
        (vec![segment("a"), segment("b")], Some(n2), true),
        (vec![], None, false),
        (vec![Topology::default()], Some(n1), true),
    ] {
        assert_eq!(is_where_asked(&answer, &asked, selected), expected, "{} {selected:?}", terms(&answer));
    }
}

#[test]
fn the_affinity_allows_each_of_the_topologies() {
    assert_eq!(affinity(&[]), None);
    assert_eq!(affinity(&[Topology::default()]), None);
    let location = |zone: &str| Topology {
        segments: [("zone".to_owned(), zone.to_owned()), ("rack".to_owned(), "1".to_owned())].into(),
    };
    let terms = affinity(&[location("a"), location("b")]).unwrap().required.unwrap().node_selector_terms;
    assert_eq!(terms.len(), 2);
    let keys: Vec<_> = terms[0].match_expressions.as_ref().unwrap().iter().map(|e| e.key.as_str()).collect();
    assert_eq!(keys, ["rack", "zone"]);
}
