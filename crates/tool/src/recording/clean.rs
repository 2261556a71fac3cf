//! Answers without what nobody else should see, and without what nobody needs.

use flex_contract::names;
use flex_core::limits;
use flex_core::model::volume::adoption_mark;
use flex_core::text::cut;
use serde_json::{Map, Value, json};

/// The text in place of what is removed.
pub(super) const REMOVED: &str = "(removed)";
/// The beginning of the names that are the project's own. Other annotations may hold a whole object as it was applied.
const OWN: &str = "flex-provisioner.io/";
/// The fields of a pod with containers.
const CONTAINERS: [&str; 3] = ["containers", "initContainers", "ephemeralContainers"];
/// The fields of an object that may hold the template of another one.
const TEMPLATES: [&str; 2] = ["template", "jobTemplate"];
/// The fields of a container that stay. The check of a config needs them, or whoever asks why a pod does not start. Of
/// `env`, `command` and `args` something is left, too. Probes and hooks have commands and headers.
const OF_CONTAINER: [&str; 18] = [
    "name",
    "image",
    "imagePullPolicy",
    "resources",
    "resizePolicy",
    "restartPolicy",
    "securityContext",
    "ports",
    "envFrom",
    "volumeMounts",
    "volumeDevices",
    "workingDir",
    "terminationMessagePath",
    "terminationMessagePolicy",
    "stdin",
    "stdinOnce",
    "tty",
    "targetContainerName",
];
/// The fields of an environment variable that stay.
const OF_VARIABLE: [&str; 2] = ["name", "valueFrom"];
/// The fields of an event's metadata that stay.
const OF_EVENT: [&str; 4] = ["name", "namespace", "uid", "creationTimestamp"];
/// The keys of a config that hold what containers hold in a pod.
mod keys {
    pub const POD_TEMPLATE: &str = flex_core::config::keys::POD_TEMPLATE.name;
    pub const COMMAND: &str = flex_core::config::keys::COMMAND.name;
    pub const ARGS: &str = flex_core::config::keys::ARGS.name;
}
/// The key of a config whose value is secret.
pub(super) const SERVICE_TOKEN: &str = flex_core::config::keys::SERVICE_TOKEN.name;

/// Removes what nobody else should see from an answer, and what nobody needs.
pub(super) fn without_secrets(request: &str, mut body: Value) -> Value {
    let kind = kind_of(request);
    match body.get_mut("items").and_then(Value::as_array_mut) {
        Some(items) => items.iter_mut().for_each(|object| clean(object, kind)),
        None => clean(&mut body, kind),
    }
    body
}

/// Returns the kind that a request reads, by its plural name; empty for none.
pub(super) fn kind_of(request: &str) -> &str {
    let path = request.split('?').next().unwrap_or_default();
    let mut parts = path.split('/').filter(|part| !part.is_empty());
    // A version stands before the kind, and a group before the version.
    let before = if parts.next() == Some("apis") { 2 } else { 1 };
    let kind = parts.nth(before).unwrap_or_default();
    // The kind stands behind the namespace.
    if kind == "namespaces" { parts.nth(1).unwrap_or(kind) } else { kind }
}

fn clean(object: &mut Value, kind: &str) {
    if kind == "events" {
        return clean_event(object);
    }
    let had_own_mark = has_own_mark(object);
    if kind == "configmaps"
        && let Some(token) = object.pointer_mut(&format!("/data/{SERVICE_TOKEN}"))
    {
        *token = json!(REMOVED);
    }
    if let Some(data) = object.get_mut("data") {
        without_templates(data);
    }
    clean_parts(object, kind == "persistentvolumeclaims");
    if had_own_mark {
        // The mark is the hash of the record, which may be shorter now.
        let mark = own_mark(object).map(|mark| json!(mark)).unwrap_or_default();
        object["status"]["reason"] = mark;
    }
}

/// Cleans the metadata and the containers of an object, and of the templates in it.
fn clean_parts(object: &mut Value, is_claim: bool) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.retain(|name, _| is_needed(name));
            annotations.values_mut().for_each(without_templates);
        }
        if let Some(labels) = metadata.get_mut("labels").and_then(Value::as_object_mut).filter(|_| is_claim) {
            labels.retain(|name, _| is_needed(name));
        }
    }
    let Some(spec) = object.get_mut("spec") else { return };
    for field in CONTAINERS {
        if let Some(containers) = spec.get_mut(field) {
            each(containers, clean_container);
        }
    }
    for field in TEMPLATES {
        if let Some(template) = spec.get_mut(field) {
            clean_parts(template, is_claim);
        }
    }
}

/// Cleans an event. Users write events, and the API bounds neither their number nor their texts.
fn clean_event(event: &mut Value) {
    if let Some(metadata) = event.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|name, _| OF_EVENT.contains(&name.as_str()));
    }
    cut_texts(event);
}

/// Cuts each text to the length to which the commands cut messages.
fn cut_texts(value: &mut Value) {
    match value {
        Value::String(text) if text.len() > limits::MESSAGE => *text = cut(text, limits::MESSAGE).into_owned(),
        Value::Object(fields) => fields.values_mut().for_each(cut_texts),
        Value::Array(items) => items.iter_mut().for_each(cut_texts),
        _ => {}
    }
}

/// Checks whether a decision may need an annotation, or a label of a claim. Those of others may hold a whole object as
/// somebody applied it. The properties of a run may hold metadata of its claim.
fn is_needed(name: &str) -> bool {
    let of_kubernetes = name.split_once('/').is_some_and(|(domain, _)| domain.ends_with("kubernetes.io"));
    let of_applier = name.ends_with("/last-applied-configuration");
    name.starts_with(OWN) && !is_property(name) || of_kubernetes && !of_applier
}

/// Checks whether an annotation of a pod is a property of its run.
fn is_property(name: &str) -> bool {
    name.strip_prefix(names::PROPERTY_PREFIX).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// Returns the adoption mark that belongs to the record of a volume.
fn own_mark(object: &Value) -> Option<String> {
    let record = object["metadata"]["annotations"][names::PROVENANCE].as_str()?;
    Some(adoption_mark(record, object["metadata"]["uid"].as_str().unwrap_or_default()))
}

fn has_own_mark(object: &Value) -> bool {
    own_mark(object).is_some_and(|mark| object["status"]["reason"] == mark.as_str())
}

/// Removes values and commands from the pod templates of a config, wherever it is kept: as data, or as a record in a
/// text.
fn without_templates(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields.iter_mut() {
                match (name.as_str(), value.as_str()) {
                    (keys::POD_TEMPLATE, Some(text)) => *value = json!(clean_template(text)),
                    (keys::COMMAND | keys::ARGS, Some(_)) => *value = json!(json!([REMOVED]).to_string()),
                    _ => without_templates(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(without_templates),
        Value::String(text) if text.starts_with('{') => {
            let Ok(mut record) = serde_json::from_str::<Value>(text) else { return };
            let before = record.clone();
            without_templates(&mut record);
            if record != before {
                *text = record.to_string();
            }
        }
        _ => {}
    }
}

/// Returns a pod template without values, commands and annotations. A text that is no template has nothing that anybody
/// needs.
fn clean_template(text: &str) -> String {
    let Ok(mut template @ Value::Object(_)) = serde_saphyr::from_str::<Value>(text) else { return REMOVED.to_owned() };
    if let Some(metadata) = template.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("annotations");
    }
    clean_parts(&mut template, false);
    template.to_string()
}

/// Removes from a container what may be secret. No decision needs it. The names of all fields stay, because a misspelt
/// one makes a config invalid, and so does a command beside a script.
fn clean_container(container: &mut Map<String, Value>) {
    for (name, value) in container.iter_mut().filter(|(_, value)| !value.is_null()) {
        match name.as_str() {
            "env" => each(value, clean_variable),
            "command" | "args" => *value = json!([REMOVED]),
            name if OF_CONTAINER.contains(&name) => {}
            _ => *value = json!({}),
        }
    }
}

fn clean_variable(variable: &mut Map<String, Value>) {
    for (name, value) in variable.iter_mut().filter(|(_, value)| !value.is_null()) {
        if !OF_VARIABLE.contains(&name.as_str()) {
            *value = json!(REMOVED);
        }
    }
}

/// Cleans each object of a list. Nobody needs anything else in its place.
fn each(list: &mut Value, clean: fn(&mut Map<String, Value>)) {
    match list {
        Value::Null => {}
        Value::Array(items) => items.iter_mut().for_each(|item| match item {
            Value::Object(fields) => clean(fields),
            other => *other = json!(REMOVED),
        }),
        other => *other = json!(REMOVED),
    }
}

#[cfg(test)]
mod tests {
    use flex_provisioner::api::filled::filled;
    use k8s_openapi::api::core::v1::{Event, Pod, PodTemplateSpec};

    use super::*;

    #[test]
    fn values_in_pods_are_removed() {
        let pod = json!({ "containers": [{ "name": "a", "args": ["hidden"], "env": [
            { "name": "PASSWORD", "value": "hidden" }, { "name": "REFERENCE", "valueFrom": { "fieldRef": {} } },
        ] }], "initContainers": [{ "command": ["hidden"] }] });
        for spec in [pod.clone(), json!({ "template": { "spec": pod } })] {
            let metadata = json!({ "annotations": { "kubectl.kubernetes.io/last-applied-configuration": "hidden" } });
            let list = json!({ "items": [{ "metadata": metadata, "spec": spec }] });
            let text = without_secrets("/api/v1/namespaces/a/pods", list).to_string();
            assert!(!text.contains("hidden") && text.contains("PASSWORD") && text.contains("valueFrom"), "{text}");
        }
        assert_eq!(without_secrets("/api/v1/x", json!("text")), json!("text"));
        assert_eq!(without_secrets("/api/v1/x", json!({ "kind": "Status" })), json!({ "kind": "Status" }));
    }

    #[test]
    fn values_in_the_pod_template_of_a_config_are_removed_wherever_it_is_kept() {
        let template = "metadata: {annotations: {a: hidden}}\nspec:\n  containers:\n  - name: provisioner\n    env: [{name: LOGIN, value: hidden}]\n";
        let data = json!({ "image": "i", "pod-template": template, "command": "[\"hidden\"]", "zone": "west" });
        let record = json!({ "class": "gold", "data": data }).to_string();
        let mark = adoption_mark(&record, "u");
        let volume = json!({
            "metadata": { "uid": "u", "annotations": { names::PROVENANCE: record, "tool.example/x": "hidden" } },
            "spec": {}, "status": { "reason": mark },
        });
        for (request, object) in [
            ("/api/v1/namespaces/a/configmaps", json!({ "metadata": {}, "data": data })),
            ("/apis/apps/v1/namespaces/a/controllerrevisions", json!({ "metadata": {}, "data": { "data": data } })),
            ("/api/v1/persistentvolumes", volume.clone()),
            ("/api/v1/persistentvolumes/pv", volume),
        ] {
            let body = if request.ends_with("/pv") { object } else { json!({ "items": [object] }) };
            let cleaned = without_secrets(request, body);
            let text = cleaned.to_string();
            assert!(!text.contains("hidden") && text.contains("west") && text.contains("LOGIN"), "{request}: {text}");
            if request.ends_with("/pv") {
                assert!(has_own_mark(&cleaned), "the volume is still adopted: {text}");
            }
        }
        let claim = json!({ "metadata": { "labels": { "team": "hidden" }, "annotations": {
            "example.com/note": "hidden", "volume.kubernetes.io/selected-node": "n", names::ATTEMPT: "1" } } });
        let text = without_secrets("/api/v1/persistentvolumeclaims", json!({ "items": [claim] })).to_string();
        assert!(!text.contains("hidden") && text.contains("selected-node") && text.contains(names::ATTEMPT), "{text}");
    }

    /// Returns the metadata and the spec of a pod that has a secret wherever it can.
    fn full_of_secrets() -> Value {
        let exec = json!({ "exec": { "command": ["hidden"] } });
        let headers = json!([{ "name": "Authorization", "value": "hidden" }]);
        let request = json!({ "httpGet": { "port": 80, "httpHeaders": headers } });
        let container = json!({
            "name": "provisioner", "image": "example/image:1", "command": ["hidden"], "args": ["hidden"],
            "env": [{ "name": "PASSWORD", "value": "hidden" }, { "name": "MISSPELT", "vaule": "hidden" }],
            "volumeMounts": [{ "name": "data", "mountPath": "/data" }], "lifecycle": { "postStart": exec, "preStop": request },
            "livenessProbe": exec, "readinessProbe": request, "startupProbe": exec, "livenesProbe": exec,
        });
        let annotations = json!({
            format!("{}0", names::PROPERTY_PREFIX): "hidden", format!("{}12", names::PROPERTY_PREFIX): "hidden",
            "example.com/token": "hidden", names::BATCH: "[]", names::RECIPE_VERSION: "a/b@c",
        });
        json!({
            "metadata": { "name": "n", "annotations": annotations },
            "spec": {
                "containers": [container.clone()], "initContainers": [container.clone()],
                "ephemeralContainers": [container, "hidden"], "tolerations": [{ "operator": "Exists" }],
            },
        })
    }

    #[test]
    fn no_secret_of_a_pod_is_left_at_any_depth() {
        let pod = full_of_secrets();
        let job = json!({ "metadata": pod["metadata"], "spec": { "suspend": true, "template": pod } });
        let cron_job = json!({ "metadata": {}, "spec": { "jobTemplate": job } });
        let yaml = serde_saphyr::to_string(&pod).unwrap();
        let config = json!({ "metadata": {}, "data": { "pod-template": yaml } });
        let volume = json!({ "metadata": { "annotations": {
            names::PROVENANCE: json!({ "data": { "pod-template": pod.to_string() } }).to_string(),
        } } });
        for (request, object) in [
            ("/api/v1/namespaces/a/pods", pod),
            ("/apis/batch/v1/namespaces/a/jobs", job),
            ("/apis/batch/v1/namespaces/a/cronjobs", cron_job),
            ("/api/v1/configmaps", config),
            ("/api/v1/persistentvolumes", volume),
        ] {
            let text = without_secrets(request, json!({ "items": [object] })).to_string();
            assert!(!text.contains("hidden"), "{request}: {text}");
            for kept in ["example/image:1", "PASSWORD", "/data", "Exists"] {
                assert!(text.contains(kept), "{request} lacks {kept}: {text}");
            }
        }
        for text in ["hidden", "- hidden", "spec: {containers: hidden}", "spec: {containers: [{env: {A: hidden}}]}"] {
            assert!(!clean_template(text).contains("hidden"), "{text}");
        }
    }

    #[test]
    fn decisions_see_the_same_of_a_clean_pod_and_template() {
        let pod = full_of_secrets();
        let before: Pod = serde_json::from_value({
            let mut pod = pod.clone();
            pod["spec"]["ephemeralContainers"] = json!([]);
            pod
        })
        .unwrap();
        let cleaned = without_secrets("/api/v1/namespaces/a/pods/n", serde_json::to_value(&before).unwrap());
        let after: Pod = serde_json::from_value(cleaned).unwrap();
        assert_eq!(flex_core::run::view::Pod::from(&after), flex_core::run::view::Pod::from(&before));

        let template = json!({ "spec": { "containers": pod["spec"]["containers"] } });
        let cleaned: Value = serde_json::from_str(&clean_template(&template.to_string())).unwrap();
        let container = &cleaned["spec"]["containers"][0];
        assert!(container["livenesProbe"].is_object(), "a misspelt field is still there: {container}");
        assert_eq!(container["command"], json!([REMOVED]), "there still is a command: {container}");
        let cleaned: PodTemplateSpec = serde_json::from_value(cleaned).unwrap();
        let spec = cleaned.spec.unwrap();
        let container = &spec.containers[0];
        assert!(container.volume_mounts.is_some() && container.liveness_probe.is_some(), "{container:?}");
    }

    #[test]
    fn each_text_of_an_event_is_cut() {
        let event: Event = filled("annotation");
        let list = json!({ "items": [serde_json::to_value(&event).unwrap()] });
        for request in ["/api/v1/namespaces/events/events", "/apis/events.k8s.io/v1/events?limit=500"] {
            let text = without_secrets(request, list.clone()).to_string();
            assert!(text.len() < 25 * limits::MESSAGE, "{request}: {} bytes", text.len());
            let list: Value = serde_json::from_str(&text).unwrap();
            let event: Event = serde_json::from_value(list["items"][0].clone()).unwrap();
            assert!(event.message.unwrap().len() <= limits::MESSAGE && event.last_timestamp.is_some());
        }
    }

    #[test]
    fn the_kind_of_a_request_is_that_of_its_objects() {
        for (request, kind) in [
            ("/api/v1/namespaces/events/configmaps?limit=500", "configmaps"),
            ("/api/v1/namespaces/team/persistentvolumeclaims/events", "persistentvolumeclaims"),
            ("/api/v1/namespaces/team", "namespaces"),
            ("/api/v1/persistentvolumes/configmaps", "persistentvolumes"),
            ("/apis/batch/v1/namespaces/a/jobs", "jobs"),
            ("/apis/batch/v1/jobs", "jobs"),
            ("/version", ""),
            ("", ""),
        ] {
            assert_eq!(kind_of(request), kind, "{request}");
        }
    }
}
