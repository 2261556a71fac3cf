use super::super::pod::{TMP_DIR, TMP_VOLUME, TOKEN_DIR, TOKEN_VOLUME};
use super::*;
use crate::config::RunAsUser;
use crate::config::effective_config::EffectiveConfig;
use crate::config::topology::Topologies;
use crate::run::view;

pub(crate) fn recipe(data: &[(&str, &str)]) -> Recipe {
    let data = data.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let effective_config = EffectiveConfig {
        config: ObjectName::new("admin", "silver"),
        class: "silver".into(),
        service_token: true,
        data,
        ..EffectiveConfig::default()
    };
    effective_config.recipe().unwrap_or_else(|problems| panic!("{problems:?}"))
}

pub(crate) fn request(recipe: &Recipe) -> RunRequest {
    RunRequest {
        operation: Operation::Provision,
        volume_id: "0d9c2f0e-0000-4000-8000-000000000001".into(),
        provision_ts: "2026-01-01T00:00:00Z".into(),
        attempt: 2,
        attempts_alike: false,
        pv_name: "pvc-0d9c2f0e-0000-4000-8000-000000000001".into(),
        claim: flex_contract::request::ClaimRef {
            namespace: "team".into(),
            name: "data".into(),
            uid: "0d9c2f0e-0000-4000-8000-000000000001".into(),
        },
        storage_class: recipe.class.clone(),
        size_bytes: 1 << 30,
        old_size_bytes: None,
        clone_of: None,
        snapshot: None,
        attributes_class: String::new(),
        attributes: BTreeMap::new(),
        old_attributes_class: String::new(),
        old_attributes: Default::default(),
        access_modes: vec!["ReadWriteOnce".into()],
        volume_mode: "Filesystem".into(),
        mount_options: vec![],
        reclaim_policy: "Delete".into(),
        fs_type: String::new(),
        username: "tom".into(),
        user_groups: vec![],
        service_account: recipe.service_account.clone().unwrap_or_default(),
        kube_api: "https://10.0.0.1:443".into(),
        node_name: String::new(),
        topology: BTreeMap::new(),
        class_topologies: String::new(),
        provisioner: names::DEFAULT_PROVISIONER.into(),
        instance: "default".into(),
        volume_source: String::new(),
        moved_in_path: String::new(),
        claim_metadata: BTreeMap::new(),
        parameters: recipe.parameters.clone(),
        pod_namespace: recipe.config.namespace.clone(),
    }
}

pub(crate) fn run_target(node: Option<&str>) -> RunTarget {
    RunTarget { namespace: "admin".into(), node: node.map(str::to_owned), ..RunTarget::default() }
}

/// Nothing else frees a node that volumes have filled, or storage of a node that is being emptied.
#[test]
fn a_run_that_frees_storage_of_a_node_may_run_on_it_while_it_is_full_or_cordoned() {
    use Operation::{Delete, DeleteSnapshot, Expand, Provision, Snapshot};
    let recipe = recipe(&[("image", "x"), ("tolerations", "[{key: storage, operator: Exists}]")]);
    let tolerated = |operation, node| {
        let run = job(&recipe, &RunRequest { operation, ..request(&recipe) }, &run_target(node));
        let tolerations = run.spec.unwrap().template.spec.unwrap().tolerations.unwrap();
        tolerations.into_iter().map(|toleration| toleration.key.unwrap()).collect::<Vec<_>>()
    };
    for operation in [Delete, DeleteSnapshot] {
        let all = ["storage", "node.kubernetes.io/disk-pressure", "node.kubernetes.io/unschedulable"];
        assert_eq!(tolerated(operation, Some("node-1")), all);
        assert_eq!(tolerated(operation, None), ["storage"], "another node can do it");
    }
    for operation in [Provision, Expand, Snapshot] {
        assert_eq!(tolerated(operation, Some("node-1")), ["storage"], "{operation} takes room");
    }
}

#[test]
fn a_run_is_on_linux_unless_its_config_names_another_system() {
    let selector = |keys: &[(&str, &str)]| {
        let recipe = recipe(&[&[("image", "x")], keys].concat());
        job(&recipe, &request(&recipe), &run_target(None)).spec.unwrap().template.spec.unwrap().node_selector
    };
    let labels = |text: &str| {
        let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
        Some(pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect::<BTreeMap<_, _>>())
    };
    assert_eq!(selector(&[]), labels("kubernetes.io/os=linux"));
    assert_eq!(selector(&[("node-selector", "disk=ssd")]), labels("disk=ssd,kubernetes.io/os=linux"));
    let windows = [("node-selector", "kubernetes.io/os=windows")];
    assert_eq!(selector(&windows), labels("kubernetes.io/os=windows"));
    let template = "spec: {nodeSelector: {kubernetes.io/os: windows}, containers: []}";
    assert_eq!(selector(&[("pod-template", template)]), labels("kubernetes.io/os=windows"));
    // The scheduler looks at the label alone.
    let template = "spec: {os: {name: windows}, containers: []}";
    assert_eq!(selector(&[("pod-template", template)]), labels("kubernetes.io/os=windows"));
}

/// An autoscaler that removes the node of a run ends it, and the attempt begins again elsewhere.
#[test]
fn autoscalers_leave_the_node_of_a_run_alone_unless_the_template_says_otherwise() {
    let annotations = |keys: &[(&str, &str)]| {
        let recipe = recipe(&[&[("image", "x")], keys].concat());
        let job = job(&recipe, &request(&recipe), &run_target(None));
        assert!(
            names::LEFT_ALONE.iter().all(|(key, _)| !job.metadata.annotations.iter().flatten().any(|(k, _)| k == key))
        );
        let metadata = job.spec.unwrap().template.metadata.unwrap();
        let all = metadata.annotations.unwrap();
        names::LEFT_ALONE.map(|(key, _)| all.get(key).cloned().unwrap_or_default())
    };
    assert_eq!(annotations(&[]), ["false", "true"]);
    let template = "metadata: {annotations: {cluster-autoscaler.kubernetes.io/safe-to-evict: 'true'}}";
    assert_eq!(annotations(&[("pod-template", template)]), ["true", "true"]);
}

/// A restored Job runs again, with the id of a volume that may have another owner by then.
#[test]
fn backup_tools_leave_out_each_run_and_its_pod() {
    let data = [("image", "x"), ("pod-template", "metadata: {labels: {velero.io/exclude-from-backup: 'false'}}")];
    let recipe = recipe(&data);
    let identity = crate::config::classes::Identity::of_tests();
    let single = job(&recipe, &request(&recipe), &RunTarget { namespace: "admin".into(), ..RunTarget::default() });
    let listing = crate::run::list::list(&recipe, None, &identity, "https://api", "1");
    for job in [single, listing] {
        let of_pod = job.spec.unwrap().template.metadata.and_then(|metadata| metadata.labels);
        for labels in [job.metadata.labels, of_pod] {
            assert_eq!(labels.unwrap().get(names::LABEL_NO_BACKUP).map(String::as_str), Some("true"));
        }
    }
}

#[test]
fn the_first_example_makes_this_job() {
    let recipe = recipe(&[
        ("image", "custom/iscsi-provision"),
        ("service-account-name", "foo"),
        ("use-nfs-server", "10.10.2.4"),
        ("zone", "west"),
    ]);
    insta::assert_yaml_snapshot!(job(&recipe, &request(&recipe), &run_target(Some("node-1"))));
}

#[test]
fn the_first_job_of_an_attempt_and_its_pod_are_marked() {
    let recipe = recipe(&[("image", "i")]);
    for is_first in [true, false] {
        let made = job(&recipe, &request(&recipe), &RunTarget { is_first, ..run_target(None) });
        let template = made.spec.clone().unwrap().template;
        let pod = k8s_openapi::api::core::v1::Pod { metadata: template.metadata.unwrap(), ..Default::default() };
        let seen = (view::Job::from(&made).is_first, view::Pod::from(&pod).is_first);
        assert_eq!(seen, (is_first, is_first));
    }
}

#[test]
fn text_of_users_is_never_expanded() {
    let recipe = recipe(&[("image", "i"), ("greeting", "$(PATH) $x $$")]);
    let job = job(&recipe, &request(&recipe), &run_target(None));
    let env = job.spec.unwrap().template.spec.unwrap().containers[0].env.clone().unwrap();
    let greeting = env.iter().find(|variable| variable.name == "GREETING").unwrap();
    assert_eq!(greeting.value.as_deref(), Some("$$(PATH) $$x $$$$"));
}

#[test]
fn a_template_adds_to_the_contract_and_changes_nothing() {
    let template = "spec:\n  dnsPolicy: ClusterFirst\n  hostNetwork: true\n  affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: disk, operator: Exists}]}]}}}\n  volumes: [{name: data, hostPath: {path: /data}}]\n  initContainers: [{name: side, image: s, restartPolicy: Always}]\n  containers:\n  - name: provisioner\n    securityContext: {privileged: true}\n    env: [{name: SIZE, value: forged}, {name: EXTRA, value: \"1\"}]\n    volumeMounts: [{name: data, mountPath: /data}]\n";
    let recipe = recipe(&[("image", "i"), ("run-as-user", "0"), ("pod-template", template)]);
    let job = job(&recipe, &request(&recipe), &run_target(Some("node-1")));
    let spec = job.spec.unwrap().template.spec.unwrap();
    let container = &spec.containers[0];
    assert_eq!(spec.containers.len(), 1);
    assert_eq!(spec.host_network, Some(true));
    assert_eq!(spec.init_containers.as_ref().unwrap().len(), 1);
    let volumes: Vec<_> = spec.volumes.iter().flatten().map(|volume| volume.name.as_str()).collect();
    assert_eq!(volumes, ["data", "flex-properties", TMP_VOLUME]);
    let env = |name: &str| {
        container
            .env
            .as_ref()
            .unwrap()
            .iter()
            .filter(|v| v.name == name)
            .map(|v| v.value.clone().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(env("SIZE"), ["1Gi"]);
    assert_eq!(env("EXTRA"), ["1"]);
    let security = container.security_context.as_ref().unwrap();
    assert_eq!((security.privileged, security.allow_privilege_escalation), (Some(true), None));
    assert!(container.volume_mounts.as_ref().unwrap().iter().any(|mount| mount.mount_path == "/data"));
    let terms = spec
        .affinity
        .unwrap()
        .node_affinity
        .unwrap()
        .required_during_scheduling_ignored_during_execution
        .unwrap()
        .node_selector_terms;
    assert!(terms[0].match_expressions.is_some() && terms[0].match_fields.is_some());
}

#[test]
fn a_template_without_any_node_does_not_take_the_selected_one_away() {
    let template = "spec: {affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: []}}}, containers: []}";
    let recipe = recipe(&[("image", "i"), ("pod-template", template)]);
    let spec = job(&recipe, &request(&recipe), &run_target(Some("node-1"))).spec.unwrap().template.spec.unwrap();
    let required = spec.affinity.unwrap().node_affinity.unwrap().required_during_scheduling_ignored_during_execution;
    let fields = required.unwrap().node_selector_terms[0].match_fields.clone().unwrap();
    assert_eq!(fields[0].values.as_deref(), Some(&["node-1".to_owned()][..]));
}

#[test]
fn the_terms_of_a_class_are_added_to_those_of_the_template() {
    let zones = serde_json::json!([
        { "matchLabelExpressions": [{ "key": "zone", "values": ["a"] }] },
        { "matchLabelExpressions": [{ "key": "zone", "values": ["b"] }] },
    ]);
    let zones: Vec<k8s_openapi::api::core::v1::TopologySelectorTerm> = serde_json::from_value(zones).unwrap();
    let terms = |template: &str, node: Option<&str>| {
        let recipe = recipe(&[("image", "i"), ("pod-template", template)]);
        let target = RunTarget { allowed: Topologies::from(zones.as_slice()), ..run_target(node) };
        let spec = job(&recipe, &request(&recipe), &target).spec.unwrap().template.spec.unwrap();
        let affinity = serde_json::json!(spec.affinity.unwrap().node_affinity);
        affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"].clone()
    };
    let of = |key: &str, value: &str| serde_json::json!({ "key": key, "operator": "In", "values": [value] });
    let plain = "spec: {containers: []}";
    assert_eq!(
        terms(plain, None),
        serde_json::json!([{ "matchExpressions": [of("zone", "a")] }, { "matchExpressions": [of("zone", "b")] }])
    );
    let with = "spec: {affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: disk, operator: In, values: [ssd]}]}]}}}, containers: []}";
    let name = of("metadata.name", "n");
    let both = |zone: &str| serde_json::json!({ "matchExpressions": [of("disk", "ssd"), of("zone", zone)], "matchFields": [name] });
    assert_eq!(terms(with, Some("n")), serde_json::json!([both("a"), both("b")]));
}

/// A shell that traces its commands prints secrets to its log. The end of the log would become an event.
#[test]
fn the_log_of_a_run_with_secrets_is_no_termination_message() {
    let policy = |data: &[(&str, &str)], token: bool| {
        let mut recipe = recipe(data);
        recipe.service_token = token;
        let job = job(&recipe, &request(&recipe), &run_target(None));
        job.spec.unwrap().template.spec.unwrap().containers.remove(0).termination_message_policy.unwrap()
    };
    let template = |container: &str, volumes: &str| {
        format!("spec: {{containers: [{{name: provisioner, {container}}}], volumes: [{volumes}]}}")
    };
    let plain =
        template("env: [{name: A, value: b}], volumeMounts: [{name: v, mountPath: /v}]", "{name: v, emptyDir: {}}");
    let mounted = "volumeMounts: [{name: v, mountPath: /v}]";
    let of_secret = "{name: v, secret: {secretName: s}}";
    let data = |key: &'static str, value: &str| -> Vec<(String, String)> {
        vec![("image".into(), "a".into()), (key.into(), value.into())]
    };
    for (key, value, expected) in [
        ("pod-template", plain, "FallbackToLogsOnError"),
        ("pod-template", template("env: []", of_secret), "FallbackToLogsOnError"),
        ("secret-env", "array-login".into(), "File"),
        ("secret-volume", "array-ca".into(), "File"),
        ("pod-template", template("envFrom: [{secretRef: {name: s}}]", ""), "File"),
        ("pod-template", template("env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: k}}}]", ""), "File"),
        ("pod-template", template(mounted, of_secret), "File"),
        ("pod-template", template(mounted, "{name: v, projected: {sources: [{secret: {name: s}}]}}"), "File"),
        ("pod-template", template(mounted, "{name: v, csi: {driver: secrets-store.csi.k8s.io}}"), "File"),
        (
            "pod-template",
            template("terminationMessagePolicy: FallbackToLogsOnError, envFrom: [{secretRef: {name: s}}]", ""),
            "FallbackToLogsOnError",
        ),
        ("pod-template", template("terminationMessagePolicy: File", ""), "File"),
    ] {
        let data = data(key, &value);
        let data: Vec<_> = data.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        assert_eq!(policy(&data, false), expected, "{key}: {value}");
    }
    assert_eq!(policy(&[("image", "a")], false), "FallbackToLogsOnError");
    assert_eq!(policy(&[("image", "a")], true), "File");
}

#[test]
fn objects_deleted_with_a_config_are_left_out_of_a_delete_run() {
    let recipe =
        recipe(&[("image", "i"), ("service-account-name", "foo"), ("image-pull-secrets", "pull"), ("secret-env", "s")]);
    let mut request = request(&recipe);
    request.operation = Operation::Delete;
    let target = RunTarget { namespace: "own".into(), without_account: true, ..RunTarget::default() };
    let spec = job(&recipe, &request, &target).spec.unwrap().template.spec.unwrap();
    assert_eq!((spec.service_account_name, spec.automount_service_account_token), (None, Some(false)));
    assert_eq!(spec.image_pull_secrets, None);
    let container = &spec.containers[0];
    assert!(container.env.as_ref().unwrap().iter().all(|variable| variable.name != "SERVICE_TOKEN"));
    assert_eq!(container.env_from.as_ref().unwrap()[0].secret_ref.as_ref().unwrap().optional, Some(true));
}

#[test]
fn a_run_has_only_the_rights_that_it_needs() {
    for user in ["0", "1000"] {
        let recipe = recipe(&[("image", "i"), ("service-account-name", "foo"), ("run-as-user", user)]);
        let spec = job(&recipe, &request(&recipe), &run_target(None)).spec.unwrap().template.spec.unwrap();
        let container = &spec.containers[0];
        let security = container.security_context.as_ref().unwrap();
        assert_eq!(security.capabilities.as_ref().unwrap().drop.as_deref(), Some(&["ALL".to_owned()][..]), "{user}");
        assert_eq!(security.read_only_root_filesystem, Some(true));
        assert!(container.resources.as_ref().unwrap().requests.as_ref().unwrap().contains_key("memory"));
        // The token belongs to the pod, and is short-lived.
        assert_eq!(spec.automount_service_account_token, Some(false));
        let token = spec.volumes.iter().flatten().find(|volume| volume.name == TOKEN_VOLUME).unwrap();
        let token =
            token.projected.as_ref().unwrap().sources.as_ref().unwrap()[0].service_account_token.as_ref().unwrap();
        assert_eq!((token.expiration_seconds, token.path.as_str()), (Some(600), "token"));
        let mounts = container.volume_mounts.as_ref().unwrap();
        let at = |path: &str| mounts.iter().find(|mount| mount.mount_path == path).map(|mount| mount.read_only);
        assert_eq!((at(TOKEN_DIR), at(TMP_DIR)), (Some(Some(true)), Some(None)));
    }
}

#[test]
fn with_any_user_the_pod_names_none_and_forbids_root() {
    let security = |keys: &[(&str, &str)]| {
        let recipe = recipe(&[&[("image", "i"), ("run-as-user", "any")], keys].concat());
        // A later run reads the record of a volume again.
        let recipe = recipe.effective_config.recipe().unwrap();
        assert_eq!(recipe.run_as_user, Some(RunAsUser::Any));
        let pod = job(&recipe, &request(&recipe), &run_target(None)).spec.unwrap().template.spec.unwrap();
        let of_pod = pod.security_context.unwrap();
        assert_eq!((of_pod.run_as_user, of_pod.run_as_group, of_pod.fs_group), (None, None, None));
        let of_container = pod.containers.into_iter().next().unwrap().security_context.unwrap();
        (of_container.run_as_user, of_container.run_as_non_root)
    };
    assert_eq!(security(&[]), (None, Some(true)));
    let template = "spec: {containers: [{name: provisioner, securityContext: {runAsUser: 7}}]}";
    assert_eq!(security(&[("pod-template", template)]), (Some(7), Some(true)));
}

#[test]
fn a_template_may_add_rights() {
    let template = "spec:\n  automountServiceAccountToken: true\n  volumes: [{name: big, emptyDir: {sizeLimit: 9Gi}}]\n  containers:\n  - name: provisioner\n    resources: {limits: {memory: 1Gi}}\n    volumeMounts: [{name: big, mountPath: /tmp}]\n    securityContext: {readOnlyRootFilesystem: false, capabilities: {drop: [ALL], add: [CHOWN]}}\n";
    let with = |keys: &[(&str, &str)]| {
        let recipe =
            recipe(&[&[("image", "i"), ("service-account-name", "foo"), ("pod-template", template)], keys].concat());
        job(&recipe, &request(&recipe), &run_target(None)).spec.unwrap().template.spec.unwrap()
    };
    let spec = with(&[]);
    let container = &spec.containers[0];
    let security = container.security_context.as_ref().unwrap();
    let capabilities = security.capabilities.as_ref().unwrap();
    assert_eq!((capabilities.drop.as_ref().unwrap().len(), capabilities.add.as_ref().unwrap().len()), (1, 1));
    assert_eq!((security.read_only_root_filesystem, spec.automount_service_account_token), (Some(false), Some(true)));
    let tmp: Vec<_> = container.volume_mounts.iter().flatten().filter(|mount| mount.mount_path == TMP_DIR).collect();
    assert_eq!((tmp.len(), tmp[0].name.as_str()), (1, "big"));
    let resources = container.resources.as_ref().unwrap();
    assert!(resources.requests.is_none() && resources.limits.as_ref().unwrap()["memory"].0 == "1Gi");
    let resources = with(&[("resources", "{requests: {memory: 2Mi}}")]).containers[0].resources.clone().unwrap();
    assert_eq!(resources.requests.unwrap()["memory"].0, "2Mi", "the key wins");
}
