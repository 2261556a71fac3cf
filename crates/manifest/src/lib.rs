//! Objects of Kubernetes, read from YAML directly into their types, and [written as YAML](to_yaml). A text stays a
//! text, whatever it looks like.
//!
//! The code that reads one type is large and the same for all its users, and it runs only when somebody has changed a
//! config. This crate compiles it once, and without slow optimisation.

use k8s_openapi::api::core::v1::{
    ConfigMap, PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec, PodTemplateSpec, ResourceRequirements,
    Toleration,
};
use k8s_openapi::api::storage::v1::StorageClass;
use serde::Serialize;
use serde_json::Value;
use serde_saphyr::{Error, Options, from_str_with_options};

/// Writes an object as YAML, for people to read. The object becomes JSON first, because the code for that exists for
/// each type.
///
/// # Errors
/// If JSON or YAML cannot hold the object.
pub fn to_yaml(object: &impl Serialize) -> Result<String, String> {
    let json = serde_json::to_string(object).map_err(|error| error.to_string())?;
    let fields: Value = serde_json::from_str(&json).map_err(|error| error.to_string())?;
    serde_saphyr::to_string(&fields).map_err(|error| error.to_string())
}

/// A type that can be read from YAML.
pub trait Manifest: Sized {
    /// Reads the object with these options.
    ///
    /// # Errors
    /// If the text is not YAML, or not of this type. The error says what is wrong, and where.
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
