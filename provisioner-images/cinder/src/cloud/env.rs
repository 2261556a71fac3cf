//! A cloud in environment variables, as the programs of OpenStack read it.

use super::raw::{Key, Raw};

/// The variables, each with its key.
pub const SPELLINGS: &[(&str, Key)] = &[
    ("OS_AUTH_URL", Key::AuthUrl),
    ("OS_USERNAME", Key::Username),
    ("OS_USER_ID", Key::UserId),
    ("OS_USERID", Key::UserId),
    ("OS_PASSWORD", Key::Password),
    ("OS_PROJECT_NAME", Key::ProjectName),
    ("OS_TENANT_NAME", Key::ProjectName),
    ("OS_PROJECT_ID", Key::ProjectId),
    ("OS_TENANT_ID", Key::ProjectId),
    ("OS_DOMAIN_NAME", Key::DomainName),
    ("OS_DOMAIN_ID", Key::DomainId),
    ("OS_USER_DOMAIN_NAME", Key::UserDomainName),
    ("OS_USER_DOMAIN_ID", Key::UserDomainId),
    ("OS_PROJECT_DOMAIN_NAME", Key::ProjectDomainName),
    ("OS_PROJECT_DOMAIN_ID", Key::ProjectDomainId),
    ("OS_APPLICATION_CREDENTIAL_ID", Key::CredentialId),
    ("OS_APPLICATION_CREDENTIAL_NAME", Key::CredentialName),
    ("OS_APPLICATION_CREDENTIAL_SECRET", Key::CredentialSecret),
    ("OS_REGION_NAME", Key::Region),
    ("OS_INTERFACE", Key::Interface),
    ("OS_ENDPOINT_TYPE", Key::Interface),
    ("OS_CACERT", Key::CaFile),
    ("OS_CINDER_ENDPOINT", Key::Endpoint),
    ("OS_AUTH_TYPE", Key::AuthType),
    ("OS_INSECURE", Key::Insecure),
];

/// Reads the cloud from the environment. `names` are those of all variables.
pub fn raw(env: impl Fn(&str) -> Option<String>, names: impl Iterator<Item = String>) -> Raw {
    let mut raw = Raw::new("the environment (Secrets of `secret-env`)", SPELLINGS);
    raw.take(env);
    raw.keep_unread(names.filter(|name| name.starts_with("OS_")));
    raw
}
