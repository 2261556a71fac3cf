//! A cloud of a `clouds.yaml`, as the programs of OpenStack read it.

use std::collections::BTreeMap;

use serde_json::Value;

use super::raw::{Key, Raw};

/// The keys of a cloud, with the key of the object that has them.
pub const SPELLINGS: &[(&str, Key)] = &[
    ("auth.auth_url", Key::AuthUrl),
    ("auth.username", Key::Username),
    ("auth.user_id", Key::UserId),
    ("auth.password", Key::Password),
    ("auth.project_name", Key::ProjectName),
    ("auth.tenant_name", Key::ProjectName),
    ("auth.project_id", Key::ProjectId),
    ("auth.tenant_id", Key::ProjectId),
    ("auth.domain_name", Key::DomainName),
    ("auth.domain_id", Key::DomainId),
    ("auth.user_domain_name", Key::UserDomainName),
    ("auth.user_domain_id", Key::UserDomainId),
    ("auth.project_domain_name", Key::ProjectDomainName),
    ("auth.project_domain_id", Key::ProjectDomainId),
    ("auth.application_credential_id", Key::CredentialId),
    ("auth.application_credential_name", Key::CredentialName),
    ("auth.application_credential_secret", Key::CredentialSecret),
    ("region_name", Key::Region),
    ("interface", Key::Interface),
    ("endpoint_type", Key::Interface),
    ("cacert", Key::CaFile),
    ("block_storage_endpoint_override", Key::Endpoint),
    ("volume_endpoint_override", Key::Endpoint),
    ("volumev3_endpoint_override", Key::Endpoint),
    ("auth.endpoint", Key::Endpoint),
    ("auth_type", Key::AuthType),
    ("insecure", Key::Insecure),
];

/// Returns the written keys of a cloud, spelt like those that are read.
fn written(cloud: &Value) -> Vec<String> {
    let keys = |value: Option<&Value>| -> Vec<String> {
        value.and_then(Value::as_object).map(|object| object.keys().cloned().collect()).unwrap_or_default()
    };
    let of_login = keys(cloud.get("auth")).into_iter().map(|key| format!("auth.{key}"));
    keys(Some(cloud)).into_iter().filter(|key| key != "auth").chain(of_login).collect()
}

#[derive(serde::Deserialize)]
struct Document {
    #[serde(default)]
    clouds: BTreeMap<String, Value>,
}

/// Reads one of the clouds: the `chosen` one, or the only one.
///
/// # Errors
/// If the file cannot be read, or if the choice is not clear.
pub fn raw(text: &str, file: &str, chosen: Option<&str>) -> Result<Raw, String> {
    // The parser's error would show the lines around it, with the password among them.
    let document: Document = serde_saphyr::from_str(text)
        .map_err(|_| format!("{file} is not a clouds.yaml: it must be YAML with the key `clouds`"))?;
    let names: Vec<&str> = document.clouds.keys().map(String::as_str).collect();
    let name = match (chosen, names.as_slice()) {
        (Some(name), _) if document.clouds.contains_key(name) => name,
        (None, [only]) => only,
        (Some(name), _) => return Err(format!("{file} has no cloud `{name}`; it has: {}", names.join(", "))),
        (None, []) => return Err(format!("{file} has no clouds: the key `clouds` is missing or empty")),
        (None, _) => {
            return Err(format!("{file} has several clouds, {}: name one in the parameter `cloud`", names.join(", ")));
        }
    };
    let cloud = &document.clouds[name];
    let mut raw = Raw::new(&format!("cloud `{name}` of {file}"), SPELLINGS);
    raw.take(|spelling| {
        let value = spelling.split('.').try_fold(cloud, |value, part| value.get(part))?;
        match value {
            Value::String(text) => Some(text.clone()),
            // An id may look like a number, and `insecure` may be a number or a boolean.
            Value::Number(number) => Some(number.to_string()),
            Value::Bool(flag) => Some(flag.to_string()),
            _ => None,
        }
    });
    raw.keep_unread(written(cloud).into_iter());
    if cloud.get("verify") == Some(&Value::Bool(false)) {
        raw.values.insert(Key::Insecure, "true".into());
    }
    Ok(raw)
}
