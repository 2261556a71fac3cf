//! The JSON schema of a config: the table of keys keeps its rules, and mistakes do not.

use std::fs;
use std::path::Path;

use flex_core::config::keys::form::Form;
use flex_core::config::keys::{self, KeySpec};
use serde_json::{Value, json};

use super::schema_rules::{matches, problems};
use super::{ROOT, run};

const FILE: &str = "docs/reference/config.schema.json";

fn schema() -> Value {
    let text = fs::read_to_string(Path::new(ROOT).join(FILE)).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[test]
fn the_command_prints_the_file_of_the_repository() {
    let answer = run(&["schema"]);
    assert_eq!((answer.code, answer.err.as_str()), (Some(0), ""));
    assert_eq!(answer.out, fs::read_to_string(Path::new(ROOT).join(FILE)).unwrap());
}

#[test]
fn the_schema_accepts_the_example_and_the_default_of_each_key() {
    let schema = schema();
    for key in keys::ALL {
        let property = &schema["then"]["properties"]["data"]["properties"][key.name];
        let values = [Some(&property["examples"][0]), property.get("default")];
        for value in values.into_iter().flatten() {
            assert_eq!(problems(property, value), [""; 0], "{}", key.name);
        }
        for word in key.form.words().iter().filter(|_| matches!(key.form, Form::SomeOf(_))) {
            assert_eq!(problems(property, &json!(word)), [""; 0], "{}", key.name);
        }
    }
}

#[test]
fn the_schema_refuses_what_the_check_refuses_for_its_form() {
    let schema = schema();
    let mut refused = 0;
    for (key, value, message) in keys::ALL.iter().flat_map(|key| key.errors.iter().map(move |(v, m)| (key, v, m))) {
        let property = &schema["then"]["properties"]["data"]["properties"][key.name];
        let found = problems(property, &json!(value));
        refused += usize::from(!found.is_empty());
        let says = |texts: &[&str]| texts.iter().any(|text| message.contains(text));
        let is_of_its_form = says(&["is not known", "must be a whole number", "is not a size", "is not a capability"])
            || says(&["is not a length of time", "is not a user id", "is not a file system", "cannot be the name"]);
        let has_form = key.form.pattern().is_some() || !key.form.words().is_empty();
        assert!(!(is_of_its_form && has_form) || !found.is_empty(), "{}: `{value}` passes", key.name);
        if let Form::Number(min, max) = key.form
            && message.contains("whole number")
        {
            assert!(message.ends_with(&format!("from {min} to {max}")), "{}: {message}", key.name);
            let beyond = json!((max + 1).to_string());
            assert!(!problems(property, &beyond).is_empty(), "{}: {beyond} passes", key.name);
            assert_eq!(problems(property, &json!(max.to_string())), [""; 0], "{}", key.name);
        }
    }
    assert!(refused >= 35, "only {refused} values are refused");
}

/// Returns a config with a change.
fn changed(change: impl Fn(&mut Value)) -> Vec<String> {
    let mut config = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "c", "namespace": "n", "labels": { "type": "provisioner-config", "storage-class": "c" } },
        "data": { "plugin-name": "p", "image": "registry.example/x:1", "zone": "west" },
    });
    change(&mut config);
    problems(&schema(), &config)
}

#[test]
fn a_config_with_a_mistake_does_not_keep_the_schema() {
    assert_eq!(changed(|_| {}), [""; 0]);
    let with = |key: &KeySpec, value: Value| changed(|config| config["data"][key.name] = value.clone());
    let without = |path: &str, field: &str| {
        changed(|config| drop(config.pointer_mut(path).unwrap().as_object_mut().unwrap().remove(field)))
    };
    for (found, says) in [
        (with(&keys::RETRIES, json!(5)), "/data/retries: is no string"),
        (with(&keys::PLACEMENT, json!("here")), "/data/placement: is not one of"),
        (with(&keys::ACCESS_MODES, json!("ReadWriteOnce, RWX")), "/data/access-modes: does not match"),
        (changed(|config| config["data"]["a b"] = json!("x")), "/data/a b: does not match"),
        (changed(|config| config["data"]["zone"] = json!(true)), "/data/zone: is no string"),
        (changed(|config| config["metadata"]["labels"]["type"] = json!("config")), "/metadata/labels/type: is not"),
        (
            changed(|config| config["metadata"]["labels"]["storage-class"] = json!("My_Class")),
            "/storage-class: does not",
        ),
        (changed(|config| config["spec"] = json!({})), "/spec: is not known"),
        (without("/metadata/labels", "type"), "/metadata/labels: lacks type"),
        (without("/data", "plugin-name"), "/data: lacks plugin-name"),
        (without("/data", "image"), "/data: keeps none of"),
        (without("", "data"), ": lacks data"),
    ] {
        assert!(found.len() == 1 && found[0].contains(says), "{says}: {found:?}");
    }
    assert_eq!(changed(|config| *config = json!({ "kind": "ServiceAccount" })), [""; 0], "other kinds are let alone");
    assert!(with(&keys::POOL, json!("10Gi: 5\n100Gi: 2..8\n")).is_empty());
    assert!(with(&keys::ACCESS_MODES, json!("ReadWriteOnce\nReadWriteOncePod\n")).is_empty());
    assert!(with(&keys::ACCESS_MODES, json!("- ReadWriteOnce\n- ReadOnlyMany\n")).is_empty());
}

#[test]
fn times_sizes_and_users_have_their_usual_forms() {
    let is = |form: Form, text: &str| matches(&form.pattern().unwrap(), text);
    for text in ["90s", "5m", "1h30m", "1.5h", "1 hour, 30 minutes", "PT5M", "01:30:00", "50ms", "5m\n"] {
        assert!(is(Form::Time, text), "{text}");
    }
    for text in ["", "5", "50", "soon", "-5m", "2s..5m"] {
        assert!(!is(Form::Time, text), "{text}");
    }
    assert!(is(Form::Times, "2s..5m") && is(Form::Times, "30m") && !is(Form::Times, "2s..soon"));
    for text in ["10Gi", "1e9", "0.5Ti", "+1k", "7"] {
        assert!(is(Form::Size, text), "{text}");
    }
    for text in ["10GB", "Gi", "1 Gi", ""] {
        assert!(!is(Form::Size, text), "{text}");
    }
    assert!(is(Form::User, "any") && is(Form::User, "2147483647") && !is(Form::User, "2147483648"));
}
