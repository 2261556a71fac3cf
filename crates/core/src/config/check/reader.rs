//! The reader of a config's values.

use std::collections::BTreeMap;

use crate::config::Problem;
use crate::config::keys::KeySpec;
use crate::config::values::{list, number};
use crate::object::is_dns_name;

/// A reader of values. It records an error and continues.
pub(super) struct Reader<'a> {
    pub data: &'a BTreeMap<String, String>,
    pub problems: Vec<Problem>,
}

impl Reader<'_> {
    pub fn text(&self, key: &KeySpec) -> Option<&str> {
        self.data.get(key.name).map(|value| value.trim()).filter(|value| !value.is_empty())
    }

    pub fn fail(&mut self, key: &KeySpec, message: impl Into<String>) {
        self.problems.push(Problem::new(key.name, message));
    }

    pub fn read<T>(&mut self, key: &KeySpec, parse: impl Fn(&str) -> Result<T, String>) -> Option<T> {
        match parse(self.text(key)?) {
            Ok(value) => Some(value),
            Err(message) => {
                self.fail(key, message);
                None
            }
        }
    }

    /// Reads a number from 1 to `max`.
    pub fn count(&mut self, key: &KeySpec, max: usize) -> Option<usize> {
        self.read(key, |text| number(text, 1, max as u64)).map(|n| n as usize)
    }

    pub fn names(&mut self, key: &KeySpec, what: &str) -> Vec<String> {
        self.read(key, |text| {
            let names = list(text)?;
            match names.iter().find(|name| !is_dns_name(name)) {
                Some(name) => Err(format!("`{name}` cannot be the name of a {what}")),
                None => Ok(names),
            }
        })
        .unwrap_or_default()
    }

    pub fn name(&mut self, key: &KeySpec, what: &str) -> Option<String> {
        self.read(key, |text| match is_dns_name(text) {
            true => Ok(text.to_owned()),
            false => Err(format!("`{text}` cannot be the name of a {what}")),
        })
    }

    /// Reads one of the words of the key.
    pub fn one_of(&mut self, key: &KeySpec, default: &str) -> String {
        let allowed = key.form.words();
        self.read(key, |text| match allowed.contains(&text) {
            true => Ok(text.to_owned()),
            false => Err(format!("`{text}` is not known; write one of {}", allowed.join(", "))),
        })
        .unwrap_or_else(|| default.to_owned())
    }

    /// Reads a list of words of the key.
    pub fn some_of(&mut self, key: &KeySpec, default: &[&str]) -> Vec<String> {
        let allowed = key.form.words();
        self.read(key, |text| {
            let chosen = list(text)?;
            match chosen.iter().find(|item| !allowed.contains(&item.as_str())) {
                Some(item) => Err(format!("`{item}` is not known; write some of {}", allowed.join(", "))),
                None if chosen.is_empty() => Err("it is empty; leave the key out instead".into()),
                None => Ok(chosen),
            }
        })
        .unwrap_or_else(|| default.iter().map(|item| (*item).to_owned()).collect())
    }
}
