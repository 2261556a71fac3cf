//! The namespaces whose claims a class serves: those of `namespaces`, and those that `namespace-selector` selects.

use std::collections::{BTreeMap, BTreeSet};

use kube_core::{Expression, Selector, SelectorExt};

use super::keys::{KeySpec, NAMESPACE_SELECTOR, NAMESPACES};
use crate::object::{is_label_key, is_label_name};

/// The namespaces whose claims a class serves; all by default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServedNamespaces {
    /// These namespaces.
    pub names: Vec<String>,
    /// The namespaces whose labels match.
    pub selector: Option<Selector>,
}

impl ServedNamespaces {
    /// Returns the keys that leave some namespaces out; none if the class serves all.
    pub fn keys(&self) -> Vec<&'static KeySpec> {
        let of_names = (!self.names.is_empty()).then_some(&NAMESPACES);
        of_names.into_iter().chain(self.selector.as_ref().map(|_| &NAMESPACE_SELECTOR)).collect()
    }

    /// Checks whether claims of a namespace are served. Returns `None` if only its labels can tell, and `labels` are not
    /// known.
    pub fn serve(&self, namespace: &str, labels: Option<&BTreeMap<String, String>>) -> Option<bool> {
        if self.keys().is_empty() || self.names.iter().any(|name| name == namespace) {
            return Some(true);
        }
        match &self.selector {
            Some(selector) => labels.map(|labels| selector.matches(labels)),
            None => Some(false),
        }
    }
}

/// Reads a label selector, as `kubectl get -l` takes it.
///
/// # Errors
/// If a part is no requirement.
pub fn selector(text: &str) -> Result<Selector, String> {
    let mut is_in_values = false;
    let parts = text.split(|c: char| {
        is_in_values = if is_in_values { c != ')' } else { c == '(' };
        !is_in_values && matches!(c, ',' | '\n')
    });
    let parts = parts.map(str::trim).filter(|part| !part.is_empty());
    let requirements: Vec<Expression> = parts.map(requirement).collect::<Result<_, _>>()?;
    match requirements.is_empty() {
        true => Err(format!("`{text}` has no requirement; {EXAMPLES}")),
        false => Ok(requirements.into_iter().collect()),
    }
}

/// The forms of a requirement, for a message.
const EXAMPLES: &str = "write for example tier=gold, tier!=gold, tier in (gold, silver), tier notin (gold), tier or !tier, and commas between several";

/// Reads one requirement of a selector.
fn requirement(text: &str) -> Result<Expression, String> {
    let wrong = || format!("`{text}` is not a requirement of a label selector; {EXAMPLES}");
    let key = |text: &str| Some(text.trim().to_owned()).filter(|key| is_label_key(key));
    let value = |text: &str| Some(text.trim().to_owned()).filter(|value| value.is_empty() || is_label_name(value));
    let read = || {
        if let Some(absent) = text.strip_prefix('!') {
            return Some(Expression::DoesNotExist(key(absent)?));
        }
        if let Some((before, values)) = text.strip_suffix(')').and_then(|text| text.split_once('(')) {
            let (name, operator) = before.trim().rsplit_once(char::is_whitespace)?;
            let values = values.split(',').map(value).collect::<Option<BTreeSet<_>>>()?;
            return match operator {
                "in" => Some(Expression::In(key(name)?, values)),
                "notin" => Some(Expression::NotIn(key(name)?, values)),
                _ => None,
            };
        }
        if let Some((name, other)) = text.split_once("!=") {
            return Some(Expression::NotEqual(key(name)?, value(other)?));
        }
        match text.split_once("==").or_else(|| text.split_once('=')) {
            Some((name, same)) => Some(Expression::Equal(key(name)?, value(same)?)),
            None => Some(Expression::Exists(key(text)?)),
        }
    };
    read().ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Problem;
    use crate::config::effective_config::EffectiveConfig;
    use crate::object::ObjectName;

    fn labels(labels: &[(&str, &str)]) -> BTreeMap<String, String> {
        labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn read(keys: &[(&str, &str)]) -> Result<ServedNamespaces, Vec<Problem>> {
        let data = [("image", "x")].iter().chain(keys);
        let data = data.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let config = ObjectName::new("admin", "gold");
        let config = EffectiveConfig { config, class: "gold".into(), data, ..EffectiveConfig::default() };
        Ok(config.recipe()?.namespaces)
    }

    #[test]
    fn a_selector_means_what_it_means_for_kubectl() {
        let gold = labels(&[("tier", "gold"), ("example.com/env", "")]);
        for (text, selects_gold, selects_none) in [
            ("tier=gold", true, false),
            ("tier == gold", true, false),
            ("tier!=gold", false, true),
            ("tier in (silver, gold)", true, false),
            ("tier in (silver)", false, false),
            ("tier notin (silver,gold)", false, true),
            ("tier", true, false),
            ("! tier", false, true),
            ("example.com/env=", true, false),
            ("example.com/env in (,prod)", true, false),
            ("tier=gold,example.com/env", true, false),
            ("tier=gold, tier notin (a, b), !team", true, false),
            ("tier=gold\nteam\n", false, false),
        ] {
            let read = selector(text).unwrap_or_else(|why| panic!("{text}: {why}"));
            assert_eq!((read.matches(&gold), read.matches(&labels(&[]))), (selects_gold, selects_none), "{text}");
        }
    }

    #[test]
    fn what_is_no_selector_says_how_to_write_one() {
        for text in [
            "tier in gold",
            "tier: gold",
            "tier=gold env=prod",
            "tier = a b",
            "tier in (a",
            "tier in (a b)",
            "tier within (a)",
            "in (a)",
            "(a)",
            "=gold",
            "!",
            "!tier=gold",
            "tier=-",
            "a/b/c",
            "{matchLabels: {tier: gold}}",
            "tier>1",
        ] {
            let why = selector(text).unwrap_err();
            assert!(
                why.contains("is not a requirement of a label selector; write for example tier=gold"),
                "{text}: {why}"
            );
        }
        assert!(selector(",").unwrap_err().contains("has no requirement"));
    }

    /// Whoever empties a list wants it to name nobody, and a class without the key serves everybody.
    #[test]
    fn a_key_that_names_nobody_is_refused() {
        for (key, value) in [
            ("namespaces", ""),
            ("namespaces", " \n"),
            ("namespaces", "[]"),
            ("namespaces", ","),
            ("namespace-selector", ""),
            ("namespace-selector", " "),
        ] {
            let problems = read(&[(key, value)]).unwrap_err();
            assert!(problems.len() == 1 && problems[0].key == key, "{problems:?}");
            assert!(problems[0].message.contains("is empty") && problems[0].message.contains("leave the key out"));
        }
        let problems = read(&[("namespaces", "team-a team-b"), ("namespace-selector", "tier in")]).unwrap_err();
        let keys: Vec<_> = problems.iter().map(|problem| problem.key.as_str()).collect();
        assert_eq!(keys, ["namespace-selector", "namespaces"], "each is told once: {problems:?}");
    }

    #[test]
    fn a_class_serves_the_namespaces_that_match_either_key() {
        let (gold, other) = (labels(&[("tier", "gold")]), labels(&[]));
        let (names, by_label) = (("namespaces", "team-a\nteam-b"), ("namespace-selector", "tier=gold"));
        for (keys, namespace, known, served) in [
            (&[names][..], "team-b", None, Some(true)),
            (&[], "team-c", None, Some(true)),
            (&[names], "team-c", None, Some(false)),
            (&[names], "team-c", Some(&gold), Some(false)),
            (&[by_label], "team-a", None, None),
            (&[by_label], "team-a", Some(&other), Some(false)),
            (&[by_label], "team-a", Some(&gold), Some(true)),
            (&[names, by_label], "team-a", Some(&other), Some(true)),
            (&[names, by_label], "team-c", Some(&gold), Some(true)),
            (&[names, by_label], "team-c", Some(&other), Some(false)),
            (&[names, by_label], "team-c", None, None),
        ] {
            assert_eq!(read(keys).unwrap().serve(namespace, known), served, "{keys:?} {namespace} {known:?}");
        }
        let keys =
            |keys: &[(&str, &str)]| -> Vec<_> { read(keys).unwrap().keys().iter().map(|key| key.name).collect() };
        assert_eq!(keys(&[by_label, names]), ["namespaces", "namespace-selector"]);
        assert_eq!((keys(&[]).len(), keys(&[by_label])), (0, vec!["namespace-selector"]));
    }
}
