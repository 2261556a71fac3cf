use super::*;
use crate::config::pool::Watermarks;
use crate::object::ObjectName;

/// Returns the data of a valid config, overridden by these keys.
fn data(keys: &[(&str, &str)]) -> BTreeMap<String, String> {
    let image = ("image", "registry.example/team/provisioner:1.0");
    [image].iter().chain(keys).map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn check(keys: &[(&str, &str)]) -> Result<Recipe, Vec<Problem>> {
    let config = ObjectName::new("admin", "silver");
    parse(EffectiveConfig { config, class: "silver".into(), data: data(keys), ..EffectiveConfig::default() })
}

fn good(keys: &[(&str, &str)]) -> Recipe {
    check(keys).unwrap_or_else(|problems| panic!("{keys:?}: {problems:?}"))
}

/// Returns the problems of a config, each as `key: message`.
fn problems(keys: &[(&str, &str)]) -> Vec<String> {
    match check(keys) {
        Ok(_) => Vec::new(),
        Err(problems) => problems.iter().map(Problem::to_string).collect(),
    }
}

/// Checks that exactly this key is refused, with this message.
#[track_caller]
fn refused(key: &str, value: &str, says: &str) {
    let found = problems(&[(key, value)]);
    assert!(found.len() == 1 && found[0].starts_with(&format!("{key}: ")), "{key}={value:?}: {found:?}");
    assert!(found[0].contains(says), "{key}={value:?} does not say {says:?}: {found:?}");
}

#[test]
fn an_image_alone_is_enough() {
    let recipe = good(&[]);
    assert_eq!(recipe.image, "registry.example/team/provisioner:1.0");
    assert_eq!((recipe.placement, recipe.reclaim_policy.as_str()), (Placement::SelectedNode, "Delete"));
    assert_eq!((recipe.access_modes.len(), recipe.volume_modes.len()), (4, 1));
    assert_eq!((recipe.timeout.as_secs(), recipe.retries, recipe.max_in_flight), (300, 15, 100));
    assert_eq!((recipe.backoff.initial.as_secs(), recipe.backoff.max.as_secs()), (2, 300));
    assert_eq!((recipe.run_as_user, recipe.pull_policy.as_deref(), recipe.service_token), (None, None, false));
    assert!(recipe.parameters.is_empty() && recipe.volume_sources.is_empty());
}

#[test]
fn every_key_has_its_effect() {
    let recipe = good(&[
        ("command", "[sh, -c, 'echo $HOME']"),
        ("args", "--fast now"),
        ("image-pull-policy", "IfNotPresent"),
        ("image-pull-secrets", "hub, backup.hub"),
        ("service-account-name", "foo"),
        ("node-selector", "disk=ssd,zone=a"),
        ("tolerations", "- key: storage\n  operator: Exists\n"),
        ("priority-class", "high"),
        ("resources", "limits: {memory: 64Mi, cpu: 1}"),
        ("run-as-user", "0"),
        ("replaces-provisioner", "csi.example.com"),
        ("placement", "any"),
        ("secret-env", "env-one"),
        ("secret-volume", "[files]"),
        ("reclaim-policy", "Retain"),
        ("access-modes", "ReadWriteOnce, ReadOnlyMany"),
        ("volume-mode", "Block"),
        ("mount-options", "noatime, vers=4"),
        ("fs-type", "xfs"),
        ("timeout", "90s"),
        ("retries", "0"),
        ("backoff", "1s..10s"),
        ("max-in-flight", "1"),
        ("min-size", "1Mi"),
        ("max-size", "1Gi"),
        ("volume-sources", "nfs, HOSTPATH:/srv/a/"),
        ("claim-metadata", "team.example/owner, app"),
        ("pod-template", "spec:\n  hostNetwork: true\n"),
        ("zone", "west"),
    ]);
    assert_eq!((recipe.command.join("|"), recipe.args.join("|")), ("sh|-c|echo $HOME".into(), "--fast|now".into()));
    assert_eq!(recipe.pull_policy.as_deref(), Some("IfNotPresent"));
    assert_eq!(recipe.pull_secrets, ["hub", "backup.hub"]);
    assert_eq!((recipe.service_account.as_deref(), recipe.priority_class.as_deref()), (Some("foo"), Some("high")));
    assert_eq!((recipe.node_selector["disk"].as_str(), recipe.node_selector["zone"].as_str()), ("ssd", "a"));
    assert_eq!(recipe.tolerations[0].key.as_deref(), Some("storage"));
    assert_eq!(recipe.resources.unwrap().limits.unwrap()["cpu"].0, "1");
    assert_eq!((recipe.run_as_user, recipe.placement), (Some(RunAsUser::Id(0)), Placement::Any));
    assert_eq!((recipe.secret_env, recipe.secret_volume), (vec!["env-one".to_owned()], vec!["files".to_owned()]));
    assert_eq!(recipe.reclaim_policy.as_str(), "Retain");
    assert_eq!(recipe.access_modes, ["ReadWriteOnce", "ReadOnlyMany"]);
    assert_eq!((recipe.volume_modes, recipe.mount_options.join(" ")), (vec!["Block".into()], "noatime vers=4".into()));
    assert_eq!((recipe.fs_type.as_str(), recipe.timeout.as_secs(), recipe.retries), ("xfs", 90, 0));
    assert_eq!((recipe.backoff.initial.as_secs(), recipe.backoff.max.as_secs()), (1, 10));
    assert_eq!((recipe.max_in_flight, recipe.min_size, recipe.max_size), (1, Some(1 << 20), Some(1 << 30)));
    let sources: Vec<_> =
        recipe.volume_sources.iter().map(|rule| (rule.kind.as_str(), rule.prefix.as_deref())).collect();
    assert_eq!(sources, [("nfs", None), ("hostPath", Some("/srv/a"))]);
    assert_eq!(recipe.claim_metadata, ["team.example/owner", "app"]);
    assert_eq!(recipe.pod_template.unwrap().spec.unwrap().host_network, Some(true));
    assert_eq!(recipe.parameters, [("zone".to_owned(), "west".to_owned())].into());
}

#[test]
fn bad_values_are_refused_with_a_remedy() {
    for (key, value, says) in [
        ("image", "has space", "not the name of an image"),
        ("image", "registry.example/a:", "not the name of an image"),
        ("image", "a\u{e9}", "not the name of an image"),
        ("command", "sh -c 'echo hi'", "write a YAML list"),
        ("command", "[sh, {a: b}]", "expected"),
        ("args", "a | b", "no shell reads this"),
        ("image-pull-policy", "Sometimes", "write one of Always, IfNotPresent, Never"),
        ("image-pull-secrets", "Hub", "`Hub` cannot be the name of a Secret"),
        ("service-account-name", "foo/bar", "`foo/bar` cannot be the name of a ServiceAccount"),
        ("node-selector", "disk=ssd,zone", "`zone` has no `=`"),
        ("node-selector", "[a]", "expected"),
        ("tolerations", "key: storage", "expected"),
        ("tolerations", "- kye: storage", "`[0].kye`"),
        ("priority-class", "High!", "`High!` cannot be the name of a PriorityClass"),
        ("resources", "limits: 5", "expected"),
        ("resources", "limit: {memory: 64Mi}", "`limit`"),
        ("run-as-user", "root", "\"0\" for root"),
        ("run-as-user", "Any", "or any where the platform assigns"),
        ("run-as-user", "-1", "not a user id"),
        ("run-as-user", "2147483648", "not a user id"),
        ("placement", "node", "write one of selected-node, any"),
        ("secret-env", "a, B", "`B` cannot be the name of a Secret"),
        ("secret-volume", "../x", "`../x` cannot be the name of a Secret"),
        ("reclaim-policy", "Recycle", "write one of Delete, Retain"),
        ("access-modes", "RWO", "`RWO` is not known; write some of ReadWriteOnce"),
        ("access-modes", "[]", "it is empty; leave the key out"),
        ("volume-mode", "file", "`file` is not known"),
        ("mount-options", "[a", "unclosed bracket"),
        ("fs-type", "EXT4", "write for example ext4"),
        ("timeout", "5", "write for example 90s"),
        ("timeout", "0s", "out of range"),
        ("timeout", "8d", "not a length of time"),
        ("retries", "1001", "a whole number from 0 to 1000"),
        ("retries", "many", "a whole number from 0 to 1000"),
        ("backoff", "10m..5s", "write the shorter time first"),
        ("backoff", "5s..", "not a length of time"),
        ("max-in-flight", "0", "a whole number from 1 to 10000"),
        ("max-in-flight-per-node", "many", "a whole number from 1 to 10000"),
        ("min-size", "10 GB", "is not a size"),
        ("max-size", "-1Gi", "is negative"),
        ("volume-sources", "floppy", "`floppy` is not a volume source"),
        ("volume-sources", "hostPath", "needs the directory"),
        ("volume-sources", "local:/", "would allow every path"),
        ("volume-sources", "nfs:/export", "only hostPath and local take a directory"),
        ("volume-sources", "hostPath:/a/../b", "without `..`"),
        ("claim-metadata", "a b", "`a b` cannot be the key"),
    ] {
        refused(key, value, says);
    }
}

#[test]
fn an_image_is_required() {
    for missing in [None, Some(""), Some("  ")] {
        let mut data = data(&[]);
        data.remove("image");
        data.extend(missing.map(|text| ("image".to_owned(), text.to_owned())));
        let problems = parse(EffectiveConfig { data, ..EffectiveConfig::default() }).unwrap_err();
        assert!(problems.len() == 1 && problems[0].to_string().starts_with("image: is missing; name"), "{problems:?}");
    }
}

#[test]
fn runs_are_limited_on_a_node_only_where_they_must_be_on_a_node() {
    assert_eq!(good(&[("max-in-flight-per-node", "2")]).max_in_flight_per_node, Some(2));
    let anywhere = problems(&[("max-in-flight-per-node", "2"), ("placement", "any")]);
    assert!(anywhere.len() == 1 && anywhere[0].contains("set `placement: selected-node`"), "{anywhere:?}");
}

#[test]
fn a_minimum_size_must_not_exceed_the_maximum() {
    assert!(good(&[("min-size", "1Gi"), ("max-size", "1Gi")]).max_size.is_some());
    assert_eq!(
        problems(&[("min-size", "2Gi"), ("max-size", "1Gi")]),
        ["min-size: is larger than max-size, so no claim can get a volume"]
    );
}

#[test]
fn all_problems_are_reported_at_once_in_order() {
    let keys = ["timeout", "retries", "run-as-user", "reclaim-policy", "min-size", "volume-sources", "path", "pool"];
    let bad: Vec<_> = keys.iter().map(|key| (*key, "no such thing")).collect();
    let found = problems(&bad);
    let mut expected: Vec<_> = keys.iter().map(|key| format!("{key}: ")).collect();
    expected.sort();
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (problem, key) in found.iter().zip(expected) {
        assert!(problem.starts_with(&key), "{problem} is not about {key}");
    }
}

#[test]
fn only_known_capabilities_are_accepted() {
    assert!(capability::names().all(|capability| good(&[("capabilities", capability)]).can(capability)));
    refused("capabilities", "teleport", "`teleport` is not a capability; write some of clone, snapshot");
    assert_eq!(problems(&[("capabilities", "")]), [""; 0], "an empty value declares no capability");
    assert!(good(&[("capabilities", "expand")]).can("expand") && !good(&[]).can("expand"));
}

#[test]
fn a_pool_names_sizes_with_their_watermarks() {
    let some = good(&[("capabilities", "pool"), ("pool", "10Gi=5, 1Ti=2..8"), ("pool-max-bytes", "20Ti")]);
    let (pool, pool_hash) = (some.pool.as_ref().unwrap(), some.effective_config.pool_hash());
    let marks = |low, high| Watermarks { low, high };
    assert_eq!(pool.sizes, [(10 << 30, marks(5, 5)), (1 << 40, marks(2, 8))].into());
    assert_eq!((pool.max_bytes, pool.in_flight, pool.hash.clone()), (Some(20 << 40), None, pool_hash));
    let yaml = good(&[("capabilities", "pool"), ("pool", "10Gi: 5\n1Ti: 2..8\n"), ("pool-in-flight", "7")]);
    assert_eq!(yaml.pool.as_ref().map(|pool| (&pool.sizes, pool.in_flight)), Some((&pool.sizes, Some(7))));
    for (value, says) in [
        ("4", "10Gi=5"),
        ("10Gi=0", "is not a number of volumes; write for example 10Gi=5"),
        ("10Gi=1001", "is not a number of volumes"),
        ("10Gi=8..2", "ends before it begins"),
        ("10Gi=2..", "is not a number of volumes"),
        ("ten=5", "ten"),
        ("0=5", "is not a size that a claim can ask for"),
        ("1Gi=1,1024Mi=2", "appears twice"),
    ] {
        let problems = problems(&[("capabilities", "pool"), ("pool", value)]);
        assert!(problems.len() == 1 && problems[0].starts_with("pool: "), "{value}: {problems:?}");
        assert!(says == "10Gi=5" || problems[0].contains(says), "{value}: {problems:?}");
    }
    refused("pool", "10Gi=5", "needs `pool` among the `capabilities`");
    let both = problems(&[("capabilities", "pool"), ("pool", "1Gi=1"), ("claim-metadata", "team")]);
    assert!(both.len() == 1 && both[0].starts_with("claim-metadata: cannot be used with `pool`"), "{both:?}");
    refused("pool-max-bytes", "1Ti", "has no pool: write `pool`");
    let outside =
        problems(&[("capabilities", "pool"), ("pool", "1Gi=1,9Gi=1"), ("min-size", "2Gi"), ("max-size", "8Gi")]);
    assert!(
        outside.len() == 2 && outside.iter().all(|p| p.contains("is not between min-size and max-size")),
        "{outside:?}"
    );
}

#[test]
fn keys_without_effect_on_a_volume_do_not_change_the_pool_hash() {
    let pool_hash = |keys: &[(&str, &str)]| good(keys).effective_config.pool_hash();
    let plain = pool_hash(&[]);
    for same in [("timeout", "90s"), ("max-volumes", "9"), ("batch-size", "9"), ("reclaim-policy", "Retain")] {
        assert_eq!(pool_hash(&[same]), plain, "{same:?}");
    }
    for other in [("image", "y"), ("fs-type", "xfs"), ("mount-options", "ro"), ("server", "b"), ("placement", "any")] {
        assert_ne!(pool_hash(&[other]), plain, "{other:?}");
    }
}

#[test]
fn batches_are_bounded_in_number_and_time() {
    let none = good(&[]);
    assert_eq!((none.batch_size, none.batch_window), (1, Duration::from_millis(50)));
    let some = good(&[("batch-size", "250"), ("batch-window", "1s")]);
    assert_eq!((some.batch_size, some.batch_window), (250, Duration::from_secs(1)));
    for size in ["0", "251", "many"] {
        refused("batch-size", size, "must be a whole number from 1 to 250");
    }
    refused("batch-window", "6s", "`6s` is out of range; at most 5s");
    refused("batch-window", "50", "`50` is not a length of time; write for example 50ms or 1s");
}

#[test]
fn parameters_reach_the_image_untouched() {
    let recipe = good(&[("use-nfs-server", " 10.10.2.4 "), ("zone", ""), ("text", "line\n$(HOME) `id`\n")]);
    let values: Vec<_> = recipe.parameters.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    assert_eq!(values, [("text", "line\n$(HOME) `id`\n"), ("use-nfs-server", " 10.10.2.4 "), ("zone", "")]);
}

#[test]
fn two_parameters_of_one_variable_are_refused() {
    let found = problems(&[("use-nfs", "a"), ("use_nfs", "b")]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].starts_with(
            "use_nfs: `use-nfs` and `use_nfs` would both become the environment variable USE_NFS; rename one"
        ),
        "{found:?}"
    );
    assert_eq!(problems(&[("Zone", "a"), ("zone", "b"), ("z.one", "c")]).len(), 1, "ZONE twice, Z_ONE once");
}

#[test]
fn parameters_with_reserved_names_are_refused_with_a_better_name() {
    for (name, variable) in [
        ("path", "PATH"),
        ("ld-preload", "LD_PRELOAD"),
        ("ifs", "IFS"),
        ("env", "ENV"),
        ("bash_env", "BASH_ENV"),
        ("groups", "GROUPS"),
        ("uid", "UID"),
        ("kubernetes-service-host", "KUBERNETES_SERVICE_HOST"),
        ("size", "SIZE"),
        ("claim-uuid", "CLAIM_UUID"),
        ("pod-name", "POD_NAME"),
    ] {
        refused(name, "x", &format!("the environment variable {variable}"));
        refused(name, "x", &format!("call it `my-{name}`"));
    }
    refused("a b", "x", "a character that is not allowed");
    refused("volume-source", "x", "is not a key; did you mean `volume-sources`?");
}

#[test]
fn a_misspelt_key_is_not_taken_for_a_parameter() {
    for (written, meant) in [
        ("nodeSelector", "node-selector"),
        ("pod_template", "pod-template"),
        ("Image", "image"),
        ("mountOptions", "mount-options"),
        ("batchsize", "batch-size"),
    ] {
        let found = problems(&[(written, "x")]);
        assert!(found.iter().any(|problem| problem.contains(&format!("reads like `{meant}`"))), "{written}: {found:?}");
    }
}

#[test]
fn parameters_fit_on_a_pod() {
    let fits = "x".repeat(limits::VALUE);
    assert_eq!(problems(&[("text", &fits)]), [""; 0]);
    refused("text", &"x".repeat(limits::VALUE + 1), "is 65537 bytes long; a value may have at most 65536");
    refused("pod-template", &"#".repeat(limits::VALUE + 1), "is 65537 bytes long; a value may have at most 65536");
    refused("text", "a\0b", "has a zero byte");
}

#[test]
fn a_config_fits_on_its_volumes() {
    let third = "x".repeat(limits::VALUE);
    let found = problems(&[("a1", &third), ("a2", &third), ("a3", &third)]);
    assert!(found.len() == 1 && found[0].starts_with("is 196") && found[0].contains("fit on a volume"), "{found:?}");
    // As JSON, a control character is six bytes long.
    let dense = "\u{1}".repeat(limits::VALUE / 2);
    assert!(problems(&[("a1", &dense)])[0].contains("fit on a volume"));
}

#[test]
fn too_many_keys_are_one_problem() {
    let names: Vec<String> = (0..limits::KEYS).map(|n| format!("key-{n}")).collect();
    let keys: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "")).collect();
    assert_eq!(problems(&keys[1..]), [""; 0]);
    assert_eq!(problems(&keys), ["has 301 keys, those of the StorageClass included; at most 300 are allowed"]);
}

#[test]
fn the_messages_about_a_config_are_bounded() {
    let found = problems(&[("image", &"@".repeat(60_000)), ("timeout", "\u{1b}[2J")]);
    assert!(found[0].len() < 1100 && found[0].starts_with("image: `@@"), "{}", found[0].len());
    assert!(found[1].contains("`\\u{1b}[2J`"), "{}", found[1]);
    let many: Vec<Problem> = (0..500).map(|n| Problem::new(format!("key-{n}"), "x".repeat(100))).collect();
    let message = super::super::joined(&many);
    assert!(message.len() < limits::VERDICT + 100 && message.ends_with(" more"), "{}", &message[message.len() - 100..]);
}

#[test]
fn each_container_has_a_name_of_its_own() {
    refused("pod-template", "spec: {containers: [], initContainers: [{name: provisioner}]}", "init container");
    refused("pod-template", "spec: {containers: [{name: provisioner}, {name: provisioner}]}", "several containers");
}

#[test]
fn each_entry_of_a_pod_template_has_a_name_of_its_own() {
    let container = |rest: &str| format!("spec: {{containers: [{{name: provisioner, {rest}}}]}}");
    for (template, says) in [
        (container("env: [{name: \"\", value: a}]"), "an entry of `env` without `name`"),
        (container("env: [{name: A, value: a}, {name: A, value: b}]"), "two entries of `env` with `name: A`"),
        (
            container("volumeMounts: [{name: a, mountPath: /a}, {name: b, mountPath: /a}]"),
            "two entries of `volumeMounts` with `mountPath: /a`",
        ),
        (
            "spec: {containers: [], volumes: [{name: a, emptyDir: {}}, {name: a, emptyDir: {}}]}".into(),
            "two entries of `volumes` with `name: a`",
        ),
    ] {
        refused("pod-template", &template, says);
    }
    good(&[("pod-template", &container("env: [{name: A, value: a}, {name: B, value: a}]"))]);
}

#[test]
fn a_pod_template_leaves_the_contract_alone() {
    for (template, says) in [
        ("containers: []", "`containers`"),
        ("{}", "has neither `spec:` nor `metadata:`"),
        ("spec: [", "expected"),
        ("spec: {containers: [{name: provisioner, image: other}]}", "use the key `image`"),
        ("spec: {containers: [{image: other}]}", "a container without a name"),
        ("spec: {containers: [{name: side, image: other}]}", "under `initContainers` with `restartPolicy: Always`"),
        ("spec: {restartPolicy: OnFailure}", "the provisioner retries runs"),
        ("spec: {nodeName: node-1}", "use the key `node-selector`"),
        ("spec: {schedulingGates: [{name: flex-provisioner.io/start}]}", "the provisioner's own"),
    ] {
        refused("pod-template", template, says);
    }
    let sidecar = "spec: {restartPolicy: Never, initContainers: [{name: side, image: other, restartPolicy: Always}]}";
    let recipe = good(&[("pod-template", sidecar)]);
    assert_eq!(recipe.pod_template.unwrap().spec.unwrap().init_containers.unwrap()[0].name, "side");
}

#[test]
fn a_misspelt_field_of_a_pod_template_is_named() {
    for (template, field) in [
        ("spec:\n  volumes:\n  - name: base\n    hostpath: {path: /srv}\n", "`spec.volumes[0].hostpath`"),
        ("spec: {containers: [{name: provisioner, securitycontext: {}}]}", "`spec.containers[0].securitycontext`"),
        ("spec: {dnsConfig: {nameserver: [a]}}", "`spec.dnsConfig.nameserver`"),
        ("metadata: {label: {a: b}}", "`metadata.label`"),
    ] {
        refused("pod-template", template, &format!("has the field {field}, which Kubernetes does not know there"));
    }
    let several = "spec: {hostnetwork: true, volumes: [{name: a, emptyDir: {}}, {name: b, emptydir: {}}]}\nkind: Pod";
    refused("pod-template", several, "`kind`, `spec.hostnetwork`, `spec.volumes[1].emptydir`");
}

#[test]
fn every_form_of_a_valid_pod_template_is_accepted() {
    let template = "\
metadata:
  creationTimestamp: null
  labels: {team: a, number: \"1\"}
spec:
  securityContext: {}
  volumes: &v
  - name: a
    emptyDir: {}
  - name: b
    hostPath: {path: /srv, type: DirectoryOrCreate}
  - name: c
    secret: {secretName: s, defaultMode: 0400}
  tolerations: []
  affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: a, operator: Exists}]}}]}}
  containers:
  - name: provisioner
    env: [{name: A, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
    ports: [{containerPort: 80}]
    livenessProbe: {httpGet: {path: /, port: http}, periodSeconds: 3}
    resources: {requests: {cpu: 100m, memory: 1e6}}
    volumeMounts: [{name: a, mountPath: /a}]
";
    let spec = good(&[("pod-template", template)]).pod_template.unwrap().spec.unwrap();
    assert_eq!(spec.volumes.unwrap()[2].secret.as_ref().unwrap().default_mode, Some(0o400));
}

proptest::proptest! {
    #[test]
    fn any_config_gets_an_answer(
        key in proptest::sample::select(keys::ALL.iter().map(|key| key.name).collect::<Vec<_>>()),
        value in "[ -~\n]{0,80}",
        name in "[ -~]{0,40}",
    ) {
        if let Err(problems) = check(&[(key, &value), (&name, &value)]) {
            assert!(!problems.is_empty() && problems.iter().all(|problem| !problem.message.is_empty()));
        }
    }
}

#[test]
fn runs_see_only_their_volumes_only_where_that_is_certain() {
    let template = |of_container: &str, of_pod: &str, mounts: &str| {
        format!(
            "spec: {{containers: [{{name: provisioner, {of_container} volumeMounts: [{{name: a, mountPath: /a}}{mounts}]}}], volumes: [{{name: a, hostPath: {{path: /srv/a}}}}, {{name: b, hostPath: {{path: /srv}}}}, {{name: c, hostPath: {{path: /srv/ab}}}}, {{name: d, hostPath: {{path: /srv/a/d}}}}] {of_pod}}}"
        )
    };
    let with = |paths: &str, template: &str| problems(&[("storage-mounts", paths), ("pod-template", template)]);
    let plain = template("", "", ", {name: c, mountPath: /c}");
    assert_eq!(with("/a, /c", &plain), [""; 0]);
    let security = |text: &str| template(&format!("securityContext: {text},"), "", "");
    assert_eq!(
        with("/a", &security("{runAsUser: 0, capabilities: {drop: [ALL], add: [DAC_OVERRIDE, CHOWN]}}")),
        [""; 0]
    );
    for (paths, template, says) in [
        ("a", plain.as_str(), "`a` is not a path"),
        ("/", &plain, "`/` is not a path"),
        ("/a/", &plain, "`/a/` is not a path"),
        ("/a/../b", &plain, "is not a path"),
        ("/b", &plain, "`/b` is a path at which `pod-template` mounts nothing"),
        ("/e", &template("", "", ", {name: c, mountPath: /e, subPath: x}"), "whole and writable"),
        ("/e", &template("", "", ", {name: c, mountPath: /e, subPathExpr: x}"), "whole and writable"),
        ("/e", &template("", "", ", {name: c, mountPath: /e, readOnly: true}"), "whole and writable"),
        ("/a", &template("", "", ", {name: a, mountPath: /again}"), "the same storage at `/again`, too"),
        ("/a", &template("", "", ", {name: b, mountPath: /host}"), "the same storage at `/host`, too"),
        ("/a", &template("", "", ", {name: d, mountPath: /deep}"), "the same storage at `/deep`, too"),
        ("/a", &security("{privileged: true}"), "`privileged`"),
        ("/a", &security("{capabilities: {add: [CHOWN, CAP_SYS_ADMIN]}}"), "the capability CAP_SYS_ADMIN"),
        ("/a", &security("{capabilities: {add: [dac_read_search]}}"), "the capability dac_read_search"),
        ("/a", &template("", ", hostPID: true", ""), "`hostPID`"),
        ("/a", &template("", ", shareProcessNamespace: true", ""), "`shareProcessNamespace`"),
    ] {
        let found = with(paths, template);
        assert!(found.len() == 1 && found[0].starts_with("storage-mounts: ") && found[0].contains(says), "{found:?}");
    }
    refused("storage-mounts", "/a", "mounts nothing into the container `provisioner`");
    // An unreadable template has its own message.
    assert_eq!(problems(&[("storage-mounts", "/a"), ("pod-template", "no: template")]).len(), 1);
}
