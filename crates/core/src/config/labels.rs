//! Common mistakes in the labels by which a ConfigMap becomes a config and names its class.

use std::collections::BTreeMap;

use flex_contract::names;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::Problem;
use super::keys;
use super::spelling::{letters, reads_like};
use crate::object::is_dns_name;

/// The labels that name the class of a ConfigMap. The first wins.
const CLASS_LABELS: [&str; 2] = [names::LABEL_STORAGE_CLASS, names::LABEL_CLASS];

/// Returns the class that a ConfigMap names, with the label.
pub(super) fn class(metadata: &ObjectMeta) -> Option<(&'static str, &str)> {
    let labels = metadata.labels.as_ref()?;
    let mut named = CLASS_LABELS.into_iter().filter_map(|label| Some((label, labels.get(label)?.as_str())));
    named.find(|(_, class)| !class.is_empty())
}

/// Finds common mistakes in the labels by which a ConfigMap names its class.
pub fn in_labels(metadata: &ObjectMeta) -> Vec<Problem> {
    let label = names::LABEL_STORAGE_CLASS;
    let said = |message: String| Problem::new("", message);
    let value = |label: &str| metadata.labels.as_ref().and_then(|labels| labels.get(label));
    if let Some((label, class)) = class(metadata) {
        let impossible = (!is_dns_name(class)).then(|| {
            format!(
                "its label `{label}: {class}` names an impossible class: no StorageClass and no claim can have this name; write lower-case letters, digits, `-` and `.`"
            )
        });
        let other = value(names::LABEL_CLASS).filter(|other| *other != class).map(|other| {
            format!(
                "its label `{}: {other}` has no effect beside `{label}: {class}`; remove one of the two",
                names::LABEL_CLASS
            )
        });
        return impossible.into_iter().chain(other).map(said).collect();
    }
    let empty = CLASS_LABELS.into_iter().filter(|label| value(label).is_some());
    let empty = empty.map(|label| said(format!("its label `{label}` is empty, so it names no class; write the class")));
    let strays = metadata
        .labels
        .iter()
        .flat_map(BTreeMap::keys)
        .filter(|key| names_class(key))
        .map(|key| said(format!("its label `{key}` has no effect; the label that names the class is `{label}`")));
    let annotated =
        metadata.annotations.iter().flat_map(BTreeMap::keys).filter(|key| *key == label || names_class(key));
    let annotated =
        annotated.map(|key| said(format!("its annotation `{key}` has no effect; the label `{label}` names the class")));
    empty.chain(strays).chain(annotated).collect()
}

/// Checks whether a ConfigMap has the label that makes it a config.
pub fn is_marked(metadata: &ObjectMeta) -> bool {
    let mark = metadata.labels.as_ref().and_then(|labels| labels.get(names::LABEL_TYPE));
    mark.is_some_and(|mark| mark == names::LABEL_TYPE_CONFIG)
}

/// Returns the reason why an unmarked ConfigMap was probably meant to be a config; `None` for other ConfigMaps.
pub fn unmarked(map: &ConfigMap) -> Option<String> {
    let (label, mark) = (names::LABEL_TYPE, names::LABEL_TYPE_CONFIG);
    let labels = || map.metadata.labels.iter().flatten();
    let marks = |value: &str| value == mark || reads_like(value, mark);
    if let Some((key, value)) = labels().find(|(_, value)| marks(value)) {
        return Some(format!("has the label `{key}: {value}` in place of `{label}: {mark}`"));
    }
    if let Some((key, _)) = map.metadata.annotations.iter().flatten().find(|(_, value)| marks(value)) {
        return Some(format!("has the annotation `{key}` in place of the label `{label}`"));
    }
    let has = |key: &str| map.data.as_ref().is_some_and(|data| data.contains_key(key));
    let names_class = || labels().any(|(key, _)| CLASS_LABELS.contains(&key.as_str()) || names_class(key));
    let meant = has(keys::PLUGIN_NAME.name) || has(keys::IMAGE.name) && names_class();
    meant.then(|| match labels().find(|(key, _)| *key == label) {
        Some((_, value)) => format!("has the label `{label}: {value}`"),
        None => format!("lacks the label `{label}`"),
    })
}

/// Checks whether the key of a label resembles the one that names the class.
fn names_class(key: &str) -> bool {
    let word = key.rsplit('/').next().unwrap_or_default();
    let wanted = names::LABEL_STORAGE_CLASS;
    let is_named = word == wanted || reads_like(word, wanted) || letters(word) == letters(wanted) + "name";
    key != wanted && is_named
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn other_spellings_of_the_class_label_are_found() {
        let said = |labels: &[(&str, &str)], annotations: &[(&str, &str)]| {
            let (labels, annotations) = (Some(map(labels)), Some(map(annotations)));
            let found = in_labels(&ObjectMeta { labels, annotations, ..ObjectMeta::default() });
            found.iter().map(Problem::to_string).collect::<Vec<_>>()
        };
        for label in [
            "storageclass",
            "storageClass",
            "storage_class",
            "storage-class-name",
            "storage-clas",
            "x.io/storage-class",
        ] {
            let messages = said(&[("type", "provisioner-config"), (label, "silver")], &[]);
            let texts = format!("its label `{label}` has no effect; the label that names the class is `storage-class`");
            assert_eq!(messages, [texts]);
        }
        for label in ["app", "team", "storage", "class", "type"] {
            assert_eq!(said(&[(label, "silver")], &[]), [""; 0], "{label}");
        }
        assert_eq!(said(&[("storage-class", "silver"), ("storageclass", "gold")], &[]), [""; 0], "one is enough");
        let messages = said(&[], &[("storage-class", "silver"), ("team", "a")]);
        assert!(messages.len() == 1 && messages[0].starts_with("its annotation `storage-class`"), "{messages:?}");
        assert_eq!(said(&[("flex-provisioner.io/class", "silver")], &[]), [""; 0]);
        let messages = said(&[("storage-class", "silver"), ("flex-provisioner.io/class", "gold")], &[]);
        let texts = "its label `flex-provisioner.io/class: gold` has no effect beside `storage-class: silver`; remove one of the two";
        assert_eq!(messages, [texts]);
        assert_eq!(said(&[("storage-class", "silver"), ("flex-provisioner.io/class", "silver")], &[]), [""; 0]);
        let messages = said(&[("storage-class", "")], &[]);
        assert!(messages.len() == 1 && messages[0].contains("is empty"), "{messages:?}");
        for class in ["Silver", "my_class"] {
            let messages = said(&[("storage-class", class)], &[]);
            assert!(messages.len() == 1 && messages[0].contains("names an impossible class"), "{messages:?}");
        }
    }

    #[test]
    fn a_config_without_its_label_is_found_and_foreign_config_maps_are_left_alone() {
        let why = |labels: &[(&str, &str)], data: &[(&str, &str)]| {
            let metadata = ObjectMeta { labels: Some(map(labels)), ..ObjectMeta::default() };
            let config = ConfigMap { metadata, data: Some(map(data)), ..ConfigMap::default() };
            assert!(!is_marked(&config.metadata));
            unmarked(&config)
        };
        for labels in [("type", "provisioner-configs"), ("type", "Provisioner-Config"), ("kind", "provisioner-config")]
        {
            assert!(why(&[labels], &[]).unwrap().contains("in place of `type: provisioner-config`"), "{labels:?}");
        }
        for (labels, data) in [
            (&[][..], &[("plugin-name", "x")][..]),
            (&[("storageClass", "a")], &[("image", "x")]),
            (&[("storage-class", "a")], &[("image", "x")]),
        ] {
            assert_eq!(why(labels, data).as_deref(), Some("lacks the label `type`"), "{labels:?}");
        }
        for (labels, data) in [
            (&[][..], &[("image", "x")][..]),
            (&[("type", "config")], &[("image", "x")]),
            (&[("storage-class", "a")], &[("zone", "x")]),
        ] {
            assert_eq!(why(labels, data), None, "{labels:?}");
        }
        let marked = ObjectMeta { labels: Some(map(&[("type", "provisioner-config")])), ..ObjectMeta::default() };
        assert!(is_marked(&marked));
    }
}
