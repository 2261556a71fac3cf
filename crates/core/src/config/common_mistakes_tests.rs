use flex_contract::names;

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
fn separators_and_case_are_an_error_and_reported_once() {
    assert_eq!(in_data(&map(&[("nodeSelector", "a"), ("time_out", "x"), ("timeout", "5m")])), []);
}

#[test]
fn white_space_around_a_parameter_is_reported_and_lines_of_text_are_not() {
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
