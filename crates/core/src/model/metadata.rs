//! The part of a claim that the cache keeps: users may write more than a megabyte on each claim.

use std::collections::BTreeMap;

use flex_contract::names;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::limits;

/// The part of a claim's *words* that the cache keeps. Words are its labels, its annotations and its creator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ClaimMetadata {
    /// All words.
    #[default]
    Whole,
    /// The creator, and the labels and annotations with these keys.
    Keys(Vec<String>),
    /// No words.
    Nothing,
}

/// Estimates the memory for the texts that users can write on an object. Counts the bytes of the texts, and the memory
/// around them.
pub fn foreign_metadata_bytes(metadata: &ObjectMeta) -> usize {
    let pairs = metadata.annotations.iter().chain(&metadata.labels).flatten();
    let pairs = pairs.filter(|(key, _)| !is_of_kubectl(key)).map(|(key, value)| key.len() + value.len());
    let finalizers = metadata.finalizers.iter().flatten().map(String::len);
    pairs.chain(finalizers).map(|bytes| bytes + limits::ENTRY).sum()
}

/// Checks for kubectl's annotation with the whole object, which no image gets.
fn is_of_kubectl(key: &str) -> bool {
    key.starts_with("kubectl.kubernetes.io/")
}

/// The finalizers of an object.
pub(super) struct Finalizers {
    /// The finalizers that the cache keeps.
    pub kept: Vec<String>,
    /// The object has no others.
    pub complete: bool,
}

/// Returns the finalizers of an object. If there are very many, the list has those of
/// the orchestrator and of Kubernetes, and some others.
pub(super) fn finalizers(metadata: &ObjectMeta) -> Finalizers {
    let all = metadata.finalizers.as_deref().unwrap_or_default();
    if all.iter().map(|finalizer| finalizer.len() + limits::ENTRY).sum::<usize>() <= limits::FINALIZERS {
        return Finalizers { kept: all.to_vec(), complete: true };
    }
    let known = [names::CLAIM_PROTECTION, names::SNAPSHOT_FINALIZER];
    let (ours, others): (Vec<&String>, Vec<_>) = all.iter().partition(|finalizer| known.contains(&finalizer.as_str()));
    let others = others.into_iter().filter(|finalizer| finalizer.len() <= limits::NAME);
    let kept = ours.into_iter().take(known.len()).chain(others.take(limits::FINALIZERS / 1024));
    Finalizers { kept: kept.cloned().collect(), complete: false }
}

/// Returns the labels and annotations that an image could get.
pub(super) fn metadata(metadata: &ObjectMeta) -> BTreeMap<String, String> {
    let pairs = metadata.labels.iter().chain(&metadata.annotations).flatten();
    pairs.filter(|(key, _)| !is_of_kubectl(key)).map(|(key, value)| (key.clone(), value.clone())).collect()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::PersistentVolumeClaim;
    use serde_json::json;

    use super::*;
    use crate::claim::admit::admit;
    use crate::config::effective_config::EffectiveConfig;
    use crate::model::claim::Claim;

    fn claim(metadata: serde_json::Value) -> Claim {
        let claim = json!({ "metadata": metadata, "spec": { "storageClassName": "silver",
            "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } });
        Claim::from(&serde_json::from_value::<PersistentVolumeClaim>(claim).unwrap())
    }

    fn keys(keys: &[&str]) -> Vec<String> {
        keys.iter().map(|key| (*key).to_owned()).collect()
    }

    #[test]
    fn only_labels_and_annotations_named_by_a_config_are_kept() {
        let whole = claim(json!({ "labels": { "a": "1", "b": "2" }, "annotations": { "c": "3", "d": "4",
            names::CREATED_BY: "tom", names::CREATED_BY_GROUPS: "g,h" } }));
        assert!(whole.has_metadata_of(&keys(&["a", "z"])), "an object from the API is complete");
        let kept = whole.clone().kept(keys(&["a", "d", "z"]));
        assert_eq!(kept.metadata.keys().collect::<Vec<_>>(), ["a", "d"]);
        assert_eq!((kept.created_by.as_str(), kept.created_by_groups.len()), ("tom", 2));
        assert!(
            kept.has_metadata_of(&keys(&["d"])) && kept.has_metadata_of(&[]) && !kept.has_metadata_of(&keys(&["b"]))
        );
        let none = whole.kept(Vec::new());
        assert!(none.metadata.is_empty() && none.has_metadata_of(&[]) && !none.has_metadata_of(&keys(&["a"])));
    }

    #[test]
    fn long_values_are_dropped_and_marked_as_missing() {
        let long = "x".repeat(limits::CLAIM_METADATA + 1);
        for (key, of) in [("a", keys(&["a"])), (names::CREATED_BY, vec![]), (names::CREATED_BY_GROUPS, vec![])] {
            let kept = claim(json!({ "annotations": { key: long } })).kept(of.clone());
            assert!(kept.metadata.is_empty() && kept.created_by.is_empty() && kept.created_by_groups.is_empty());
            assert!(!kept.has_metadata_of(&of), "{key}");
        }
        let not_named = claim(json!({ "annotations": { "b": long } })).kept(keys(&["a"]));
        assert!(not_named.has_metadata_of(&keys(&["a"])), "metadata that no config names does not count");
    }

    /// Estimates the heap memory of a claim, in bytes.
    fn weight(claim: &Claim) -> usize {
        format!("{claim:?}").len()
    }

    #[test]
    fn an_oversized_claim_is_trimmed_and_refused() {
        let many = |count: usize, from: &str| -> BTreeMap<String, String> {
            (0..count).map(|n| (format!("{from}{n:06}"), String::new())).collect()
        };
        let finalizers: Vec<_> = (0..20_000).map(|n| format!("example.com/f{n}")).collect();
        let recipe = EffectiveConfig {
            class: "silver".into(),
            data: [("image".to_owned(), "x".to_owned())].into(),
            ..EffectiveConfig::default()
        };
        let recipe = recipe.recipe().unwrap();
        for heavy in [
            json!({ "labels": many(50_000, "l") }),
            json!({ "annotations": many(20_000, "a") }),
            json!({ "finalizers": finalizers }),
        ] {
            let claim = claim(heavy);
            assert!(weight(&claim) < limits::FINALIZERS, "{}", weight(&claim));
            let why = admit(&claim, &recipe, false).unwrap_err();
            assert!(why.contains("labels, annotations and finalizers") && why.contains("remove"), "{why}");
            assert!(!claim.has_metadata_of(&[]));
        }
        let usual = claim(json!({ "annotations": { "a": "x".repeat(200_000) } }));
        assert_eq!(admit(&usual, &recipe, false), Ok(()), "an annotation of the largest allowed size is served");
    }

    #[test]
    fn of_very_many_finalizers_the_orchestrator_s_are_kept() {
        let mut all: Vec<_> = (0..20_000).map(|n| format!("example.com/f{n}")).collect();
        all.push(names::CLAIM_PROTECTION.into());
        let heavy = claim(json!({ "finalizers": all }));
        assert!(!heavy.finalizers_whole);
        assert!(heavy.finalizers.iter().any(|finalizer| finalizer == names::CLAIM_PROTECTION));
        assert!(
            heavy.finalizers.iter().any(|finalizer| finalizer != names::CLAIM_PROTECTION),
            "other finalizers are kept"
        );
        let usual = claim(json!({ "finalizers": ["a", names::CLAIM_PROTECTION] }));
        assert!(usual.finalizers_whole && usual.finalizers.len() == 2);
    }

    #[test]
    fn impossibly_long_names_are_cut() {
        let long = "x".repeat(200_000);
        let mut long_one = json!({ "metadata": { "uid": "u", "annotations": {
            names::CLAIM_UID: long, names::RECIPE_VERSION: long, names::STORAGE_PROVISIONER: long,
            "volume.beta.kubernetes.io/storage-class": long } },
            "spec": { "volumeName": long, "dataSource": { "kind": "PersistentVolumeClaim", "name": long } } });
        for kind in ["PersistentVolumeClaim", "Other"] {
            long_one["spec"]["dataSource"]["kind"] = json!(kind);
            let claim = Claim::from(&serde_json::from_value::<PersistentVolumeClaim>(long_one.clone()).unwrap());
            assert!(claim.own_stamp().is_none() && claim.stamp.is_some());
            assert!(weight(&claim.kept(Vec::new())) < 16 * limits::NAME, "{kind}");
        }
    }
}
