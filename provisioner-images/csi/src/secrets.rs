//! The Secrets that a StorageClass names for each call, by the present parameters and by the older ones. The functions
//! are pure.
//!
//! | for | present parameters | older parameters | variables of the name | variables of the namespace |
//! |---|---|---|---|---|
//! | provisioner | `csi.storage.k8s.io/provisioner-secret-…` | | all | `pv.name`, `pvc.namespace` |
//! | provisioner | | `csiProvisionerSecret…` | `pv.name` | `pv.name` |
//! | controller publish, node stage, node publish | `csi.storage.k8s.io/KIND-secret-…` | `csiKINDSecret…` | all | `pv.name`, `pvc.namespace` |
//! | controller expand, node expand, controller modify | `csi.storage.k8s.io/KIND-secret-…` | | all | `pv.name`, `pvc.namespace` |
//! | each of them that is not named | `csi.storage.k8s.io/secret-…` | | all | `pv.name`, `pvc.namespace` |
//!
//! All variables are `pv.name`, `pvc.name`, `pvc.namespace` and `pvc.annotations['KEY']`.

use std::collections::BTreeMap;

use flex_image_kit::Failure;
use k8s_openapi::api::core::v1::SecretReference;

use crate::template::resolve;

/// The prefix of all parameters that are for a provisioner of CSI volumes, and not for the driver.
pub const PREFIX: &str = "csi.storage.k8s.io/";

/// The purpose of a Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// To make and delete the volume, and its snapshots.
    Provisioner,
    /// To attach the volume.
    ControllerPublish,
    /// To mount the volume on a node for all its pods.
    NodeStage,
    /// To mount the volume for a pod.
    NodePublish,
    /// To expand the volume.
    ControllerExpand,
    /// To resize the file system of the volume.
    NodeExpand,
    /// To give the volume other attributes.
    ControllerModify,
}

impl Kind {
    /// All purposes.
    pub const ALL: [Kind; 7] = [
        Kind::Provisioner,
        Kind::ControllerPublish,
        Kind::NodeStage,
        Kind::NodePublish,
        Kind::ControllerExpand,
        Kind::NodeExpand,
        Kind::ControllerModify,
    ];

    fn today(self) -> &'static str {
        match self {
            Kind::Provisioner => "provisioner-",
            Kind::ControllerPublish => "controller-publish-",
            Kind::NodeStage => "node-stage-",
            Kind::NodePublish => "node-publish-",
            Kind::ControllerExpand => "controller-expand-",
            Kind::NodeExpand => "node-expand-",
            Kind::ControllerModify => "controller-modify-",
        }
    }

    fn older(self) -> Option<&'static str> {
        match self {
            Kind::Provisioner => Some("csiProvisionerSecret"),
            Kind::ControllerPublish => Some("csiControllerPublishSecret"),
            Kind::NodeStage => Some("csiNodeStageSecret"),
            Kind::NodePublish => Some("csiNodePublishSecret"),
            Kind::ControllerExpand | Kind::NodeExpand | Kind::ControllerModify => None,
        }
    }
}

/// Checks whether a parameter names a Secret, or its namespace.
pub fn names_one(parameter: &str) -> bool {
    let of_today = parameter.strip_prefix(PREFIX).is_some_and(|rest| {
        let kinds = Kind::ALL.into_iter().map(Kind::today).chain([""]);
        kinds.into_iter().any(|kind| matches!(rest.strip_prefix(kind), Some("secret-name" | "secret-namespace")))
    });
    let older = |kind: Kind| {
        let rest = kind.older().and_then(|older| parameter.strip_prefix(older));
        matches!(rest, Some("Name" | "Namespace"))
    };
    of_today || Kind::ALL.into_iter().any(older)
}

/// The values of the variables.
#[derive(Clone, Debug, Default)]
pub struct Variables {
    /// The name of the PersistentVolume.
    pub pv_name: String,
    /// The name of the claim.
    pub pvc_name: String,
    /// The namespace of the claim.
    pub pvc_namespace: String,
    /// The annotations of the claim that are known here.
    pub annotations: BTreeMap<String, String>,
}

/// A pair of parameters, with the variables that they may contain.
struct Pair<'a> {
    name: &'a str,
    namespace: &'a str,
    name_key: String,
    namespace_key: String,
    only_volume: bool,
}

/// Returns the Secret of a kind, if the class names one.
///
/// # Errors
/// If there is half a pair, old names beside new ones, an unknown variable, or an invalid name of a Secret.
pub fn reference(
    kind: Kind,
    parameters: &BTreeMap<String, String>,
    variables: &Variables,
) -> Result<Option<SecretReference>, Failure> {
    let today = pair(parameters, &format!("{PREFIX}{}secret-", kind.today()), TODAY)?;
    let older = match kind.older() {
        Some(prefix) => pair(parameters, prefix, OLDER)?,
        None => None,
    };
    let pair = match (today, older) {
        (Some(today), Some(older)) => {
            return Err(Failure::config(format!(
                "the parameters {} and {} name the same Secret in two ways: keep one pair",
                today.name_key, older.name_key
            )));
        }
        (Some(today), None) => today,
        // The older parameters know only the volume's name there.
        (None, Some(older)) => Pair { only_volume: kind == Kind::Provisioner, ..older },
        (None, None) => match self::pair(parameters, &format!("{PREFIX}secret-"), TODAY)? {
            Some(default) => default,
            None => return Ok(None),
        },
    };
    let name = resolved(&pair.name_key, pair.name, |variable| match variable {
        "pv.name" => Some(variables.pv_name.clone()),
        _ if pair.only_volume => None,
        "pvc.name" => Some(variables.pvc_name.clone()),
        "pvc.namespace" => Some(variables.pvc_namespace.clone()),
        _ => {
            let key = variable.strip_prefix("pvc.annotations['")?.strip_suffix("']")?;
            variables.annotations.get(key).cloned()
        }
    })?;
    let namespace = resolved(&pair.namespace_key, pair.namespace, |variable| match variable {
        "pv.name" => Some(variables.pv_name.clone()),
        "pvc.namespace" if !pair.only_volume => Some(variables.pvc_namespace.clone()),
        _ => None,
    })?;
    if !is_name(&name, 253, ".") {
        return Err(not_a_name(&pair.name_key, pair.name, &name, "Secret"));
    }
    if !is_name(&namespace, 63, "") {
        return Err(not_a_name(&pair.namespace_key, pair.namespace, &namespace, "namespace"));
    }
    Ok(Some(SecretReference { name: Some(name), namespace: Some(namespace) }))
}

/// The ends of the keys that name a Secret.
#[derive(Clone, Copy)]
struct KeyEnds {
    name: &'static str,
    namespace: &'static str,
}

const TODAY: KeyEnds = KeyEnds { name: "name", namespace: "namespace" };
const OLDER: KeyEnds = KeyEnds { name: "Name", namespace: "Namespace" };

fn pair<'a>(
    parameters: &'a BTreeMap<String, String>,
    prefix: &str,
    ends: KeyEnds,
) -> Result<Option<Pair<'a>>, Failure> {
    let (name_key, namespace_key) = (format!("{prefix}{}", ends.name), format!("{prefix}{}", ends.namespace));
    match (parameters.get(&name_key), parameters.get(&namespace_key)) {
        (None, None) => Ok(None),
        (Some(name), Some(namespace)) if !name.is_empty() && !namespace.is_empty() => {
            Ok(Some(Pair { name, namespace, name_key, namespace_key, only_volume: false }))
        }
        _ => Err(Failure::config(format!(
            "the parameters {name_key} and {namespace_key} are needed together, and one of them is missing or empty"
        ))),
    }
}

fn resolved(key: &str, template: &str, value: impl Fn(&str) -> Option<String>) -> Result<String, Failure> {
    resolve(template, value).map_err(|problem| {
        let hint = match template.contains("pvc.annotations") {
            true => {
                ". An annotation must stand on the claim, its key must be in the config's `claim-metadata`, and only the name of a \
                 Secret may use it"
            }
            false => "",
        };
        Failure::config(format!("the parameter {key} is `{template}`: {problem} there{hint}"))
    })
}

fn not_a_name(key: &str, template: &str, made: &str, what: &str) -> Failure {
    let text = format!("the parameter {key} is `{template}`: `{made}` cannot be the name of a {what}");
    // A user can correct a problem of the claim, and an admin one of the class.
    if template == made { Failure::config(text) } else { Failure::never(text) }
}

/// Checks for a DNS name, with dots only if they are allowed.
fn is_name(text: &str, longest: usize, also: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let part =
        |part: &str| part.starts_with(plain) && part.ends_with(plain) && part.chars().all(|c| plain(c) || c == '-');
    text.len() <= longest && if also.is_empty() { part(text) } else { text.split('.').all(part) }
}

#[cfg(test)]
#[path = "secrets_tests.rs"]
mod tests;
