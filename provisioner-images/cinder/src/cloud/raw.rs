//! A cloud as it was written, in whatever format: keys that all formats share, each with its own spelling.

use std::collections::BTreeMap;

/// What can be said about a cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// The address of Keystone.
    AuthUrl,
    /// The user's name.
    Username,
    /// The user's id.
    UserId,
    /// The user's password.
    Password,
    /// The project's name.
    ProjectName,
    /// The project's id.
    ProjectId,
    /// The name of the domain of both.
    DomainName,
    /// The id of the domain of both.
    DomainId,
    /// The name of the user's domain.
    UserDomainName,
    /// The id of the user's domain.
    UserDomainId,
    /// The name of the project's domain.
    ProjectDomainName,
    /// The id of the project's domain.
    ProjectDomainId,
    /// The id of an application credential.
    CredentialId,
    /// The name of an application credential.
    CredentialName,
    /// The secret of an application credential.
    CredentialSecret,
    /// The region.
    Region,
    /// The interface of the endpoint.
    Interface,
    /// A file with authorities for TLS.
    CaFile,
    /// Where Cinder is, in place of the catalog or without any Keystone.
    Endpoint,
    /// What decides between the ways to log in, where the format says it.
    AuthType,
    /// That TLS shall not be checked.
    Insecure,
}

/// A cloud as it was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Raw {
    /// Where it stands, for messages.
    pub origin: String,
    /// How a key is spelled there; the first spelling is the one to advise.
    pub spellings: Vec<(&'static str, Key)>,
    /// What stands there.
    pub values: BTreeMap<Key, String>,
}

impl Raw {
    /// Nothing yet.
    pub fn new(origin: &str, spellings: &[(&'static str, Key)]) -> Self {
        Self { origin: origin.to_owned(), spellings: spellings.to_vec(), values: BTreeMap::new() }
    }

    /// Takes what a function knows of all spellings; empty texts are none.
    pub fn take(&mut self, value: impl Fn(&str) -> Option<String>) {
        for (spelling, key) in self.spellings.clone() {
            if let Some(value) = value(spelling).filter(|value| !value.trim().is_empty()) {
                self.values.entry(key).or_insert(value);
            }
        }
    }

    /// Nothing stands there.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The value of a key.
    pub fn get(&self, key: Key) -> Option<&str> {
        self.values.get(&key).map(String::as_str)
    }

    /// How a key is spelled there.
    pub fn spelling(&self, key: Key) -> &'static str {
        self.spellings
            .iter()
            .find(|(_, of)| *of == key)
            .map_or("(not possible in this format)", |(spelling, _)| spelling)
    }
}
