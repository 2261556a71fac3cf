//! Where Cinder is and who we are there: as written, in one of three formats → checked, with all problems at once.

mod check;
mod env;
mod file;
mod raw;
mod url;
mod yaml;

use std::fmt;
use std::path::{Path, PathBuf};

use kit::Failure;

use raw::Raw;
pub use url::with_version;

/// A way to a Cinder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cloud {
    /// How its endpoint and our token are had.
    pub access: Access,
    /// A file with the authorities that TLS is checked by; the public ones without it.
    pub ca_file: Option<PathBuf>,
    /// What the key is called there that names this file, for messages.
    pub ca_key: &'static str,
    /// Where all of this stands, for messages.
    pub origin: String,
}

/// How the endpoint of Cinder and a token for it are had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// A Cinder without Keystone believes what it is told.
    NoAuth {
        /// The endpoint with its version, without a slash at its end and without a project: `http://cinder:8776/v3`.
        endpoint: String,
        /// Who we say that we are.
        user: String,
        /// The project that all volumes are in.
        project: String,
    },
    /// A Keystone has both.
    Keystone(Box<Keystone>),
}

/// What Keystone is asked, and by whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keystone {
    /// With its version, without a slash at its end: `https://keystone:5000/v3`.
    pub auth_url: String,
    /// By what it knows us.
    pub identity: Identity,
    /// The region whose Cinder is meant; any without it.
    pub region: Option<String>,
    /// The interface of the endpoint: `public`, `internal` or `admin`.
    pub interface: String,
    /// An endpoint that counts in place of the catalog's.
    pub endpoint: Option<String>,
}

/// By what Keystone knows us.
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
        /// The credential, by its id, or by its name and user.
        credential: Credential,
        /// Its secret.
        secret: Secret,
    },
}

/// An application credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential {
    /// By its id.
    Id(String),
    /// By its name, which is unique for its user.
    Name(String, Named),
}

/// A user or project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Named {
    /// By its id.
    Id(String),
    /// By its name, which is unique in its domain.
    Name(String, Domain),
}

/// A domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Domain {
    /// By its id.
    Id(String),
    /// By its name.
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

/// Names of files that are looked for in the Secrets of `secret-volume`.
const FILES: [&str; 4] = ["cloud.conf", "cloud-config", "clouds.yaml", "clouds.yml"];

/// Reads the cloud: from the file that the parameter `cloud-config` names, or the only one that a Secret brings, or from
/// the environment. One of them counts, and all of it: nothing is put together from several.
///
/// # Errors
/// What is missing or wrong, with file, key and remedy. It is tried again soon, since nobody tells when a Secret is mended.
pub fn read(env: impl Fn(&str) -> Option<String>) -> Result<Cloud, Failure> {
    let text = |name: &str| env(name).filter(|value| !value.is_empty());
    let secrets = text("FLEX_SECRETS_DIRECTORY").unwrap_or_else(|| contract::names::SECRET_DIR.to_owned());
    let named = text("CLOUD_CONFIG").or_else(|| text("OS_CLIENT_CONFIG_FILE"));
    let chosen = text("CLOUD").or_else(|| text("OS_CLOUD"));
    let found = match named {
        Some(file) => Some(PathBuf::from(file)),
        None => only(in_secrets(Path::new(&secrets)))?,
    };
    let raw = match &found {
        None => env::raw(text),
        Some(file) => from_file(file, chosen.as_deref())?,
    };
    if raw.is_empty() {
        return Err(Failure::permission(format!(
            "no cloud is configured: put a Secret with the file cloud.conf or clouds.yaml into `secret-volume`, or one with \
             OS_AUTH_URL (or OS_CINDER_ENDPOINT), OS_USERNAME and so on into `secret-env`; in {} there is no such file{}",
            secrets,
            if found.is_some() { ", and the one that is named has no key that is known" } else { "" }
        )));
    }
    check::check(&raw).map_err(|problems| Failure::permission(problems.join("\n")))
}

fn from_file(file: &Path, chosen: Option<&str>) -> Result<Raw, Failure> {
    let at = file.display().to_string();
    let text = std::fs::read_to_string(file).map_err(|error| {
        Failure::permission(format!(
            "{at} cannot be read: {error}; `cloud-config` must be the path of a file of a Secret in `secret-volume`, such as \
             /etc/flex-secrets/cinder-cloud/cloud.conf"
        ))
    })?;
    let is_yaml = file.extension().is_some_and(|end| end == "yaml" || end == "yml");
    let raw = if is_yaml { yaml::raw(&text, &at, chosen) } else { file::raw(&text, &at) };
    raw.map_err(Failure::permission)
}

/// All files of known names, a directory deep.
fn in_secrets(directory: &Path) -> Vec<PathBuf> {
    let secrets = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = secrets
        .flat_map(|secret| FILES.iter().map(move |name| secret.path().join(name)))
        .filter(|file| file.is_file())
        .collect();
    files.sort();
    files
}

fn only(mut files: Vec<PathBuf>) -> Result<Option<PathBuf>, Failure> {
    if files.len() > 1 {
        let names: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
        return Err(Failure::config(format!(
            "several files could say where Cinder is: {}; name one of them in the parameter `cloud-config`",
            names.join(", ")
        )));
    }
    Ok(files.pop())
}

#[cfg(test)]
mod tests;
