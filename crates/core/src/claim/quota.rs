//! Quotas: how many volumes and bytes a class has in use, and whether it may have more. The check is a pure function.
//!
//! | key | counts |
//! |---|---|
//! | `max-volumes`, `max-bytes` | all volumes of the class |
//! | `max-volumes-per-namespace`, `max-bytes-per-namespace` | the volumes of one namespace |
//!
//! Two kinds of objects count. Each volume of the class that belongs to the orchestrator counts until it is gone, with
//! its new size if it is being expanded. Each claim whose attempts have begun and that has no volume yet counts with
//! its requested size. So the usage follows from the API alone.

use std::borrow::Cow;
use std::collections::HashMap;

use flex_contract::quantity::quantity;

use crate::config::{Quota, Recipe, keys};

/// The number and the size of some volumes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The number of volumes.
    pub volumes: u64,
    /// The sum of their sizes, in bytes. The type is so wide that no sum overflows, so that each addition can be
    /// undone.
    pub bytes: u128,
}

/// The usage of a class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassUsage {
    /// The usage of all namespaces together.
    pub all: Usage,
    /// The usage by the claims of each namespace.
    pub namespaces: HashMap<String, Usage>,
}

impl ClassUsage {
    /// Subtracts a volume that was added.
    pub fn subtract(&mut self, namespace: &str, bytes: u64) {
        let one = |usage: &mut Usage| {
            usage.volumes = usage.volumes.saturating_sub(1);
            usage.bytes = usage.bytes.saturating_sub(u128::from(bytes));
            usage.volumes == 0
        };
        one(&mut self.all);
        if self.namespaces.get_mut(namespace).is_some_and(one) {
            self.namespaces.remove(namespace);
        }
    }

    /// Adds a volume.
    pub fn add(&mut self, namespace: &str, bytes: u64) {
        for usage in [&mut self.all, self.namespaces.entry(namespace.to_owned()).or_default()] {
            usage.volumes += 1;
            usage.bytes = usage.bytes.saturating_add(u128::from(bytes));
        }
    }
}

/// Returns the reason why a quota allows no further volume of this size, for the claim's event. Returns `None` if all
/// quotas allow it. `usage` must not contain the volume itself.
pub fn quota_refusal(recipe: &Recipe, usage: &ClassUsage, namespace: &str, bytes: u64) -> Option<String> {
    within(recipe, |share| share, usage, namespace, bytes)
}

/// Returns the same for a volume without a namespace.
pub fn class_quota_refusal(recipe: &Recipe, usage: &ClassUsage, bytes: u64) -> Option<String> {
    over(recipe.quota, usage.all, bytes, &OF_CLASS, recipe)
}

/// Returns the same for a volume that the class already has and a namespace is to get.
pub fn namespace_quota_refusal(recipe: &Recipe, usage: &ClassUsage, namespace: &str, bytes: u64) -> Option<String> {
    let own = usage.namespaces.get(namespace).copied().unwrap_or_default();
    over(recipe.namespace_quota, own, bytes, &QuotaOwner::namespace(namespace), recipe)
}

/// Returns the same for an existing volume that is to get this size. It does not count as a further volume.
pub fn expand_quota_refusal(recipe: &Recipe, usage: &ClassUsage, namespace: &str, bytes: u64) -> Option<String> {
    within(recipe, |share| Quota { volumes: None, ..share }, usage, namespace, bytes)
}

fn within(
    recipe: &Recipe,
    what: impl Fn(Quota) -> Quota,
    usage: &ClassUsage,
    namespace: &str,
    bytes: u64,
) -> Option<String> {
    let own = usage.namespaces.get(namespace).copied().unwrap_or_default();
    over(what(recipe.quota), usage.all, bytes, &OF_CLASS, recipe)
        .or_else(|| over(what(recipe.namespace_quota), own, bytes, &QuotaOwner::namespace(namespace), recipe))
}

/// The owner of a quota.
struct QuotaOwner<'a> {
    /// The end of the keys that set the quota.
    key_suffix: &'static str,
    /// The owner, for people.
    name: Cow<'a, str>,
}

const OF_CLASS: QuotaOwner<'static> = QuotaOwner { key_suffix: "", name: Cow::Borrowed("all namespaces together") };

impl QuotaOwner<'static> {
    fn namespace(namespace: &str) -> Self {
        QuotaOwner { key_suffix: "-per-namespace", name: format!("namespace {namespace}").into() }
    }
}

fn over(share: Quota, usage: Usage, bytes: u64, owner: &QuotaOwner<'_>, recipe: &Recipe) -> Option<String> {
    let QuotaOwner { key_suffix, name: whose } = owner;
    let Recipe { class, config, .. } = recipe;
    let remedy = |limit: &str| {
        format!(
            "it continues once the quota has room: delete what nobody needs, or ask an admin to raise `{limit}{key_suffix}` of the provisioner config {config}"
        )
    };
    if let Some(most) = share.volumes.filter(|most| usage.volumes >= *most) {
        let remedy = remedy(keys::MAX_VOLUMES.name);
        return Some(format!(
            "{whose} may have at most {most} volumes of class {class}, and that many exist; {remedy}"
        ));
    }
    let most = share.bytes.filter(|most| usage.bytes.saturating_add(u128::from(bytes)) > u128::from(*most))?;
    let (remedy, text) = (remedy(keys::MAX_BYTES.name), |bytes| quantity(bytes).0);
    let taken = u64::try_from(usage.bytes).unwrap_or(u64::MAX);
    Some(format!(
        "{whose} may have at most {} of class {class}: {} are used, and this asks for {}; {remedy}",
        text(most),
        text(taken),
        text(bytes)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::effective_config::EffectiveConfig;
    use crate::object::ObjectName;

    fn recipe(keys: &[(&str, &str)]) -> Recipe {
        let data = [("image", "x")].iter().chain(keys).map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let config = ObjectName::new("admin", "config");
        EffectiveConfig { config, class: "c".into(), data, ..EffectiveConfig::default() }.recipe().unwrap()
    }

    #[test]
    fn a_quota_is_granted_up_to_its_last_item() {
        let mut usage = ClassUsage::default();
        usage.add("a", 10);
        usage.add("b", 20);
        for (keys, namespace, bytes, refused) in [
            (&[][..], "a", u64::MAX, None),
            (&[("max-volumes", "3")], "a", 1, None),
            (
                &[("max-volumes", "2")],
                "c",
                1,
                Some("all namespaces together may have at most 2 volumes of class c, and that many exist"),
            ),
            (&[("max-bytes", "40")], "a", 10, None),
            (
                &[("max-bytes", "40")],
                "a",
                11,
                Some("may have at most 40 of class c: 30 are used, and this asks for 11"),
            ),
            (&[("max-bytes", "40")], "a", u64::MAX, Some("may have at most 40 of class c")),
            (&[("max-volumes-per-namespace", "1")], "a", 1, Some("namespace a may have at most 1 volumes")),
            (&[("max-volumes-per-namespace", "1")], "c", 1, None),
            (&[("max-bytes-per-namespace", "25")], "a", 15, None),
            (
                &[("max-bytes-per-namespace", "25")],
                "b",
                6,
                Some("`max-bytes-per-namespace` of the provisioner config admin/config"),
            ),
        ] {
            let found = quota_refusal(&recipe(keys), &usage, namespace, bytes);
            match refused {
                None => assert_eq!(found, None, "{keys:?} {namespace} {bytes}"),
                Some(texts) => {
                    assert!(
                        found.as_ref().is_some_and(|found| found.contains(texts)),
                        "{keys:?} {namespace}: {found:?}"
                    );
                }
            }
        }
    }
}
