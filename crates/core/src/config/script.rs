//! The script of a config: a shell program in place of an image of its own.
//!
//! An effective config names the script by its [`hash`], and a ControllerRevision keeps the text. The text itself is checked here,
//! where the ConfigMap still has it.

use std::collections::BTreeMap;

use flex_contract::names::{self, CONTAINER};

use super::identity::Identity;
use super::keys;
use super::{Problem, Recipe};
use crate::limits;
use crate::object;

/// The characters of a script's hash, in hexadecimal.
const HASH: usize = 32;

/// The beginning of the name of the ControllerRevision that keeps a script.
const PREFIX: &str = "flex-script-";

/// The field of that object with the text.
const FIELD: &str = "script";

/// The interpreters in a first line `#!` that mean the shell that runs the script anyway.
const SHELLS: &[&str] = &["#!/bin/sh", "#!/bin/ash", "#!/bin/busybox sh", "#!/usr/bin/env sh"];

/// Returns the hash by which effective configs name a script: the first 128 bits of its SHA-256, in hexadecimal.
pub fn hash(text: &str) -> String {
    use sha2::Digest;
    let digest: [u8; 32] = sha2::Sha256::digest(text.as_bytes()).into();
    let mut hash: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    hash.truncate(HASH);
    hash
}

/// Returns the beginning of the name of the ControllerRevision that keeps the script with this hash. It is the whole
/// name for the usual instance.
pub fn kept_prefix(hash: &str) -> String {
    format!("{PREFIX}{hash}")
}

/// Returns the name of the ControllerRevision in which an instance keeps the script with this hash. Instances may share a
/// namespace, and each keeps a script as long as it needs it.
pub fn kept_name(instance: &str, hash: &str) -> String {
    match instance {
        names::DEFAULT_INSTANCE => kept_prefix(hash),
        other => format!("{PREFIX}{hash}-{}", object::hash(other.as_bytes())),
    }
}

/// Returns the hash in the name of a ControllerRevision, if it keeps a script.
pub fn kept_hash(name: &str) -> Option<&str> {
    name.strip_prefix(PREFIX)?.split('-').next()
}

/// Returns the content of the ControllerRevision that keeps a script.
pub fn kept_data(text: &str) -> serde_json::Value {
    serde_json::json!({ FIELD: text })
}

/// Returns the text of a script from the content of its ControllerRevision.
pub fn kept_text(data: &serde_json::Value) -> Option<&str> {
    data[FIELD].as_str()
}

/// Removes the script from the data of a ConfigMap, and returns its hash.
pub(super) fn take(data: &mut BTreeMap<String, String>) -> Option<String> {
    data.remove(keys::SCRIPT.name).map(|text| hash(&text))
}

/// Finds what is wrong with the script of a ConfigMap, and with the lack of an image beside it.
pub(super) fn problems(data: &BTreeMap<String, String>, identity: &Identity) -> Vec<Problem> {
    let Some(text) = data.get(keys::SCRIPT.name) else { return Vec::new() };
    let mut problems: Vec<_> = mistake(text).map(|why| Problem::new(keys::SCRIPT.name, why)).into_iter().collect();
    let has_image = data.get(keys::IMAGE.name).is_some_and(|image| !image.trim().is_empty());
    if !has_image && identity.shell_image.is_none() {
        problems.push(Problem::new(
            keys::IMAGE.name,
            "is missing, and this provisioner knows no shell image for scripts; name an image with a shell and flex-pv, or start the provisioner with --shell-image (FLEX_SHELL_IMAGE)",
        ));
    }
    problems
}

/// Finds a second program in the template of a config with a script. It concerns no later run: the template of a volume
/// may be older than the script of its class, which then wins.
pub(super) fn problem_of_template(recipe: &Recipe) -> Option<Problem> {
    let spec = recipe.pod_template.as_ref().filter(|_| recipe.script.is_some())?.spec.as_ref()?;
    let mut containers = spec.containers.iter().filter(|container| container.name == CONTAINER);
    containers.any(|container| container.command.is_some() || container.args.is_some()).then(|| {
        Problem::new(
            keys::POD_TEMPLATE.name,
            "sets `command` or `args` of the container `provisioner`, which cannot be used with `script`; remove one of the two",
        )
    })
}

/// Returns the reason why a text cannot be a script.
pub fn mistake(text: &str) -> Option<String> {
    let first = text.lines().next().unwrap_or_default().trim_end();
    if text.trim().is_empty() {
        Some("is empty; write a shell program, or remove the key and name an `image`".into())
    } else if text.len() > limits::VALUE {
        Some(format!(
            "is {} bytes long; a script may have at most {}; build an image for a longer one",
            text.len(),
            limits::VALUE
        ))
    } else if text.contains('\0') {
        Some("has a zero byte, which no shell program has; remove it".into())
    } else if text.contains("\r\n") {
        Some("has carriage returns at the ends of lines, as files of Windows have, and a shell takes them for parts of words; save it with line feeds alone".into())
    } else if first.starts_with("#!") && !SHELLS.iter().any(|shell| is_shell(first, shell)) {
        Some(format!(
            "begins with `{first}`, but runs with /bin/sh of its image; write it for /bin/sh, or build an image with that interpreter"
        ))
    } else {
        None
    }
}

/// Checks whether a first line names this shell, perhaps with options.
fn is_shell(first: &str, shell: &str) -> bool {
    let words = |text: &str| text.trim_start_matches("#!").split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    words(first).starts_with(&words(shell))
}

#[cfg(test)]
#[path = "script_tests.rs"]
mod tests;
