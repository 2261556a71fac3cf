//! The answers of a bundle, as commands may use them. The file comes from somebody else, who may have made it by hand.

use anyhow::ensure;
use flex_core::text::line;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use crate::recording::Answer;

/// The largest weight of an answer, in values of some 50 bytes. A list is answered in pages of 4 MiB, unless a single
/// object is larger.
pub(super) const MAX_VALUES: usize = 20_000_000;
/// The weight of an object: however few entries it has, it takes a node of a tree.
const OBJECT: usize = 16;
/// The weight of a list.
const LIST: usize = 4;
/// The weight of an entry of an object, beside its value.
const ENTRY: usize = 2;

/// Reads an answer. Its body is a text again, which takes less memory than its values, and which no command parses in
/// another way than this function.
///
/// # Errors
/// If the text is no answer, or if its values would fill the memory.
pub(super) fn answer(text: &str) -> anyhow::Result<Answer> {
    check_weight(text)?;
    let Answer { request, status, body } = serde_json::from_str(text)?;
    let body = match body {
        // Nobody reads a log as a document.
        Value::String(text) if is_log(&request) => text,
        Value::String(text) if text.trim_start().starts_with(['{', '[']) => {
            check_weight(&text)?;
            document(serde_json::from_str(&text)?)
        }
        Value::String(text) => line(&text, usize::MAX),
        body => document(body),
    };
    Ok(Answer { request, status, body: Value::String(body) })
}

/// Checks whether a request reads the log of a pod.
fn is_log(request: &str) -> bool {
    let path: Vec<_> = request.split('?').next().unwrap_or_default().split('/').collect();
    matches!(path.as_slice(), ["", "api", "v1", "namespaces", _, "pods", _, "log"])
}

fn check_weight(text: &str) -> anyhow::Result<()> {
    ensure!(weight(text) <= MAX_VALUES, "it has more values than any cluster needs");
    Ok(())
}

/// Returns at least the number of values of some 50 bytes that a text of JSON takes in memory, beside the bytes of the
/// text itself.
fn weight(text: &str) -> usize {
    let (mut weight, mut in_text, mut is_escaped) = (1, false, false);
    for byte in text.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_text => is_escaped = true,
            b'"' => in_text = !in_text,
            _ if in_text => {}
            b'{' => weight += OBJECT,
            b'[' => weight += LIST,
            b':' => weight += ENTRY,
            b',' => weight += 1,
            _ => {}
        }
    }
    weight
}

/// Writes the document of an answer: a list, or an object.
fn document(mut body: Value) -> String {
    match body.get_mut("items").map(Value::take) {
        Some(mut items) => {
            escape(&mut body, "", |_, _| false);
            match &mut items {
                Value::Array(items) => items.iter_mut().for_each(escape_object),
                other => escape(other, "", |_, _| false),
            }
            body["items"] = items;
        }
        None => escape_object(&mut body),
    }
    body.to_string()
}

/// Escapes the acting characters in all texts of an object, so that none forges a line of a command. Some texts stay as
/// they are, byte for byte, because a decision would be another without them. Of these a command prints no text as it
/// is, because users write them in a cluster, too.
///
/// - `data` of a config or of a stored version, and `parameters` of a class: they have scripts and templates of many
///   lines, and a version is known by their hash.
/// - Records in annotations, which are JSON: the adoption mark of a volume is the hash of its record. JSON has no
///   acting line ends within texts.
/// - Messages of a status: decisions compare them with those that they would write.
fn escape_object(object: &mut Value) {
    let Value::Object(fields) = object else { return escape(object, "", |_, _| false) };
    for (field, value) in fields.iter_mut() {
        match field.as_str() {
            "data" | "parameters" => escape(value, field, |_, _| true),
            "status" => escape(value, field, |field, _| field == "message"),
            "metadata" => escape_metadata(value),
            _ => escape(value, field, |_, _| false),
        }
    }
    escape_keys(fields);
}

fn escape_metadata(metadata: &mut Value) {
    let annotations = metadata.get_mut("annotations").map(Value::take);
    escape(metadata, "", |_, _| false);
    if let Some(mut annotations) = annotations {
        escape(&mut annotations, "", |_, text| is_record(text));
        metadata["annotations"] = annotations;
    }
}

fn is_record(text: &str) -> bool {
    text.starts_with(['{', '[']) && serde_json::from_str::<IgnoredAny>(text).is_ok()
}

/// Escapes the texts of a value, and all names of fields. `stays` says which text stays, by its field and itself.
fn escape(value: &mut Value, field: &str, stays: fn(&str, &str) -> bool) {
    match value {
        Value::String(text) if !stays(field, text.as_str()) => *text = line(text, usize::MAX),
        Value::Array(items) => items.iter_mut().for_each(|item| escape(item, field, stays)),
        Value::Object(fields) => {
            fields.iter_mut().for_each(|(field, value)| escape(value, field, stays));
            escape_keys(fields);
        }
        _ => {}
    }
}

fn escape_keys(fields: &mut Map<String, Value>) {
    if fields.keys().any(|key| line(key, usize::MAX) != *key) {
        *fields = std::mem::take(fields).into_iter().map(|(key, value)| (line(&key, usize::MAX), value)).collect();
    }
}

#[cfg(test)]
mod tests {
    use flex_contract::names;
    use serde_json::json;

    use super::*;

    const FORGED: &str = "a\nok: all is well\u{1b}[2J\u{202e}";

    /// Reads an answer with this body, and returns the body.
    fn read(request: &str, body: &Value) -> Value {
        let text = json!({ "request": request, "status": 200, "body": body }).to_string();
        let Value::String(text) = answer(&text).unwrap().body else { panic!("the body is no text") };
        serde_json::from_str(&text).unwrap_or(Value::String(text))
    }

    /// Returns the paths of the texts and keys that act on a terminal.
    fn acting(value: &Value, at: &str) -> Vec<String> {
        let acts = |text: &str| text.contains(|c: char| c.is_control() || c == '\u{202e}');
        match value {
            Value::String(text) => acts(text).then(|| at.to_owned()).into_iter().collect(),
            Value::Array(items) => items.iter().flat_map(|item| acting(item, at)).collect(),
            Value::Object(fields) => fields
                .iter()
                .flat_map(|(key, value)| {
                    let path = format!("{at}/{key}");
                    acts(key).then(|| path.clone()).into_iter().chain(acting(value, &path)).collect::<Vec<_>>()
                })
                .collect(),
            _ => Vec::new(),
        }
    }

    #[test]
    fn no_text_in_a_bundle_forges_a_line() {
        let record = json!({ "message": FORGED }).to_string();
        let object = json!({
            "metadata": {
                "name": FORGED, "labels": { "x": FORGED, FORGED: "x" }, "finalizers": [FORGED],
                "annotations": { "example.com/text": FORGED, names::PROVENANCE: record },
                "data": { "x": FORGED },
            },
            "spec": { "csi": { "driver": FORGED, "volumeHandle": FORGED, "data": FORGED, "message": FORGED } },
            "status": { "phase": FORGED, "conditions": [{ "reason": FORGED, "message": FORGED }] },
            "data": { "script": FORGED }, "parameters": { "x": FORGED }, "message": FORGED, "gitVersion": FORGED,
        });
        let stays = ["/data/script", "/parameters/x", "/status/conditions/message"];
        let record_of = |object: &Value| object["metadata"]["annotations"][names::PROVENANCE].clone();
        for body in [object.clone(), json!(object.to_string())] {
            let read = read("/api/v1/x", &body);
            let mut found = acting(&read, "");
            // The record is JSON, which has no line ends within texts.
            found.retain(|path| *path != format!("/metadata/annotations/{}", names::PROVENANCE));
            found.sort();
            assert_eq!(found, stays);
            assert_eq!(record_of(&read), record_of(&object));
            assert_eq!(read["data"], object["data"], "each byte of a config stays");
        }
        let list = json!({ "metadata": { "continue": FORGED }, "items": [object, FORGED], "data": FORGED });
        let read_list = read("/api/v1/xs", &list);
        let mut found = acting(&read_list, "");
        found.retain(|path| !stays.iter().any(|stays| path.ends_with(stays)));
        assert_eq!(found, [format!("/items/metadata/annotations/{}", names::PROVENANCE)]);
        assert_eq!(acting(&read("/version", &json!(FORGED)), "").len(), 0);
    }

    #[test]
    fn only_a_log_stays_as_it_is() {
        let document = json!({ "metadata": { "name": "a\nb" } }).to_string();
        let log = "/api/v1/namespaces/a/pods/p/log";
        assert!(is_log(&format!("{log}?tailLines=5")));
        let text = json!({ "request": log, "status": 200, "body": document }).to_string();
        assert_eq!(answer(&text).unwrap().body, json!(document));
        for other in ["/api/v1/namespaces/pods/persistentvolumeclaims/log", "/api/v1/namespaces/a/pods/log", "/log"] {
            assert_eq!(read(other, &json!(document))["metadata"]["name"], "a\\nb", "{other}");
            let broken = json!({ "request": other, "status": 200, "body": "{\"name\":\"\\ud800\"}" }).to_string();
            assert!(answer(&broken).is_err(), "{other}");
        }
    }

    #[test]
    fn values_that_fill_the_memory_are_refused() {
        for part in ["[],", r#"{"":0},"#, r#"[{"a":[0]}],"#] {
            let each = weight(part) - 1;
            let body = part.repeat(MAX_VALUES / each + 1) + "0";
            let text = json!({ "request": "/a", "status": 200, "body": format!("[{body}]") }).to_string();
            let plain = format!(r#"{{"request":"/a","status":200,"body":[{body}]}}"#);
            for text in [text, plain] {
                let error = answer(&text).unwrap_err().to_string();
                assert!(error.contains("more values than any cluster needs"), "{part}: {error}");
            }
        }
        assert!(weight(r#"{"":0}"#) * 50 > 640, "an object takes a node of a tree");
        assert_eq!(weight(r#""a text with { , [ \" : in it""#), 1);
    }

    #[test]
    fn the_claims_of_a_page_are_read() {
        let claim = json!({
            "metadata": { "name": "a", "namespace": "b", "uid": "c", "annotations": { "d": "e" }, "labels": { "f": "g" } },
            "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
            "status": { "phase": "Pending" },
        });
        let page = json!({ "items": vec![claim; 10_000] });
        assert!(weight(&page.to_string()) < MAX_VALUES / 4);
        assert_eq!(read("/api/v1/persistentvolumeclaims", &page), page);
    }
}
