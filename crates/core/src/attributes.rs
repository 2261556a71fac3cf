//! VolumeAttributesClasses: parameters that a claim may change while it is bound.
//!
//! Kubernetes serves them from 1.34 on. A cluster need not have the kind.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

use crate::config::{Recipe, check, joined};
use crate::limits;
use crate::object::hash;

/// The capability that a config declares.
pub const CAPABILITY: &str = "modify";

/// `storage.k8s.io/v1`, as far as it matters. The types that this is built with are those of the oldest Kubernetes that is
/// supported, which did not serve it yet.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeAttributesClass {
    /// Its metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Whose volumes it is for.
    #[serde(default)]
    pub driver_name: String,
    /// What those are told.
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

/// Its kind.
pub const KIND: &str = "VolumeAttributesClass";

/// A VolumeAttributesClass, as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    /// Its name.
    pub name: String,
    /// Whose volumes it is for.
    pub driver: String,
    /// What those are told.
    pub parameters: BTreeMap<String, String>,
}

impl From<&VolumeAttributesClass> for Class {
    fn from(class: &VolumeAttributesClass) -> Self {
        Class {
            name: class.metadata.name.clone().unwrap_or_default(),
            driver: class.driver_name.clone(),
            parameters: class.parameters.clone().unwrap_or_default(),
        }
    }
}

/// The attributes of a volume: a VolumeAttributesClass as a run was told of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// The VolumeAttributesClass; empty for none.
    pub class: String,
    /// Its parameters.
    #[serde(default)]
    pub parameters: BTreeMap<String, String>,
}

impl Attributes {
    /// Tells them apart from others, also from those of a class of the same name that was made anew.
    pub fn hash(&self) -> String {
        hash(serde_json::json!(self).to_string().as_bytes())
    }

    /// In words.
    pub fn words(&self) -> String {
        match self.class.as_str() {
            "" => "no VolumeAttributesClass".to_owned(),
            class => format!("VolumeAttributesClass {class}"),
        }
    }

    /// The parameters of a run for a volume with these attributes: those of the recipe, with these over them.
    ///
    /// # Errors
    /// No pod can be given them, or they are none that such a class may set, in words for the claim.
    pub fn over(&self, recipe: &Recipe) -> Result<BTreeMap<String, String>, String> {
        if self.parameters.is_empty() {
            return Ok(recipe.parameters.clone());
        }
        let words = || format!("{} cannot be given with class {}: ", self.words(), recipe.class);
        // In a class that was written for another provisioner no parameter is a key.
        let own = recipe.record.stands_for.is_empty();
        if let Some(key) = self.parameters.keys().find(|key| own && check::KEYS.contains(&key.as_str())) {
            return Err(words()
                + &format!(
                    "its parameter {key} is a key of the provisioner config, and a VolumeAttributesClass cannot change that"
                ));
        }
        let bytes = serde_json::json!(self.parameters).to_string().len();
        if bytes > limits::ATTRIBUTES {
            return Err(
                words() + &format!("its parameters have {bytes} bytes; at most {} are allowed", limits::ATTRIBUTES)
            );
        }
        let mut record = recipe.record.clone();
        let parameters = if own { &mut record.data } else { &mut record.parameters };
        parameters.extend(self.parameters.clone());
        match record.recipe() {
            Ok(with) => Ok(with.parameters),
            Err(problems) => Err(words() + &joined(&problems)),
        }
    }
}

/// The attributes that a claim asks for by the name of a class, which is empty for none.
///
/// # Errors
/// Why they cannot be had now, in words for the claim.
pub fn wished(name: &str, class: Option<&Class>, recipe: &Recipe, provisioner: &str) -> Result<Attributes, String> {
    if name.is_empty() {
        return Ok(Attributes::default());
    }
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
    let attributes = Attributes { class: name.to_owned(), parameters: class.parameters.clone() };
    attributes.over(recipe)?;
    Ok(attributes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::record::Record;

    fn recipe(data: &[(&str, &str)]) -> Recipe {
        let all = [("image", "x"), ("capabilities", "modify"), ("zone", "west")];
        let data = all.iter().chain(data).map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Record { class: "c".into(), data, ..Record::default() }.recipe().unwrap()
    }

    fn class(parameters: &[(&str, &str)]) -> Class {
        let parameters = parameters.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Class { name: "gold".into(), driver: "flex".into(), parameters }
    }

    fn refused(class: Option<&Class>, data: &[(&str, &str)]) -> String {
        wished("gold", class, &recipe(data), "flex").unwrap_err()
    }

    #[test]
    fn parameters_of_the_class_of_attributes_win_over_those_of_the_storage_class() {
        let recipe = recipe(&[("iops", "100")]);
        let gold = wished("gold", Some(&class(&[("iops", "900"), ("tier", "ssd")])), &recipe, "flex").unwrap();
        let of = |key: &str| gold.over(&recipe).unwrap()[key].clone();
        assert_eq!((of("iops"), of("tier"), of("zone")), ("900".into(), "ssd".into(), "west".into()));
        let none = wished("", None, &recipe, "flex").unwrap();
        assert_eq!(none.over(&recipe).unwrap(), recipe.parameters);
        assert_ne!(gold.hash(), Attributes { parameters: Default::default(), ..gold.clone() }.hash());
    }

    #[test]
    fn what_cannot_be_had_is_told_with_the_reason() {
        assert!(refused(Some(&class(&[])), &[("capabilities", "expand")]).contains("`capabilities: modify`"));
        assert!(refused(None, &[]).contains("does not exist"));
        let foreign = Class { driver: "other".into(), ..class(&[]) };
        assert!(refused(Some(&foreign), &[]).contains("must say `driverName: flex`"));
        assert!(refused(Some(&class(&[("image", "evil")])), &[]).contains("image is a key of the provisioner config"));
        assert!(refused(Some(&class(&[("PATH", "/")])), &[]).contains("environment variable PATH"));
        let long = "x".repeat(limits::ATTRIBUTES);
        assert!(refused(Some(&class(&[("iops", &long)])), &[]).contains("are allowed"));
    }
}
