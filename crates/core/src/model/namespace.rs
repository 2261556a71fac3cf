//! Namespaces, with their labels.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;

/// The labels of a namespace.
pub type Labels = BTreeMap<String, String>;

/// A namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// The name of the namespace.
    pub name: String,
    /// The labels of the namespace.
    pub labels: Labels,
}

impl From<&core::Namespace> for Namespace {
    fn from(namespace: &core::Namespace) -> Self {
        let metadata = &namespace.metadata;
        Namespace {
            name: metadata.name.clone().unwrap_or_default(),
            labels: metadata.labels.clone().unwrap_or_default(),
        }
    }
}

/// All namespaces.
#[derive(Clone, Debug, Default)]
pub struct Namespaces(BTreeMap<String, Arc<Labels>>);

impl Namespaces {
    /// Returns the labels of a namespace, if they are known.
    pub fn labels(&self, name: &str) -> Option<&Labels> {
        self.0.get(name).map(AsRef::as_ref)
    }

    /// Returns the names of all namespaces.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.0.keys()
    }

    /// Adds a namespace, or its new state. Returns whether anything changed.
    pub fn apply(&mut self, namespace: Namespace) -> bool {
        let labels = Arc::new(namespace.labels);
        self.0.insert(namespace.name, labels.clone()) != Some(labels)
    }

    /// Removes a namespace.
    pub fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }
}
