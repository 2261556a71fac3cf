//! Answers of an API server that are recorded, and given again without it.
//!
//! A recording client remembers each answer to a read. A replaying client gives the same answers to the same requests,
//! so that everything that only reads works without the cluster. Answers have no values of Secrets.

mod clean;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tower::BoxError;

use self::clean::{kind_of, without_secrets};

/// The largest text of all answers with events, in bytes. Users create any number of events.
const MAX_EVENTS: usize = 16 << 20;
/// The largest text of all other answers, in bytes. 50,000 claims with their volumes need 200 MiB.
const MAX_OTHERS: usize = 208 << 20;

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

impl Answer {
    /// Returns the path of the request.
    pub fn path(&self) -> &str {
        self.request.split('?').next().unwrap_or_default()
    }

    /// Checks whether the answer has events. They tell what has happened, and no decision needs them.
    pub fn has_events(&self) -> bool {
        kind_of(&self.request) == "events"
    }

    /// Returns the bytes of the answer as text.
    fn size(&self) -> usize {
        self.request.len() + self.body.to_string().len()
    }
}

/// The answers that are kept, and what has no room.
#[derive(Debug, Default)]
struct Kept {
    answers: BTreeMap<String, Answer>,
    /// The bytes of the answers with events.
    of_events: usize,
    /// The bytes of the other answers.
    of_others: usize,
    /// The paths of the requests whose answers are not kept.
    left_out: BTreeSet<String>,
}

impl Kept {
    /// Keeps an answer in place of a former one to the same request, if there is room for it.
    fn keep(&mut self, answer: Answer) {
        let former = self.answers.remove(&answer.request).map_or(0, |former| former.size());
        let (bytes, most) = match answer.has_events() {
            true => (&mut self.of_events, MAX_EVENTS),
            false => (&mut self.of_others, MAX_OTHERS),
        };
        *bytes -= former;
        let size = answer.size();
        if *bytes + size <= most {
            *bytes += size;
            self.answers.insert(answer.request.clone(), answer);
        } else {
            self.left_out.insert(answer.path().to_owned());
        }
    }
}

/// Recorded answers, by their requests.
#[derive(Clone, Debug, Default)]
pub struct Recording(Arc<Mutex<Kept>>);

impl Recording {
    /// Makes a recording of answers.
    pub fn of(answers: impl IntoIterator<Item = Answer>) -> Self {
        let answers = answers.into_iter().map(|answer| (answer.request.clone(), answer));
        Recording(Arc::new(Mutex::new(Kept { answers: answers.collect(), ..Kept::default() })))
    }

    /// Returns the answers, in the order of their requests.
    pub fn answers(&self) -> Vec<Answer> {
        self.locked().answers.values().cloned().collect()
    }

    /// Returns the paths of the requests of which some answers are not recorded, because they are too long.
    pub fn left_out(&self) -> Vec<String> {
        self.locked().left_out.iter().cloned().collect()
    }

    fn locked(&self) -> MutexGuard<'_, Kept> {
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
                let answer = Answer { request: wanted, status: parts.status.as_u16(), body };
                recording.locked().keep(answer);
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
                let known = recording.locked().answers.get(&key(request.uri())).cloned();
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

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    use kube::Api;
    use kube::api::{ListParams, PostParams};

    use super::clean::{REMOVED, SERVICE_TOKEN};
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

    #[test]
    fn events_take_no_room_from_other_answers() {
        let recording = Recording::default();
        let long = json!({ "items": [{ "message": "x".repeat(1 << 20) }] });
        for page in 0..40 {
            let request = format!("/api/v1/namespaces/team/events?continue={page}");
            recording.locked().keep(Answer { request, status: 200, body: long.clone() });
        }
        let config = Answer { request: "/api/v1/configmaps".into(), status: 200, body: long };
        for _ in 0..3 {
            recording.locked().keep(config.clone());
        }
        let (of_events, others): (Vec<_>, Vec<_>) = recording.answers().into_iter().partition(Answer::has_events);
        assert_eq!(of_events.len(), (MAX_EVENTS >> 20) - 1);
        assert_eq!((others, recording.locked().of_others), (vec![config.clone()], config.size()));
        assert_eq!(recording.left_out(), ["/api/v1/namespaces/team/events"]);
    }
}
