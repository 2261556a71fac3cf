use std::path::Path;

use flex_contract::names;

use super::*;

fn identity(namespaces: &[&str]) -> Identity {
    Identity {
        provisioner: names::DEFAULT_PROVISIONER.into(),
        plugin: names::DEFAULT_PLUGIN.into(),
        instance: names::DEFAULT_INSTANCE.into(),
        config_namespaces: namespaces.iter().map(|name| (*name).to_owned()).collect(),
        namespace: "flex-provisioner".into(),
        shell_image: Some("example/shell".into()),
        cluster: String::new(),
    }
}

fn file(name: &str, text: &str) -> File {
    File { name: name.into(), text: text.into(), named: true }
}

/// Returns the messages about a file, each as `LINE: SEVERITY: MESSAGE`.
fn messages_of(text: &str) -> Vec<String> {
    let checked = check(&[file("a.yaml", text)], &identity(&["flex-provisioner"]));
    let shown = |Message { line, severity, message, .. }: &Message| format!("{line}: {severity}: {message}");
    checked.messages.iter().map(shown).collect()
}

/// Checks that there is one message about a file, that it begins with the first text, and that it contains the second.
#[track_caller]
fn says(text: &str, begin: &str, within: &str) {
    let messages = messages_of(text);
    assert!(messages.len() == 1 && messages[0].starts_with(begin) && messages[0].contains(within), "{messages:#?}");
}

const GOOD: &str = "\
kind: ConfigMap
metadata:
  name: silver
  namespace: flex-provisioner
  labels:
    type: provisioner-config
    storage-class: silver
data:
  plugin-name: kubernetes.io/flex-provisioner
  image: example/image
  service-account-name: silver
";

#[test]
fn a_config_that_the_provisioner_ignores_is_reported() {
    assert_eq!(messages_of(GOOD), [""; 0]);
    for (mark, within) in [
        ("type: config", "has the label `type: config`, and the provisioner does not see it"),
        ("type: provisioner_config", "has the label `type: provisioner_config` in place of"),
        ("kind: provisioner-config", "has the label `kind: provisioner-config` in place of"),
        ("app: a", "lacks the label `type`"),
    ] {
        says(&GOOD.replace("type: provisioner-config", mark), "1: warning: ConfigMap silver", within);
    }
    let annotated =
        GOOD.replace("  labels:\n    type: p", "  annotations: {type: provisioner-config}\n  labels:\n    a: p");
    says(
        &annotated.replace("a: provisioner-config", "app: x"),
        "1: warning: ",
        "has the annotation `type` in place of",
    );
    for label in ["storageclass", "storageClass", "example.com/storage-class"] {
        says(&GOOD.replace("storage-class:", &format!("{label}:")), "1: warning: its label", "is `storage-class`");
    }
}

#[test]
fn a_config_outside_the_config_namespaces_is_reported() {
    says(
        &GOOD.replace("namespace: flex-provisioner", "namespace: default"),
        "1: warning: ",
        "is in the namespace default",
    );
    says(&GOOD.replace("  namespace: flex-provisioner\n", ""), "1: warning: ", "names no namespace");
    let text = GOOD.replace("namespace: flex-provisioner", "namespace: admin");
    assert_eq!(check(&[file("a", &text)], &identity(&["storage", "admin"])).messages, []);
}

#[test]
fn files_without_a_config_are_reported() {
    let other = "kind: ConfigMap\nmetadata: {name: a, labels: {app: x}}\ndata: {key: value}\n";
    for text in ["", "# nothing\n---\n", "kind: Pod\nmetadata: {name: a}\n", other] {
        let messages = messages_of(text);
        let of =
            |severity: &str| messages.iter().filter(|message| message.starts_with(&format!("1: {severity}: "))).count();
        assert_eq!((of("error"), of("warning"), messages.len()), (1, 1, 2), "{text}: {messages:?}");
        assert!(messages[0].contains("no provisioner ConfigMap was found"), "{messages:?}");
    }
    assert_eq!(check(&[], &identity(&[])).messages.len(), 1, "a directory without files of YAML");
    // The config is beside others, and in a directory.
    let two = |named| [file("a", GOOD), File { named, ..file("b", other) }];
    assert_eq!(check(&two(false), &identity(&["flex-provisioner"])).messages, []);
    let messages = check(&two(true), &identity(&["flex-provisioner"])).messages;
    assert!(messages.len() == 1 && messages[0].file == "b" && messages[0].severity == "warning", "{messages:?}");
}

#[test]
fn ignored_objects_are_reported() {
    says("kind: List\nitems: []\n", "1: error: ", "does not look into Lists");
    says(&GOOD.replace("ConfigMap", "Configmap"), "1: error: ", "did you mean `ConfigMap`?");
    let near = GOOD.replace("kubernetes.io/flex-provisioner", "kubernetes.io/flex-provisoner");
    says(&near, "9: warning: plugin-name: ", "did you mean `kubernetes.io/flex-provisioner`?");
    let twice = messages_of(&format!("{GOOD}---\n{GOOD}"));
    assert!(twice.len() == 1 && twice[0].contains("is in a.yaml:13, too"), "{twice:?}");
}

#[test]
fn an_unserved_class_is_reported_with_its_line() {
    let class = "kind: StorageClass\nmetadata: {name: gold}\nprovisioner: flex-provisioner.io\n";
    says(&format!("{GOOD}---\n{class}"), "13: error: StorageClass gold: no provisioner config serves the class", "");
}

#[test]
fn an_account_missing_in_the_files_is_reported() {
    let with = |account: &str| messages_of(&format!("{GOOD}---\nkind: ServiceAccount\nmetadata: {account}\n"));
    for good in ["{name: silver, namespace: flex-provisioner}", "{name: silver}"] {
        assert_eq!(with(good), [""; 0], "{good}");
    }
    for bad in ["{name: sliver, namespace: flex-provisioner}", "{name: silver, namespace: default}"] {
        let messages = with(bad);
        assert!(messages.len() == 1 && messages[0].starts_with("11: warning: service-account-name: "), "{messages:?}");
    }
}

/// Returns the shipped files, each with its text.
fn shipped(folder: &str) -> Vec<File> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder)).unwrap() {
        let path = entry.unwrap().path();
        let name = format!("{folder}/{}", path.file_name().unwrap().display());
        if path.is_dir() {
            files.extend(shipped(&name));
        } else if path.extension().is_some_and(|ending| ending == "yaml") {
            files.push(File { name, text: std::fs::read_to_string(path).unwrap(), named: false });
        }
    }
    files
}

#[test]
fn the_shipped_configs_and_examples_have_no_messages() {
    let files: Vec<_> = shipped("configmaps").into_iter().chain(shipped("examples")).collect();
    let CheckedFiles { configs, objects, messages, .. } = check(&files, &identity(&["flex-provisioner", "admin"]));
    assert!(configs.len() >= 12 && objects.len() >= 8, "{} configs, {} classes", configs.len(), objects.len());
    // The first config contains its token.
    let (of_token, others): (Vec<_>, Vec<_>) =
        messages.into_iter().partition(|message| message.message.starts_with("service-token: stands in a ConfigMap"));
    assert_eq!((of_token.len(), of_token[0].file.as_str()), (1, "configmaps/silver.yaml"));
    assert_eq!(others, []);
}

/// Long runs of one tenant leave slots to the others. The config `silver` is an example for an image that does not ship.
#[test]
fn the_shipped_configs_leave_slots_to_other_namespaces() {
    let CheckedFiles { configs, .. } = check(&shipped("configmaps"), &identity(&["flex-provisioner", "admin"]));
    let ours = configs.iter().map(|found| &found.config).filter(|config| config.class.as_deref() != Some("silver"));
    for config in ours {
        let number = |key: &str| config.data.get(key).map(|text| text.parse::<usize>().unwrap());
        let (all, one) = (number("max-in-flight").unwrap_or(100), number("max-in-flight-per-namespace"));
        assert!(one.is_some_and(|one| one <= all.div_ceil(2)), "{}: {one:?} of {all}", config.name);
    }
}

#[test]
fn a_mistake_in_a_script_is_reported_at_its_line_of_the_file() {
    let with =
        |value: &str| format!("# A comment.\n---\n{}  script: {value}", GOOD.replace("  image: example/image\n", ""));
    assert_eq!(messages_of(&with("|\n    set -eu\n    exec flex-pv create --local /srv/a\n")), [""; 0]);
    for block in ["|", "|-", "| # a program"] {
        let text = with(&format!("{block}\n    set -eu\n\n    if true; then\n    fi\n"));
        let line = text.lines().position(|line| line == "    fi").unwrap() + 1;
        says(&text, &format!("{line}: error: script: the shell cannot read it"), "");
    }
    says(&with("\"if true\\nfi\\n\"\n"), "13: error: script: line 2 of the script: the shell cannot read it", "");
    says(&with("\"\"\n"), "13: error: script: is empty", "");
    says(&with("\"a\\0b\"\n"), "13: error: script: has a zero byte", "");
}
