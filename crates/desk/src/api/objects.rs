//! Objects beside the volumes, which images with rights of their own read and write: a pure function of the stored objects
//! and the request.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::reply::{Asked, status};
use crate::rights::Rights;

/// A resource, and perhaps one of its objects, as a path of the API names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target<'a> {
    /// The group; empty for the first API.
    pub group: &'a str,
    /// The resource.
    pub resource: &'a str,
    /// The name of the object.
    pub name: Option<&'a str>,
}

/// Reads a path of the API; `None` for paths of other forms, such as those of subresources.
pub(super) fn target(path: &str) -> Option<Target<'_>> {
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let (group, rest) = match parts.as_slice() {
        ["api", "v1", rest @ ..] => ("", rest),
        ["apis", group, _, rest @ ..] => (*group, rest),
        _ => return None,
    };
    match rest {
        ["namespaces", _, resource] => Some(Target { group, resource, name: None }),
        ["namespaces", _, resource, name] => Some(Target { group, resource, name: Some(name) }),
        [resource] => Some(Target { group, resource, name: None }),
        [resource, name] => Some(Target { group, resource, name: Some(name) }),
        _ => None,
    }
}

/// Returns the verb of a request.
pub(super) fn verb(method: &str, has_name: bool) -> &'static str {
    match method {
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ if has_name => "get",
        _ => "list",
    }
}

/// Answers a request if the rights permit it; `None` if they do not.
pub(super) fn answer(objects: &mut BTreeMap<String, Value>, rights: &Rights, asked: Asked<'_>) -> Option<(u16, Value)> {
    let target = target(asked.path)?;
    let verb = verb(asked.method, target.name.is_some());
    if !rights.permit(target.group, target.resource, verb) {
        return None;
    }
    let missing =
        || status(404, "NotFound", &format!("{} \"{}\" not found", target.resource, target.name.unwrap_or("")));
    let body = || serde_json::from_slice::<Value>(asked.body);
    let unreadable = || status(400, "BadRequest", "the object cannot be read");
    Some(match (verb, target.name) {
        ("get", Some(_)) => objects.get(asked.path).map_or_else(missing, |object| (200, object.clone())),
        ("list", None) => {
            let within = format!("{}/", asked.path);
            let items: Vec<&Value> =
                objects.iter().filter(|(path, _)| path.starts_with(&within)).map(|(_, object)| object).collect();
            (200, json!({ "kind": "List", "apiVersion": "v1", "metadata": {}, "items": items }))
        }
        ("delete", Some(_)) => match objects.remove(asked.path) {
            Some(_) => (200, json!({ "kind": "Status", "apiVersion": "v1", "status": "Success" })),
            None => missing(),
        },
        ("create", None) => match body() {
            Ok(object) => {
                let path = format!("{}/{}", asked.path, object["metadata"]["name"].as_str().unwrap_or_default());
                if objects.contains_key(&path) {
                    return Some(status(409, "AlreadyExists", &format!("{path} already exists")));
                }
                objects.insert(path, object.clone());
                (201, object)
            }
            Err(_) => unreadable(),
        },
        // A patch of a missing object creates it, as a server-side apply does.
        ("patch" | "update", Some(_)) => match body() {
            Ok(patch) => {
                let object = objects.entry(asked.path.to_owned()).or_insert_with(|| json!({}));
                merge(object, patch);
                (200, object.clone())
            }
            Err(_) => unreadable(),
        },
        _ => status(405, "MethodNotAllowed", "the desk does not answer this request"),
    })
}

/// Merges a patch into an object.
fn merge(object: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *object = patch;
        return;
    };
    if !object.is_object() {
        *object = json!({});
    }
    for (key, value) in patch {
        match value {
            Value::Null => drop(object.as_object_mut().and_then(|all| all.remove(&key))),
            value => merge(&mut object[key.as_str()], value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_group_resource_and_object() {
        let of = |group, resource, name| Some(Target { group, resource, name });
        for (path, expected) in [
            ("/api/v1/nodes", of("", "nodes", None)),
            ("/api/v1/namespaces/a/secrets/b", of("", "secrets", Some("b"))),
            ("/apis/storage.k8s.io/v1/csinodes/n", of("storage.k8s.io", "csinodes", Some("n"))),
            ("/apis/apps/v1/namespaces/a/deployments", of("apps", "deployments", None)),
            ("/api/v1/namespaces/a/pods/b/log", None),
            ("/version", None),
        ] {
            assert_eq!(target(path), expected, "{path}");
        }
    }

    #[test]
    fn an_image_with_rights_keeps_objects_and_one_without_does_not() {
        let all = json!([{ "kind": "Role", "rules": [
            { "apiGroups": [""], "resources": ["secrets"], "verbs": ["patch", "delete", "get", "create", "list"] },
        ] }]);
        let rights = Rights::read(all.as_array().unwrap());
        let mut objects = BTreeMap::new();
        let mut ask = |rights: &Rights, method: &str, path: &str, body: Value| {
            let body = body.to_string();
            answer(&mut objects, rights, Asked { method, path, body: body.as_bytes() })
        };
        let (secrets, one) = ("/api/v1/namespaces/a/secrets", "/api/v1/namespaces/a/secrets/one");
        let code = |answer: Option<(u16, Value)>| answer.map(|(code, _)| code);
        assert_eq!(code(ask(&rights, "GET", one, Value::Null)), Some(404));
        assert_eq!(code(ask(&rights, "PATCH", one, json!({ "data": { "a": "x", "b": "y" } }))), Some(200));
        assert_eq!(code(ask(&rights, "PATCH", one, json!({ "data": { "b": null }, "type": "t" }))), Some(200));
        assert_eq!(ask(&rights, "GET", one, Value::Null), Some((200, json!({ "data": { "a": "x" }, "type": "t" }))));
        assert_eq!(code(ask(&rights, "POST", secrets, json!({ "metadata": { "name": "one" } }))), Some(409));
        let (_, listed) = ask(&rights, "GET", secrets, Value::Null).unwrap();
        assert_eq!(listed["items"].as_array().unwrap().len(), 1);
        assert_eq!(code(ask(&rights, "DELETE", one, Value::Null)), Some(200));
        assert_eq!(code(ask(&rights, "DELETE", one, Value::Null)), Some(404));
        assert_eq!(ask(&rights, "GET", "/api/v1/nodes", Value::Null), None);
        assert_eq!(ask(&Rights::default(), "GET", one, Value::Null), None);
    }
}
