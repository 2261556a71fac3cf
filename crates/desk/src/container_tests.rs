use k8s_openapi::api::core::v1::{Capabilities as Lists, SecurityContext};
use serde_json::json;

use super::*;

fn facts<'a>(secrets: &'a BTreeMap<String, Texts>, configs: &'a BTreeMap<String, Texts>) -> PodFacts<'a> {
    PodFacts { name: "pod", node: "node", secrets, configs }
}

fn made(pod: serde_json::Value, secrets: &BTreeMap<String, Texts>) -> Result<Container, Vec<String>> {
    let job = json!({
        "metadata": { "namespace": "ns" },
        "spec": { "activeDeadlineSeconds": 7, "template": { "metadata": { "annotations": { "a/b": "text" } }, "spec": pod } },
    });
    container(&serde_json::from_value(job).unwrap(), facts(secrets, &BTreeMap::new()))
}

#[test]
fn variables_come_from_texts_fields_and_secrets() {
    let pod = json!({ "containers": [{
        "name": "provisioner",
        "command": ["run", "$(A)$$(A)"],
        "env": [
            { "name": "A", "value": "1$$2" },
            { "name": "B", "value": "$(A) $(NONE)" },
            { "name": "C", "valueFrom": { "fieldRef": { "fieldPath": "metadata.annotations['a/b']" } } },
            { "name": "D", "valueFrom": { "fieldRef": { "fieldPath": "metadata.namespace" } } },
            { "name": "E", "value": "key=$(KEY)" },
        ],
        "envFrom": [{ "secretRef": { "name": "s" } }],
    }] });
    let secrets = [("s".to_owned(), Texts::from([("KEY".to_owned(), "value".to_owned())]))].into();
    let container = made(pod.clone(), &secrets).unwrap();
    let of_secret = ("E", "key=value");
    let expected = [("A", "1$2"), ("B", "1$2 $(NONE)"), ("C", "text"), ("D", "ns"), of_secret, ("KEY", "value")];
    assert_eq!(container.env, expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
    assert_eq!(container.secret_env, [of_secret.0, "KEY"].map(str::to_owned).into());
    assert_eq!(container.command, ["run", "1$2$(A)"]);
    assert_eq!(container.limit, Some(Duration::from_secs(7)));
    let missing = made(pod, &BTreeMap::new()).unwrap_err();
    assert!(missing[0].contains("the Secret or ConfigMap s"), "{missing:?}");
}

#[test]
fn mounts_have_the_content_of_their_volumes() {
    let pod = json!({
        "containers": [{ "name": "provisioner", "volumeMounts": [
            { "name": "node", "mountPath": "/a", "subPath": "x" },
            { "name": "empty", "mountPath": "/b" },
            { "name": "remote", "mountPath": "/c", "readOnly": true },
            { "name": "files", "mountPath": "/d" },
        ] }],
        "volumes": [
            { "name": "node", "hostPath": { "path": "/base", "type": "Directory" } },
            { "name": "empty", "emptyDir": {} },
            { "name": "remote", "nfs": { "server": "s", "path": "/p" } },
            { "name": "files", "downwardAPI": { "items": [{ "path": "t", "fieldRef": { "fieldPath": "metadata.name" } }] } },
        ],
    });
    let container = made(pod, &BTreeMap::new()).unwrap();
    let of = |path: &str| container.mounts.iter().find(|mount| mount.path == path).unwrap().clone();
    let on_node = Content::OnNode { path: "/base".into(), must_exist: true, sub_path: "x".into() };
    assert_eq!((of("/a").content, of("/a").read_only), (on_node, false));
    assert_eq!(of("/b").content, Content::Empty);
    assert_eq!(
        (of("/c").content, of("/c").read_only),
        (Content::Remote { volume: "remote".into(), sub_path: String::new() }, true)
    );
    assert_eq!(of("/d").content, Content::Files([("t".to_owned(), "pod".to_owned())].into()));
}

#[test]
fn capabilities_are_dropped_and_added() {
    let context = |drop: &[&str], add: &[&str]| SecurityContext {
        capabilities: Some(Lists {
            drop: Some(drop.iter().map(|name| (*name).to_owned()).collect()),
            add: Some(add.iter().map(|name| (*name).to_owned()).collect()),
        }),
        ..SecurityContext::default()
    };
    assert_eq!(capabilities(&context(&["ALL"], &["FOWNER"])), Capabilities::Only(vec!["FOWNER".into()]));
    let usual = capabilities(&context(&["MKNOD"], &[]));
    assert!(matches!(&usual, Capabilities::Only(names) if names.len() == USUAL_CAPABILITIES.len() - 1), "{usual:?}");
    assert_eq!(
        capabilities(&SecurityContext { privileged: Some(true), ..SecurityContext::default() }),
        Capabilities::All
    );
}

#[test]
fn a_path_that_leads_out_of_its_directory_is_refused() {
    let pod = |path: &str, sub_path: &str| {
        json!({
            "containers": [{
                "name": "provisioner",
                "volumeMounts": [{ "name": "v", "mountPath": "/v", "subPath": sub_path }],
            }],
            "volumes": [{ "name": "v", "hostPath": { "path": path } }],
        })
    };
    assert!(made(pod("/srv/a..b", "c"), &BTreeMap::new()).is_ok());
    for (path, sub_path) in [("/srv/../../etc", ""), ("/srv", "../etc")] {
        let refused = made(pod(path, sub_path), &BTreeMap::new()).unwrap_err();
        assert!(refused[0].contains("without `..`"), "{refused:?}");
    }
}
