use k8s_openapi::api::core::v1::NodeSelector;

use super::*;

/// Binds the volume to a host, and records its node.
fn on_node(node: &'static str, host: &'static str) -> impl FnOnce(&mut Volume) {
    move |volume| {
        let provenance = Provenance {
            effective_config: recipe().effective_config,
            origin_node: Some(node.into()),
            moved_in: None,
            cluster: None,
            others: Vec::new(),
        };
        let provenance = json!(provenance).to_string();
        volume.adoption_mark = Some(adoption_mark(&provenance, &volume.uid));
        volume.provenance = Some(provenance);
        volume.affinity = Some(Box::new(host_selector(host)));
    }
}

fn host_selector(host: &str) -> NodeSelector {
    let host = json!({ "key": names::HOSTNAME, "operator": "In", "values": [host] });
    serde_json::from_value(json!({ "nodeSelectorTerms": [{ "matchExpressions": [host] }] })).unwrap()
}

impl Cluster {
    fn labelled(self, name: &str, host: &str) -> Self {
        let mut cluster = self.node(name);
        let node = Arc::make_mut(cluster.0.nodes.last_mut().unwrap());
        node.labels.insert(names::HOSTNAME.into(), host.into());
        cluster
    }

    /// Returns the detail and the remedy of the only finding.
    #[track_caller]
    fn says(&self, kind: FindingKind) -> (String, String) {
        let found = self.found();
        let [finding] = found.as_slice() else { panic!("{found:#?}") };
        assert_eq!(finding.kind, kind, "{finding:#?}");
        (finding.detail.clone(), finding.remedy.clone())
    }
}

fn in_use(node: &'static str, host: &'static str) -> Cluster {
    Cluster::new().bound().volume(on_node(node, host))
}

#[test]
fn the_node_of_the_record_decides_whether_a_node_is_gone() {
    in_use("node-2", "node-2.example.org").labelled("node-2", "node-2.example.org").clean();
    let (detail, remedy) = in_use("node-2", "node-2").says(FindingKind::NodeGone);
    assert!(detail.contains("it is on node node-2, and claim team/data"), "{detail}");
    assert!(remedy.starts_with("bring the node back") && remedy.contains("lost-nodes.md"), "{remedy}");
    assert!(remedy.contains("only if the storage is lost, delete pod and claim"), "{remedy}");
    let (detail, remedy) = in_use("node-2", "node-2").labelled("node-3", "node-2").says(FindingKind::NodeGone);
    assert!(detail.ends_with("its node affinity leads to node node-3"), "{detail}");
    assert!(remedy.contains("flex-provisioner vouch") && remedy.contains("--node node-3"), "{remedy}");
    // Released volumes go by the record, too.
    let released = |volume: &mut Volume| {
        on_node("node-2", "x")(volume);
        gone(volume);
    };
    Cluster::new().volume(released).labelled("node-2", "node-2").clean();
    let (detail, _) = Cluster::new().volume(released).labelled("node-3", "y").says(FindingKind::NodeGone);
    assert!(detail.contains("node node-2 is gone, and storage on it must be deleted"), "{detail}");
    // Nothing is deleted while record and label disagree.
    let elsewhere = Cluster::new().volume(released).labelled("node-3", "x");
    let (detail, remedy) = elsewhere.says(FindingKind::VolumeHeld);
    assert!(detail.ends_with("its node affinity leads to node node-3"), "{detail}");
    assert!(remedy.ends_with("--also-released --node node-3"), "{remedy}");
    let (_, remedy) = elsewhere.labelled("node-2", "node-2").says(FindingKind::VolumeHeld);
    let labels = "kubectl label node node-2 kubernetes.io/hostname=x --overwrite, and take them off node node-3";
    assert!(remedy.ends_with(labels), "{remedy}");
    // By the class, another node deletes the storage.
    let anywhere = Cluster::with(&[("placement", "selected-node"), ("node-gone", "run-elsewhere")]);
    anywhere.volume(released).labelled("node-3", "x").clean();
}

#[test]
fn labels_that_lead_pods_away_from_storage_are_told_and_no_claim_is_to_be_deleted() {
    let lost = in_use("node-2", "node-2").labelled("node-2", "node-2.example.org");
    let moved = in_use("a", "x").labelled("a", "a").labelled("b", "x");
    let twins = in_use("a", "x").labelled("a", "x").labelled("b", "x");
    let table = [
        (
            lost,
            "on node node-2, which exists, but has not the labels",
            "label node node-2 kubernetes.io/hostname=node-2 --overwrite",
        ),
        (
            moved,
            "node b has them now",
            "kubectl label node a kubernetes.io/hostname=x --overwrite, and take them off node b; if its storage is on node b now: flex-provisioner vouch",
        ),
        (
            twins,
            "node b has the same label kubernetes.io/hostname=x",
            "kubectl label node b kubernetes.io/hostname=b --overwrite",
        ),
    ];
    for (cluster, says, does) in table {
        let (detail, remedy) = cluster.says(FindingKind::NodeLabels);
        assert!(detail.contains(says), "{detail}");
        assert!(remedy.contains(does) && !remedy.contains("delete"), "{remedy}");
    }
}

#[test]
fn a_volume_whose_runs_may_be_on_any_node_needs_a_node_with_its_label() {
    let pinned = || Cluster::new().bound().volume(|volume| volume.affinity = Some(Box::new(host_selector("x"))));
    pinned().labelled("a", "x").clean();
    let (detail, remedy) = pinned().labelled("x", "y").says(FindingKind::NodeGone);
    assert!(detail.contains("kubernetes.io/hostname=x, and none has it"), "{detail}");
    assert!(remedy.contains("set this label"), "{remedy}");
}
