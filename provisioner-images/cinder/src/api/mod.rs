//! The part of Cinder's API that the image needs: version 3, mostly as in its first microversion.

mod types;

use std::cell::RefCell;

use ::http::{Method, StatusCode};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use crate::cloud::Cloud;
use crate::http::{Answer, Http};
use crate::keystone::{Session, log_in};
use crate::trouble::{Kind, Trouble};

pub use types::{Connection, GIB, Pool, Snapshot, Volume};

/// The microversion in which Cinder filters its messages. Earlier ones return all.
const MESSAGES: &str = "volume 3.5";

/// The number of entries in a page of a list.
const PAGE: usize = 500;

/// A Cinder, with the image's session there.
pub struct Cinder {
    http: Http,
    cloud: Cloud,
    session: RefCell<Option<Session>>,
}

/// A request, for messages and the log: its method, its path within the project, its purpose, and its body.
struct Call<'a> {
    method: Method,
    path: String,
    what: &'a str,
    body: Option<Value>,
    version: Option<&'a str>,
}

impl<'a> Call<'a> {
    fn new(method: Method, path: impl Into<String>, what: &'a str) -> Self {
        Self { method, path: path.into(), what, body: None, version: None }
    }

    fn with(mut self, body: Value) -> Self {
        self.body = Some(body);
        self
    }

    fn version(mut self, version: &'a str) -> Self {
        self.version = Some(version);
        self
    }
}

impl Cinder {
    /// Makes a client that has not sent a request yet.
    pub fn new(http: Http, cloud: Cloud) -> Self {
        Self { http, cloud, session: RefCell::new(None) }
    }

    /// Returns the place of the address and the credentials, for messages.
    pub fn origin(&self) -> &str {
        &self.cloud.origin
    }

    /// Returns all volumes with a metadata value. The result of Cinder's filter is filtered again, because a Cinder may
    /// be configured to ignore the filter.
    pub async fn volumes_with(&self, key: &str, value: &str) -> Result<Vec<Volume>, Trouble> {
        let filter = format!("metadata={}", encoded(&json!({ key: value }).to_string()));
        let mut volumes = self.volumes(&filter).await?;
        volumes.retain(|volume| volume.metadata.get(key).is_some_and(|found| found == value));
        Ok(volumes)
    }

    /// Returns all volumes with a name.
    pub async fn volumes_named(&self, name: &str) -> Result<Vec<Volume>, Trouble> {
        let mut volumes = self.volumes(&format!("name={}", encoded(name))).await?;
        volumes.retain(|volume| volume.name.as_deref() == Some(name));
        Ok(volumes)
    }

    /// Returns all volumes that pass a filter.
    pub async fn volumes(&self, filter: &str) -> Result<Vec<Volume>, Trouble> {
        let pages = self.pages("/volumes/detail", filter, "volumes", "does not list the volumes").await?;
        pages.iter().map(Volume::of).collect()
    }

    /// Returns all snapshots with a name.
    pub async fn snapshots_named(&self, name: &str) -> Result<Vec<Snapshot>, Trouble> {
        let filter = format!("name={}", encoded(name));
        let pages = self.pages("/snapshots/detail", &filter, "snapshots", "does not list the snapshots").await?;
        let mut snapshots: Vec<Snapshot> = pages.iter().map(Snapshot::of).collect::<Result<_, _>>()?;
        snapshots.retain(|snapshot| snapshot.name.as_deref() == Some(name));
        Ok(snapshots)
    }

    /// Returns a snapshot; `None` if it does not exist.
    pub async fn snapshot(&self, id: &str) -> Result<Option<Snapshot>, Trouble> {
        let call = Call::new(Method::GET, format!("/snapshots/{}", encoded(id)), "does not show the snapshot");
        match self.send(call).await {
            Ok(answer) => Snapshot::of(&answer["snapshot"]).map(Some),
            Err(trouble) if trouble.kind == Kind::Missing => Ok(None),
            Err(trouble) => Err(trouble),
        }
    }

    async fn pages(&self, path: &str, filter: &str, key: &str, what: &str) -> Result<Vec<Value>, Trouble> {
        let mut all: Vec<Value> = Vec::new();
        loop {
            let marker = all.last().and_then(|last| last["id"].as_str()).map(|id| format!("&marker={id}"));
            let query = format!("{path}?limit={PAGE}&sort=created_at:asc&{filter}{}", marker.unwrap_or_default());
            let answer = self.send(Call::new(Method::GET, query, what)).await?;
            let page = answer[key].as_array().ok_or_else(|| unreadable(what))?;
            let end = |list: &[Value]| list.last().map(|last| last["id"].clone());
            if !page.is_empty() && end(page) == end(&all) {
                return Err(Trouble::new(
                    Kind::Config,
                    format!(
                        "Cinder {what}: it gives the same page again and again; what stands before it loses `marker`"
                    ),
                ));
            }
            all.extend(page.iter().cloned());
            // A server may return fewer entries than requested. Only a page without a link to the next is the last.
            let next =
                answer.get(format!("{key}_links")).is_some_and(|links| links.as_array().is_some_and(|l| !l.is_empty()));
            if page.is_empty() || !next {
                return Ok(all);
            }
        }
    }

    /// Begins to make a volume.
    pub async fn create(&self, volume: Value) -> Result<Volume, Trouble> {
        let answer = self.send(Call::new(Method::POST, "/volumes", "refuses to make the volume").with(volume)).await?;
        Volume::of(&answer["volume"])
    }

    /// Begins to delete a volume.
    pub async fn delete(&self, id: &str) -> Result<(), Trouble> {
        gone_is_well(
            self.send(Call::new(Method::DELETE, format!("/volumes/{id}"), "refuses to delete the volume")).await,
        )
    }

    /// Begins to delete a volume in any state, which only admins may do.
    pub async fn force_delete(&self, id: &str) -> Result<(), Trouble> {
        gone_is_well(self.act(id, "os-force_delete", json!({}), "refuses to delete the volume by force").await)
    }

    /// Marks an available volume as being attached, so that nobody else takes it.
    pub async fn reserve(&self, id: &str) -> Result<(), Trouble> {
        self.act(id, "os-reserve", json!({}), "does not reserve the volume").await.map(drop)
    }

    /// Removes that mark.
    pub async fn unreserve(&self, id: &str) -> Result<(), Trouble> {
        gone_is_well(self.act(id, "os-unreserve", json!({}), "does not unreserve the volume").await)
    }

    /// Opens a volume to a node, and returns how it is reached. This may be repeated.
    pub async fn connect(&self, id: &str, connector: &Value) -> Result<Connection, Trouble> {
        let what = "makes no connection to the volume";
        let answer = self.act(id, "os-initialize_connection", json!({ "connector": connector }), what).await?;
        Connection::of(&answer["connection_info"])
    }

    /// Closes a volume to a node.
    pub async fn disconnect(&self, id: &str, connector: &Value) -> Result<(), Trouble> {
        let what = "does not end the connection to the volume";
        gone_is_well(self.act(id, "os-terminate_connection", json!({ "connector": connector }), what).await)
    }

    /// Begins to extend an available volume, to a size in GiB.
    pub async fn extend(&self, id: &str, size: u64) -> Result<(), Trouble> {
        self.act(id, "os-extend", json!({ "new_size": size }), "does not extend the volume").await.map(drop)
    }

    /// Begins to make a snapshot.
    pub async fn snapshot_of(&self, snapshot: Value) -> Result<(), Trouble> {
        let call = Call::new(Method::POST, "/snapshots", "refuses to make the snapshot").with(snapshot);
        self.send(call).await.map(drop)
    }

    /// Begins to delete a snapshot.
    pub async fn delete_snapshot(&self, id: &str) -> Result<(), Trouble> {
        let call = Call::new(Method::DELETE, format!("/snapshots/{id}"), "refuses to delete the snapshot");
        gone_is_well(self.send(call).await)
    }

    /// Returns Cinder's messages about a volume or snapshot that could not be made, each once.
    pub async fn messages(&self, id: &str) -> Result<Vec<String>, Trouble> {
        let path = format!("/messages?resource_uuid={id}");
        let answer = self.send(Call::new(Method::GET, path, "does not say why").version(MESSAGES)).await?;
        let mut messages: Vec<String> = Vec::new();
        let texts = answer["messages"].as_array().into_iter().flatten();
        for message in texts.filter_map(|it| it["user_message"].as_str()) {
            if !messages.iter().any(|known| known == message) {
                messages.push(message.to_owned());
            }
        }
        Ok(messages)
    }

    /// Returns the GiB that the project's quota has left; `None` for no limit.
    pub async fn quota_left(&self) -> Result<Option<u64>, Trouble> {
        let answer = self.send(Call::new(Method::GET, "/limits", "does not tell the project's limits")).await?;
        let absolute = &answer["limits"]["absolute"];
        let number = |key: &str| absolute[key].as_i64();
        let (Some(most), Some(used)) = (number("maxTotalVolumeGigabytes"), number("totalGigabytesUsed")) else {
            return Err(unreadable("does not tell the project's limits"));
        };
        let volumes_full = match (number("maxTotalVolumes"), number("totalVolumesUsed")) {
            (Some(most), Some(used)) => most >= 0 && used >= most,
            _ => false,
        };
        Ok(match most {
            _ if volumes_full => Some(0),
            ..0 => None,
            most => Some(u64::try_from(most - used).unwrap_or(0)),
        })
    }

    /// Returns the pools of all backends, which only admins may see.
    pub async fn pools(&self) -> Result<Vec<Pool>, Trouble> {
        let path = "/scheduler-stats/get_pools?detail=True";
        let answer = self.send(Call::new(Method::GET, path, "does not show its pools")).await?;
        Ok(answer["pools"].as_array().into_iter().flatten().map(Pool::of).collect())
    }

    /// Returns the name of the backend that a volume type requires. Returns `None` if it requires none, or if the image
    /// may not see it.
    pub async fn backend_of_type(&self, name: &str) -> Result<Option<String>, Trouble> {
        let call = Call::new(Method::GET, "/types?is_public=None", "does not list the volume types");
        let answer = self.send(call).await?;
        let mut types = answer["volume_types"].as_array().into_iter().flatten();
        let Some(found) = types.find(|one| one["name"] == name || one["id"] == name) else {
            return Err(Trouble::new(
                Kind::Config,
                format!("Cinder has no volume type `{name}`: correct the parameter `type`"),
            ));
        };
        Ok(found["extra_specs"]["volume_backend_name"].as_str().map(str::to_owned))
    }

    async fn act(&self, id: &str, action: &str, argument: Value, what: &str) -> Result<Value, Trouble> {
        let path = format!("/volumes/{id}/action");
        self.send(Call::new(Method::POST, path, what).with(json!({ action: argument }))).await
    }

    /// Sends a request. If the token has expired meanwhile, sends it once more with a new one.
    async fn send(&self, call: Call<'_>) -> Result<Value, Trouble> {
        let first = self.session().await?;
        let answer = self.exchange(&call, &first).await?;
        let answer = match answer.status {
            StatusCode::UNAUTHORIZED if first.renewable => {
                self.session.replace(None);
                let again = self.session().await?;
                self.exchange(&call, &again).await?
            }
            _ => answer,
        };
        let without_content = answer.status == StatusCode::NO_CONTENT && call.method != Method::DELETE;
        match answer.status.is_success() && !without_content {
            true => Ok(answer.body),
            false => Err(Trouble::of(call.what, answer.status, &answer.body)),
        }
    }

    async fn session(&self) -> Result<Session, Trouble> {
        let known = self.session.borrow().clone();
        if let Some(session) = known {
            return Ok(session);
        }
        let session = log_in(&self.http, &self.cloud).await?;
        self.session.replace(Some(session.clone()));
        Ok(session)
    }

    async fn exchange(&self, call: &Call<'_>, session: &Session) -> Result<Answer, Trouble> {
        let url = format!("{}{}", session.endpoint, call.path);
        let mut headers = vec![("X-Auth-Token", session.token.as_str())];
        headers.extend(call.version.map(|version| ("OpenStack-API-Version", version)));
        // The pod's log shows the progress. It shows no bodies, because answers contain passwords.
        let action =
            call.body.as_ref().and_then(Value::as_object).and_then(|body| body.keys().next()).map(String::as_str);
        let path = call.path.split('?').next().unwrap_or_default();
        let server = format!("Cinder at {} ({})", session.endpoint, self.cloud.origin);
        let answer = self.http.send(&server, call.method.clone(), &url, &headers, call.body.as_ref()).await;
        let status = answer.as_ref().map_or("no answer".to_owned(), |answer| answer.status.as_u16().to_string());
        eprintln!("cinder: {} {path} {}: {status}", call.method, action.unwrap_or("-"));
        answer
    }
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

fn unreadable(what: &str) -> Trouble {
    Trouble::new(Kind::Config, format!("Cinder {what} in a form that is known: check the endpoint"))
}

/// Turns a missing object into a success.
fn gone_is_well(answer: Result<Value, Trouble>) -> Result<(), Trouble> {
    match answer {
        Err(trouble) if trouble.kind != Kind::Missing => Err(trouble),
        _ => Ok(()),
    }
}
