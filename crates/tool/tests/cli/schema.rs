//! The JSON schema of a config: the table of keys and all shipped configs keep its rules, and mistakes do not.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use flex_core::config::keys::form::Form;
use flex_core::config::keys::{self, KeySpec};
use serde_json::{Value, json};

use super::schema_rules::{matches, problems};
use super::{ROOT, run};

const FILE: &str = "docs/reference/config.schema.json";
const LINE: &str = "# yaml-language-server: $schema=";

fn schema() -> Value {
    let text = fs::read_to_string(Path::new(ROOT).join(FILE)).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Returns the documents of a file.
fn documents(text: &str) -> Vec<Value> {
    let parts = text.split("\n---\n").filter(|part| part.contains("kind: "));
    parts.map(|part| serde_saphyr::from_str(part).unwrap_or_else(|error| panic!("{error}: {part}"))).collect()
}

/// Returns the files of `configmaps/` with a config.
fn shipped() -> Vec<(PathBuf, String)> {
    let folders = ["configmaps", "configmaps/moving-in", "configmaps/recipes"]
        .map(|folder| fs::read_dir(Path::new(ROOT).join(folder)).unwrap());
    let files = folders.into_iter().flatten().map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    let files = files.map(|path| (path.clone(), fs::read_to_string(path).unwrap()));
    files.filter(|(_, text)| text.contains("\nkind: ConfigMap")).collect()
}

fn assert_kept(schema: &Value, file: &Path, text: &str) {
    let documents = documents(text);
    assert!(documents.iter().any(|document| document["kind"] == "ConfigMap"), "{}", file.display());
    for document in documents {
        assert_eq!(problems(schema, &document), [""; 0], "{}", file.display());
    }
}

#[test]
fn the_command_prints_the_file_of_the_repository() {
    let answer = run(&["schema"]);
    assert_eq!((answer.code, answer.err.as_str()), (Some(0), ""));
    assert_eq!(answer.out, fs::read_to_string(Path::new(ROOT).join(FILE)).unwrap());
}

#[test]
fn each_shipped_config_names_the_schema_and_keeps_it() {
    let (schema, files) = (schema(), shipped());
    assert!(files.len() >= 20, "{} configs", files.len());
    let of_repository = Path::new(ROOT).join(FILE).canonicalize().unwrap();
    for (path, text) in files {
        let named = text.lines().next().and_then(|line| line.strip_prefix(LINE));
        let named = named.unwrap_or_else(|| panic!("{} does not begin with `{LINE}`", path.display()));
        let target = path.parent().unwrap().join(named).canonicalize().ok();
        assert_eq!(target.as_ref(), Some(&of_repository), "{}: {named}", path.display());
        assert_kept(&schema, &path, &text);
    }
}

/// Editors apply the line to its own document.
#[test]
fn what_new_writes_names_the_schema_in_the_document_of_the_config() {
    let folder = tempfile::tempdir().unwrap();
    let mut new = Command::new(env!("CARGO_BIN_EXE_flex-provisioner"));
    let ended = new.args(["new", "mine", "--operations", "clone,list"]).current_dir(folder.path()).output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let path = folder.path().join("mine/config.yaml");
    let (schema, text) = (schema(), fs::read_to_string(&path).unwrap());
    let line = format!("\n---\n{LINE}{}\napiVersion: v1\nkind: ConfigMap\n", schema["$id"].as_str().unwrap());
    assert!(text.contains(&line), "{text}");
    let krew = fs::read_to_string(Path::new(ROOT).join("deploy/krew/flex.yaml")).unwrap();
    let homepage = krew.lines().find_map(|line| line.strip_prefix("  homepage: ")).unwrap();
    assert_eq!(schema["$id"], format!("{homepage}/raw/main/{FILE}"));
    assert_kept(&schema, &path, &text);
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
        assert!(!(is_of_its_form && has_form && found.is_empty()), "{}: `{value}` passes", key.name);
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
    let of_nfs = changed(|config| {
        config["data"][keys::IMAGE.name] = json!("registry.example/team/nfs:1");
        config["data"]["export"] = json!(true);
    });
    assert_eq!(of_nfs, ["/data/export: is no string"], "a parameter with a page is a text, too");
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
