//! The API server's handling of the orchestrator's requests.

use std::rc::Rc;

use flex_core::object::ObjectName;
use serde_json::{Value, json};

use crate::store::{self, Kind, Store};
use crate::wire::{Answer, Request, Verb};
use crate::world::{has_start_gate, owner_uid};

/// Carries a request out.
pub fn handle(store: &mut Store, request: &Request) -> Answer {
    let Request { verb, kind, name, .. } = request;
    match verb {
        Verb::Get => match store.get(*kind, name) {
            Some(object) => Answer::ok(object),
            None => not_found(*kind, name),
        },
        // The orchestrator's Role in a namespace is deleted with the namespace.
        Verb::List if store.is_closed(&name.namespace) && is_gone(store, &name.namespace) => {
            Answer::error(403, "Forbidden", format!("cannot list resource in the namespace \"{}\"", name.namespace))
        }
        Verb::List => list(store, store.all(*kind), request),
        Verb::Create if is_gone(store, &name.namespace) => {
            Answer::error(404, "NotFound", format!("namespaces \"{}\" not found", name.namespace))
        }
        Verb::Create if store.is_closed(&name.namespace) => Answer::error(
            403,
            "Forbidden",
            format!("unable to create new content in namespace {} because it is being terminated", name.namespace),
        ),
        Verb::Create => create(store, request),
        Verb::Patch if request.body.is_array() => json_patch(store, request),
        Verb::Patch => patch(store, request),
        Verb::Delete => delete(store, request),
    }
}

fn is_gone(store: &Store, namespace: &str) -> bool {
    namespace == crate::VENDOR && store.get(Kind::Namespace, &ObjectName::new("", namespace)).is_none()
}

fn not_found(kind: Kind, name: &ObjectName) -> Answer {
    Answer::error(404, "NotFound", format!("{kind:?} \"{}\" not found", name.name))
}

fn conflict(name: &ObjectName) -> Answer {
    Answer::error(
        409,
        "Conflict",
        format!(
            "Operation cannot be fulfilled on \"{}\": the object has been modified; please apply your changes to the latest version and try again",
            name.name
        ),
    )
}

fn invalid(name: &ObjectName, why: &str) -> Answer {
    Answer::error(422, "Invalid", format!("\"{}\" is invalid: {why}", name.name))
}

/// Answers the list of the objects that a request selects.
pub fn list<'s>(
    store: &Store,
    all: impl Iterator<Item = (&'s ObjectName, &'s Rc<Value>)>,
    request: &Request,
) -> Answer {
    let Request { kind, name, labels, is_whole, .. } = request;
    let same = |selected: &str, of: &str| selected.is_empty() || of == selected;
    let within = |of: &ObjectName| same(&name.namespace, &of.namespace) && same(&name.name, &of.name);
    let has = |object: &Value| labels.iter().all(|(key, value)| store::label(object, key) == value);
    let selected = all.filter(|(of, object)| within(of) && has(object));
    // Of other kinds the orchestrator reads only the metadata, whatever it asks for.
    if *is_whole && *kind == Kind::Pod {
        let items: Vec<&Value> = selected.map(|(_, object)| &**object).collect();
        let metadata = json!({ "resourceVersion": store.version().to_string() });
        return Answer::ok(&json!({ "apiVersion": "v1", "kind": "PodList", "metadata": metadata, "items": items }));
    }
    let items: Vec<Value> = selected
        .map(|(_, object)| {
            json!({ "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": object["metadata"] })
        })
        .collect();
    Answer::ok(&json!({
        "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "items": items,
        "metadata": { "resourceVersion": store.version().to_string() },
    }))
}

fn create(store: &mut Store, request: &Request) -> Answer {
    let mut object = (*request.body).clone();
    object["metadata"]["namespace"] = json!(request.name.namespace);
    if request.kind == Kind::Job {
        // Adds the fields that the Job controller and the garbage collector need.
        object["status"] = json!({});
        object["spec"]["suspend"] = json!(false);
    }
    if request.kind == Kind::Claim {
        object["status"] = json!({ "phase": "Pending" });
        add_finalizer(&mut object, crate::world::CLAIM_PROTECTION);
    }
    match store.create(request.kind, object) {
        Some(object) => Answer::created(&object),
        None => Answer::error(409, "AlreadyExists", format!("\"{}\" already exists", request.name.name)),
    }
}

/// Applies a merge patch by RFC 7386.
pub fn merge(into: &mut Value, from: &Value) {
    let Value::Object(from) = from else {
        *into = from.clone();
        return;
    };
    if !into.is_object() {
        *into = json!({});
    }
    for (key, value) in from {
        match value {
            Value::Null => {
                if let Some(into) = into.as_object_mut() {
                    into.remove(key);
                }
            }
            value => merge(&mut into[key], value),
        }
    }
}

/// The directive of a strategic merge patch that removes finalizers.
const REMOVED_FINALIZERS: &str = "$deleteFromPrimitiveList/finalizers";

/// Merges conditions by their type; a condition with `$patch: delete` is removed.
fn strategic(before: &Value, patch: &Value) -> Value {
    let mut conditions = before.as_array().cloned().unwrap_or_default();
    for condition in patch.as_array().into_iter().flatten() {
        let same = conditions.iter().position(|there| there["type"] == condition["type"]);
        match (same, condition["$patch"] == "delete") {
            (Some(at), true) => {
                conditions.remove(at);
            }
            (Some(at), false) => merge(&mut conditions[at], condition),
            (None, true) => {}
            (None, false) => conditions.push(condition.clone()),
        }
    }
    json!(conditions)
}

fn patch(store: &mut Store, request: &Request) -> Answer {
    let Request { kind, name, body, .. } = request;
    let Some(before) = store.get(*kind, name).cloned() else { return not_found(*kind, name) };
    let metadata = &body["metadata"];
    let same = |key: &str| metadata[key].is_null() || metadata[key] == before["metadata"][key];
    if !same("uid") || !same("resourceVersion") {
        return conflict(name);
    }
    let mut after = (*before).clone();
    match request.status {
        true => {
            merge(&mut after["status"], &body["status"]);
            let conditions = &body["status"]["conditions"];
            if conditions.is_array() {
                after["status"]["conditions"] = strategic(&before["status"]["conditions"], conditions);
            }
        }
        false => {
            let status = before["status"].clone();
            let mut body = (**body).clone();
            let removed = body["metadata"].as_object_mut().and_then(|metadata| metadata.remove(REMOVED_FINALIZERS));
            merge(&mut after, &body);
            after["status"] = status;
            if let Some(finalizers) = after["metadata"]["finalizers"].as_array_mut() {
                finalizers
                    .retain(|finalizer| !removed.iter().flat_map(Value::as_array).flatten().any(|it| it == finalizer));
            }
        }
    }
    let added = store::finalizers(&after).any(|finalizer| !store::has_finalizer(&before, finalizer));
    if store::is_deleting(&before) && added {
        return invalid(
            name,
            "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted",
        );
    }
    let volume_name = store::text(&before, "/spec/volumeName");
    if *kind == Kind::Claim && !volume_name.is_empty() && volume_name != store::text(&after, "/spec/volumeName") {
        return invalid(name, "spec: Forbidden: spec is immutable after creation");
    }
    match store.replace(*kind, name, after) {
        Some(object) => Answer::ok(&object),
        None => not_found(*kind, name),
    }
}

/// Removes the value at a path; returns whether there was one.
fn remove(object: &mut Value, path: &str) -> bool {
    let Some((within, key)) = path.rsplit_once('/') else { return false };
    match object.pointer_mut(within) {
        Some(Value::Object(fields)) => fields.remove(key).is_some(),
        Some(Value::Array(items)) => {
            let at = key.parse::<usize>().ok().filter(|at| *at < items.len());
            at.map(|at| items.remove(at)).is_some()
        }
        _ => false,
    }
}

/// Applies an operation of a JSON patch by RFC 6902; returns whether it is possible.
fn operate(object: &mut Value, operation: &Value) -> bool {
    let path = store::text(operation, "/path");
    match store::text(operation, "/op") {
        "test" => object.pointer(path) == Some(&operation["value"]),
        "remove" => remove(object, path),
        other => panic!("the simulation knows nothing of {other} in a JSON patch"),
    }
}

/// Applies a JSON patch, as a whole or not at all.
fn json_patch(store: &mut Store, request: &Request) -> Answer {
    let Request { kind, name, body, .. } = request;
    let Some(before) = store.get(*kind, name).cloned() else { return not_found(*kind, name) };
    let mut after = (*before).clone();
    if !body.as_array().into_iter().flatten().all(|operation| operate(&mut after, operation)) {
        return Answer::error(422, "Invalid", "the server rejected our request due to an error in our request");
    }
    // The API server writes no empty list.
    if after["spec"]["schedulingGates"].as_array().is_some_and(Vec::is_empty) {
        remove(&mut after, "/spec/schedulingGates");
    }
    if has_start_gate(&before["spec"]) && !has_start_gate(&after["spec"]) {
        store.opened.insert(store::uid(&before).to_owned(), owner_uid(&before).to_owned());
    }
    match store.replace(*kind, name, after) {
        Some(object) => Answer::ok(&object),
        None => not_found(*kind, name),
    }
}

fn delete(store: &mut Store, request: &Request) -> Answer {
    let Request { kind, name, body, .. } = request;
    let Some(before) = store.get(*kind, name).cloned() else { return not_found(*kind, name) };
    let wanted = &body["preconditions"];
    let same = |key: &str| wanted[key].is_null() || wanted[key] == before["metadata"][key];
    if !same("uid") || !same("resourceVersion") {
        return conflict(name);
    }
    if body["propagationPolicy"] == "Foreground" && !store::is_deleting(&before) {
        store.update(*kind, name, |object| add_finalizer(object, FOREGROUND));
    }
    store.delete(*kind, name);
    match store.get(*kind, name) {
        Some(object) => Answer::ok(object),
        None => Answer::ok(&json!({ "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Success" })),
    }
}

/// The finalizer of the garbage collector, for a deletion that waits for dependents.
pub const FOREGROUND: &str = "foregroundDeletion";

/// Adds a finalizer.
pub fn add_finalizer(object: &mut Value, name: &str) {
    if !store::has_finalizer(object, name) {
        match object["metadata"]["finalizers"].as_array_mut() {
            Some(finalizers) => finalizers.push(json!(name)),
            None => object["metadata"]["finalizers"] = json!([name]),
        }
    }
}
