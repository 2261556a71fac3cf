//! A check of the rules that the schema of a config uses.

use regex::Regex;
use serde_json::Value;

/// Words of a schema that say nothing about validity.
const NOTES: [&str; 7] = ["$schema", "$id", "title", "description", "default", "examples", "contentMediaType"];

/// Returns what is wrong with a value, each with its path.
///
/// # Panics
/// If the schema has a rule that is unknown here.
pub fn problems(schema: &Value, value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    find(schema, value, "", &mut found);
    found
}

fn find(schema: &Value, value: &Value, at: &str, found: &mut Vec<String>) {
    if let Some(known) = schema.as_bool() {
        found.extend((!known).then(|| format!("{at}: is not known")));
        return;
    }
    for (rule, of_rule) in schema.as_object().expect("a schema is an object or a boolean") {
        let wrong = match rule.as_str() {
            "type" => {
                (!is_type(of_rule.as_str().unwrap(), value)).then(|| format!("is no {}", of_rule.as_str().unwrap()))
            }
            "const" => (of_rule != value).then(|| format!("is not {of_rule}")),
            "enum" => (!of_rule.as_array().unwrap().contains(value)).then(|| format!("is not one of {of_rule}")),
            "pattern" => value
                .as_str()
                .filter(|text| !matches(of_rule.as_str().unwrap(), text))
                .map(|_| format!("does not match {of_rule}")),
            "maxLength" => value
                .as_str()
                .filter(|text| text.chars().count() as u64 > of_rule.as_u64().unwrap())
                .map(|_| "is too long".into()),
            "maxProperties" => value
                .as_object()
                .filter(|fields| fields.len() as u64 > of_rule.as_u64().unwrap())
                .map(|_| "is too large".into()),
            "anyOf" => {
                let keeps = |one: &Value| problems(one, value).is_empty();
                (!of_rule.as_array().unwrap().iter().any(keeps)).then(|| format!("keeps none of {of_rule}"))
            }
            "allOf" => {
                of_rule.as_array().unwrap().iter().for_each(|one| find(one, value, at, found));
                None
            }
            "if" => {
                if problems(of_rule, value).is_empty() {
                    find(&schema["then"], value, at, found);
                }
                None
            }
            "required" => {
                let lacks = |field: &&Value| value.is_object() && value.get(field.as_str().unwrap()).is_none();
                found.extend(
                    of_rule
                        .as_array()
                        .unwrap()
                        .iter()
                        .filter(lacks)
                        .map(|field| format!("{at}: lacks {}", field.as_str().unwrap())),
                );
                None
            }
            "properties" | "additionalProperties" | "propertyNames" => {
                find_in_fields(schema, rule, value, at, found);
                None
            }
            "then" => None,
            other => {
                assert!(NOTES.contains(&other), "the rule `{other}` is unknown here");
                None
            }
        };
        found.extend(wrong.map(|wrong| format!("{at}: {wrong}")));
    }
}

/// Checks each field of an object by one rule of the schema about fields.
fn find_in_fields(schema: &Value, rule: &str, value: &Value, at: &str, found: &mut Vec<String>) {
    for (field, inner) in value.as_object().into_iter().flatten() {
        let own = schema["properties"].get(field);
        let at = format!("{at}/{field}");
        match (rule, own) {
            ("properties", Some(own)) => find(own, inner, &at, found),
            ("additionalProperties", None) => find(&schema[rule], inner, &at, found),
            ("propertyNames", _) => find(&schema[rule], &Value::String(field.clone()), &at, found),
            _ => {}
        }
    }
}

fn is_type(name: &str, value: &Value) -> bool {
    match name {
        "object" => value.is_object(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        other => panic!("the type `{other}` is unknown here"),
    }
}

/// Checks whether a regular expression matches somewhere in a text.
pub fn matches(pattern: &str, text: &str) -> bool {
    Regex::new(pattern).unwrap().is_match(text)
}
