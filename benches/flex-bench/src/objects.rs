//! Objects from YAML, written with plain requests, so that the time of each write is known.

use std::path::Path;

use anyhow::{Context, Result, bail};
use http::Request;
use jiff::Timestamp;
use kube::Client;
use serde_json::{Value, json};

/// Reads the objects of a file.
///
/// # Errors
/// If the file cannot be read as YAML.
pub fn read(path: &Path) -> Result<Vec<Value>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    parse(&text).with_context(|| format!("parse {}", path.display()))
}

/// Reads the objects of a YAML stream.
///
/// # Errors
/// If it is not YAML.
pub fn parse(text: &str) -> Result<Vec<Value>> {
    let mut objects = Vec::new();
    for part in text.split("\n---\n") {
        let value: Value = serde_saphyr::from_str(part)?;
        if !value.is_null() {
            objects.push(value);
        }
    }
    Ok(objects)
}

/// Creates an object, and returns the time just before the request was sent.
///
/// # Errors
/// If the API refuses it.
pub async fn create(client: &Client, object: &Value) -> Result<(Timestamp, Value)> {
    let request = Request::post(collection(object)?)
        .header("content-type", "application/json")
        .body(serde_json::to_vec(object)?)?;
    let began = Timestamp::now();
    let created = client.request(request).await.with_context(|| format!("create {}", name(object)))?;
    Ok((began, created))
}

/// Creates or changes an object, as `kubectl apply --server-side` does.
///
/// # Errors
/// If the API refuses it.
pub async fn apply(client: &Client, object: &Value) -> Result<Value> {
    let url = format!("{}?fieldManager=flex-demo&force=true", member(object)?);
    let request =
        Request::patch(url).header("content-type", "application/apply-patch+yaml").body(serde_json::to_vec(object)?)?;
    client.request(request).await.with_context(|| format!("apply {}", name(object)))
}

/// Deletes an object, at once if `now`, and returns whether it existed, with the time just before the request.
///
/// # Errors
/// If the API refuses it.
pub async fn delete(client: &Client, object: &Value, now: bool) -> Result<(Timestamp, bool)> {
    let options = if now { json!({ "gracePeriodSeconds": 0 }) } else { json!({}) };
    let request = Request::delete(member(object)?)
        .header("content-type", "application/json")
        .body(serde_json::to_vec(&options)?)?;
    let began = Timestamp::now();
    match client.request::<Value>(request).await {
        Ok(_) => Ok((began, true)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok((began, false)),
        Err(error) => Err(error).with_context(|| format!("delete {}", name(object))),
    }
}

/// Merges a change into an object, or into one of its subresources such as `status`.
///
/// # Errors
/// If the API refuses it.
pub async fn merge(client: &Client, object: &Value, subresource: &str, change: &Value) -> Result<Value> {
    let url = member(object)? + if subresource.is_empty() { "" } else { "/" } + subresource;
    let request =
        Request::patch(url).header("content-type", "application/merge-patch+json").body(serde_json::to_vec(change)?)?;
    client.request(request).await.with_context(|| format!("change {}", name(object)))
}

/// Returns kind and name, for people.
pub fn name(object: &Value) -> String {
    let kind = object["kind"].as_str().unwrap_or("object");
    format!("{kind} {}", object["metadata"]["name"].as_str().unwrap_or("without a name"))
}

fn member(object: &Value) -> Result<String> {
    let name = object["metadata"]["name"].as_str().context("an object has no name")?;
    Ok(format!("{}/{name}", collection(object)?))
}

/// Returns the URL of all objects of the kind.
fn collection(object: &Value) -> Result<String> {
    let kind = object["kind"].as_str().unwrap_or_default();
    let (plural, namespaced) = match kind {
        "ConfigMap" => ("configmaps", true),
        "ServiceAccount" => ("serviceaccounts", true),
        "PersistentVolumeClaim" => ("persistentvolumeclaims", true),
        "Pod" => ("pods", true),
        "Job" => ("jobs", true),
        "DaemonSet" => ("daemonsets", true),
        "Role" => ("roles", true),
        "Secret" => ("secrets", true),
        "ResourceQuota" => ("resourcequotas", true),
        "RoleBinding" => ("rolebindings", true),
        "VolumeSnapshot" => ("volumesnapshots", true),
        "VolumeSnapshotClass" => ("volumesnapshotclasses", false),
        "VolumeAttributesClass" => ("volumeattributesclasses", false),
        "Namespace" => ("namespaces", false),
        "PersistentVolume" => ("persistentvolumes", false),
        "StorageClass" => ("storageclasses", false),
        "ClusterRole" => ("clusterroles", false),
        "ClusterRoleBinding" => ("clusterrolebindings", false),
        other => bail!("objects of kind `{other}` are not known here"),
    };
    let version = object["apiVersion"].as_str().context("an object has no apiVersion")?;
    let root = if version.contains('/') { "apis" } else { "api" };
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or("default");
    Ok(match namespaced {
        true => format!("/{root}/{version}/namespaces/{namespace}/{plural}"),
        false => format!("/{root}/{version}/{plural}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_of_a_stream_have_their_addresses() {
        let objects = parse(
            "# one\napiVersion: v1\nkind: Pod\nmetadata: {name: a}\n---\n# two\napiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: b}\n",
        )
        .unwrap();
        let addresses: Vec<_> = objects.iter().map(|object| member(object).unwrap()).collect();
        assert_eq!(addresses, ["/api/v1/namespaces/default/pods/a", "/apis/storage.k8s.io/v1/storageclasses/b"]);
        assert!(member(&json!({ "kind": "Unheard", "apiVersion": "v1", "metadata": { "name": "a" } })).is_err());
    }

    /// The demo and the benchmarks apply these files as they are.
    #[test]
    fn each_shipped_object_has_an_address() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut files = Vec::new();
        for folder in ["configmaps", "examples"].map(|folder| root.join(folder)) {
            let mut folders = vec![folder];
            while let Some(folder) = folders.pop() {
                for entry in std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
                    match entry.extension().is_some_and(|extension| extension == "yaml") {
                        true => files.push(entry),
                        false if entry.is_dir() => folders.push(entry),
                        false => {}
                    }
                }
            }
        }
        assert!(files.len() > 10, "{files:?}");
        for file in files {
            for object in read(&file).unwrap() {
                member(&object).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            }
        }
    }
}
