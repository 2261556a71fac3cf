//! The access to a Cinder: its address, and the login.

use std::fmt;
use std::path::PathBuf;

/// The access to a Cinder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cloud {
    /// The way to get its endpoint and a token.
    pub access: Access,
    /// A file with the certificate authorities for TLS; the public ones without it.
    pub ca_file: Option<PathBuf>,
    /// The name of the key with this file, for messages.
    pub ca_key: &'static str,
    /// The source of the settings, for messages.
    pub origin: String,
}

/// The way to get Cinder's endpoint and a token for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// A Cinder without Keystone, which believes the image.
    NoAuth {
        /// The endpoint with its version, without a slash at its end and without a project: `http://cinder:8776/v3`.
        endpoint: String,
        /// The user that the image claims to be.
        user: String,
        /// The project of all volumes.
        project: String,
    },
    /// A Keystone, which returns both.
    Keystone(Box<Keystone>),
}

/// A Keystone, and the login there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keystone {
    /// The address with the version, without a slash at its end: `https://keystone:5000/v3`.
    pub auth_url: String,
    /// The identity of the image for Keystone.
    pub identity: Identity,
    /// The region of the Cinder; any without it.
    pub region: Option<String>,
    /// The interface of the endpoint: `public`, `internal` or `admin`.
    pub interface: String,
    /// An endpoint that replaces the one of the catalog.
    pub endpoint: Option<String>,
}

/// The identity of the image for Keystone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// A user with a password, in a project.
    Password {
        /// The user.
        user: Named,
        /// The user's password.
        password: Secret,
        /// The project.
        project: Named,
    },
    /// An application credential, which is for one project by itself.
    ApplicationCredential {
        /// The credential: its id, or its name and user.
        credential: Credential,
        /// The secret of the credential.
        secret: Secret,
    },
}

/// An application credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential {
    /// The id of the credential.
    Id(String),
    /// The name, which is unique for its user.
    Name(String, Named),
}

/// A user or project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Named {
    /// The id of the user or project.
    Id(String),
    /// The name, which is unique in its domain.
    Name(String, Domain),
}

/// A domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Domain {
    /// The id of the domain.
    Id(String),
    /// The name of the domain.
    Name(String),
}

/// A text that must not reach a log.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}
