use super::*;

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn variables() -> Variables {
    Variables {
        pv_name: "pvc-1".into(),
        pvc_name: "data".into(),
        pvc_namespace: "team".into(),
        annotations: map(&[("com.example.team/key", "the-key"), ("odd", "../Odd")]),
    }
}

fn found(kind: Kind, pairs: &[(&str, &str)]) -> Result<Option<String>, Failure> {
    let text = |reference: SecretReference| format!("{}/{}", reference.namespace.unwrap(), reference.name.unwrap());
    Ok(reference(kind, &map(pairs), &variables())?.map(text))
}

/// The second example of the first README, word for word.
#[test]
fn the_example_of_the_first_readme_works() {
    let class = [
        ("type", "pd-ssd"),
        ("csiProvisionerSecretName", "fast-storage-provision-key"),
        ("csiProvisionerSecretNamespace", "pd-ssd-credentials"),
        ("csiControllerPublishSecretName", "${pv.name}-publish"),
        ("csiControllerPublishSecretNamespace", "pd-ssd-credentials"),
        ("csiNodeStageSecretName", "${pv.name}-stage"),
        ("csiNodeStageSecretNamespace", "pd-ssd-credentials"),
        ("csiNodePublishSecretName", "${pvc.annotations['com.example.team/key']}"),
        ("csiNodePublishSecretNamespace", "${pvc.namespace}"),
    ];
    for (kind, expected) in [
        (Kind::Provisioner, Some("pd-ssd-credentials/fast-storage-provision-key")),
        (Kind::ControllerPublish, Some("pd-ssd-credentials/pvc-1-publish")),
        (Kind::NodeStage, Some("pd-ssd-credentials/pvc-1-stage")),
        (Kind::NodePublish, Some("team/the-key")),
        (Kind::ControllerExpand, None),
        (Kind::NodeExpand, None),
        (Kind::ControllerModify, None),
    ] {
        assert_eq!(found(kind, &class).unwrap().as_deref(), expected, "{kind:?}");
    }
}

#[test]
fn present_names_work_for_every_kind_and_the_default_for_the_others() {
    for kind in Kind::ALL {
        let name = format!("{PREFIX}{}secret-name", kind.today());
        let namespace = format!("{PREFIX}{}secret-namespace", kind.today());
        let own =
            [(name.as_str(), "${pvc.name}-${pvc.namespace}-${pv.name}"), (namespace.as_str(), "${pvc.namespace}")];
        assert_eq!(found(kind, &own).unwrap().as_deref(), Some("team/data-team-pvc-1"), "{kind:?}");
        let default =
            [("csi.storage.k8s.io/secret-name", "all"), ("csi.storage.k8s.io/secret-namespace", "${pv.name}")];
        assert_eq!(found(kind, &default).unwrap().as_deref(), Some("pvc-1/all"), "{kind:?}");
        let both: Vec<_> = own.into_iter().chain(default).collect();
        assert_eq!(found(kind, &both).unwrap().as_deref(), Some("team/data-team-pvc-1"), "{kind:?}");
        assert!(names_one(&name) && names_one(&namespace));
    }
    assert!(names_one("csi.storage.k8s.io/secret-name") && names_one("csiNodeStageSecretNamespace"));
    assert!(!names_one("csi.storage.k8s.io/fstype") && !names_one("csiNodeStageSecret") && !names_one("secret-name"));
}

#[test]
fn each_refused_secret_has_a_reason() {
    const NAME: &str = "csi.storage.k8s.io/node-stage-secret-name";
    const NAMESPACE: &str = "csi.storage.k8s.io/node-stage-secret-namespace";
    let stage = |name: &'static str, namespace: &'static str| vec![(NAME, name), (NAMESPACE, namespace)];
    let old = |name: &'static str, namespace: &'static str| {
        vec![("csiProvisionerSecretName", name), ("csiProvisionerSecretNamespace", namespace)]
    };
    for (kind, pairs, code, says) in [
        (Kind::NodeStage, vec![(NAME, "a")], 78, "are needed together"),
        (Kind::NodeStage, vec![(NAMESPACE, "a")], 78, "are needed together"),
        (Kind::NodeStage, stage("", "a"), 78, "missing or empty"),
        (Kind::NodeStage, vec![("csiNodeStageSecretName", "a")], 78, "csiNodeStageSecretNamespace are needed together"),
        // One half with an old name, the other with a new one.
        (Kind::NodeStage, vec![(NAME, "a"), ("csiNodeStageSecretNamespace", "b")], 78, "are needed together"),
        (
            Kind::NodeStage,
            [stage("a", "b"), vec![("csiNodeStageSecretName", "a"), ("csiNodeStageSecretNamespace", "b")]].concat(),
            78,
            "in two ways",
        ),
        (Kind::NodeStage, stage("${pv.uid}", "a"), 78, "${pv.uid} cannot be used"),
        (Kind::NodeStage, stage("${pv.name", "a"), 78, "closing brace"),
        (Kind::NodeStage, stage("${pvc.annotations['not.there']}", "a"), 78, "claim-metadata"),
        // A claim's user never chooses a namespace.
        (Kind::NodeStage, stage("a", "${pvc.name}"), 78, "${pvc.name} cannot be used"),
        (Kind::NodeStage, stage("a", "${pvc.annotations['com.example.team/key']}"), 78, "cannot be used"),
        (Kind::NodeStage, stage("A_b", "a"), 78, "`A_b` cannot be the name of a Secret"),
        (Kind::NodeStage, stage("a", "a.b"), 78, "`a.b` cannot be the name of a namespace"),
        (Kind::NodeStage, stage("${pvc.annotations['odd']}", "a"), 65, "`../Odd` cannot be the name of a Secret"),
        // The provisioner secret of the first README knows the volume alone.
        (Kind::Provisioner, old("${pvc.name}", "a"), 78, "${pvc.name} cannot be used"),
        (Kind::Provisioner, old("a", "${pvc.namespace}"), 78, "${pvc.namespace} cannot be used"),
        (Kind::Provisioner, old("${pvc.annotations['com.example.team/key']}", "a"), 78, "cannot be used"),
    ] {
        let failure = found(kind, &pairs).expect_err(says);
        assert_eq!(failure.code, code, "{failure}");
        assert!(failure.message.contains(says), "{says}: {failure}");
    }
    assert_eq!(found(Kind::Provisioner, &old("${pv.name}", "${pv.name}")).unwrap().as_deref(), Some("pvc-1/pvc-1"));
}
