//! Names of objects.

use std::fmt;
use std::str::FromStr;

use flex_contract::names;

/// The namespace and the name of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct ObjectName {
    /// The namespace.
    pub namespace: String,
    /// The name in the namespace.
    pub name: String,
}

impl ObjectName {
    /// Makes a name of both parts.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// Returns the name of a namespaced object from its metadata.
    pub fn of(metadata: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta) -> Self {
        Self::new(metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
    }

    /// Writes the command by which an admin lets go of the object. `value` is that of the annotation.
    pub fn abandon_command(&self, resource: &str, value: &str) -> String {
        let namespace = if self.namespace.is_empty() { String::new() } else { format!("-n {} ", self.namespace) };
        format!("kubectl {namespace}annotate {resource} {} {}={value}", self.name, names::ABANDON)
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl FromStr for ObjectName {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('/') {
            Some((namespace, name)) if is_dns_name(namespace) && is_dns_name(name) => Ok(Self::new(namespace, name)),
            _ => Err(format!("`{text}` is not of the form namespace/name")),
        }
    }
}

/// Checks that a text can name an object: a DNS subdomain in lower case. As in Kubernetes, its labels may have any
/// length.
pub fn is_dns_name(text: &str) -> bool {
    let label = |label: &str| {
        !label.is_empty()
            && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    text.len() <= 253 && text.split('.').all(label)
}

/// Checks whether a text can be the name of a CSI driver or of a provisioner. A provisioner that is no CSI driver has one
/// slash in its name.
pub fn is_provisioner_name(text: &str) -> bool {
    text.len() <= 63 && text.splitn(2, '/').all(is_dns_name)
}

/// Turns a text into the value of a label: the text itself if allowed, else its hash.
pub fn label_value(text: &str) -> String {
    if is_label_name(text) { text.to_owned() } else { hash(text.as_bytes()) }
}

/// Checks whether a text can be the key of a label: a name, or a DNS subdomain, a slash and a name.
pub fn is_label_key(text: &str) -> bool {
    match text.split_once('/') {
        Some((prefix, name)) => is_dns_name(prefix) && is_label_name(name),
        None => is_label_name(text),
    }
}

/// Checks whether a text can be the name in a label's key, or a label's value that is not empty.
pub fn is_label_name(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let edge = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= 63 && bytes.iter().all(|b| inner(*b)) && edge(bytes.first()) && edge(bytes.last())
}

/// Returns a short hash in hexadecimal: 16 characters of SHA-256.
pub fn hash(bytes: &[u8]) -> String {
    use sha2::Digest;
    let digest: [u8; 32] = sha2::Sha256::digest(bytes).into();
    let (first, _) = digest.split_first_chunk().expect("a digest has 32 bytes");
    format!("{:016x}", u64::from_be_bytes(*first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_values_are_legal_and_distinct() {
        assert_eq!(label_value("silver"), "silver");
        let long = "a".repeat(100);
        assert_eq!(label_value(&long).len(), 16);
        assert_ne!(label_value(&long), label_value(&"b".repeat(100)));
    }

    #[test]
    fn object_names_are_parsed() {
        assert_eq!("a/b".parse(), Ok(ObjectName::new("a", "b")));
        let long = "prometheus-stack-".repeat(8) + "0";
        assert_eq!(format!("a/{long}").parse(), Ok(ObjectName::new("a", &long)), "StatefulSets make such claims");
        for text in ["a", "a/b/c", "/b", "a/", "A/b", "a/../b"] {
            assert!(text.parse::<ObjectName>().is_err(), "{text}");
        }
    }
}
