use super::*;
use crate::config::Recipe;
use crate::config::classes::{ClassLookup, Config, classes, effective_config_of};
use crate::config::current_program::with_current_program;
use crate::config::effective_config::EffectiveConfig;
use crate::config::external_provisioner::ExternalProvisioners;
use crate::object::ObjectName;

fn identity(shell_image: Option<&str>) -> Identity {
    Identity {
        provisioner: "p".into(),
        plugin: "q".into(),
        instance: "default".into(),
        config_namespaces: vec!["own".into()],
        namespace: "own".into(),
        shell_image: shell_image.map(str::to_owned),
        cluster: String::new(),
    }
}

#[test]
fn a_script_is_named_by_128_bits_of_its_sha_256() {
    assert_eq!(hash("abc"), "ba7816bf8f01cfea414140de5dae2223");
    let of = |instance| kept_name(instance, &hash("abc"));
    assert_eq!(of("default"), format!("flex-script-{}", hash("abc")));
    assert_ne!(of("second"), of("default"), "each instance keeps its own");
    for instance in ["default", "second", "third"] {
        assert_eq!(kept_hash(&of(instance)), Some(hash("abc").as_str()));
    }
    assert_eq!(kept_hash("flex-config-0123456789abcdef"), None);
    let mut data = BTreeMap::from([("script".to_owned(), "abc".to_owned()), ("a".to_owned(), "b".to_owned())]);
    assert_eq!(take(&mut data), Some(hash("abc")));
    assert_eq!((data.len(), take(&mut data)), (1, None));
}

#[test]
fn a_text_that_no_shell_can_run_is_refused() {
    let long = "#".repeat(limits::VALUE + 1);
    for (text, says) in [
        ("", "is empty"),
        (" \n\t\n", "is empty"),
        (&long, "65537 bytes long; a script may have at most 65536"),
        ("echo\0", "zero byte"),
        ("set -eu\r\necho\r\n", "carriage returns"),
        ("#!/bin/bash\necho", "begins with `#!/bin/bash`"),
        ("#!/usr/bin/env python3\n", "begins with"),
        ("#!/bin/shfmt\n", "begins with"),
    ] {
        let found = mistake(text).unwrap_or_else(|| panic!("{says}: nothing was found"));
        assert!(found.contains(says), "{says}: {found}");
    }
    let longest = "#".repeat(limits::VALUE);
    for text in ["set -eu", "#!/bin/sh\n", "#!/bin/sh -eu\n", "#! /bin/sh\n", "#!/usr/bin/env sh\n", "# x\n", &longest]
    {
        assert_eq!(mistake(text), None, "{text:.40}");
    }
}

#[test]
fn a_script_without_an_image_needs_the_shell_image_of_the_orchestrator() {
    let found = |keys: &[(&str, &str)], shell| {
        let data = keys.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        problems(&data, &identity(shell)).iter().map(Problem::to_string).collect::<Vec<_>>()
    };
    assert!(found(&[("script", "exit 0")], Some("shell")).is_empty());
    assert!(found(&[("script", "exit 0"), ("image", "tools")], None).is_empty());
    assert!(found(&[], None).is_empty());
    let refused = found(&[("script", "exit 0"), ("image", " ")], None);
    assert!(refused.len() == 1 && refused[0].contains("--shell-image"), "{refused:?}");
}
fn config(keys: &[(&str, &str)]) -> Config {
    let data = [("plugin-name", "q")].iter().chain(keys).map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    Config { name: ObjectName::new("own", "c"), class: Some("c".into()), data: data.collect(), ..Config::default() }
}

fn checked(keys: &[(&str, &str)]) -> Result<Recipe, Vec<String>> {
    let checked = effective_config_of(&config(keys), "c").recipe();
    checked.map_err(|problems| problems.iter().map(Problem::to_string).collect())
}

#[test]
fn a_record_has_the_hash_of_the_script_in_place_of_its_text() {
    let effective_config = effective_config_of(&config(&[("script", "exit 0"), ("zone", "west")]), "c");
    assert_eq!(effective_config.script, Some(hash("exit 0")));
    let text = serde_json::json!(effective_config).to_string();
    assert!(text.contains(&hash("exit 0")) && !text.contains("exit 0"), "{text}");
    assert_eq!(serde_json::from_str::<EffectiveConfig>(&text).unwrap(), effective_config);
    let recipe = effective_config.recipe().unwrap();
    assert_eq!((recipe.script, recipe.image.as_str()), (Some(hash("exit 0")), ""));
    assert_eq!(recipe.parameters.keys().collect::<Vec<_>>(), ["zone"]);
}

#[test]
fn a_record_without_a_script_is_that_of_older_versions() {
    let effective_config = effective_config_of(&config(&[("image", "x"), ("zone", "west")]), "c");
    let expected = r#"{"config":{"namespace":"own","name":"c"},"class":"c","data":{"image":"x","zone":"west"}}"#;
    let text = serde_json::to_string(&effective_config).unwrap();
    assert_eq!(text, expected);
    assert_eq!(
        effective_config.hash(),
        crate::object::hash(serde_json::json!(effective_config).to_string().as_bytes())
    );
    assert_eq!(effective_config.hash(), "8696d575ee07bc19");
}

#[test]
fn a_parameter_of_this_name_in_an_old_record_stays_a_parameter() {
    let mut old = effective_config_of(&config(&[("image", "x")]), "c");
    old.data.insert("script".into(), "/opt/make".into());
    let recipe = old.recipe().unwrap();
    assert_eq!((recipe.script, recipe.parameters["script"].as_str()), (None, "/opt/make"));
}

#[test]
fn another_script_makes_other_volumes() {
    let pool_hash = |text: &str| effective_config_of(&config(&[("script", text)]), "c").pool_hash();
    assert_ne!(pool_hash("exit 0"), pool_hash("exit 1"));
    assert_ne!(checked(&[("script", "exit 0")]).unwrap().hash, checked(&[("script", "exit 1")]).unwrap().hash);
}

#[test]
fn a_second_program_beside_the_script_is_refused() {
    let refused = |key: &str, found: Vec<String>| {
        assert!(found.len() == 1 && found[0].starts_with(&format!("{key}: ")), "{found:?}");
        assert!(found[0].contains("cannot be used with `script`"), "{found:?}");
    };
    for (key, value) in [("command", "/run"), ("args", "--fast")] {
        refused(key, checked(&[("script", "exit 0"), (key, value)]).unwrap_err());
        checked(&[("image", "x"), (key, value)]).unwrap();
    }
    for field in ["command", "args"] {
        let template = format!("spec: {{containers: [{{name: provisioner, {field}: [x]}}]}}");
        let of =
            |program: (&str, &str)| problem_of_template(&checked(&[program, ("pod-template", &template)]).unwrap());
        refused("pod-template", of(("script", "exit 0")).iter().map(Problem::to_string).collect());
        assert_eq!(of(("image", "x")), None);
        let config = config(&[("script", "exit 0"), ("pod-template", &template)]);
        let table =
            classes(&identity(Some("shell")), [&config], [], &Default::default(), &ExternalProvisioners::none());
        assert_eq!(table.verdicts[&config.name].problems.len(), 1);
    }
}

#[test]
fn a_volume_whose_template_names_a_program_is_deleted_by_a_later_script() {
    let template = "spec: {containers: [{name: provisioner, command: [/run]}]}";
    let made = effective_config_of(&config(&[("image", "x"), ("pod-template", template)]), "c");
    let now = effective_config_of(&config(&[("script", "exit 0")]), "c");
    assert_eq!(with_current_program(&made, Some(&now)).recipe().unwrap().script, now.script);
}

#[test]
fn parameters_leave_room_for_the_script_in_a_pod() {
    let (half, script) = ("x".repeat(limits::VALUE - 1), ("script", "exit 0"));
    checked(&[("image", "x"), ("a", &half), ("b", &half)]).unwrap();
    let found = checked(&[script, ("a", &half), ("b", &half)]).unwrap_err();
    assert!(found[0].contains("fit into a pod beside a script"), "{found:?}");
    checked(&[script, ("a", &half)]).unwrap();
}

#[test]
fn later_runs_take_the_script_of_the_class() {
    let of = |keys: &[(&str, &str)]| effective_config_of(&config(keys), "c");
    let (made, now) = (of(&[("script", "old"), ("zone", "west")]), of(&[("script", "new"), ("zone", "east")]));
    let used = with_current_program(&made, Some(&now));
    assert_eq!((used.script.clone(), used.data["zone"].as_str()), (now.script.clone(), "west"));
    assert_eq!(with_current_program(&made, None).script, made.script, "the config is gone");
    let other = EffectiveConfig { config: ObjectName::new("own", "other"), ..now };
    assert_eq!(with_current_program(&made, Some(&other)).script, made.script, "another config serves the class");
    // A vendor moves from a script to an image, and back.
    let image = of(&[("image", "x")]);
    let used = with_current_program(&made, Some(&image));
    assert_eq!((used.script, used.data.get("image").map(String::as_str)), (None, Some("x")));
    let used = with_current_program(&image, Some(&made));
    assert_eq!((used.script, used.data.get("image")), (made.script, None));
}

#[test]
fn a_config_without_an_image_is_refused_where_no_shell_image_is_known() {
    let config = config(&[("script", "exit 0")]);
    let served = |shell_image| {
        let table = classes(&identity(shell_image), [&config], [], &Default::default(), &ExternalProvisioners::none());
        let ClassLookup::Ours(class) = table.lookup("c") else { panic!("the config names the class") };
        (class.recipe.is_ok(), table.verdicts[&config.name].problems.clone())
    };
    assert_eq!(served(Some("shell")), (true, Vec::new()));
    let (is_served, problems) = served(None);
    assert!(!is_served && problems.len() == 1 && problems[0].key == "image", "{problems:?}");
}

#[test]
fn a_storage_class_cannot_set_the_script() {
    let spec = "metadata: {name: c}\nprovisioner: p\nparameters: {script: exit 0}\n";
    let object = crate::config::values::yaml::<k8s_openapi::api::storage::v1::StorageClass>(spec).unwrap();
    let object = crate::config::classes::ClassObject::from(&object);
    let found = crate::config::classes::effective_config_with(&config(&[("image", "x")]), &object).unwrap_err();
    assert!(found[0].key == "script" && found[0].message.contains("not allowed"), "{found:?}");
}
