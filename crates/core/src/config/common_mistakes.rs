//! Common mistakes: values in a config or a StorageClass that are valid, but probably wrong. Each unknown key is a parameter,
//! and the image gets the value of a parameter unchanged. So only the writer can know, and the writer gets a warning.

use std::collections::BTreeMap;

use flex_contract::parameter::check_name;
use flex_contract::request::is_reserved;

use super::Problem;
use super::input::{CONFIG_PARAMETER, ClassObject};
use super::keys::{self, KeySpec};
use super::spelling::{misspelt, near_key, reads_like};

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

/// Finds common mistakes in the data of a ConfigMap.
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

/// Finds common mistakes in the parameters of a StorageClass; `ours` says that they were not written for another provisioner.
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
    let name = data.get(keys::PLUGIN_NAME.name).map(|name| name.trim()).filter(|name| *name != ours)?;
    let (plugin, wanted) = (name.rsplit('/').next()?, ours.rsplit('/').next()?);
    (reads_like(name, ours) || reads_like(plugin, wanted) || plugin == wanted).then(|| {
        Problem::new(
            keys::PLUGIN_NAME.name,
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
            "looks like a secret, but is copied into ControllerRevisions, Jobs and PersistentVolumes, where many can read it; put it into a Secret of the ConfigMap's namespace, and name the Secret in `secret-env` or `secret-volume`",
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
#[path = "common_mistakes_tests.rs"]
mod tests;
