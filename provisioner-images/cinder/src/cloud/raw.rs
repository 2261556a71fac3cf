//! A cloud as it was written, in any format. All formats share the keys, and each has its own spelling.

use std::collections::BTreeMap;

use flex_image_kit::parameters::nearest;

/// A key of a cloud.
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
    /// The endpoint of Cinder, in place of the catalog's or without any Keystone.
    Endpoint,
    /// The way to log in, where the format has a key for it.
    AuthType,
    /// A setting that turns the checks of TLS off.
    Insecure,
}

/// A cloud as it was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Raw {
    /// The source of the values, for messages.
    pub origin: String,
    /// The spellings of the keys; the first of a key is the one to advise.
    pub spellings: Vec<(&'static str, Key)>,
    /// The values of the keys.
    pub values: BTreeMap<Key, String>,
    /// The written names that are no keys of the format.
    pub unread: Vec<String>,
}

impl Raw {
    /// Makes an empty cloud.
    pub fn new(origin: &str, spellings: &[(&'static str, Key)]) -> Self {
        Self { origin: origin.to_owned(), spellings: spellings.to_vec(), ..Self::default() }
    }

    /// Takes the values of all spellings from a function; empty texts count as missing.
    pub fn take(&mut self, value: impl Fn(&str) -> Option<String>) {
        for (spelling, key) in self.spellings.clone() {
            if let Some(value) = value(spelling).filter(|value| !value.trim().is_empty()) {
                self.values.entry(key).or_insert(value);
            }
        }
    }

    /// Keeps the written names that are no keys.
    pub fn keep_unread(&mut self, written: impl Iterator<Item = String>) {
        self.unread = written.filter(|name| self.spellings.iter().all(|(spelling, _)| spelling != name)).collect();
    }

    /// Returns a line for the log about each written name that resembles a key of this format, or of another. All other
    /// names may be for other programs.
    pub fn notes(&self, formats: &[&[(&'static str, Key)]]) -> Vec<String> {
        let own: Vec<&str> = self.spellings.iter().map(|(spelling, _)| *spelling).collect();
        let all = || formats.iter().copied().flatten().map(|(spelling, key)| (bare(spelling), *key));
        let names: Vec<&str> = all().map(|(name, _)| name).collect();
        let of_other = |name: &str| {
            let near = nearest(bare(name), &names)?;
            all().find(|(other, _)| *other == near).and_then(|(_, key)| self.written_as(key))
        };
        let near = |name: &String| nearest(name, &own).or_else(|| of_other(name));
        let note = |name: &String| {
            let near = near(name)?;
            Some(format!("{} has `{name}`, which the image does not read: did you mean `{near}`?", self.origin))
        };
        self.unread.iter().filter_map(note).collect()
    }

    fn written_as(&self, key: Key) -> Option<&'static str> {
        self.spellings.iter().find(|(_, of)| *of == key).map(|(spelling, _)| *spelling)
    }

    /// Checks whether there is no value.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Returns the value of a key.
    pub fn get(&self, key: Key) -> Option<&str> {
        self.values.get(&key).map(String::as_str)
    }

    /// Returns the spelling of a key.
    pub fn spelling(&self, key: Key) -> &'static str {
        self.written_as(key).unwrap_or("(not possible in this format)")
    }
}

/// Removes the part of a spelling that says where it stands.
fn bare(spelling: &str) -> &str {
    ["OS_", "auth."].iter().find_map(|prefix| spelling.strip_prefix(prefix)).unwrap_or(spelling)
}
