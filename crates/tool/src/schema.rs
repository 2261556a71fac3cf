//! `schema`: the JSON schema of a provisioner ConfigMap, by which editors complete and check it.

mod images;

use std::process::ExitCode;

use flex_contract::names;
use flex_core::config::keys::form::{Form, NAME};
use flex_core::config::keys::{self, KeySpec};
use flex_core::limits;
use serde_json::{Map, Value, json};

use crate::flags::indented;
use crate::markdown::plain;
use crate::out::say;

/// The address of the schema.
pub(super) const ADDRESS: &str = concat!(env!("CARGO_PKG_REPOSITORY"), "/raw/main/docs/reference/config.schema.json");
/// The default of a key that each config must have.
const REQUIRED: &str = "**required**";

/// Prints the schema.
pub(super) fn schema() -> anyhow::Result<ExitCode> {
    say!("{}", text());
    Ok(ExitCode::SUCCESS)
}

/// Returns the schema as the command prints it, without the last line end.
pub(super) fn text() -> String {
    indented(&document())
}

/// Returns the schema. It accepts objects of other kinds, because the file of a config also has accounts and roles.
fn document() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": ADDRESS,
        "title": "A provisioner ConfigMap",
        "description": "A config of flex-provisioner. The command `flex-provisioner validate` finds more mistakes.",
        "if": { "properties": { "kind": { "const": "ConfigMap" } } },
        "then": {
            "type": "object",
            "required": ["apiVersion", "kind", "metadata", "data"],
            "properties": {
                "apiVersion": { "const": "v1" },
                "kind": { "const": "ConfigMap" },
                "metadata": metadata(),
                "data": data(),
                "binaryData": { "type": "object" },
                "immutable": { "type": "boolean" },
            },
            "additionalProperties": false,
        },
    })
}

fn metadata() -> Value {
    let class = json!({
        "type": "string",
        "pattern": format!("^{NAME}$"),
        "description": "The class that the config serves. Without this label, StorageClasses name the config.",
    });
    let alike = json!({
        "type": "string",
        "pattern": format!("^{NAME}$"),
        "description": "The class that the config serves, as storage-class.",
    });
    let mark = json!({ "const": names::LABEL_TYPE_CONFIG, "description": "Marks the ConfigMap as a config." });
    json!({
        "type": "object",
        "required": ["name", "labels"],
        "properties": {
            "name": { "type": "string", "pattern": format!("^{NAME}$") },
            "namespace": { "type": "string", "description": "One of the orchestrator's config namespaces." },
            "labels": {
                "type": "object",
                "required": [names::LABEL_TYPE],
                "properties": {
                    (names::LABEL_TYPE): mark,
                    (names::LABEL_STORAGE_CLASS): class,
                    (names::LABEL_CLASS): alike,
                },
                "additionalProperties": { "type": "string" },
            },
        },
    })
}

/// Describes the keys. Every other key is a parameter of the image.
fn data() -> Value {
    let properties: Map<String, Value> = keys::ALL.iter().map(|key| (key.name.to_owned(), property(key))).collect();
    let required: Vec<&str> = keys::ALL.iter().filter(|key| key.default == REQUIRED).map(|key| key.name).collect();
    json!({
        "type": "object",
        "required": required,
        "anyOf": [{ "required": [keys::IMAGE.name] }, { "required": [keys::SCRIPT.name] }],
        "properties": properties,
        "propertyNames": { "pattern": "^[A-Za-z][A-Za-z0-9._-]*$", "maxLength": 253 },
        "additionalProperties": { "type": "string", "description": "A parameter of the image." },
        "allOf": images::hints(),
        "maxProperties": limits::KEYS,
    })
}

fn property(key: &KeySpec) -> Value {
    let does: Vec<&str> = key.doc.iter().map(|line| line.trim()).collect();
    let about = format!("{} Value: {}. Default: {}.", does.join(" "), key.value, key.default);
    let mut property = json!({ "type": "string", "description": plain(&about), "examples": [key.example] });
    if let Some(default) = written_default(key) {
        property["default"] = json!(default);
    }
    match key.form {
        Form::OneOf(words) => property["enum"] = json!(words),
        Form::Yaml => property["contentMediaType"] = json!("application/yaml"),
        _ => {}
    }
    if let Some(pattern) = key.form.pattern() {
        property["pattern"] = json!(pattern);
    }
    property
}

/// Returns the default, where it is a value that an admin could write.
fn written_default(key: &KeySpec) -> Option<&'static str> {
    let code = key.default.strip_prefix('`')?.strip_suffix('`')?;
    Some(code).filter(|code| !code.contains('`'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_its_documentation_its_form_and_its_default() {
        let document = document();
        let data = &document["then"]["properties"]["data"];
        assert_eq!(data["properties"].as_object().map(Map::len), Some(keys::ALL.len()));
        for key in keys::ALL {
            let property = &data["properties"][key.name];
            let about = property["description"].as_str().unwrap_or_default();
            assert!(property["type"] == "string" && about.contains(" Value: "), "{}: {property}", key.name);
            assert!(!about.contains(['`', ']']) && !about.contains("**"), "{about}");
        }
        let of = |key: &KeySpec, field: &str| data["properties"][key.name][field].clone();
        assert_eq!(of(&keys::PLACEMENT, "enum"), json!(["selected-node", "any"]));
        assert_eq!((of(&keys::TIMEOUT, "default"), of(&keys::IMAGE, "default")), (json!("5m"), Value::Null));
        assert_eq!(of(&keys::POD_TEMPLATE, "contentMediaType"), "application/yaml");
        assert_eq!(data["required"], json!([keys::PLUGIN_NAME.name]));
    }
}
