//! The texts by which the admission policy `configs` finds the key that a misspelt key may have been meant to be.

use std::fmt::Write as _;

use flex_core::config::keys;
use flex_core::config::spelling::{letters, near_key};

use crate::Part;

const WIDTH: usize = 120;

pub fn parts() -> Vec<Part> {
    let part = |file| Part { file, source: "crates/core/src/config/keys/table.rs", name: "", print: known };
    vec![part("deploy/kustomize/policies.yaml"), part("deploy/helm/flex-provisioner/files/policies.yaml")]
}

/// Prints all keys by their letters, and the other texts of the policy that still lead to a key.
fn known(_: &str, now: &str) -> String {
    let quoted: Vec<&str> = now.split('\'').skip(1).step_by(2).collect();
    let others = quoted.chunks(2).map(|pair| pair[0]).filter_map(|word| Some((word.to_owned(), near_key(word)?)));
    let all = keys::ALL.iter().map(|key| (letters(key.name), key.name)).chain(others);
    let pairs: Vec<String> = all.map(|(word, key)| format!("'{word}': '{key}'")).collect();
    let mut text = String::from("  - name: known\n    expression: >-\n");
    let mut line = String::from("      {");
    for (n, pair) in pairs.iter().enumerate() {
        let end = if n + 1 == pairs.len() { "}" } else { "," };
        if line.len() + pair.len() + 2 > WIDTH {
            let _ = writeln!(text, "{}", line.trim_end());
            line = String::from("      ");
        }
        let _ = write!(line, "{pair}{end} ");
    }
    let _ = writeln!(text, "{}", line.trim_end());
    text
}
