//! The surroundings of the input: an orchestrator, a class, and the properties of each Job.

use std::collections::BTreeSet;

use flex_contract::names;
use flex_contract::names::CONTAINER;
use flex_contract::request::RunRequest;
use flex_core::config::Recipe;
use flex_core::config::classes::Identity;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{PodSpec, PodTemplateSpec};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::draw::MARKER;

/// The claim's UID, which the API server makes.
pub const UID: &str = "0d9c2f0e-0000-4000-8000-000000000001";
/// The limit of all annotations of an object, keys and values.
const ANNOTATIONS: usize = 256 * 1024;
/// The limit of one variable with its name, in the Linux kernel.
const VARIABLE: usize = 128 * 1024;
/// The largest request body that the API server takes.
const BODY: usize = 3 * 1024 * 1024;

/// Returns the identity of the orchestrator.
pub fn identity() -> Identity {
    Identity {
        provisioner: names::DEFAULT_PROVISIONER.into(),
        plugin: names::DEFAULT_PLUGIN.into(),
        instance: names::DEFAULT_INSTANCE.into(),
        config_namespaces: vec!["admin".into()],
        namespace: "admin".into(),
        shell_image: None,
        cluster: String::new(),
    }
}

/// Checks that an object is the same after writing and reading it as JSON and as YAML.
#[track_caller]
pub fn reads_back<T: Serialize + DeserializeOwned>(object: &T) {
    let json = serde_json::to_value(object).expect("the object can be written");
    let text = json.to_string();
    let again: T = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!(serde_json::to_value(&again).ok().as_ref(), Some(&json), "as JSON");
    // YAML is slow, and fails at single characters, not at whole objects.
    if !text.len().is_multiple_of(8) {
        return;
    }
    let text = serde_saphyr::to_string(&json).expect("the object can be written");
    // The written text is larger than any client may send.
    let options = serde_saphyr::options! { budget: None };
    let again: T =
        serde_saphyr::from_str_with_options(&text, options).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!(serde_json::to_value(&again).ok(), Some(json), "as YAML: {text}");
}

/// Returns the paths of texts that contain the marker, with `*` for numbers and the keys of annotations.
pub fn marked(value: &Value) -> BTreeSet<String> {
    fn walk(value: &Value, path: &str, found: &mut BTreeSet<String>) {
        match value {
            Value::String(text) if text.contains(MARKER) => {
                found.insert(path.to_owned());
            }
            Value::Array(items) => items.iter().for_each(|item| walk(item, &format!("{path}/*"), found)),
            Value::Object(fields) => fields.iter().for_each(|(key, value)| {
                let key = if path.ends_with("/annotations") && !key.contains(MARKER) { "*" } else { key };
                if key.contains(MARKER) {
                    found.insert(format!("the key {path}/{key}"));
                }
                walk(value, &format!("{path}/{key}"), found);
            }),
            _ => {}
        }
    }
    let mut found = BTreeSet::new();
    walk(value, "", &mut found);
    found
}

/// Where the full text of a user may be in a Job.
const VALUES: &[&str] = &[
    "/metadata/annotations/*",
    "/spec/template/metadata/annotations/*",
    // The name of a parameter is the name of a file.
    "/spec/template/spec/volumes/*/projected/sources/*/downwardAPI/items/*/path",
    // A class is its own label value, or its hash is.
    "/metadata/labels/flex-provisioner.io/class",
    "/spec/template/metadata/labels/flex-provisioner.io/class",
    "/spec/template/spec/containers/*/env/*/value",
];

/// Checks the properties of every Job, whatever its writers wrote.
pub fn check_job(job: &Job, recipe: &Recipe, request: &RunRequest) {
    reads_back(job);
    let json = serde_json::to_value(job).expect("the Job can be written");
    let name = job.metadata.name.as_deref().unwrap_or_default();
    assert!(is_label(name) && !name.is_empty(), "{name:?} is no name of a Job");
    assert_eq!(job.metadata.namespace.as_ref(), Some(&recipe.config.namespace));
    let strays: Vec<_> = marked(&json).into_iter().filter(|path| !VALUES.contains(&path.as_str())).collect();
    assert!(strays.is_empty(), "a user's text is in {strays:?}");
    let body = json.to_string().len();
    assert!(body < BODY, "the Job has {body} bytes");
    let template = &job.spec.as_ref().expect("a Job has a spec").template;
    pod(template, recipe, request);
}

/// Checks the properties of every pod.
fn pod(template: &PodTemplateSpec, recipe: &Recipe, request: &RunRequest) {
    let metadata = template.metadata.clone().unwrap_or_default();
    let spec = template.spec.clone().unwrap_or_default();
    let (labels, annotations) = (metadata.labels.unwrap_or_default(), metadata.annotations.unwrap_or_default());
    for (label, value) in [
        (names::LABEL_INSTANCE, request.instance.as_str()),
        (names::LABEL_OPERATION, request.operation.as_str()),
        (names::LABEL_VOLUME_ID, &request.volume_id),
        (names::LABEL_ATTEMPT, &request.attempt.to_string()),
    ] {
        assert_eq!(labels.get(label).map(String::as_str), Some(value), "{label}");
        assert!(is_label(value), "{label}: {value:?}");
    }
    assert!(labels.get(names::LABEL_CLASS).is_some_and(|class| is_label(class)), "{labels:?}");
    let bytes: usize = annotations.iter().map(|(key, value)| key.len() + value.len()).sum();
    assert!(bytes <= ANNOTATIONS, "the pod's annotations have {bytes} bytes");

    assert_eq!(spec.restart_policy.as_deref(), Some("Never"));
    assert_eq!(spec.node_name, None);
    assert_eq!(spec.service_account_name, recipe.service_account);
    let [container] = spec.containers.as_slice() else { panic!("{} containers", spec.containers.len()) };
    assert_eq!((container.name.as_str(), container.image.as_ref()), (CONTAINER, Some(&recipe.image)));
    for (texts, wanted) in [(&container.command, &recipe.command), (&container.args, &recipe.args)] {
        if !wanted.is_empty() {
            let plain: Vec<_> = texts.iter().flatten().map(|word| unescaped(word)).collect();
            assert_eq!(&plain, wanted);
        }
    }

    let env = container.env.clone().unwrap_or_default();
    let mut observed = BTreeSet::new();
    for variable in &env {
        assert!(observed.insert(&variable.name), "the variable {} exists twice", variable.name);
        let size = variable.name.len() + variable.value.as_ref().map_or(0, String::len) + 2;
        assert!(size < VARIABLE * 2, "{} has {size} bytes", variable.name);
    }
    let properties = request.properties();
    let files = files(&spec);
    assert_eq!(files.len(), properties.len(), "{files:?}");
    let mut total = 0;
    for (property, (file, annotation)) in properties.iter().zip(files) {
        let variable = env.iter().find(|variable| variable.name == property.env());
        let value = variable.and_then(|variable| variable.value.as_deref()).map(unescaped);
        assert_eq!(value.as_ref(), Some(&property.value), "{}", property.name);
        assert!(property.name.len() + property.value.len() + 2 < VARIABLE, "{} is too long", property.name);
        assert!(!property.value.contains('\0'), "{} has a zero byte", property.name);
        assert_eq!((file.as_str(), annotations.get(&annotation)), (property.name.as_str(), Some(&property.value)));
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        assert!(file.chars().all(plain) && !file.starts_with('.') && !file.contains(".."), "{file:?} is no file");
        total += property.name.len() + property.value.len() + 2;
    }
    assert!(total < 1024 * 1024, "the environment has {total} bytes");
    assert_eq!(request.pv_name, names::pv_name(&request.volume_id));
}

/// Returns the files of the properties, with the annotation of each.
fn files(spec: &PodSpec) -> Vec<(String, String)> {
    let volume =
        spec.volumes.iter().flatten().find(|volume| volume.name == "flex-properties").expect("the pod has the volume");
    let sources = volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten());
    let items = sources.filter_map(|source| source.downward_api.as_ref()?.items.clone()).flatten();
    items
        .map(|item| {
            let field = item.field_ref.expect("a file shows a field").field_path;
            let annotation = field.strip_prefix("metadata.annotations['").and_then(|rest| rest.strip_suffix("']"));
            (item.path, annotation.expect("a file shows an annotation").to_owned())
        })
        .collect()
}

/// Returns a value as the kubelet reads it: `$$` is a dollar, and a reference would be replaced.
fn unescaped(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if c == '$' {
            assert_eq!(rest.next(), Some('$'), "{text:?} would be expanded");
        }
        plain.push(c);
    }
    plain
}

/// Returns whether a text can be the value of a label, or the name of a Job, whose pods have it as a label.
fn is_label(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    text.len() <= 63
        && text.chars().all(inner)
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.ends_with(|c: char| c.is_ascii_alphanumeric())
}

/// Checks a text for people: it is short, and contains no commands for terminals.
#[track_caller]
pub fn check_request_size(text: &str, most: usize) {
    assert!(text.len() <= most, "{} bytes are printed: {}", text.len(), text.chars().take(200).collect::<String>());
    let control = text.chars().find(|c| c.is_control() && *c != '\n');
    assert_eq!(control, None, "{text:?}");
}
