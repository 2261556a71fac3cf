//! Answers of an API server that are recorded, and given again without it.
//!
//! A recording client remembers each answer to a read. A replaying client gives the same answers to the same requests,
//! so that everything that only reads works without the cluster. Answers have no values of Secrets.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use flex_contract::names;
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tower::BoxError;

use crate::model::volume::adoption_mark;

/// The text in place of what is removed.
const REMOVED: &str = "(removed)";
/// The beginning of the names that are the project's own. Other annotations may hold a whole object as it was applied.
const OWN: &str = "flex-provisioner.io/";
/// The fields of a pod with containers.
const CONTAINERS: [&str; 3] = ["containers", "initContainers", "ephemeralContainers"];
/// The fields of a container whose texts may be secrets.
const WORDS: [&str; 2] = ["command", "args"];
/// The keys of a config that hold what containers hold in a pod.
mod keys {
    pub const POD_TEMPLATE: &str = flex_core::config::keys::POD_TEMPLATE.name;
    pub const COMMAND: &str = flex_core::config::keys::COMMAND.name;
    pub const ARGS: &str = flex_core::config::keys::ARGS.name;
}
/// The key of a config whose value is secret.
const SERVICE_TOKEN: &str = flex_core::config::keys::SERVICE_TOKEN.name;

/// An answer, with the request that it belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The path with its query.
    pub request: String,
    /// The status code.
    pub status: u16,
    /// The body: a document, or a text.
    pub body: Value,
}

/// Recorded answers, by their requests.
#[derive(Clone, Debug, Default)]
pub struct Recording(Arc<Mutex<BTreeMap<String, Answer>>>);

impl Recording {
    /// Makes a recording of answers.
    pub fn of(answers: impl IntoIterator<Item = Answer>) -> Self {
        let answers = answers.into_iter().map(|answer| (answer.request.clone(), answer));
        Recording(Arc::new(Mutex::new(answers.collect())))
    }

    /// Returns the answers, in the order of their requests.
    pub fn answers(&self) -> Vec<Answer> {
        self.locked().values().cloned().collect()
    }

    fn locked(&self) -> MutexGuard<'_, BTreeMap<String, Answer>> {
        self.0.lock().expect("no code panics while it holds the recording")
    }

    /// Wraps a client. All requests pass, and the answers to reads are recorded.
    pub fn recording(&self, client: &Client) -> Client {
        let (recording, through) = (self.clone(), client.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (recording, through) = (recording.clone(), through.clone());
            async move {
                let wanted = is_recorded(request.method(), request.uri()).then(|| key(request.uri()));
                let response = through.send(request).await.map_err(BoxError::from)?;
                let Some(wanted) = wanted else { return Ok(response) };
                let (parts, body) = response.into_parts();
                let bytes = body.collect().await?.to_bytes();
                let body = serde_json::from_slice(&bytes);
                let body = body.unwrap_or_else(|_| json!(String::from_utf8_lossy(&bytes)));
                let body = without_secrets(&wanted, body);
                let answer = Answer { request: wanted.clone(), status: parts.status.as_u16(), body };
                recording.locked().insert(wanted, answer);
                Ok::<_, BoxError>(Response::from_parts(parts, Body::from(bytes.to_vec())))
            }
        });
        Client::new(service, client.default_namespace())
    }

    /// Returns a client that gives the recorded answers, and refuses everything else. `namespace` is its default.
    pub fn replaying(&self, namespace: &str) -> Client {
        let recording = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let recording = recording.clone();
            async move {
                let known = recording.locked().get(&key(request.uri())).cloned();
                let known = known.filter(|_| request.method() == Method::GET);
                let (status, body) = match known {
                    Some(Answer { status, body: Value::String(text), .. }) => (status, text),
                    Some(Answer { status, body, .. }) => (status, body.to_string()),
                    None => (StatusCode::FORBIDDEN.as_u16(), refusal(request.method(), request.uri()).to_string()),
                };
                Response::builder().status(status).body(Body::from(body.into_bytes())).map_err(BoxError::from)
            }
        });
        Client::new(service, namespace)
    }
}

/// Checks whether the answer to a request is recorded. Watches have no end, and Secrets stay in the cluster.
fn is_recorded(method: &Method, uri: &Uri) -> bool {
    let query = uri.query().unwrap_or_default();
    let is_watch = query.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1"));
    let of_secrets = uri.path().split('/').any(|part| part == "secrets");
    method == Method::GET && !is_watch && !of_secrets
}

/// Returns the name of a request.
fn key(uri: &Uri) -> String {
    uri.path_and_query().map(ToString::to_string).unwrap_or_default()
}

/// Returns the status with which a bundle refuses a request.
fn refusal(method: &Method, uri: &Uri) -> Value {
    let message = match *method {
        Method::GET => format!("the bundle does not have {}", uri.path()),
        _ => "a bundle can only be read".to_owned(),
    };
    json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "message": message, "code": 403,
    })
}

/// Removes what nobody else should see from an answer, and what nobody needs.
fn without_secrets(request: &str, mut body: Value) -> Value {
    let is_of = |kind: &str| request.split(['?', '/']).any(|part| part == kind);
    let (of_configs, of_claims) = (is_of("configmaps"), is_of("persistentvolumeclaims"));
    match body.get_mut("items").and_then(Value::as_array_mut) {
        Some(items) => items.iter_mut().for_each(|object| clean(object, of_configs, of_claims)),
        None => clean(&mut body, of_configs, of_claims),
    }
    body
}

fn clean(object: &mut Value, is_config: bool, is_claim: bool) {
    let had_own_mark = has_own_mark(object);
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
    if is_config && let Some(token) = object.pointer_mut(&format!("/data/{SERVICE_TOKEN}")) {
        *token = json!(REMOVED);
    }
    if let Some(data) = object.get_mut("data") {
        without_templates(data);
    }
    if let Some(spec) = object.get_mut("spec") {
        without_values(spec);
    }
    if had_own_mark {
        // The mark is the hash of the record, which may be shorter now.
        let mark = own_mark(object).map(|mark| json!(mark)).unwrap_or_default();
        object["status"]["reason"] = mark;
    }
}

/// Checks whether a decision may need an annotation, or a label of a claim. Those of others may hold a whole object as
/// somebody applied it.
fn is_needed(name: &str) -> bool {
    let of_kubernetes = name.split_once('/').is_some_and(|(domain, _)| domain.ends_with("kubernetes.io"));
    let of_applier = name.ends_with("/last-applied-configuration");
    name.starts_with(OWN) || of_kubernetes && !of_applier
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
    let Ok(mut template) = serde_saphyr::from_str::<Value>(text) else { return REMOVED.to_owned() };
    if let Some(metadata) = template.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("annotations");
    }
    template.get_mut("spec").into_iter().for_each(without_values);
    template.to_string()
}

/// Removes the values of environment variables, and the commands, from the containers of a pod or of a template. No
/// decision needs them.
fn without_values(spec: &mut Value) {
    for field in CONTAINERS {
        for container in entries(spec, field) {
            for value in entries(container, "env").filter_map(|variable| variable.get_mut("value")) {
                *value = json!(REMOVED);
            }
            for field in WORDS {
                if let Some(words) = container.get_mut(field) {
                    *words = json!([REMOVED]);
                }
            }
        }
    }
    if let Some(spec) = spec.pointer_mut("/template/spec") {
        without_values(spec);
    }
}

/// Returns the entries of a list in an object; none if there is no such list.
fn entries<'a>(object: &'a mut Value, field: &str) -> impl Iterator<Item = &'a mut Value> {
    object.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    use kube::Api;
    use kube::api::{ListParams, PostParams};

    use super::*;

    /// Returns a client of a server with one config, and with Secrets.
    fn server() -> Client {
        let service = tower::service_fn(|request: Request<Body>| async move {
            let metadata = json!({
                "name": "gold", "managedFields": [{ "manager": "kubectl" }],
                "annotations": { "tool.example/whole": "{\"service-token\":\"hidden\"}", "flex-provisioner.io/kept": "yes" },
            });
            let object = json!({ "metadata": metadata, "data": { SERVICE_TOKEN: "hidden", "zone": "west" } });
            let answer = match request.uri().path().ends_with("s") {
                true => json!({ "kind": "ConfigMapList", "apiVersion": "v1", "metadata": {}, "items": [object] }),
                false => object,
            };
            Ok::<_, Infallible>(Response::new(Body::from(answer.to_string().into_bytes())))
        });
        Client::new(service, "admin")
    }

    #[tokio::test]
    async fn recorded_answers_are_given_again_without_secrets() {
        let recording = Recording::default();
        let live: Api<ConfigMap> = Api::default_namespaced(recording.recording(&server()));
        let list = ListParams::default().labels("type=provisioner-config");
        let listed = live.list(&list).await.unwrap();
        assert_eq!(listed.items[0].data.as_ref().unwrap()[SERVICE_TOKEN], "hidden", "the answer itself is whole");
        live.get("gold").await.unwrap();
        let secrets: Api<Secret> = Api::default_namespaced(recording.recording(&server()));
        // The object of this server is no Secret, but it is an answer.
        let _ = secrets.get("login").await;

        let text = serde_json::to_string(&recording.answers()).unwrap();
        assert!(!text.contains("hidden") && !text.contains("managedFields") && text.contains("kept"), "{text}");
        let answers: Vec<Answer> = serde_json::from_str(&text).unwrap();
        assert_eq!(answers.len(), 2, "a Secret is not recorded");
        let replayed: Api<ConfigMap> = Api::default_namespaced(Recording::of(answers).replaying("admin"));
        let again = replayed.list(&list).await.unwrap();
        assert_eq!(again.items[0].data.as_ref().unwrap()["zone"], "west");
        assert_eq!(replayed.get("gold").await.unwrap().data.unwrap()[SERVICE_TOKEN], REMOVED);
        let absent = replayed.get("silver").await.unwrap_err().to_string();
        assert!(absent.contains("the bundle does not have /api/v1/namespaces/admin/configmaps/silver"), "{absent}");
        let written = replayed.create(&PostParams::default(), &ConfigMap::default()).await.unwrap_err().to_string();
        assert!(written.contains("a bundle can only be read"), "{written}");
    }

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

    #[test]
    fn watches_and_writes_are_not_recorded() {
        let recorded = |method: Method, uri: &str| is_recorded(&method, &uri.parse().unwrap());
        assert!(recorded(Method::GET, "/api/v1/persistentvolumes?limit=500"));
        for (method, uri) in [
            (Method::GET, "/api/v1/persistentvolumes?watch=true"),
            (Method::GET, "/api/v1/namespaces/a/secrets/b"),
            (Method::POST, "/api/v1/persistentvolumes"),
        ] {
            assert!(!recorded(method.clone(), uri), "{method} {uri}");
        }
    }
}
