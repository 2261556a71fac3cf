//! VolumeAttributesClasses: parameters that a claim may change while it is bound.
//!
//! Kubernetes serves this kind from 1.34 on, so a cluster may lack it.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

use crate::config::{Recipe, joined, keys};
use crate::limits;
use crate::object::hash;

/// The capability with which a config declares modify runs.
pub const CAPABILITY: &str = crate::config::capability::MODIFY;

/// The fields of `storage.k8s.io/v1` that the orchestrator reads. The Kubernetes types of this build are those of the
/// oldest supported version, which does not serve the kind.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeAttributesClass {
    /// The metadata of the object.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The provisioner whose volumes the class is for.
    #[serde(default)]
    pub driver_name: String,
    /// The parameters for that provisioner's images.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<BTreeMap<String, String>>,
}

impl kube_core::Resource for VolumeAttributesClass {
    type DynamicType = ();
    type Scope = k8s_openapi::ClusterResourceScope;
    fn kind((): &()) -> Cow<'_, str> {
        KIND.into()
    }
    fn group((): &()) -> Cow<'_, str> {
        "storage.k8s.io".into()
    }
    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }
    fn plural((): &()) -> Cow<'_, str> {
        "volumeattributesclasses".into()
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// The kind's name in the API.
pub const KIND: &str = "VolumeAttributesClass";

/// A VolumeAttributesClass in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttributesClass {
    /// The name of the class.
    pub name: String,
    /// The provisioner whose volumes the class is for.
    pub driver: String,
    /// The parameters for that provisioner's images.
    pub parameters: BTreeMap<String, String>,
}

impl From<&VolumeAttributesClass> for AttributesClass {
    fn from(class: &VolumeAttributesClass) -> Self {
        AttributesClass {
            name: class.metadata.name.clone().unwrap_or_default(),
            driver: class.driver_name.clone(),
            parameters: class.parameters.clone().unwrap_or_default(),
        }
    }
}

/// The attributes of a volume: the VolumeAttributesClass, with the parameters that a run got from it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// The VolumeAttributesClass; `None` for no class. Annotations have an empty text then.
    #[serde(with = "crate::optional_text")]
    pub class: Option<String>,
    /// The parameters of that class at the time of the run.
    #[serde(default)]
    pub parameters: BTreeMap<String, String>,
}

impl Attributes {
    /// Returns a hash that differs for other attributes, also for a recreated class of the same name.
    pub fn hash(&self) -> String {
        hash(serde_json::json!(self).to_string().as_bytes())
    }

    /// Names the attributes for people.
    pub fn describe(&self) -> String {
        match &self.class {
            None => "no VolumeAttributesClass".to_owned(),
            Some(class) => format!("VolumeAttributesClass {class}"),
        }
    }

    /// Returns the parameters of a run for a volume with these attributes: those of the recipe, overridden by the
    /// attributes.
    ///
    /// # Errors
    /// If a pod cannot carry the parameters, or such a class may not set one of them. The text is for the claim's
    /// event.
    pub fn over(&self, recipe: &Recipe) -> Result<BTreeMap<String, String>, String> {
        if self.parameters.is_empty() {
            return Ok(recipe.parameters.clone());
        }
        let texts = || format!("{} cannot be given with class {}: ", self.describe(), recipe.class);
        // A class that was written for another provisioner has parameters, but no keys of this project.
        let own = recipe.effective_config.replaces.is_empty();
        if let Some(key) = self.parameters.keys().find(|key| own && keys::is_key(key)) {
            return Err(texts()
                + &format!(
                    "its parameter {key} is a key of the provisioner config, and a VolumeAttributesClass cannot change that"
                ));
        }
        let bytes = serde_json::json!(self.parameters).to_string().len();
        if bytes > limits::ATTRIBUTES {
            return Err(
                texts() + &format!("its parameters have {bytes} bytes; at most {} are allowed", limits::ATTRIBUTES)
            );
        }
        let mut effective_config = recipe.effective_config.clone();
        let parameters = if own { &mut effective_config.data } else { &mut effective_config.parameters };
        parameters.extend(self.parameters.clone());
        match effective_config.recipe() {
            Ok(with) => Ok(with.parameters),
            Err(problems) => Err(texts() + &joined(&problems)),
        }
    }
}

/// Returns the attributes that a claim requests by the name of a class, or without one.
///
/// # Errors
/// If the claim cannot get the attributes now. The text is for the claim's event.
pub fn requested_attributes(
    name: Option<&str>,
    class: Option<&AttributesClass>,
    recipe: &Recipe,
    provisioner: &str,
) -> Result<Attributes, String> {
    let Some(name) = name else { return Ok(Attributes::default()) };
    if !recipe.can(CAPABILITY) {
        return Err(format!(
            "the claim asks for the VolumeAttributesClass {name}, which class {} cannot give: the provisioner config {} does not declare that its image can modify volumes (`capabilities: modify`)",
            recipe.class, recipe.config
        ));
    }
    let Some(class) = class else {
        return Err(format!("the VolumeAttributesClass {name}, which the claim asks for, does not exist"));
    };
    if class.driver != provisioner {
        return Err(format!(
            "the VolumeAttributesClass {name} is for volumes of {}; for those of class {} it must say `driverName: {provisioner}`",
            class.driver, recipe.class
        ));
    }
    let attributes = Attributes { class: Some(name.to_owned()), parameters: class.parameters.clone() };
    attributes.over(recipe)?;
    Ok(attributes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::effective_config::EffectiveConfig;

    fn recipe(data: &[(&str, &str)]) -> Recipe {
        let all = [("image", "x"), ("capabilities", "modify"), ("zone", "west")];
        let data = all.iter().chain(data).map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        EffectiveConfig { class: "c".into(), data, ..EffectiveConfig::default() }.recipe().unwrap()
    }

    fn class(parameters: &[(&str, &str)]) -> AttributesClass {
        let parameters = parameters.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        AttributesClass { name: "gold".into(), driver: "flex".into(), parameters }
    }

    fn refused(class: Option<&AttributesClass>, data: &[(&str, &str)]) -> String {
        requested_attributes(Some("gold"), class, &recipe(data), "flex").unwrap_err()
    }

    #[test]
    fn parameters_of_the_volume_attributes_class_win_over_those_of_the_storage_class() {
        let recipe = recipe(&[("iops", "100")]);
        let gold =
            requested_attributes(Some("gold"), Some(&class(&[("iops", "900"), ("tier", "ssd")])), &recipe, "flex")
                .unwrap();
        let of = |key: &str| gold.over(&recipe).unwrap()[key].clone();
        assert_eq!((of("iops"), of("tier"), of("zone")), ("900".into(), "ssd".into(), "west".into()));
        let none = requested_attributes(None, None, &recipe, "flex").unwrap();
        assert_eq!(none.over(&recipe).unwrap(), recipe.parameters);
        assert_ne!(gold.hash(), Attributes { parameters: Default::default(), ..gold.clone() }.hash());
    }

    #[test]
    fn unusable_attributes_are_refused_with_the_reason() {
        assert!(refused(Some(&class(&[])), &[("capabilities", "expand")]).contains("`capabilities: modify`"));
        assert!(refused(None, &[]).contains("does not exist"));
        let foreign = AttributesClass { driver: "other".into(), ..class(&[]) };
        assert!(refused(Some(&foreign), &[]).contains("must say `driverName: flex`"));
        assert!(refused(Some(&class(&[("image", "evil")])), &[]).contains("image is a key of the provisioner config"));
        assert!(refused(Some(&class(&[("PATH", "/")])), &[]).contains("environment variable PATH"));
        let long = "x".repeat(limits::ATTRIBUTES);
        assert!(refused(Some(&class(&[("iops", &long)])), &[]).contains("are allowed"));
    }
}
