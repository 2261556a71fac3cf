//! Objects of Kubernetes from YAML, straight into their types: a text stays a text there, whatever it looks like; and
//! [as YAML](to_yaml).
//!
//! The code that reads one type is large, is the same for all who read it, and runs when somebody has changed a config.
//! Here it is compiled once, and without the optimising that takes long.

use k8s_openapi::api::core::v1::{
    ConfigMap, PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec, PodTemplateSpec, ResourceRequirements,
    Toleration,
};
use k8s_openapi::api::storage::v1::StorageClass;
use serde::Serialize;
use serde_json::Value;
use serde_saphyr::{Error, Options, from_str_with_options};

/// An object as YAML, for people to read. By way of its JSON, which whoever sends it has the code for.
///
/// # Errors
/// Why the object is none that JSON or YAML can hold.
pub fn to_yaml(object: &impl Serialize) -> Result<String, String> {
    let json = serde_json::to_string(object).map_err(|error| error.to_string())?;
    let fields: Value = serde_json::from_str(&json).map_err(|error| error.to_string())?;
    serde_saphyr::to_string(&fields).map_err(|error| error.to_string())
}

/// What is read from YAML.
pub trait Manifest: Sized {
    /// Reads it, as the options say.
    ///
    /// # Errors
    /// What is wrong, and where, if the text is no YAML, or not of this type.
    fn from_yaml(text: &str, options: Options) -> Result<Self, Error>;
}

macro_rules! manifests {
    ($($type:ty),+ $(,)?) => {$(
        impl Manifest for $type {
            fn from_yaml(text: &str, options: Options) -> Result<Self, Error> {
                from_str_with_options(text, options)
            }
        }
    )+};
}

manifests!(
    ConfigMap,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeSpec,
    PodTemplateSpec,
    ResourceRequirements,
    StorageClass,
    Vec<Toleration>,
);
