//! How much of a class may be taken, and whether there is room for more: a pure function of what is taken.
//!
//! | key | counts |
//! |---|---|
//! | `max-volumes`, `max-bytes` | all volumes of the class |
//! | `max-volumes-per-namespace`, `max-bytes-per-namespace` | those of one namespace |
//!
//! What is taken: each volume of the class that is ours, until it is gone, with the larger size that it is being given;
//! and each claim for which attempts have begun and that has no volume yet, with the size that it asks for. So it follows
//! from the API alone.

use std::collections::HashMap;

use contract::quantity::quantity;

use crate::config::{Recipe, Share};

/// What is taken by some volumes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// How many.
    pub volumes: u64,
    /// Their sizes, in bytes: so wide that no sum overflows, and what was added can be taken away again.
    pub bytes: u128,
}

/// What is taken of a class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// In all.
    pub all: Usage,
    /// By the claims of each namespace.
    pub namespaces: HashMap<String, Usage>,
}

impl Taken {
    /// Takes a volume away that was added.
    pub fn take(&mut self, namespace: &str, bytes: u64) {
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

/// Why there is no room for another volume of this size, in words for the claim; none if there is. `taken` does not count
/// the volume itself.
pub fn refusal(recipe: &Recipe, taken: &Taken, namespace: &str, bytes: u64) -> Option<String> {
    within(recipe, |share| share, taken, namespace, bytes)
}

/// The same for a volume of no namespace.
pub fn class_refusal(recipe: &Recipe, taken: &Taken, bytes: u64) -> Option<String> {
    over(recipe.share, taken.all, bytes, ("", "all namespaces together"), recipe)
}

/// The same for a volume that the class has already, and a namespace is to have.
pub fn namespace_refusal(recipe: &Recipe, taken: &Taken, namespace: &str, bytes: u64) -> Option<String> {
    let own = taken.namespaces.get(namespace).copied().unwrap_or_default();
    let of_namespace = format!("namespace {namespace}");
    over(recipe.namespace_share, own, bytes, ("-per-namespace", &of_namespace), recipe)
}

/// The same for a volume that is there and is to have this size: that it is one more counts nothing.
pub fn growth_refusal(recipe: &Recipe, taken: &Taken, namespace: &str, bytes: u64) -> Option<String> {
    within(recipe, |share| Share { volumes: None, ..share }, taken, namespace, bytes)
}

fn within(
    recipe: &Recipe,
    what: impl Fn(Share) -> Share,
    taken: &Taken,
    namespace: &str,
    bytes: u64,
) -> Option<String> {
    let own = taken.namespaces.get(namespace).copied().unwrap_or_default();
    let of_namespace = format!("namespace {namespace}");
    over(what(recipe.share), taken.all, bytes, ("", "all namespaces together"), recipe)
        .or_else(|| over(what(recipe.namespace_share), own, bytes, ("-per-namespace", &of_namespace), recipe))
}

fn over(share: Share, usage: Usage, bytes: u64, (key, whose): (&str, &str), recipe: &Recipe) -> Option<String> {
    let Recipe { class, config, .. } = recipe;
    let remedy = |limit: &str| {
        format!(
            "it continues once the quota has room: delete what nobody needs, or ask an admin to raise `{limit}{key}` of the provisioner config {config}"
        )
    };
    if let Some(most) = share.volumes.filter(|most| usage.volumes >= *most) {
        let remedy = remedy("max-volumes");
        return Some(format!("{whose} can have {most} volumes of class {class}, and all of them exist; {remedy}"));
    }
    let most = share.bytes.filter(|most| usage.bytes.saturating_add(u128::from(bytes)) > u128::from(*most))?;
    let (remedy, text) = (remedy("max-bytes"), |bytes| quantity(bytes).0);
    let taken = u64::try_from(usage.bytes).unwrap_or(u64::MAX);
    Some(format!(
        "{whose} can have {} of class {class}: {} are used, and this asks for {}; {remedy}",
        text(most),
        text(taken),
        text(bytes)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::record::Record;
    use crate::object::ObjectName;

    fn recipe(keys: &[(&str, &str)]) -> Recipe {
        let data = [("image", "x")].iter().chain(keys).map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let config = ObjectName::new("admin", "config");
        Record { config, class: "c".into(), data, ..Record::default() }.recipe().unwrap()
    }

    #[test]
    fn the_last_place_is_the_last() {
        let mut taken = Taken::default();
        taken.add("a", 10);
        taken.add("b", 20);
        for (keys, namespace, bytes, refused) in [
            (&[][..], "a", u64::MAX, None),
            (&[("max-volumes", "3")], "a", 1, None),
            (
                &[("max-volumes", "2")],
                "c",
                1,
                Some("all namespaces together can have 2 volumes of class c, and all of them exist"),
            ),
            (&[("max-bytes", "40")], "a", 10, None),
            (&[("max-bytes", "40")], "a", 11, Some("can have 40 of class c: 30 are used, and this asks for 11")),
            (&[("max-bytes", "40")], "a", u64::MAX, Some("may have 40 of class c")),
            (&[("max-volumes-per-namespace", "1")], "a", 1, Some("namespace a can have 1 volumes")),
            (&[("max-volumes-per-namespace", "1")], "c", 1, None),
            (&[("max-bytes-per-namespace", "25")], "a", 15, None),
            (
                &[("max-bytes-per-namespace", "25")],
                "b",
                6,
                Some("`max-bytes-per-namespace` of the provisioner config admin/config"),
            ),
        ] {
            let found = refusal(&recipe(keys), &taken, namespace, bytes);
            match refused {
                None => assert_eq!(found, None, "{keys:?} {namespace} {bytes}"),
                Some(words) => {
                    assert!(
                        found.as_ref().is_some_and(|found| found.contains(words)),
                        "{keys:?} {namespace}: {found:?}"
                    );
                }
            }
        }
    }
}
