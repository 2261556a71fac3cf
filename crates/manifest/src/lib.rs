//! Objects of Kubernetes from YAML, straight into their types: a text stays a text there, whatever it looks like.
//!
//! The code that reads one type is large, is the same for all who read it, and runs when somebody has changed a config.
//! Here it is compiled once, and without the optimising that takes long.

use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, PodTemplateSpec, ResourceRequirements, Toleration};
use k8s_openapi::api::storage::v1::StorageClass;
use serde_saphyr::{Error, Options, from_str_with_options};

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

manifests!(ConfigMap, PersistentVolumeClaim, PodTemplateSpec, ResourceRequirements, StorageClass, Vec<Toleration>,);
