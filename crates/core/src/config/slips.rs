//! Slips: values in a config or a StorageClass that are valid, but probably mistakes. Each unknown key is a parameter,
//! and the image gets the value of a parameter unchanged. So only the writer can know, and the writer gets a warning.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use strsim::osa_distance;

use super::Problem;
use super::input::{CONFIG_PARAMETER, ClassObject};
use super::keys::{self, KeySpec};
use crate::object::is_dns_name;
use flex_contract::names;
use flex_contract::parameter::check_name;
use flex_contract::request::is_reserved;

/// Synonyms of keys, whose letters differ too much from the key to be found as a typing error.
const SYNONYMS: &[(&str, KeySpec)] = &[
    ("capability", keys::CAPABILITIES),
    ("mountopts", keys::MOUNT_OPTIONS),
    ("priorityclassname", keys::PRIORITY_CLASS),
    ("pullpolicy", keys::IMAGE_PULL_POLICY),
    ("reclaimpolicies", keys::RECLAIM_POLICY),
    ("retry", keys::RETRIES),
    ("runasuid", keys::RUN_AS_USER),
    ("serviceaccount", keys::SERVICE_ACCOUNT_NAME),
];

/// The last words in the names of parameters that hold secrets. The other words say whose secret it is.
pub const SECRETS: &[&str] = &[
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "credential",
    "credentials",
    "api-key",
    "apikey",
    "private-key",
    "privatekey",
    "secret-key",
    "secretkey",
];

/// A parameter of the image cinder that names a Secret.
const REFERENCE: &str = "ceph-secret";

/// Removes the differences of case and separators from a text.
pub fn letters(text: &str) -> String {
    text.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase()
}

/// Returns the key from which a name differs only in separators or case.
pub fn misspelt(name: &str) -> Option<&'static str> {
    let wanted = letters(name);
    keys::ALL.iter().map(|key| key.name).find(|key| letters(key) == wanted && *key != name)
}

/// Returns the key that a name with other letters was probably meant to be.
pub fn near_key(name: &str) -> Option<&'static str> {
    let word = letters(name);
    // StorageClasses of CSI drivers and several images use such names.
    let is_reference = ["secretname", "secretnamespace"].iter().any(|end| word.ends_with(end));
    if keys::is_key(name) || is_reference {
        return None;
    }
    let other = SYNONYMS.iter().find(|(other, _)| *other == word).map(|(_, key)| key.name);
    other.or_else(|| keys::ALL.iter().map(|key| key.name).find(|key| is_near(&word, &letters(key))))
}

/// Checks whether a word is another word with a typing error: one letter, or two in long words. People hardly ever
/// mistype the first letter, and `min` is no typing error of `max`.
fn is_near(word: &str, key: &str) -> bool {
    let most = if key.len() < 9 { 1 } else { 2 };
    word != key
        && word.len().abs_diff(key.len()) <= most
        && word.chars().next() == key.chars().next()
        && word.starts_with("min") == key.starts_with("min")
        && osa_distance(word, key) <= most
}

/// Finds slips in the labels by which a ConfigMap names its class.
pub fn in_labels(metadata: &ObjectMeta) -> Vec<Problem> {
    let label = names::LABEL_STORAGE_CLASS;
    let said = |message: String| Problem::new("", message);
    let class = metadata.labels.as_ref().and_then(|labels| labels.get(label));
    if let Some(class) = class.filter(|class| !class.is_empty()) {
        let message = || {
            format!(
                "its label `{label}: {class}` names an impossible class: no StorageClass and no claim can have this name; write lower-case letters, digits, `-` and `.`"
            )
        };
        return if is_dns_name(class) { Vec::new() } else { vec![said(message())] };
    }
    let empty = class.map(|_| said(format!("its label `{label}` is empty, so it names no class; write the class")));
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
    empty.into_iter().chain(strays).chain(annotated).collect()
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
    let names_class = || labels().any(|(key, _)| key == names::LABEL_STORAGE_CLASS || names_class(key));
    let meant = has(keys::PLUGIN_NAME.name) || has(keys::IMAGE.name) && names_class();
    meant.then(|| match labels().find(|(key, _)| *key == label) {
        Some((_, value)) => format!("has the label `{label}: {value}`"),
        None => format!("lacks the label `{label}`"),
    })
}

/// Checks whether two words differ only in separators, case or a typing error.
pub fn reads_like(word: &str, other: &str) -> bool {
    let (letters, wanted) = (letters(word), letters(other));
    word != other && (letters == wanted || is_near(&letters, &wanted))
}

/// Checks whether the key of a label resembles the one that names the class.
fn names_class(key: &str) -> bool {
    let word = key.rsplit('/').next().unwrap_or_default();
    let wanted = names::LABEL_STORAGE_CLASS;
    let is_named = word == wanted || reads_like(word, wanted) || letters(word) == letters(wanted) + "name";
    key != wanted && is_named
}

/// Finds slips in the data of a ConfigMap.
pub fn in_data(data: &BTreeMap<String, String>) -> Vec<Problem> {
    let is_text = |key: &str| !keys::is_key(key) || key == keys::SERVICE_TOKEN.name;
    // The check refuses the others.
    let is_parameter = |name: &&String| misspelt(name).is_none() && check_name(name, is_reserved).is_ok();
    let mut found: Vec<_> = data.keys().filter(is_parameter).filter_map(|name| near(name)).collect();
    found.extend(data.iter().filter(|(key, _)| is_text(key)).filter_map(|(key, value)| at_the_ends(key, value)));
    found.extend(data.iter().filter(|(key, _)| !keys::is_key(key)).filter_map(|(key, value)| secret(key, value)));
    found
}

/// Finds a config whose image has no account with which it could create a PersistentVolume.
pub fn without_account(data: &BTreeMap<String, String>) -> Option<Problem> {
    const WAYS: [KeySpec; 5] =
        [keys::SERVICE_ACCOUNT_NAME, keys::SERVICE_TOKEN, keys::SECRET_ENV, keys::SECRET_VOLUME, keys::POD_TEMPLATE];
    let has = |key: &KeySpec| data.get(key.name).is_some_and(|value| !value.trim().is_empty());
    (!WAYS.iter().any(has)).then(|| {
        Problem::new(
            WAYS[0].name,
            "is missing, so the image has no access to the Kubernetes API and can create no PersistentVolume; name a ServiceAccount that is bound to the ClusterRole flex-provisioner-image",
        )
    })
}

/// Finds slips in the parameters of a StorageClass; `ours` says that they were not written for another provisioner.
pub fn in_class(object: &ClassObject, ours: bool) -> Vec<Problem> {
    let mut found: Vec<_> = object.parameters.keys().filter(|_| ours).filter_map(|name| near_parameter(name)).collect();
    found.extend(object.parameters.iter().filter_map(|(key, value)| at_the_ends(key, value)));
    found.extend(object.parameters.iter().filter_map(|(key, value)| secret(key, value)));
    let class = &object.name;
    let with =
        |Problem { key, message }| Problem::new(key, format!("{message} (a parameter of StorageClass `{class}`)"));
    found.into_iter().map(with).collect()
}

/// Returns the warning about a config for another plugin whose plugin name was probably meant to be ours.
pub fn near_plugin(data: &BTreeMap<String, String>, ours: &str) -> Option<Problem> {
    let name = data.get("plugin-name").map(|name| name.trim()).filter(|name| *name != ours)?;
    let (plugin, wanted) = (name.rsplit('/').next()?, ours.rsplit('/').next()?);
    (reads_like(name, ours) || reads_like(plugin, wanted) || plugin == wanted).then(|| {
        Problem::new(
            "plugin-name",
            format!(
                "`{name}` is the name of another plugin, so the provisioner ignores the config; did you mean `{ours}`?"
            ),
        )
    })
}

fn did_you_mean(name: &str, key: &str) -> Problem {
    Problem::new(name, format!("is not a key, so the image gets it as a parameter; did you mean `{key}`?"))
}

fn near(name: &str) -> Option<Problem> {
    near_key(name).map(|key| did_you_mean(name, key))
}

fn near_parameter(name: &str) -> Option<Problem> {
    reads_like(name, CONFIG_PARAMETER)
        .then(|| did_you_mean(name, CONFIG_PARAMETER))
        .or_else(|| near(name).filter(|_| misspelt(name).is_none()))
}

/// Returns the value that was probably meant to name the config of a class.
pub fn meant_as_config(parameters: &BTreeMap<String, String>) -> Option<&str> {
    parameters.keys().find(|name| reads_like(name, CONFIG_PARAMETER)).map(String::as_str)
}

/// Finds a parameter with a secret in it, by its name. A parameter that only leads to a secret is none: a file, a
/// switch, or a template for each claim.
fn secret(name: &str, value: &str) -> Option<Problem> {
    let leads =
        value.is_empty() || value.starts_with('/') || ["true", "false"].contains(&value) || value.contains("${");
    (!leads && name != REFERENCE && is_secret(name)).then(|| {
        Problem::new(
            name,
            "reads like a secret, but is copied into ControllerRevisions, Jobs and PersistentVolumes, where many can read it; put it into a Secret of the ConfigMap's namespace, and name the Secret in `secret-env` or `secret-volume`",
        )
    })
}

fn is_secret(name: &str) -> bool {
    let mut texts = String::new();
    for c in name.chars() {
        if c.is_ascii_uppercase() && texts.ends_with(|last: char| last.is_ascii_lowercase() || last.is_ascii_digit()) {
            texts.push('-');
        }
        texts.push(if c.is_ascii_alphanumeric() { c } else { '-' });
    }
    let texts = texts.to_ascii_lowercase();
    SECRETS.iter().any(|secret| texts.strip_suffix(secret).is_some_and(|rest| rest.is_empty() || rest.ends_with('-')))
}

/// Finds white space around a value, which nobody sees in a file or a log.
fn at_the_ends(key: &str, value: &str) -> Option<Problem> {
    let text = value.strip_suffix('\n').unwrap_or(value);
    let is_one_line = !text.contains('\n');
    let what = if value.contains("\r\n") || value.ends_with('\r') {
        "has carriage returns at the ends of lines, as files of Windows have"
    } else if is_one_line && text.len() < value.len() {
        "is one line that ends with a line break, as `|` in YAML and files give it"
    } else if text.ends_with(char::is_whitespace) && (is_one_line || !text.ends_with('\n')) {
        "ends with white space"
    } else if is_one_line && text.starts_with(char::is_whitespace) {
        "begins with white space"
    } else {
        return None;
    };
    Some(Problem::new(key, format!("{what}, which the image gets, too; remove it")))
}

#[cfg(test)]
#[path = "slips_tests.rs"]
mod tests;
