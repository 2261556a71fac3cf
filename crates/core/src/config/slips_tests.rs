use super::*;

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn a_misspelt_key_gets_a_suggestion() {
    for (written, meant) in [
        ("timout", "timeout"),
        ("timeouts", "timeout"),
        ("tiemout", "timeout"),
        ("capabilites", "capabilities"),
        ("capability", "capabilities"),
        ("placment", "placement"),
        ("volume-sorces", "volume-sources"),
        ("resource", "resources"),
        ("retry", "retries"),
        ("pod-templates", "pod-template"),
        ("max-in-fligth", "max-in-flight"),
        ("serviceAccount", "service-account-name"),
        ("pools", "pool"),
    ] {
        assert_eq!(near_key(written), Some(meant), "{written}");
        let found = in_data(&map(&[(written, "x")]));
        assert!(found.len() == 1 && found[0].message.contains(&format!("did you mean `{meant}`?")), "{found:?}");
    }
}

#[test]
fn a_misspelt_plugin_name_gets_a_suggestion() {
    let own_plugin = names::DEFAULT_PLUGIN;
    let output =
        |name: &str| near_plugin(&map(&[("plugin-name", name)]), own_plugin).map(|problem| problem.to_string());
    for near in [
        "kubernetes.io/flex-provisoner",
        "kubernetes.io/flex_provisioner",
        "kubernetes.io/Flex-Provisioner",
        "kubernets.io/flex-provisioner",
        "k8s.io/flex-provisioner",
        "flex-provisioner",
        "flex-provisoner",
    ] {
        let message = output(near).unwrap_or_default();
        assert!(
            message.contains(near) && message.ends_with(&format!("did you mean `{own_plugin}`?")),
            "{near}: {message}"
        );
    }
    for other in [own_plugin, " kubernetes.io/flex-provisioner\n", "example.com/other", "kubernetes.io/nfs", ""] {
        assert_eq!(output(other), None, "{other}");
    }
}

#[test]
fn a_parameter_of_its_own_name_is_left_alone() {
    for name in [
        "server",
        "export",
        "base-path",
        "mode",
        "type",
        "zone",
        "use-nfs-server",
        "secret-namespace",
        "csi.storage.k8s.io/provisioner-secret-name",
        "csi.storage.k8s.io/fstype",
        "on-delete",
        "sources",
        "source",
        "tool",
        "spool",
        "min-bytes",
        "min-volumes",
        "node-name",
        "volume-name",
        "volume-type",
        "storage-class",
        "timeout-of-the-array",
        "csi-connect-timeout",
    ] {
        assert_eq!(near_key(name), None, "{name}");
    }
}

#[test]
fn no_key_is_near_itself_or_a_slip_for_another() {
    for key in keys::ALL.iter().map(|key| key.name) {
        assert_eq!((near_key(key), misspelt(key)), (None, None), "{key}");
    }
    for (word, _) in SYNONYMS {
        assert_eq!(letters(word), *word);
        assert!(!keys::ALL.iter().any(|key| is_near(word, &letters(key.name))), "{word} is found without the list");
    }
}

#[test]
fn separators_and_case_are_an_error_and_not_told_twice() {
    assert_eq!(in_data(&map(&[("nodeSelector", "a"), ("time_out", "x"), ("timeout", "5m")])), []);
}

#[test]
fn the_label_of_the_class_is_known_by_other_spellings() {
    let said = |labels: &[(&str, &str)], annotations: &[(&str, &str)]| {
        let (labels, annotations) = (Some(map(labels)), Some(map(annotations)));
        let found = in_labels(&ObjectMeta { labels, annotations, ..ObjectMeta::default() });
        found.iter().map(Problem::to_string).collect::<Vec<_>>()
    };
    for label in
        ["storageclass", "storageClass", "storage_class", "storage-class-name", "storage-clas", "x.io/storage-class"]
    {
        let messages = said(&[("type", "provisioner-config"), (label, "silver")], &[]);
        let texts = format!("its label `{label}` has no effect; the label that names the class is `storage-class`");
        assert_eq!(messages, [texts]);
    }
    for label in ["app", "team", "storage", "class", "type"] {
        assert_eq!(said(&[(label, "silver")], &[]), [""; 0], "{label}");
    }
    assert_eq!(said(&[("storage-class", "silver"), ("storageclass", "gold")], &[]), [""; 0], "one is enough");
    let messages = said(&[], &[("storage-class", "silver"), ("team", "a")]);
    assert!(messages.len() == 1 && messages[0].starts_with("its annotation `storage-class`"), "{messages:?}");
    let messages = said(&[("storage-class", "")], &[]);
    assert!(messages.len() == 1 && messages[0].contains("is empty"), "{messages:?}");
    for class in ["Silver", "my_class"] {
        let messages = said(&[("storage-class", class)], &[]);
        assert!(messages.len() == 1 && messages[0].contains("names an impossible class"), "{messages:?}");
    }
}

#[test]
fn white_space_around_a_parameter_is_told_and_lines_of_text_are_not() {
    for (value, says) in [
        ("a\r", "carriage return"),
        ("a\r\nb\r\n", "carriage return"),
        ("a ", "ends with white space"),
        ("a\t", "ends with white space"),
        ("a \n", "is one line that ends with a line break"),
        ("a\n", "is one line that ends with a line break"),
        (" a", "begins with white space"),
        ("a\nb ", "ends with white space"),
    ] {
        let found = in_data(&map(&[("server", value)]));
        assert!(found.len() == 1 && found[0].message.contains(says), "{value:?}: {found:?}");
        assert_eq!(found[0].key, "server");
    }
    for value in ["", "a", "a b", "a\nb\n", "  a\nb", "a\nb\n\n"] {
        assert_eq!(in_data(&map(&[("server", value)])), [], "{value:?}");
    }
    assert_eq!(in_data(&map(&[("timeout", " 5m\n"), ("image", "x\r")])), [], "the values of keys are trimmed");
    assert_eq!(in_data(&map(&[("service-token", "abc\n")])).len(), 1, "but not the value that the image gets");
}

#[test]
fn a_secret_in_a_parameter_is_reported_and_a_reference_to_one_is_not() {
    for name in [
        "password",
        "passwd",
        "arrayPassword",
        "OS_PASSWORD",
        "admin-secret",
        "token",
        "api.token",
        "credential",
        "cloudCredentials",
        "api-key",
        "apiKey",
        "apikey",
        "ssh-private-key",
        "luksPassphrase",
        "s3SecretKey",
    ] {
        let found = in_data(&map(&[(name, "x")]));
        assert!(found.len() == 1 && found[0].message.contains("`secret-env`"), "{name}: {found:?}");
        assert_eq!((found[0].key.as_str(), secret(name, "")), (name, None));
    }
    for name in [
        "secret-namespace",
        "adminSecretName",
        "ceph-secret",
        "csi.storage.k8s.io/provisioner-secret-name",
        "csi.storage.k8s.io/node-stage-secret-namespace",
        "token-url",
        "password-file",
        "secretary",
        "tokenizer",
        "broken",
        "monkey",
        "key",
    ] {
        assert_eq!(in_data(&map(&[(name, "x")])), [], "{name}");
    }
    for value in ["", "/etc/flex-secrets/array/password", "true", "false", "${pvc.name}"] {
        assert_eq!(secret("password", value), None, "{value}");
    }
    for key in keys::ALL.iter().map(|key| key.name) {
        assert!(in_data(&map(&[(key, "x")])).is_empty(), "{key} is not a parameter");
    }
}

#[test]
fn an_image_without_any_access_to_the_api_is_reported() {
    for data in [&[("image", "x")][..], &[("service-account-name", " ")]] {
        let found = without_account(&map(data)).unwrap();
        assert!(found.key == "service-account-name" && found.message.starts_with("is missing"), "{found:?}");
    }
    for key in ["service-account-name", "service-token", "secret-env", "secret-volume", "pod-template"] {
        assert_eq!(without_account(&map(&[(key, "x")])), None, "{key}");
    }
}

#[test]
fn a_config_that_is_not_marked_is_known_and_those_of_others_are_left_alone() {
    let why = |labels: &[(&str, &str)], data: &[(&str, &str)]| {
        let metadata = ObjectMeta { labels: Some(map(labels)), ..ObjectMeta::default() };
        let config = ConfigMap { metadata, data: Some(map(data)), ..ConfigMap::default() };
        assert!(!is_marked(&config.metadata));
        unmarked(&config)
    };
    for labels in [("type", "provisioner-configs"), ("type", "Provisioner-Config"), ("kind", "provisioner-config")] {
        assert!(why(&[labels], &[]).unwrap().contains("in place of `type: provisioner-config`"), "{labels:?}");
    }
    for (labels, data) in [
        (&[][..], &[("plugin-name", "x")][..]),
        (&[("storageClass", "a")], &[("image", "x")]),
        (&[("storage-class", "a")], &[("image", "x")]),
    ] {
        assert_eq!(why(labels, data).as_deref(), Some("lacks the label `type`"), "{labels:?}");
    }
    for (labels, data) in [
        (&[][..], &[("image", "x")][..]),
        (&[("type", "config")], &[("image", "x")]),
        (&[("storage-class", "a")], &[("zone", "x")]),
    ] {
        assert_eq!(why(labels, data), None, "{labels:?}");
    }
    let marked = ObjectMeta { labels: Some(map(&[("type", "provisioner-config")])), ..ObjectMeta::default() };
    assert!(is_marked(&marked));
}
