//! The reader of a run's environment.

use std::collections::BTreeMap;

use crate::request_error::RequestError;
use crate::variable::Variable;

/// The environment of a run. An empty variable counts like an absent one.
pub(crate) struct RunEnv<F>(pub F);

impl<F: Fn(&str) -> Option<String>> RunEnv<F> {
    pub fn text(&self, variable: &Variable) -> String {
        (self.0)(variable.name).unwrap_or_default()
    }

    pub fn text_or(&self, variable: &Variable, default: &str) -> String {
        let text = self.text(variable);
        if text.is_empty() { default.to_owned() } else { text }
    }

    pub fn list(&self, variable: &Variable) -> Vec<String> {
        self.text(variable).split(',').filter(|item| !item.is_empty()).map(str::to_owned).collect()
    }

    pub fn number(&self, variable: &Variable) -> Result<Option<u64>, RequestError> {
        match self.text(variable) {
            text if text.is_empty() => Ok(None),
            value => match value.parse() {
                Ok(number) => Ok(Some(number)),
                Err(_) => Err(RequestError::Invalid { variable: variable.name, value, expected: "a whole number" }),
            },
        }
    }

    pub fn pairs(&self, variable: &Variable) -> Result<BTreeMap<String, String>, RequestError> {
        let value = self.text(variable);
        if value.is_empty() {
            return Ok(BTreeMap::new());
        }
        serde_json::from_str(&value).map_err(|_| RequestError::Invalid {
            variable: variable.name,
            value,
            expected: "a JSON object of strings",
        })
    }
}
