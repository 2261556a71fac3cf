//! The check of a cloud as it was written. All problems are reported at once. The functions are pure.

use std::path::PathBuf;

use super::access::{Access, Cloud, Credential, Domain, Identity, Keystone, Named, Secret};
use super::raw::{Key, Raw};
use super::url::with_version;

/// Checks a cloud.
///
/// # Errors
/// All problems, each with its place, the key, and what to do.
pub fn check(raw: &Raw) -> Result<Cloud, Vec<String>> {
    let mut problems = Problems { raw, found: Vec::new() };
    if raw.get(Key::Insecure).is_some_and(|value| ["true", "1", "yes"].contains(&value.to_lowercase().as_str())) {
        problems.add(
            Key::Insecure,
            &format!("is not possible: name the authority's certificate in {}", raw.spelling(Key::CaFile)),
        );
    }
    let without_keystone = raw.get(Key::AuthType).is_some_and(|kind| ["none", "noauth", "admin_token"].contains(&kind))
        || (raw.get(Key::AuthUrl).is_none() && raw.get(Key::Endpoint).is_some());
    let access = if without_keystone { problems.no_auth() } else { problems.keystone() };
    match access {
        Some(access) if problems.found.is_empty() => {
            let (ca_file, ca_key) = (raw.get(Key::CaFile).map(PathBuf::from), raw.spelling(Key::CaFile));
            Ok(Cloud { access, ca_file, ca_key, origin: raw.origin.clone() })
        }
        _ => Err(problems.found),
    }
}

struct Problems<'a> {
    raw: &'a Raw,
    found: Vec<String>,
}

impl Problems<'_> {
    fn add(&mut self, key: Key, what: &str) {
        self.found.push(format!("{}: {} {what}", self.raw.origin, self.raw.spelling(key)));
    }

    fn needed(&mut self, key: Key, what: &str) -> Option<String> {
        let value = self.raw.get(key).map(str::to_owned);
        if value.is_none() {
            self.add(key, &format!("is missing: {what}"));
        }
        value
    }

    fn address(&mut self, key: Key, what: &str) -> Option<String> {
        let written = self.needed(key, what)?;
        with_version(&written, "v3").map_err(|problem| self.add(key, &format!("is wrong: {problem}"))).ok()
    }

    fn no_auth(&mut self) -> Option<Access> {
        let endpoint = self.address(Key::Endpoint, "the address of Cinder, such as http://cinder-host:8776/v3");
        let project = self.raw.get(Key::ProjectName).or(self.raw.get(Key::ProjectId)).map(str::to_owned);
        let project = project.or_else(|| self.needed(Key::ProjectName, "the project that all volumes are in"));
        let project = project.filter(|project| {
            let plain = project.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'));
            if !plain {
                self.add(
                    Key::ProjectName,
                    "is wrong: it may have letters, digits, `-` and `_`, as it stands in addresses",
                );
            }
            plain
        });
        let user = self.raw.get(Key::Username).or(self.raw.get(Key::UserId)).unwrap_or("admin").to_owned();
        let (endpoint, project) = (endpoint?, project?);
        // An endpoint with the project at its end means the same.
        let endpoint = endpoint.strip_suffix(&format!("/{project}")).map_or(endpoint.clone(), str::to_owned);
        Some(Access::NoAuth { endpoint, user, project })
    }

    fn keystone(&mut self) -> Option<Access> {
        let auth_url = self.address(Key::AuthUrl, "the address of Keystone, such as https://keystone-host:5000/v3");
        let identity = self.identity();
        let interface = match self.raw.get(Key::Interface).unwrap_or("public").trim_end_matches("URL") {
            known @ ("public" | "internal" | "admin") => Some(known.to_owned()),
            _ => {
                self.add(Key::Interface, "is wrong: it must be public, internal or admin");
                None
            }
        };
        let endpoint = match self.raw.get(Key::Endpoint) {
            None => None,
            Some(_) => Some(self.address(Key::Endpoint, "")?),
        };
        Some(Access::Keystone(Box::new(Keystone {
            auth_url: auth_url?,
            identity: identity?,
            region: self.raw.get(Key::Region).map(str::to_owned),
            interface: interface?,
            endpoint,
        })))
    }

    fn identity(&mut self) -> Option<Identity> {
        let by_credential = [Key::CredentialId, Key::CredentialName, Key::CredentialSecret];
        if by_credential.into_iter().any(|key| self.raw.get(key).is_some()) {
            return self.credential();
        }
        let user =
            self.named(Key::UserId, Key::Username, [Key::UserDomainId, Key::UserDomainName], "who we are to Keystone");
        let password = self.needed(Key::Password, "the user's password");
        let project = self.named(
            Key::ProjectId,
            Key::ProjectName,
            [Key::ProjectDomainId, Key::ProjectDomainName],
            "the project that all volumes are in",
        );
        Some(Identity::Password { user: user?, password: Secret(password?), project: project? })
    }

    fn credential(&mut self) -> Option<Identity> {
        let secret = self.needed(Key::CredentialSecret, "the secret of the application credential");
        let credential = match (self.raw.get(Key::CredentialId), self.raw.get(Key::CredentialName)) {
            (Some(id), _) => Some(Credential::Id(id.to_owned())),
            (None, Some(name)) => {
                let name = name.to_owned();
                let whose = [Key::UserDomainId, Key::UserDomainName];
                let user = self.named(Key::UserId, Key::Username, whose, "whose application credential it is");
                user.map(|user| Credential::Name(name, user))
            }
            (None, None) => {
                self.add(Key::CredentialId, "is missing: which application credential it is");
                None
            }
        };
        Some(Identity::ApplicationCredential { credential: credential?, secret: Secret(secret?) })
    }

    /// Reads a user or project by its id, or by its name in a domain. Files for Keystone's version 2 name no domain:
    /// all objects of that version are in the domain `default`.
    fn named(&mut self, id: Key, name: Key, domain: [Key; 2], what: &str) -> Option<Named> {
        if let Some(id) = self.raw.get(id) {
            return Some(Named::Id(id.to_owned()));
        }
        let domain_id = self.raw.get(domain[0]).map(|id| Domain::Id(id.to_owned()));
        let domain_name = self.raw.get(domain[1]).map(|name| Domain::Name(name.to_owned()));
        let of_both = self.raw.get(Key::DomainId).map(|id| Domain::Id(id.to_owned()));
        let of_both = of_both.or_else(|| self.raw.get(Key::DomainName).map(|name| Domain::Name(name.to_owned())));
        let domain = domain_id.or(domain_name).or(of_both).unwrap_or(Domain::Id("default".into()));
        self.needed(name, what).map(|name| Named::Name(name, domain))
    }
}
