//! The names of the parameters that a run got, compared with the names that its image reads.
//!
//! An image takes the default in place of a parameter whose name is misspelt. The default of some parameters deletes
//! data, and the first sign of the mistake would be the loss.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use flex_contract::operation::Operation;
use flex_contract::{parameter, variable};
use strsim::osa_distance;

use crate::Failure;

/// The parameter with the names that other programs read. Each image that uses [`check`] has this parameter.
pub const IGNORED: &str = "ignored-parameters";
/// The variable of the names that StorageClasses have for the file system, such as `fsType`. The orchestrator reads them.
const FILE_SYSTEM: &str = "FSTYPE";
/// The number of names that a message shows.
const SHOWN: usize = 2;
/// The longest name in a message, in characters.
const LONGEST_NAME: usize = 30;
/// The longest list of the known names in a message, in bytes. An event shows the last 600 characters of a message.
const LONGEST_LIST: usize = 130;

/// The parameters of a run, and its work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Given {
    operation: String,
    class: String,
    attributes_class: String,
    names: Vec<String>,
    /// The names that the VolumeAttributesClass has.
    attributes: Vec<String>,
    ignored: Vec<String>,
}

/// The unknown names of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Unknown {
    /// The run must end, because it would do something else than its config asks for.
    Refused(String),
    /// The run continues, so that an existing volume stays usable.
    Noted(String),
}

/// Checks that an image reads each parameter of the run, and notes in the log the names that it does not read.
///
/// # Errors
/// With the exit code for a wrong config, if a volume begins with an unknown parameter, or if a modify run has one in its
/// VolumeAttributesClass.
pub fn check(env: impl Fn(&str) -> Option<String>, known: &[impl AsRef<str>]) -> Result<(), Failure> {
    let known: Vec<&str> = known.iter().map(AsRef::as_ref).collect();
    match Given::from_env(env).unknown(&known) {
        None => Ok(()),
        Some(Unknown::Refused(message)) => Err(Failure::config(message)),
        Some(Unknown::Noted(message)) => {
            eprintln!("{message}");
            Ok(())
        }
    }
}

/// Returns the variables that a function asks for, which reads the parameters of an image. With them a test of the image
/// compares the names that the image gives to [`check`].
pub fn variables_read(read: impl FnOnce(&dyn Fn(&str) -> Option<String>)) -> BTreeSet<String> {
    let asked = RefCell::new(BTreeSet::new());
    read(&|name| {
        asked.borrow_mut().insert(name.to_owned());
        None
    });
    asked.into_inner()
}

impl Given {
    /// Reads the environment of a run, also of one that the contract does not know.
    fn from_env(env: impl Fn(&str) -> Option<String>) -> Self {
        let text = |name: &str| env(name).unwrap_or_default();
        let attributes: BTreeMap<String, String> =
            serde_json::from_str(&text(variable::ATTRIBUTES.name)).unwrap_or_default();
        Given {
            operation: text(variable::OPERATION.name),
            class: text(variable::STORAGE_CLASS.name),
            attributes_class: text(variable::ATTRIBUTES_CLASS.name),
            names: words(&text(variable::PARAMETER_NAMES.name)),
            attributes: attributes.into_keys().collect(),
            ignored: words(&text(&parameter::env_name(IGNORED))),
        }
    }

    /// Decides about the names that are neither `known` nor the business of another program.
    fn unknown(&self, known: &[&str]) -> Option<Unknown> {
        let env = parameter::env_name;
        let is_read = |name: &str| {
            let of_other = name.contains('/') || env(name) == FILE_SYSTEM;
            let ignored = self.ignored.iter().any(|other| env(other) == env(name));
            of_other || ignored || env(name) == env(IGNORED) || known.iter().any(|known| env(known) == env(name))
        };
        let (attributes, class): (Vec<&str>, Vec<&str>) = self
            .names
            .iter()
            .map(String::as_str)
            .filter(|name| !is_read(name))
            .partition(|name| self.attributes.iter().any(|attribute| attribute == name));
        let all = [&attributes[..], &class[..]].concat();
        let refused = match self.operation.parse() {
            Ok(Operation::Provision | Operation::MoveIn) => all.clone(),
            Ok(Operation::Modify) => attributes.clone(),
            _ => Vec::new(),
        };
        if all.is_empty() {
            return None;
        }
        if refused.is_empty() {
            let names = quoted(&all, known, false);
            return Some(Unknown::Noted(format!("the image does not know {names}, and the run continues")));
        }
        let place = self.place(refused.len(), attributes.len());
        let list = if refused.iter().all(|name| nearest(name, known).is_some()) { String::new() } else { list(known) };
        let (it, its) = if refused.len() == 1 { ("it", "name") } else { ("them", "names") };
        Some(Unknown::Refused(format!(
            "the image does not know {}, and would ignore {it}: nothing is done.{list} Correct the {its} in {place}. If another \
             program reads {it}, add the {its} to `{IGNORED}` in the ConfigMap",
            quoted(&refused, known, true)
        )))
    }

    /// Returns the objects that may have the names, of which `attributes` are from a VolumeAttributesClass.
    fn place(&self, names: usize, attributes: usize) -> String {
        let class = cut(&self.class);
        let of_class = format!("the ConfigMap or StorageClass of class `{class}`");
        let of_attributes = format!("the VolumeAttributesClass `{}`", cut(&self.attributes_class));
        match attributes {
            0 if class == self.class => format!("{of_class} (`flex-provisioner explain {class}` shows which)"),
            0 => of_class,
            all if all == names => of_attributes,
            _ => format!("{of_attributes}, and in {of_class}"),
        }
    }
}

fn words(text: &str) -> Vec<String> {
    text.split([',', ' ', '\n', '\t']).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

/// Writes the names, each with the known name that it resembles.
fn quoted(names: &[&str], known: &[&str], with_nearest: bool) -> String {
    let one = |name: &&str| match nearest(name, known).filter(|_| with_nearest) {
        Some(near) => format!("`{}` (did you mean `{near}`?)", cut(name)),
        None => format!("`{}`", cut(name)),
    };
    let shown: Vec<String> = names.iter().take(SHOWN).map(one).collect();
    let more = match names.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let what = if names.len() == 1 { "parameter" } else { "parameters" };
    format!("the {what} {}{more}", shown.join(", "))
}

/// Writes the known names, or the first of them.
fn list(known: &[&str]) -> String {
    let mut list = String::new();
    for (n, name) in known.iter().enumerate() {
        if list.len() + name.len() > LONGEST_LIST {
            return format!(" It knows {list} and others.");
        }
        list += if n == 0 { "" } else { ", " };
        list += name;
    }
    if known.is_empty() { " It knows none.".into() } else { format!(" It knows {list}.") }
}

/// Returns the known name that was probably meant. Separators and case do not count.
pub fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let word = letters(name);
    let near = known.iter().map(|known| (osa_distance(&word, &letters(known)), *known));
    // A third of the letters may differ: people write `on-deletion` for `on-delete`.
    let is_near = |(distance, known): &(usize, &str)| distance * 3 <= letters(known).len().max(word.len());
    near.filter(is_near).min_by_key(|(distance, _)| *distance).map(|(_, known)| known)
}

fn letters(text: &str) -> String {
    text.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase()
}

fn cut(name: &str) -> String {
    match name.char_indices().nth(LONGEST_NAME) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}

#[cfg(test)]
#[path = "parameters_tests.rs"]
mod tests;
