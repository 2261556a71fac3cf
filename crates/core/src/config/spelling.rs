//! Words that are nearly the name of a key.

use std::sync::LazyLock;

use strsim::osa_distance;

use super::keys::{self, KeySpec};

/// Synonyms of keys, whose letters differ too much from the key to be found as a typing error.
const SYNONYMS: &[(&str, KeySpec)] = &[
    ("capability", keys::CAPABILITIES),
    ("mountopts", keys::MOUNT_OPTIONS),
    ("priorityclassname", keys::PRIORITY_CLASS),
    ("pullpolicy", keys::IMAGE_PULL_POLICY),
    ("reclaimpolicies", keys::RECLAIM_POLICY),
    ("retry", keys::RETRIES),
    ("runasuid", keys::RUN_AS_USER),
    ("serviceaccount", keys::SERVICE_ACCOUNT_NAME),
];

/// Each key with its letters. They are computed once, because each parameter of each config is compared with all.
static KEYS: LazyLock<Vec<(&str, String)>> =
    LazyLock::new(|| keys::ALL.iter().map(|key| (key.name, letters(key.name))).collect());

/// Removes the differences of case and separators from a text.
pub fn letters(text: &str) -> String {
    text.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase()
}

/// Returns the key from which a name differs only in separators or case.
pub fn misspelt(name: &str) -> Option<&'static str> {
    let wanted = letters(name);
    KEYS.iter().find(|(key, letters)| *letters == wanted && *key != name).map(|(key, _)| *key)
}

/// Returns the key that a name with other letters was probably meant to be.
pub fn near_key(name: &str) -> Option<&'static str> {
    let word = letters(name);
    // StorageClasses of CSI drivers and several images use such names.
    let is_reference = ["secretname", "secretnamespace"].iter().any(|end| word.ends_with(end));
    if keys::is_key(name) || is_reference {
        return None;
    }
    let other = SYNONYMS.iter().find(|(other, _)| *other == word).map(|(_, key)| key.name);
    other.or_else(|| KEYS.iter().find(|(_, letters)| is_near(&word, letters)).map(|(key, _)| *key))
}

/// Checks whether a word is another word with a typing error: one letter, or two in long words. People hardly ever
/// mistype the first letter, and `min` is no typing error of `max`.
fn is_near(word: &str, key: &str) -> bool {
    let most = if key.len() < 9 { 1 } else { 2 };
    word != key
        && word.len().abs_diff(key.len()) <= most
        && word.chars().next() == key.chars().next()
        && word.starts_with("min") == key.starts_with("min")
        && osa_distance(word, key) <= most
}

/// Checks whether two words differ only in separators, case or a typing error.
pub fn reads_like(word: &str, other: &str) -> bool {
    let (letters, wanted) = (letters(word), letters(other));
    word != other && (letters == wanted || is_near(&letters, &wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_with_a_name_of_its_own_gets_no_suggestion() {
        for name in [
            "server",
            "export",
            "base-path",
            "mode",
            "type",
            "zone",
            "use-nfs-server",
            "secret-namespace",
            "csi.storage.k8s.io/provisioner-secret-name",
            "csi.storage.k8s.io/fstype",
            "on-delete",
            "sources",
            "source",
            "tool",
            "spool",
            "min-bytes",
            "min-volumes",
            "node-name",
            "volume-name",
            "volume-type",
            "storage-class",
            "timeout-of-the-array",
            "csi-connect-timeout",
        ] {
            assert_eq!(near_key(name), None, "{name}");
        }
    }

    #[test]
    fn no_key_is_taken_for_a_misspelt_one() {
        for key in keys::ALL.iter().map(|key| key.name) {
            assert_eq!((near_key(key), misspelt(key)), (None, None), "{key}");
        }
        for (word, _) in SYNONYMS {
            assert_eq!(letters(word), *word);
            assert!(!keys::ALL.iter().any(|key| is_near(word, &letters(key.name))), "{word} is found without the list");
        }
    }
}
